"""The decoding loop: keyed draws for many (prompt, draw) rows at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sklearn_clm.generators._draws import Generation, draw_stream
from sklearn_clm.generators.transformers._detokenize import Detokenizer, StopStrings
from sklearn_clm.generators.transformers._prefill import EncodedPrompt, State
from sklearn_clm.generators.transformers._truncation import choose

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Decoder", "Sampling"]


# Log-probabilities are rounded to this grid, which is coarser than the noise that the shape of a
# batch leaves in float32 and far finer than any use of them: sums over it are exact, and equal
# responses almost always carry equal log-probabilities.
LOGPROB_GRID = 2.0**-16


class Sampling(NamedTuple):
    """How tokens are drawn, and when a response ends."""

    temperature: float
    top_k: int
    top_p: float
    eos_ids: frozenset[int]
    guard: bool  # recompute a token that rounding could change


@dataclass(slots=True)
class Row:
    """One draw in the making."""

    prompt: int
    draw: int
    budget: int
    uniforms: np.ndarray
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class Decoder:
    """Decodes draws of prefilled prompts; counts the work done."""

    def __init__(
        self, forward: Any, detokenizer: Detokenizer, sampling: Sampling, stop: Sequence[str]
    ):
        self.forward = forward
        self.detokenizer = detokenizer
        self.sampling = sampling
        self.stop = StopStrings(detokenizer, stop) if stop else None
        self.n_decoded = 0
        self.n_rechecked = 0

    def decode(
        self,
        state: State,
        prompts: Sequence[EncodedPrompt],
        rows: Sequence[tuple[int, int]],
        budget: Callable[[EncodedPrompt], int],
        seed: int,
    ) -> Iterator[tuple[int, int, Generation]]:
        """Yield ``(prompt, draw, generation)`` for each of `rows`, as they finish.

        `rows` are (position in `prompts`, draw) pairs. Row by row, `state` holds `prompts`; it
        is left as it is, for further rows.
        """
        import torch

        live = []
        for i, draw in rows:
            n_tokens = budget(prompts[i])
            uniforms = draw_stream(prompts[i].key, seed, draw).random(n_tokens)
            live.append(Row(i, draw, n_tokens, uniforms))
        with torch.inference_mode():
            places = torch.tensor([i for i, _ in rows], device=state.logits.device)
            state = state.expand(places, max(row.budget for row in live))
        while True:
            tokens = self._draw(state, live, prompts)
            going = []
            for k, row in enumerate(live):
                generation = self._finished(row)
                if generation is None:
                    going.append(k)
                else:
                    yield row.prompt, row.draw, generation
            if not going:
                return
            with torch.inference_mode():
                if len(going) < len(live):
                    order = _close_gaps(going)
                    kept = torch.tensor(order, device=tokens.device)
                    state, tokens = state.keep(kept), tokens[kept]
                    live = [live[k] for k in order]
                state = self.forward.step(state, tokens)
            self.n_decoded += len(live)

    def _draw(self, state: State, live: list[Row], prompts: Sequence[EncodedPrompt]) -> Tensor:
        """Append one token to each row."""
        import torch

        with torch.inference_mode():
            step = [row.uniforms[len(row.tokens)] for row in live]
            uniforms = torch.tensor(step, dtype=torch.float64, device=state.logits.device)
            choice = self._choose(state.logits, uniforms, guard=self.sampling.guard)
            tokens, logprobs = choice.tokens.tolist(), choice.logprobs.tolist()
            if self.sampling.guard and bool(choice.doubtful.any()):
                for k in choice.doubtful.nonzero()[:, 0].tolist():
                    row = live[k]
                    logits = self.forward.logits_after(prompts[row.prompt], row.tokens)
                    settled = self._choose(logits, uniforms[k : k + 1], guard=False)
                    tokens[k], logprobs[k] = settled.tokens.item(), settled.logprobs.item()
                    self.n_rechecked += 1
            for row, token, logprob in zip(live, tokens, logprobs):
                row.tokens.append(token)
                row.logprobs.append(round(logprob / LOGPROB_GRID) * LOGPROB_GRID)
            return torch.tensor(tokens, device=state.logits.device)

    def _choose(self, logits: Tensor, uniforms: Tensor, *, guard: bool) -> Any:
        sampling = self.sampling
        return choose(
            logits,
            uniforms,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            guard=guard,
        )

    def _finished(self, row: Row) -> Generation | None:
        """The draw if its last token ends it."""
        token = row.tokens[-1]
        ended = token in self.sampling.eos_ids
        cut, text = -1, ""
        if self.stop is not None and not ended and self.stop.may_complete(token):
            text = self.detokenizer.text(row.tokens)
            cut = self.stop.find(text)
        if not ended and cut < 0 and len(row.tokens) < row.budget:
            return None
        content = row.tokens[:-1] if ended else row.tokens
        text = text or self.detokenizer.text(content)
        if self.stop is not None and cut < 0:
            cut = self.stop.find(text)
        spans = self.detokenizer.spans(content, text)
        length = len(text) if cut < 0 else cut
        if ended:
            spans.append((length, length))
        return Generation(
            response=text[:length],
            logprob=float(sum(row.logprobs)),
            n_tokens=len(row.tokens),
            token_logprobs=tuple(row.logprobs),
            token_spans=tuple((min(a, length), min(b, length)) for a, b in spans),
            finish_reason="stop" if ended or cut >= 0 else "length",
        )


def _close_gaps(going: list[int]) -> list[int]:
    """Order of the rows that go on in which few of them change place.

    >>> _close_gaps([0, 2, 3, 5])
    [0, 5, 2, 3]
    """
    n_going = len(going)
    order = list(range(n_going))
    gaps = set(order).difference(going)
    movers = going[n_going - len(gaps) :]
    for gap, mover in zip(sorted(gaps), movers):
        order[gap] = mover
    return order
