"""A cache of keys and values with room to grow, whose rows leave in place.

Imported where a model is at hand, since it needs `transformers`.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

__all__ = ["drop_rows", "expand_rows"]


class BufferLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, in memory allocated once.

    A new token is written behind the others, where the layer it replaces copies all of them; and
    a row that leaves has its place taken by the last one, where selecting copies all rows.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, layer: Any, rows: Tensor, room: int):
        super().__init__()  # type: ignore[no-untyped-call]
        self.lazy_initialization(layer.keys, layer.values)
        self._key_buffer = _buffer(layer.keys, rows, room)
        self._value_buffer = _buffer(layer.values, rows, room)
        self._look_at(layer.keys.shape[-2])

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        start = self.keys.shape[-2]
        self._look_at(start + key_states.shape[-2])
        self.keys[:, :, start:] = key_states
        self.values[:, :, start:] = value_states
        return self.keys, self.values

    def drop_rows(self, n_kept: int, moved: Tensor, places: Tensor) -> None:
        """Keep the first rows, after rows from behind them `moved` to their `places`."""
        for buffer in (self._key_buffer, self._value_buffer):
            filled = buffer[:, :, : self.keys.shape[-2]]
            filled[places] = filled[moved]
        self._key_buffer = self._key_buffer[:n_kept]
        self._value_buffer = self._value_buffer[:n_kept]
        self._look_at(self.keys.shape[-2])

    def _look_at(self, n_tokens: int) -> None:
        self.keys = self._key_buffer[:, :, :n_tokens]
        self.values = self._value_buffer[:, :, :n_tokens]


def _buffer(source: Tensor, rows: Tensor, room: int) -> Tensor:
    _, n_heads, n_tokens, width = source.shape
    buffer = source.new_empty((len(rows), n_heads, n_tokens + room, width))
    filled = buffer[:, :, :n_tokens]
    values, counts = torch.unique_consecutive(rows, return_counts=True)
    if len(values) * 4 > len(rows):
        filled.copy_(source[rows])
        return buffer
    stop = 0
    for row, count in zip(values.tolist(), counts.tolist()):  # a prompt, and its draws
        start, stop = stop, stop + count
        filled[start:stop] = source[row]
    return buffer


def expand_rows(cache: Any, rows: Tensor, room: int) -> Any:
    """Copy rows of a cache, any of them several times, with room for some more tokens."""
    new = copy.copy(cache)
    if hasattr(cache, "cross_attention_cache"):
        new.is_updated = dict(cache.is_updated)
        new.self_attention_cache = expand_rows(cache.self_attention_cache, rows, room)
        # the prompt does not grow
        new.cross_attention_cache = expand_rows(cache.cross_attention_cache, rows, 0)
        return new
    new.layers = []
    for layer in cache.layers:
        if type(layer) is DynamicLayer and layer.get_seq_length() > 0:
            new.layers.append(BufferLayer(layer, rows, room))
        else:
            selected = copy.copy(layer)
            selected.batch_select_indices(rows)
            new.layers.append(selected)
    return new


def drop_rows(cache: Any, order: Tensor) -> None:
    """Keep the rows of `order`, in place.

    ``order[i]`` is i, or a row behind all that are kept, which takes the place of row i.
    """
    if hasattr(cache, "cross_attention_cache"):
        drop_rows(cache.self_attention_cache, order)
        drop_rows(cache.cross_attention_cache, order)
        return
    places = (order != torch.arange(len(order), device=order.device)).nonzero()[:, 0]
    moved = order[places]
    for layer in cache.layers:
        if isinstance(layer, BufferLayer):
            layer.drop_rows(len(order), moved, places)
        else:
            layer.batch_select_indices(order)
