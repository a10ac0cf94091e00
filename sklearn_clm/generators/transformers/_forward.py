"""Forward passes: prompts run through a model once, rows that grow token by token."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from sklearn_clm.generators.transformers._batch import Batch, Layout, PromptState, layers_of
from sklearn_clm.generators.transformers._encoding import EncodedPrompt

# Positions that one prefill forward pass computes at most: bounds the memory of its activations.
PREFILL_POSITIONS = 16_384
# Padding that is cheaper than another forward pass.
FREE_POSITIONS = 8
# Log-probabilities with and without padding differ by less, unless the model misplaces tokens.
PROBE_TOLERANCE = {"float64": 1e-5, "float32": 1e-3}


class Prefix(NamedTuple):
    """Tokens that prompts share, and the model's packed keys and values of them, in one row."""

    ids: tuple[int, ...]
    packed: Sequence[Tensor]

    def first(self, n_tokens: int) -> Prefix:
        """The first tokens, over the same memory."""
        return Prefix(self.ids[:n_tokens], [t[..., :n_tokens, :] for t in self.packed])


def groups(prompts: Sequence[EncodedPrompt], long_after: float) -> Iterator[list[EncodedPrompt]]:
    """Prompts to prefill together: of similar length, short or long alike, and not too many."""
    group: list[EncodedPrompt] = []
    padding = 0
    for prompt in sorted(prompts, key=lambda prompt: len(prompt.ids)):
        if group:
            padding += len(group) * (len(prompt.ids) - len(group[-1].ids))
            too_many = (len(group) + 1) * max(64, len(prompt.ids)) > PREFILL_POSITIONS
            first_long = len(group[-1].ids) <= long_after < len(prompt.ids)
            if padding > FREE_POSITIONS or too_many or first_long:
                yield group
                group, padding = [], 0
        group.append(prompt)
    if group:
        yield group


class Written(NamedTuple):
    """A prompt with what was generated after it so far."""

    prompt: EncodedPrompt
    tokens: Sequence[int]


