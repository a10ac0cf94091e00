"""Keys and values of rows, and of waiting prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer


class Layout:
    """Few tensors of all keys and values, by head shape.

    A packed tensor has the shape (layers, rows, heads, tokens, width): one copy moves a row of
    all layers.
    """

    def __init__(self, tensors: Sequence[Tensor]):
        kinds: dict[tuple[int, int, torch.device], list[int]] = {}
        self._places: list[tuple[int, int]] = []
        for i, tensor in enumerate(tensors):
            kind = (tensor.shape[1], tensor.shape[3], tensor.device)
            members = kinds.setdefault(kind, [])
            self._places.append((list(kinds).index(kind), len(members)))
            members.append(i)
        self._members = list(kinds.values())

    def pack(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Pack keys and values of all layers."""
        return [torch.stack([tensors[i] for i in members]) for members in self._members]

    def unpack(self, packed: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Views of the keys and values of each layer."""
        tensors = [packed[kind][i] for kind, i in self._places]
        return list(zip(tensors[::2], tensors[1::2]))

    def cache(self, packed: Sequence[Tensor]) -> DynamicCache:
        """A cache of the library over packed keys and values."""
        cache = DynamicCache()
        for keys, values in self.unpack(packed):
            layer = DynamicLayer()  # type: ignore[no-untyped-call]
            layer.lazy_initialization(keys, values)
            layer.keys = keys
            layer.values = values
            cache.layers.append(layer)
        return cache


def layers_of(cache: Cache) -> list[Tensor]:
    """Keys and values, layer by layer; none if not plain."""
    tensors: list[Tensor] = []
    for layer in cache.layers:
        # no other subclass, which may keep them otherwise
        plain = type(layer) in (DynamicLayer, DynamicSlidingWindowLayer)
        if not (plain and isinstance(layer, DynamicLayer) and layer.get_seq_length()):
            return []
        if layer.keys is None or layer.values is None:
            return []
        tensors += [layer.keys, layer.values]
    return tensors


class PromptState(NamedTuple):
    """What decoding a draw of a prompt begins with."""

    logits: Tensor  # (V,) of the first token
    length: int  # positions of the decoder, those of the prefix included
    prefix: Sequence[Tensor] = ()  # packed, one row: shared with other prompts
    suffix: Sequence[Tensor] = ()  # packed, without rows: what follows the prefix
    encoded: Sequence[Tensor] = ()  # packed likewise: cross-attention, and the encoder's output

    @property
    def n_bytes(self) -> int:
        """Memory that is not shared."""
        return sum(tensor.nbytes for tensor in (self.logits, *self.suffix, *self.encoded))


class _WindowLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """A layer with room for the next tokens."""

    keys: Tensor
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor):
        super().__init__()  # type: ignore[no-untyped-call]
        self.lazy_initialization(keys, values)
        self._memory = keys, values  # with room; the attributes show what is in use

    def look_at(self, n_rows: int, start: int, stop: int) -> None:
        """Show the library the rows and slots in use."""
        self._rows = n_rows
        self._start = start
        self._stop = stop
        keys, values = self._memory
        self.keys = keys[:n_rows, :, start:stop]
        self.values = values[:n_rows, :, start:stop]

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write new keys and values behind those in use.

        A model of the library calls it in each layer, with arguments that other caches need.
        """
        stop = self._stop + key_states.shape[-2]
        for tensor, new in zip(self._memory, (key_states, value_states)):
            tensor[: self._rows, :, self._stop : stop] = new
        self.look_at(self._rows, self._start, stop)
        return self.keys, self.values


class Batch:
    """Rows that are decoded together, each at its own length.

    Rows end at one slot and are masked before they begin, so that distances between a row's
    tokens are distances between slots, whatever the architecture makes of them. The slots in
    use move to the right with every token; when memory ends there, what is in use moves back, or
    to larger memory.
    """

    def __init__(self, layout: Layout | None, cross: Layout | None = None):
        self.layout = layout  # None where there is nothing to keep but lengths
        self.cross_layout = cross
        self.stop = 0  # slots before this one are in use
        self.starts: list[int] = []  # of each row its first slot
        self._packed: list[Tensor] = []
        self._layers: list[_WindowLayer] = []
        self._encoded: list[Tensor] = []
        self._encoded_lengths: list[int] = []

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row in the cache."""
        return [self.stop - start for start in self.starts]

    def admit(self, states: Sequence[PromptState]) -> None:
        """Let prompts take rows after the last."""
        first = len(self)
        n_rows = len(self) + len(states)
        longest = max(*(state.length for state in states), *self.lengths, 0)
        self._make_room(n_rows, longest, states[0].suffix)
        for row, state in enumerate(states, first):
            # all rows end at one slot, so that the next token of each goes to the same place
            start = self.stop - state.length
            self.starts.append(start)
            for k, suffix in enumerate(state.suffix):
                middle = self.stop - suffix.shape[-2]
                if state.prefix:
                    self._packed[k][:, row, :, start:middle] = state.prefix[k][:, 0]
                self._packed[k][:, row, :, middle : self.stop] = suffix
        if states[0].encoded:
            self._admit_encoded(first, states)

    def drop(self, order: Sequence[int]) -> None:
        """Keep the rows of `order`."""
        places = [i for i, row in enumerate(order) if i != row]
        if places:
            # only rows that move are copied, and of them the slots in use alone
            rows = [order[i] for i in places]
            used = slice(min(self.starts), self.stop)
            for packed in self._packed:
                packed[:, places, :, used] = packed[:, rows, :, used]
            for packed in self._encoded:
                packed[:, places] = packed[:, rows]
        self.starts = [self.starts[row] for row in order]
        if self._encoded:
            self._encoded_lengths = [self._encoded_lengths[row] for row in order]

    def cache(self) -> DynamicCache:
        """The library's cache of all rows, with one free slot."""
        self._make_room(len(self), max(self.lengths), self._packed)
        cache = DynamicCache()
        cache.layers = list(self._layers)
        for layer in self._layers:
            layer.look_at(len(self), min(self.starts), self.stop)
        return cache

    def encoded(self) -> tuple[Tensor, DynamicCache | None]:
        """The encoder's output of each row, and its cache."""
        width = max(self._encoded_lengths)
        *cross, output = (tensor[:, : len(self), :, :width] for tensor in self._encoded)
        cache = None if self.cross_layout is None else self.cross_layout.cache(cross)
        return output[0, :, 0], cache

    def mask(self, device: torch.device) -> Tensor | None:
        """Which slots each row uses; None for all."""
        first = min(self.starts)
        if first == max(self.starts):
            return None
        starts = torch.tensor(self.starts, device=device).unsqueeze(1)
        return (torch.arange(first, self.stop + 1, device=device) >= starts).long()

    def encoded_mask(self, device: torch.device) -> Tensor | None:
        """Which encoder tokens each row has; None for all."""
        width = max(self._encoded_lengths)
        if width == min(self._encoded_lengths):
            return None
        lengths = torch.tensor(self._encoded_lengths, device=device).unsqueeze(1)
        return (torch.arange(width, device=device) < lengths).long()

    def _make_room(self, n_rows: int, longest: int, like: Sequence[Tensor]) -> None:
        """Have memory for rows of `longest` slots and one."""
        if self.layout is None:
            self.stop = max(self.stop, longest)
            return
        _, rows, _, slots, _ = self._packed[0].shape if self._packed else (0,) * 5
        if n_rows <= rows and longest <= self.stop < slots:
            return
        # what is in use is to end at slot `longest`: in the same memory where that has room for
        # some tokens more, or else in larger memory
        used = slice(min(self.starts, default=self.stop), self.stop)
        first = longest - (used.stop - used.start)
        if n_rows <= rows and longest + max(16, longest // 8) <= slots:
            for part in (layer for packed in self._packed for layer in packed):  # slots overlap
                part[:, :, first:longest] = part[:, :, used].clone()
        else:
            # more than is needed now, so that rows which grow are not copied at each token
            new = [_zeros(t, max(rows, n_rows), longest + max(32, longest // 4)) for t in like]
            for buffer, old in zip(new, self._packed):
                buffer[:, : len(self), :, first:longest] = old[:, : len(self), :, used]
            self._packed = new
            self._layers = [_WindowLayer(*pair) for pair in self.layout.unpack(new)]
        self.starts = [start + longest - self.stop for start in self.starts]
        self.stop = longest

    def _admit_encoded(self, first: int, states: Sequence[PromptState]) -> None:
        """Write what the encoder made of new prompts."""
        self._encoded_lengths += [state.encoded[-1].shape[-2] for state in states]
        width = max(self._encoded_lengths)
        _, rows, _, slots, _ = self._encoded[0].shape if self._encoded else (0,) * 5
        if rows < len(self) or slots < width:
            old = self._encoded
            n_rows = max(rows, len(self))
            n_slots = max(slots, width)
            self._encoded = [_zeros(t, n_rows, n_slots) for t in states[0].encoded]
            for buffer, tensor in zip(self._encoded, old):
                buffer[:, :rows, :, :slots] = tensor
        for row, state in enumerate(states, first):
            for buffer, tensor in zip(self._encoded, state.encoded):
                buffer[:, row, :, : tensor.shape[-2]] = tensor


def _zeros(like: Tensor, n_rows: int, n_slots: int) -> Tensor:
    """Memory for rows of packed keys or values."""
    # whatever stood here would be multiplied by zero: not a number must not
    n_layers = like.shape[0]
    heads = like.shape[-3]
    width = like.shape[-1]
    return like.new_zeros((n_layers, n_rows, heads, n_slots, width))
