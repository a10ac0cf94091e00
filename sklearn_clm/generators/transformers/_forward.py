"""Forward passes of prompts, and of rows that grow."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from sklearn_clm.generators.transformers._batch import Batch, Layout, PromptState, layers_of
from sklearn_clm.generators.transformers._text import EncodedPrompt, common_length

# Positions that one prefill forward pass computes at most, but for a single prompt that is longer:
# bounds the memory of its activations.
PREFILL_POSITIONS = 16_384
# Padding that is cheaper than another forward pass.
FREE_POSITIONS = 8
# A shorter prefix is not worth a forward pass of its own.
MIN_PREFIX = 16
# Log-probabilities with and without padding differ by less, unless the model misplaces tokens.
PROBE_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3}
# Names of the cache among arguments and outputs: transformers 5.24 renamed it, and code that comes
# with a checkpoint may keep the earlier name.
CACHE_NAMES = ("cache", "past_key_values")


@dataclass(slots=True)
class Written:
    """A prompt with what was generated after it so far."""

    prompt: EncodedPrompt
    tokens: list[int] = field(default_factory=list)


class Prefix(NamedTuple):
    """Tokens that prompts share, with their keys and values."""

    ids: tuple[int, ...]
    packed: Sequence[Tensor]


def groups(prompts: Sequence[EncodedPrompt]) -> Iterator[list[EncodedPrompt]]:
    """Prompts of similar length, grouped for prefilling."""
    group: list[EncodedPrompt] = []
    padding = 0
    # padding costs as much as tokens: prompts of one length share a pass
    for prompt in sorted(prompts, key=lambda prompt: len(prompt.ids)):
        if group:
            padding += len(group) * (len(prompt.ids) - len(group[-1].ids))
            too_many = (len(group) + 1) * max(64, len(prompt.ids)) > PREFILL_POSITIONS
            if padding > FREE_POSITIONS or too_many:
                yield group
                group = []
                padding = 0
        group.append(prompt)
    if group:
        yield group


class Forward(ABC):
    """Forward passes of a model for the decoding loop."""

    start_ids: Sequence[int] = ()  # what a response begins with and is not generated

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.layout: Layout | None = None  # None where rows cannot be copied in the model's cache
        self.cross_layout: Layout | None = None
        self.ragged = False  # whether rows of different length may share a batch
        self._parameters = frozenset(inspect.signature(model.forward).parameters)
        names = (name for name in CACHE_NAMES if name in self._parameters)
        self._cache_name = next(names, None)

    def prefill(self, prompts: Sequence[EncodedPrompt]) -> tuple[dict[bytes, PromptState], int]:
        """Run prompts; their states by key, and the positions computed."""
        prefix, n_positions = self._shared_prefix(prompts)
        states: dict[bytes, PromptState] = {}
        for group in groups(prompts):
            states_of_group, n_computed = self._prefill(group, prefix)
            states.update((prompt.key, state) for prompt, state in zip(group, states_of_group))
            n_positions += n_computed
        return states, n_positions

    def _shared_prefix(self, prompts: Sequence[EncodedPrompt]) -> tuple[Prefix | None, int]:
        """The shared prefix, if worth it, and the positions computed."""
        return None, 0

    @abstractmethod
    def _prefill(
        self, prompts: Sequence[EncodedPrompt], prefix: Prefix | None
    ) -> tuple[list[PromptState], int]:
        """States of a group of prompts, and the positions computed."""

    @abstractmethod
    def step(self, batch: Batch, rows: Sequence[Written]) -> Tensor:
        """Logits (n, V) after each row's last token."""

    @abstractmethod
    def logits_after(self, row: Written, n_last: int = 1) -> Tensor:
        """Logits (n_last, V) at a row's end, without cache."""

    def may_share(self, a: EncodedPrompt, b: EncodedPrompt) -> bool:
        """Whether rows of two prompts can share a batch."""
        return self.ragged or len(a.ids) == len(b.ids) or bool(self.start_ids)

    def new_batch(self) -> Batch:
        """A batch without rows."""
        return Batch(self.layout, self.cross_layout)

    def check(self, prompt: EncodedPrompt) -> None:
        """Probe, by small forward passes, how the model runs.

        Raises
        ------
        ValueError
            If later tokens change what the model says of earlier ones.
        """
        embeddings: Any = self.model.get_input_embeddings()
        ids = [(7 * i + 3) % int(embeddings.num_embeddings) for i in range(10)]
        prompt, longer = (prompt._replace(ids=tuple(ids[:n])) for n in (3, 7))
        self._look_at_cache(prompt)
        # after token 5, once as the last one and once with three tokens behind it
        as_last = self.logits_after(Written(prompt, ids[:5]), 1)
        with_more_behind = self.logits_after(Written(prompt, ids[:8]), 4)
        if self._differ(as_last[0], with_more_behind[0]):
            raise ValueError(
                f"model must be causal, got a {type(self.model).__name__} in which later tokens "
                "change the probabilities of earlier ones instead."
            )
        if self.layout is not None:
            long = Written(longer, ids[5:6])
            short_row = Written(prompt, ids[4:5])
            self.ragged = self._pads_rightly(long, short_row)

    @abstractmethod
    def _look_at_cache(self, prompt: EncodedPrompt) -> None:
        """Set the layout of the model's cache, if any."""

    def _pads_rightly(self, long: Written, short: Written) -> bool:
        """Whether padding leaves a row's log-probabilities unchanged."""
        batch = self.new_batch()
        batch.admit([*self.prefill([long.prompt])[0].values()])
        self.step(batch, [long])
        batch.admit([*self.prefill([short.prompt])[0].values()])
        long.tokens.append(short.tokens[0])
        logits = self.step(batch, [long, short])
        alone = map(self.logits_after, (long, short))
        return not any(self._differ(together, each[0]) for together, each in zip(logits, alone))

    def _differ(self, a: Tensor, b: Tensor) -> bool:
        # what is no number at all is reported where tokens are drawn
        difference = a.double().softmax(-1) - b.double().softmax(-1)
        return bool(difference.abs().sum() > PROBE_TOLERANCE.get(a.dtype, 0.3))

    def _tensor(self, rows: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(rows, dtype=torch.long, device=self.model.device)


class CausalForward(Forward):
    """Forward passes of a decoder-only model.

    Prompts of different length are padded behind their last tokens when they are prefilled,
    where nothing that is causal sees it. A prefix that prompts share runs once, and is kept for
    later calls.
    """

    _prefix: Prefix | None = None

    def _shared_prefix(self, prompts: Sequence[EncodedPrompt]) -> tuple[Prefix | None, int]:
        if self.layout is None:
            return None, 0
        # what the first and the last in alphabetical order share, all between them share, too
        first = min(prompts, key=lambda prompt: prompt.ids).ids
        last = max(prompts, key=lambda prompt: prompt.ids).ids
        # the last token of a prompt is always run, for the logits of the next
        shared = min(common_length(first, last), min(len(prompt.ids) for prompt in prompts) - 1)
        kept = self._prefix
        n_kept = 0 if kept is None else min(common_length(kept.ids, first), shared)
        # a pass of its own is worth it where prompts would else repeat more tokens than it takes
        if len(prompts) * (shared - n_kept) > shared >= MIN_PREFIX and len(prompts) > 1:
            ids = first[:shared]
            tensors, _ = self._run(self._tensor([ids]), [shared - 1], None)
            self._prefix = new = Prefix(ids, self.layout.pack(tensors))
            return new, shared
        if kept is None or n_kept < MIN_PREFIX:
            return None, 0
        # what an earlier call kept, as far as these prompts begin with it
        return Prefix(first[:n_kept], [t[..., :n_kept, :] for t in kept.packed]), 0

    def _prefill(
        self, prompts: Sequence[EncodedPrompt], prefix: Prefix | None
    ) -> tuple[list[PromptState], int]:
        n_shared = 0 if prefix is None else len(prefix.ids)
        lengths = [len(prompt.ids) - n_shared for prompt in prompts]
        width = max(lengths)
        rows = []
        for prompt, n in zip(prompts, lengths):
            padding = [0] * (width - n)
            rows.append([*prompt.ids[n_shared:], *padding])
        tensors, logits = self._run(self._tensor(rows), [n - 1 for n in lengths], prefix)
        packed = []
        if self.layout is not None:
            packed = self.layout.pack([tensor[:, :, n_shared:] for tensor in tensors])
        states = [
            PromptState(
                logits[i].clone(),
                len(prompt.ids),
                () if prefix is None else prefix.packed,
                [tensor[:, i, :, :n].clone() for tensor in packed],
            )
            for i, (prompt, n) in enumerate(zip(prompts, lengths))
        ]
        return states, len(rows) * width

    def step(self, batch: Batch, rows: Sequence[Written]) -> Tensor:
        if self.layout is None:
            # rows cannot be copied in this model's cache: all tokens are run again
            ids = self._tensor([[*row.prompt.ids, *row.tokens] for row in rows])
            return self._pass(ids, logits_to_keep=1).logits[:, -1]
        output = self._pass(
            self._tensor([row.tokens[-1:] for row in rows]),
            cache=batch.cache(),
            use_cache=True,
            attention_mask=batch.mask(self.model.device),
            position_ids=self._tensor([[length] for length in batch.lengths]),
            logits_to_keep=1,
        )
        batch.stop += 1
        return output.logits[:, -1]

    def logits_after(self, row: Written, n_last: int = 1) -> Tensor:
        ids = self._tensor([[*row.prompt.ids, *row.tokens]])
        return self._pass(ids, logits_to_keep=n_last).logits[0, -n_last:]

    def _look_at_cache(self, prompt: EncodedPrompt) -> None:
        if self._cache_name is None or getattr(self.model, "_is_stateful", False):
            return
        cache = cache_of(self._pass(self._tensor([prompt.ids]), use_cache=True))
        self.layout = _layout(cache, len(prompt.ids))

    def _pass(
        self,
        ids: Tensor,
        *,
        cache: Cache | None = None,
        use_cache: bool = False,
        **arguments: object,
    ) -> Any:
        """A forward pass with the arguments that the model takes."""
        arguments["use_cache"] = use_cache
        if self._cache_name is not None:
            arguments[self._cache_name] = cache
        names_and_tensors = arguments.items()
        accepted = {k: v for k, v in names_and_tensors if v is not None and k in self._parameters}
        return self.model(input_ids=ids, **accepted)

    def _run(
        self, ids: Tensor, last: Sequence[int], prefix: Prefix | None
    ) -> tuple[list[Tensor], Tensor]:
        """Keys and values of `ids`, and each row's logits."""
        n_rows, n_tokens = ids.shape
        n_shared = 0 if prefix is None else len(prefix.ids)
        cache = None if self.layout is None else DynamicCache()
        if self.layout is not None and prefix is not None:
            # the prefix of all rows is one row in memory
            of_rows = [tensor.expand(-1, n_rows, -1, -1, -1) for tensor in prefix.packed]
            cache = self.layout.cache(of_rows)
        # logits of a row's last token alone: those of all positions would fill the memory
        at = sorted(set(last))
        positions = torch.arange(n_shared, n_shared + n_tokens, device=ids.device)
        logits = self._pass(
            ids,
            cache=cache,
            use_cache=cache is not None,
            position_ids=positions.expand(n_rows, -1),
            logits_to_keep=torch.tensor(at, device=self.model.device),
        ).logits
        if "logits_to_keep" not in self._parameters:
            logits = logits[:, at]
        logits = logits[list(range(n_rows)), [at.index(n) for n in last]]
        return [] if cache is None else layers_of(cache), logits


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
        self.start_ids = start_ids
        self._pixel_values = pixel_values  # None for text
        # a model of images hands them on to its decoder
        decoder: Any = model if pixel_values is None else model.decoder
        name = "decoder_position_ids" if pixel_values is None else "position_ids"
        self._positions = name in inspect.signature(decoder.forward).parameters

    def _prefill(
        self, prompts: Sequence[EncodedPrompt], prefix: Prefix | None
    ) -> tuple[list[PromptState], int]:
        """Run the encoder over prompts, the decoder over start tokens."""
        encoded, mask = self._encode(prompts)
        starts = self._tensor([self.start_ids] * len(prompts))
        output = self._run(starts, encoded, mask, use_cache=self.layout is not None)
        packed: list[Tensor] = []
        cross: list[Tensor] = []
        if self.layout is not None and self.cross_layout is not None:
            cache = cache_of(output)
            packed = self.layout.pack(layers_of(cache.self_attention_cache))
            cross = self.cross_layout.pack(layers_of(cache.cross_attention_cache))
        cross.append(encoded[None, :, None])
        states = []
        for i, prompt in enumerate(prompts):
            # without the padding of its group: another batch pads to another length
            n = encoded.shape[1] if mask is None else len(prompt.ids)
            suffix = [tensor[:, i].clone() for tensor in packed]
            encoded_of_row = [tensor[:, i, :, :n].clone() for tensor in cross]
            logits = output.logits[i, -1].clone()
            states.append(PromptState(logits, len(self.start_ids), (), suffix, encoded_of_row))
        return states, encoded.shape[0] * encoded.shape[1] + starts.numel()

    def step(self, batch: Batch, rows: Sequence[Written]) -> Tensor:
        encoded, cross = batch.encoded()
        mask = batch.encoded_mask(encoded.device)
        if self.layout is None or cross is None:
            # the encoder's output is kept in any case, and the decoder is run again
            ids = self._tensor([[*self.start_ids, *row.tokens] for row in rows])
            return self._run(ids, encoded, mask, use_cache=False).logits[:, -1]
        cache = EncoderDecoderCache(batch.cache(), cross)
        positions = self._tensor([[length] for length in batch.lengths])
        output = self._run(
            self._tensor([row.tokens[-1:] for row in rows]),
            encoded,
            mask,
            cache=cache,
            use_cache=True,
            decoder_attention_mask=batch.mask(encoded.device),
            decoder_position_ids=positions if self._positions else None,
        )
        batch.stop += 1
        return output.logits[:, -1]

    def logits_after(self, row: Written, n_last: int = 1) -> Tensor:
        encoded, mask = self._encode([row.prompt])
        ids = self._tensor([[*self.start_ids, *row.tokens]])
        return self._run(ids, encoded, mask, use_cache=False).logits[0, -n_last:]

    def _look_at_cache(self, prompt: EncodedPrompt) -> None:
        if self._cache_name is None:
            return
        # a first pass of the decoder shows how its cache is laid out
        encoded, mask = self._encode([prompt])
        starts = self._tensor([self.start_ids])
        cache = cache_of(self._run(starts, encoded, mask, use_cache=True))
        if isinstance(cache, EncoderDecoderCache):
            self_attention = _layout(cache.self_attention_cache, len(self.start_ids))
            cross_attention = _layout(cache.cross_attention_cache, encoded.shape[1])
            # rows are copied with both of their caches, or the decoder is run anew
            if self_attention is not None and cross_attention is not None:
                self.layout = self_attention
                self.cross_layout = cross_attention

    def _run(
        self,
        ids: Tensor,
        encoded: Tensor,
        mask: Tensor | None,
        cache: Cache | None = None,
        **kwargs: object,
    ) -> Any:
        kwargs["attention_mask"] = mask
        if self._cache_name is not None:
            kwargs[self._cache_name] = cache
        arguments = {name: value for name, value in kwargs.items() if value is not None}
        output = BaseModelOutput(last_hidden_state=encoded)
        return self.model(encoder_outputs=output, decoder_input_ids=ids, **arguments)

    def _encode(self, prompts: Sequence[EncodedPrompt]) -> tuple[Tensor, Tensor | None]:
        encoder = self.model.get_encoder()
        if self._pixel_values is not None:
            pixels = self._pixel_values([prompt.image for prompt in prompts])
            return encoder(pixel_values=pixels).last_hidden_state, None
        lengths = [len(prompt.ids) for prompt in prompts]
        width = max(lengths)
        rows = []
        for prompt in prompts:
            padding = [0] * (width - len(prompt.ids))
            rows.append([*prompt.ids, *padding])
        ids = self._tensor(rows)
        counts = torch.tensor(lengths, device=self.model.device)
        mask = (torch.arange(width, device=self.model.device) < counts.unsqueeze(1)).long()
        return encoder(input_ids=ids, attention_mask=mask).last_hidden_state, mask


def cache_of(output: Any) -> Any:
    """The cache that a model returns, by whichever name."""
    return next((output[name] for name in CACHE_NAMES if name in output), None)


def _layout(cache: Any, n_tokens: int) -> Layout | None:
    """Layout of a cache with rows to copy, if any."""
    tensors = layers_of(cache) if isinstance(cache, Cache) else []
    fits = {tensor.shape[-2] for tensor in tensors} == {n_tokens}
    return Layout(tensors) if fits else None
