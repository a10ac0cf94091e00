"""Prompts run through a model once, and the state that decoding goes on from."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "CausalForward",
    "EncodedPrompt",
    "EncoderDecoderForward",
    "Prefix",
    "State",
    "common_length",
    "crop_cache",
    "groups",
]


# Positions that one prefill forward pass computes at most: bounds the memory of its activations.
PREFILL_POSITIONS = 16_384


class EncodedPrompt(NamedTuple):
    """A prompt as the model takes it."""

    key: bytes  # the serialised prompt, which keys its draws
    ids: tuple[int, ...] = ()  # tokens of a text prompt
    image: Any = None  # of an image prompt


class Prefix(NamedTuple):
    """Tokens that prompts share, and the model's cache of them for a batch of one."""

    ids: tuple[int, ...]
    cache: Any

    def shared_with(self, prompt: Sequence[int]) -> int:
        """Number of tokens that the prefix and `prompt` have in common."""
        return common_length(self.ids, prompt)


def groups(
    prompts: Sequence[EncodedPrompt], size: int, *, ragged: bool
) -> Iterator[list[EncodedPrompt]]:
    """Prompts to prefill together: of similar length, or of one length where not `ragged`."""
    group: list[EncodedPrompt] = []
    for prompt in sorted(prompts, key=lambda prompt: len(prompt.ids)):
        other = not ragged and group and len(group[0].ids) != len(prompt.ids)
        if len(group) == size or other:
            yield group
            group = []
        group.append(prompt)
    yield group


class State:
    """Rows at the same step of decoding: caches, masks, and the logits of their next tokens."""

    def __init__(self, logits: Tensor, cache: Any, **tensors: Any):
        self.logits = logits  # (n, V)
        self.cache = cache  # None where the model keeps none
        self.tensors = tensors  # further tensors of n rows

    def expand(self, rows: Tensor, room: int) -> State:
        """Copy of some rows, any of them several times, with room for some more tokens."""
        from sklearn_clm.generators.transformers._kv_buffer import expand_rows

        cache = None if self.cache is None else expand_rows(self.cache, rows, room)
        return State(self.logits[rows], cache, **self._picked(rows))

    def keep(self, order: Tensor) -> State:
        """Rows in a new order, as `_kv_buffer.drop_rows` takes it; `self` is used up.

        Logits are left out: the next step makes new ones.
        """
        from sklearn_clm.generators.transformers._kv_buffer import drop_rows

        if self.cache is not None:
            drop_rows(self.cache, order)
        return State(self.logits[:0], self.cache, **self._picked(order))

    def _picked(self, rows: Tensor) -> dict[str, Any]:
        return {
            name: None if tensor is None else tensor[rows] for name, tensor in self.tensors.items()
        }


def copy_for(cache: Any, n_rows: int) -> Any:
    """Copies of a cache of one row, side by side."""
    new = copy.copy(cache)
    new.layers = [copy.copy(layer) for layer in cache.layers]
    new.batch_repeat_interleave(n_rows)
    return new


def crop_cache(cache: Any, n_tokens: int) -> Any:
    """The first tokens of a cache of full attention, as a new cache over the same memory."""
    new = copy.copy(cache)
    new.layers = [copy.copy(layer) for layer in cache.layers]
    surplus = cache.get_seq_length() - n_tokens
    if surplus:
        new.crop(-surplus)
    return new