class Forward(ABC):
    """What the decoding loop asks of a model; a subclass for each kind of model."""

    start_ids: Sequence[int] = ()  # what a response begins with and is not generated

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.layout: Layout | None = None  # None where rows cannot be copied in the model's cache
        self.cross_layout: Layout | None = None
        self.ragged = False  # whether rows of different length may share a batch
        self.long_after = _long_after(model.config.get_text_config(decoder=True))

    @property
    def device(self) -> torch.device:
        """Where tokens go."""
        embeddings: Any = self.model.get_input_embeddings()
        weight: Tensor = embeddings.weight
        return weight.device

    @abstractmethod
    def prefill(
        self, prompts: Sequence[EncodedPrompt], prefix: Prefix | None
    ) -> tuple[list[PromptState], int]:
        """Run `prompts`, from their `prefix` on; the states, and the positions computed."""

    @abstractmethod
    def step(self, batch: Batch, rows: Sequence[Written]) -> Tensor:
        """Logits (n, V) after the last token of each row, which was not yet run."""

    @abstractmethod
    def logits_after(self, row: Written) -> Tensor:
        """Logits (1, V) after a row's tokens, in a forward pass without cache or padding."""

    @abstractmethod
    def all_logits(self, ids: Tensor) -> Tensor:
        """Logits (1, n, V) of a sequence of tokens, by themselves."""

    def may_share(self, a: EncodedPrompt, b: EncodedPrompt) -> bool:
        """Whether rows that begin with these can be decoded in step."""
        if not self.ragged:
            return len(a.ids) == len(b.ids) or bool(self.start_ids)
        return (len(a.ids) > self.long_after) == (len(b.ids) > self.long_after)

    def new_batch(self) -> Batch:
        """A batch without rows."""
        return Batch(self.layout, self.cross_layout)

    def check(self, prompt: EncodedPrompt) -> None:
        """Find out by a few small forward passes how the model may be run.

        Raises
        ------
        ValueError
            If later tokens change what the model says of earlier ones.
        """
        embeddings: Any = self.model.get_input_embeddings()
        size = int(embeddings.num_embeddings)
        ids = [(7 * i + 3) % size for i in range(8)]
        short, whole = (self.all_logits(self._tensor([ids[:n]])) for n in (5, 8))
        if self._differ(short[0, -1], whole[0, 4]):
            raise ValueError(
                f"model must be causal, got a {type(self.model).__name__} in which later tokens "
                "change the probabilities of earlier ones instead."
            )
        if self.layout is not None:
            self.ragged = self._pads_rightly(prompt, ids)

    def _pads_rightly(self, prompt: EncodedPrompt, ids: list[int]) -> bool:
        """Whether a row that joins a longer one gets the log-probabilities it has alone."""
        long, short = (prompt._replace(ids=tuple(ids[:n])) for n in (7, 3))
        batch = self.new_batch()
        batch.admit(self.prefill([long], None)[0])
        self.step(batch, [Written(long, ids[5:6])])
        batch.admit(self.prefill([short], None)[0])
        rows = [Written(long, ids[5:7]), Written(short, ids[4:5])]
        logits = self.step(batch, rows)
        pairs = zip(logits, rows)
        return not any(self._differ(found, self.logits_after(row)[0]) for found, row in pairs)

    def _differ(self, a: Tensor, b: Tensor) -> bool:
        # what is no number at all is reported where tokens are drawn
        tolerance = PROBE_TOLERANCE.get(str(a.dtype).removeprefix("torch."), 0.3)
        difference = a.double().softmax(-1) - b.double().softmax(-1)
        return bool(difference.abs().sum() > tolerance)

    def _tensor(self, rows: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(rows, dtype=torch.long, device=self.device)


class CausalForward(Forward):
    """Forward passes of a decoder-only model.

    Prompts of different length are padded behind their last tokens when they are prefilled,
    where nothing that is causal sees it.
    """

    def __init__(self, model: PreTrainedModel):
        super().__init__(model)
        parameters = _parameters(model)
        self._positions = "position_ids" in parameters
        self._keeps = "logits_to_keep" in parameters
        self._takes_cache = "past_key_values" in parameters

    def check(self, prompt: EncodedPrompt) -> None:
        if self._takes_cache and not getattr(self.model, "_is_stateful", False):
            ids = self._tensor([prompt.ids[:1]])
            cache = self.model(input_ids=ids, use_cache=True).get("past_key_values")
            self.layout = _layout(cache, 1)
        super().check(prompt)

    def new_prefix(self, ids: Sequence[int]) -> Prefix:
        """Run a prefix of prompts by itself."""
        if self.layout is None:
            raise TypeError(
                f"{type(self.model).__name__} keeps no cache that a prefix could be in."
            )
        tensors, _ = self._run(self._tensor([ids]), [len(ids) - 1], None)
        return Prefix(tuple(ids), self.layout.pack(tensors))

    def prefill(
        self, prompts: Sequence[EncodedPrompt], prefix: Prefix | None
    ) -> tuple[list[PromptState], int]:
        n_shared = 0 if prefix is None else len(prefix.ids)
        lengths = [len(prompt.ids) - n_shared for prompt in prompts]
        width = max(lengths)
        rows = [[*p.ids[n_shared:], *[0] * (width - n)] for p, n in zip(prompts, lengths)]
        tensors, logits = self._run(self._tensor(rows), [n - 1 for n in lengths], prefix)
        packed = self.layout.pack([t[:, :, n_shared:] for t in tensors]) if self.layout else []
        states = [
            PromptState(
                logits[i],
                len(prompt.ids),
                () if prefix is None else prefix.packed,
                [tensor[:, i, :, :n].clone() for tensor in packed],
            )
            for i, (prompt, n) in enumerate(zip(prompts, lengths))
        ]
        return states, len(rows) * width

    def step(self, batch: Batch, rows: Sequence[Written]) -> Tensor:
        if self.layout is None:
            return self._last_logits(self._tensor([[*p.ids, *tokens] for p, tokens in rows]))
        mask = batch.mask(self.device)
        kwargs: dict[str, object] = {} if mask is None else {"attention_mask": mask}
        if self._positions:
            kwargs["position_ids"] = self._tensor([[length] for length in batch.lengths])
        if self._keeps:
            kwargs["logits_to_keep"] = 1
        ids = self._tensor([row.tokens[-1:] for row in rows])
        cache = batch.cache()
        output = self.model(input_ids=ids, past_key_values=cache, use_cache=True, **kwargs)
        batch.advance()
        return output.logits[:, -1]

    def logits_after(self, row: Written) -> Tensor:
        return self._last_logits(self._tensor([[*row.prompt.ids, *row.tokens]]))

    def all_logits(self, ids: Tensor) -> Tensor:
        return self.model(input_ids=ids, **self._without_cache).logits

    def _last_logits(self, ids: Tensor) -> Tensor:
        kwargs = {"logits_to_keep": 1} if self._keeps else {}
        return self.model(input_ids=ids, **self._without_cache, **kwargs).logits[:, -1]

    @property
    def _without_cache(self) -> dict[str, bool]:
        return {"use_cache": False} if self._takes_cache else {}

    def _run(
        self, ids: Tensor, last: Sequence[int], prefix: Prefix | None
    ) -> tuple[list[Tensor], Tensor]:
        """Keys and values of `ids` behind a prefix, and each row's logits at position `last`."""
        n_rows, n_tokens = ids.shape
        n_shared = 0 if prefix is None else len(prefix.ids)
        cache = None
        if self.layout is not None and prefix is not None:
            cache = self.layout.cache([t.expand(-1, n_rows, -1, -1, -1) for t in prefix.packed])
        elif self.layout is not None:
            cache = DynamicCache()
        # a very long prompt, which is a group by itself, runs in parts, unless they were short rows
        in_parts = cache is not None and n_rows == 1 and n_shared + n_tokens <= self.long_after
        width = PREFILL_POSITIONS if in_parts else n_tokens
        for first in range(0, n_tokens, width):
            part = ids[:, first : first + width]
            at = sorted(set(last)) if n_rows > 1 else [part.shape[1] - 1]
            kwargs: dict[str, object] = dict(self._without_cache)
            if cache is not None:
                kwargs = {"past_key_values": cache, "use_cache": True}
            if self._positions:
                positions = torch.arange(part.shape[1], device=ids.device) + n_shared + first
                kwargs["position_ids"] = positions.expand(n_rows, -1)
            if self._keeps:
                kwargs["logits_to_keep"] = torch.tensor(at, device=self.model.device)
            output = self.model(input_ids=part, **kwargs).logits
            logits = output if self._keeps else output[:, at]
        columns = [at.index(n) for n in last] if n_rows > 1 else [0]
        rows = [logits[i, column].clone() for i, column in enumerate(columns)]
        return [] if cache is None else layers_of(cache), torch.stack(rows)


class EncoderDecoderForward(Forward):
    """Forward passes of an encoder-decoder model over text or images.

    The encoder runs once for each prompt, the decoder from its start tokens on.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        start_ids: Sequence[int],
        pixel_values: Callable[[Sequence[object]], Tensor] | None = None,
    ):
        super().__init__(model)
        self.start_ids = list(start_ids)
        self._pixel_values = pixel_values  # None for text
        decoder = getattr(model, "decoder", None)
        self._positions = "decoder_position_ids" in _parameters(model) or (
            pixel_values is not None and "position_ids" in _parameters(decoder)
        )

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def check(self, prompt: EncodedPrompt) -> None:
        self._probe = prompt
        if "past_key_values" in _parameters(self.model):
            encoded, mask = self._encode([prompt])
            starts = self._tensor([self.start_ids])
            cache = self._run(starts, encoded, mask, use_cache=True).get("past_key_values")
            if isinstance(cache, EncoderDecoderCache):
                self.layout = _layout(cache.self_attention_cache, len(self.start_ids))
                self.cross_layout = _layout(cache.cross_attention_cache, None)
            if self.layout is None or self.cross_layout is None:
                self.layout = self.cross_layout = None
        super().check(prompt)

    def prefill(
        self, prompts: Sequence[EncodedPrompt], prefix: Prefix | None
    ) -> tuple[list[PromptState], int]:
        """Run the encoder over `prompts` and the decoder over its start tokens."""
        encoded, mask = self._encode(prompts)
        starts = self._tensor([self.start_ids] * len(prompts))
        output = self._run(starts, encoded, mask, use_cache=self.layout is not None)
        packed: list[Tensor] = []
        cross: list[Tensor] = []
        if self.layout is not None and self.cross_layout is not None:
            cache = output.past_key_values
            packed = self.layout.pack(layers_of(cache.self_attention_cache))
            cross = self.cross_layout.pack(layers_of(cache.cross_attention_cache))
        cross.append(encoded[None, :, None])
        states = []
        for i, prompt in enumerate(prompts):
            n = encoded.shape[1] if mask is None else len(prompt.ids)
            own = [tensor[:, i].clone() for tensor in packed]
            others = [tensor[:, i, :, :n].clone() for tensor in cross]
            logits = output.logits[i, -1].clone()
            states.append(PromptState(logits, len(self.start_ids), (), own, others))
        return states, encoded.shape[0] * encoded.shape[1] + starts.numel()

    def step(self, batch: Batch, rows: Sequence[Written]) -> Tensor:
        encoded, cross = batch.encoded()
        mask = batch.encoded_mask(encoded.device)
        if self.layout is None or cross is None:
            ids = self._tensor([[*self.start_ids, *row.tokens] for row in rows])
            return self._run(ids, encoded, mask, use_cache=False).logits[:, -1]
        kwargs: dict[str, object] = {}
        own_mask = batch.mask(encoded.device)
        if own_mask is not None:
            kwargs["decoder_attention_mask"] = own_mask
        if self._positions:
            kwargs["decoder_position_ids"] = self._tensor([[length] for length in batch.lengths])
        cache = EncoderDecoderCache(batch.cache(), cross)
        ids = self._tensor([row.tokens[-1:] for row in rows])
        output = self._run(ids, encoded, mask, past_key_values=cache, use_cache=True, **kwargs)
        batch.advance()
        return output.logits[:, -1]

    def logits_after(self, row: Written) -> Tensor:
        encoded, mask = self._encode([row.prompt])
        ids = self._tensor([[*self.start_ids, *row.tokens]])
        return self._run(ids, encoded, mask, use_cache=False).logits[:, -1]

    def all_logits(self, ids: Tensor) -> Tensor:
        encoded, _ = self._encode([self._probe])
        encoded = encoded.expand(len(ids), -1, -1).contiguous()  # cross-attention may view it
        return self._run(ids, encoded, None, use_cache=False).logits

    def _run(self, ids: Tensor, encoded: Tensor, mask: Tensor | None, **kwargs: object) -> Any:
        if mask is not None:
            kwargs["attention_mask"] = mask
        output = BaseModelOutput(last_hidden_state=encoded)
        return self.model(encoder_outputs=output, decoder_input_ids=ids, **kwargs)

    def _encode(self, prompts: Sequence[EncodedPrompt]) -> tuple[Tensor, Tensor | None]:
        encoder = self.model.get_encoder()
        if self._pixel_values is not None:
            pixels = self._pixel_values([prompt.image for prompt in prompts])
            return encoder(pixel_values=pixels).last_hidden_state, None
        lengths = [len(prompt.ids) for prompt in prompts]
        width = max(lengths)
        ids = self._tensor([[*p.ids, *[0] * (width - len(p.ids))] for p in prompts])
        counts = torch.tensor(lengths, device=self.device)
        mask = (torch.arange(width, device=self.device) < counts.unsqueeze(1)).long()
        return encoder(input_ids=ids, attention_mask=mask).last_hidden_state, mask


def _long_after(config: Any) -> float:
    """Length of a row beyond which LongRoPE turns all its tokens by other angles.

    The library looks at the longest row of a forward pass, so short rows must not run beside
    long ones, and keys that were computed in a short row are of no use once it is long.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    by_kind_of_layer = [value for value in rope.values() if isinstance(value, dict)]
    limits = [
        parameters["original_max_position_embeddings"]
        for parameters in (rope, *by_kind_of_layer)
        if parameters.get("rope_type") == "longrope"
    ]
    return min(limits, default=math.inf)


def _parameters(model: object) -> frozenset[str]:
    forward = getattr(model, "forward", None)
    return frozenset(() if forward is None else inspect.signature(forward).parameters)


def _layout(cache: Any, n_tokens: int | None) -> Layout | None:
    """Where keys and values lie in a cache whose rows can be copied; None for any other."""
    tensors = layers_of(cache) if isinstance(cache, Cache) else []
    lengths = {tensor.shape[-2] for tensor in tensors}
    if len(lengths) != 1 or (n_tokens is not None and lengths != {n_tokens}):
        return None
    return Layout(cache)