def common_length(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Length of the longest common prefix."""
    stop = min(len(a), len(b))
    if a[:stop] == b[:stop]:
        return stop
    return next(i for i in range(stop) if a[i] != b[i])


def _parameters(model: Any) -> frozenset[str]:
    return frozenset(inspect.signature(model.forward).parameters)


def _is_selectable(cache: Any) -> bool:
    """Whether rows of `cache` can be copied and dropped one by one."""
    from transformers.cache_utils import (
        Cache,
        DynamicLayer,
        EncoderDecoderCache,
        LinearAttentionCacheLayerMixin,
    )

    if isinstance(cache, EncoderDecoderCache):
        return _is_selectable(cache.self_attention_cache) and _is_selectable(
            cache.cross_attention_cache
        )
    return isinstance(cache, Cache) and all(
        isinstance(layer, DynamicLayer) and not isinstance(layer, LinearAttentionCacheLayerMixin)
        for layer in cache.layers
    )


class CausalForward:
    """Forward passes of a decoder-only model.

    Rows of a batch have prompts of different length: shorter ones are padded on the left, behind
    the prefix that all of them share. Padding is masked, and positions count real tokens only.
    """

    def __init__(self, model: Any):
        self.model = model
        parameters = _parameters(model)
        self._positions = "position_ids" in parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        self._takes_cache = "past_key_values" in parameters
        self.caches = False
        self.shares_prefix = False

    @property
    def ragged(self) -> bool:
        """Whether prompts of different length can share a batch."""
        return self.caches

    @property
    def device(self) -> torch.device:
        return self.model.get_input_embeddings().weight.device

    def probe(self, prompt: EncodedPrompt) -> None:
        """Find out whether the model's cache can be copied from row to row."""
        if not self._takes_cache or getattr(self.model, "_is_stateful", False):
            return
        ids = self._tensor([prompt.ids[:1]])
        cache = self.model(input_ids=ids, use_cache=True).get("past_key_values")
        self.caches = _is_selectable(cache) and cache.get_seq_length() == 1
        self.shares_prefix = self.caches and self._positions and not any(cache.is_sliding)

    def new_prefix(self, ids: Sequence[int]) -> Prefix:
        """Run a prefix of prompts by itself."""
        state = self._extend(self._tensor([ids]), None, None)
        return Prefix(tuple(ids), state.cache)

    def prefill(self, prompts: Sequence[EncodedPrompt], prefix: Prefix | None) -> tuple[State, int]:
        """Run `prompts` from their `prefix` on, and count the positions computed."""
        import torch

        if not self.caches:
            state = self._recompute(self._tensor([prompt.ids for prompt in prompts]))
            return state, sum(len(prompt.ids) for prompt in prompts)
        n_shared = 0 if prefix is None else len(prefix.ids)
        lengths = [len(prompt.ids) - n_shared for prompt in prompts]
        width = max(lengths)
        rows = [
            [0] * (width - length) + list(prompt.ids[n_shared:])
            for prompt, length in zip(prompts, lengths)
        ]
        mask = None
        if min(lengths) < width:
            mask = torch.ones((len(rows), n_shared + width), dtype=torch.long)
            for i, length in enumerate(lengths):
                mask[i, n_shared : n_shared + width - length] = 0
            mask = mask.to(self.device)
        cache = None
        if prefix is not None:
            cache = copy_for(prefix.cache, len(rows))
        return self._extend(self._tensor(rows), mask, cache), len(rows) * width

    def step(self, state: State, tokens: Tensor) -> State:
        """Append a token to each row."""
        import torch

        tokens = tokens.unsqueeze(1)
        if state.cache is None:
            return self._recompute(torch.cat([state.tensors["ids"], tokens], dim=1))
        mask = state.tensors["mask"]
        if mask is not None:
            mask = torch.cat([mask, mask.new_ones((len(tokens), 1))], dim=1)
        return self._extend(tokens, mask, state.cache)

    def logits_after(self, prompt: EncodedPrompt, tokens: Sequence[int]) -> Tensor:
        """Logits (1, V) after `tokens`, in a forward pass of their own without cache or padding."""
        return self._recompute(self._tensor([[*prompt.ids, *tokens]])).logits

    def _extend(self, ids: Tensor, mask: Tensor | None, cache: Any) -> State:
        n_past = 0 if cache is None else cache.get_seq_length()
        if mask is None:
            positions = n_past + _arange_like(ids)
        else:
            positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, n_past:]
        width = max(1, PREFILL_POSITIONS // len(ids))
        for first in range(0, ids.shape[1], width):
            part = slice(first, first + width)
            kwargs = {"position_ids": positions[:, part]} if self._positions else {}
            if mask is not None:
                kwargs["attention_mask"] = mask[:, : n_past + first + width]
            output = self.model(
                input_ids=ids[:, part],
                past_key_values=cache,
                use_cache=True,
                **kwargs,
                **self._last_only,
            )
            cache = output.past_key_values
        return State(output.logits[:, -1], cache, mask=mask)

    def _recompute(self, ids: Tensor) -> State:
        kwargs = {"use_cache": False} if self._takes_cache else {}
        output = self.model(input_ids=ids, **kwargs, **self._last_only)
        return State(output.logits[:, -1], None, ids=ids)

    def _tensor(self, rows: Sequence[Sequence[int]]) -> Tensor:
        import torch

        return torch.tensor(rows, dtype=torch.long, device=self.device)


class EncoderDecoderForward:
    """Forward passes of an encoder-decoder model over text or images.

    The encoder runs once for each prompt, the decoder from its start tokens on.
    """

    shares_prefix = False
    ragged = True

    def __init__(self, model: Any, start_ids: Sequence[int], images: Any = None):
        self.model = model
        self.start_ids = list(start_ids)
        self._images = images  # prompts' images -> pixel values, None for text
        self.caches = False

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def probe(self, prompt: EncodedPrompt) -> None:
        """Find out whether the model's cache can be copied from row to row."""
        if "past_key_values" not in _parameters(self.model):
            return
        encoded, mask = self._encode([prompt])
        output = self._run(self._starts(1), encoded, mask, None, use_cache=True)
        self.caches = _is_selectable(output.get("past_key_values"))

    def prefill(self, prompts: Sequence[EncodedPrompt], prefix: Prefix | None) -> tuple[State, int]:
        """Run the encoder over `prompts` and the decoder over its start tokens."""
        encoded, mask = self._encode(prompts)
        starts = self._starts(len(prompts))
        n_positions = encoded.shape[0] * encoded.shape[1] + starts.numel()
        return self._extend(starts, encoded, mask, None, None), n_positions

    def step(self, state: State, tokens: Tensor) -> State:
        """Append a token to each row."""
        old = state.tensors
        return self._extend(
            tokens.unsqueeze(1), old["encoded"], old["mask"], state.cache, old["ids"]
        )

    def logits_after(self, prompt: EncodedPrompt, tokens: Sequence[int]) -> Tensor:
        """Logits (1, V) after `tokens`, in a forward pass of their own without cache or padding."""
        import torch

        encoded, mask = self._encode([prompt])
        ids = torch.tensor([[*self.start_ids, *tokens]], device=self.device)
        return self._run(ids, encoded, mask, None, use_cache=False).logits[:, -1]

    def _extend(
        self, ids: Tensor, encoded: Tensor, mask: Tensor | None, cache: Any, past: Tensor | None
    ) -> State:
        import torch

        if not self.caches and past is not None:
            ids = torch.cat([past, ids], dim=1)
        output = self._run(ids, encoded, mask, cache, use_cache=self.caches)
        return State(
            output.logits[:, -1],
            output.past_key_values if self.caches else None,
            encoded=encoded,
            mask=mask,
            ids=None if self.caches else ids,
        )

    def _run(
        self, ids: Tensor, encoded: Tensor, mask: Tensor | None, cache: Any, *, use_cache: bool
    ) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        kwargs = {} if mask is None else {"attention_mask": mask}
        if cache is not None:
            kwargs["past_key_values"] = cache
        return self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=encoded),
            decoder_input_ids=ids,
            use_cache=use_cache,
            **kwargs,
        )

    def _encode(self, prompts: Sequence[EncodedPrompt]) -> tuple[Tensor, Tensor | None]:
        import torch

        encoder = self.model.get_encoder()
        if self._images is not None:
            pixels = self._images([prompt.image for prompt in prompts])
            return encoder(pixel_values=pixels).last_hidden_state, None
        lengths = [len(prompt.ids) for prompt in prompts]
        width = max(lengths)
        ids = torch.tensor(
            [list(prompt.ids) + [0] * (width - len(prompt.ids)) for prompt in prompts],
            device=self.device,
        )
        counts = torch.tensor(lengths, device=self.device)
        mask = (torch.arange(width, device=self.device) < counts.unsqueeze(1)).long()
        return encoder(input_ids=ids, attention_mask=mask).last_hidden_state, mask

    def _starts(self, n_rows: int) -> Tensor:
        import torch

        return torch.tensor([self.start_ids], device=self.device).repeat(n_rows, 1)


def _arange_like(ids: Tensor) -> Tensor:
    import torch

    return torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
