"""The decoding loop: keyed draws of many prompts, without barriers.

The library loads models, runs their forward passes, builds masks and positions, tokenizes and
decodes. Its own generation is not used, for three things that it lacks:

- Keyed draws. It samples from one global random state, so that a response depends on what is drawn
  beside it; here each token inverts its distribution at a uniform number of its own.
- The same tokens in any batch. Where rounding, which depends on the shape of a batch, could
  change a token, a forward pass of its own decides (about 3 in 1,000 tokens of small models).
- A prompt runs through the model once for all its draws, at whatever time they are asked for;
  `generate` prefills it for every call, and waits for the longest response of a batch.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, thread_time

import numpy as np
import torch
from torch import Tensor

from sklearn_clm.generators.draws import Generation, draw_stream
from sklearn_clm.generators.queue import DrawQueue, DrawRequest
from sklearn_clm.generators.transformers._ahead import AheadPlan
from sklearn_clm.generators.transformers._batch import Batch, PromptState
from sklearn_clm.generators.transformers._checkpoint import Checkpoint
from sklearn_clm.generators.transformers._forward import Written
from sklearn_clm.generators.transformers._text import EncodedPrompt, first_of
from sklearn_clm.generators.transformers._tokens import choose

# Prompts that are open at once, for each row of the batch: new ones are prefilled together.
OPEN_PER_ROW = 4


@dataclass(slots=True, kw_only=True)
class Row(Written):
    """One draw in the making."""

    index: int
    draw: int
    uniforms: np.ndarray  # one for each token of its budget
    logprobs: list[float] = field(default_factory=list)
    is_finished: bool = False


class Engine:
    """Makes the draws of a queue; counts the work."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        queue: DrawQueue,
        encode: Callable[[int], EncodedPrompt],  # by the position in the queue
        *,
        temperature: float,
        top_k: int,
        top_p: float,
        stop: Sequence[str],
        max_new_tokens: int,
        batch_size: int,  # rows decoded at once
    ):
        self.checkpoint = checkpoint
        self.queue = queue
        self.forward = checkpoint.forward(encode(0))
        self.detokenizer = checkpoint.detokenizer
        special = self.detokenizer.special_tokens
        self.stop = [string for string in stop if string not in special]
        # tokens that hold any of them whole: each a byte or more, and some for odd first ones
        self.n_tail = 8 + max((len(string.encode()) for string in self.stop), default=0)
        self.end_ids = {*checkpoint.eos_ids, *(special[s] for s in stop if s in special)}
        self.max_new_tokens = max_new_tokens
        self.batch_size = batch_size
        # for the states of open prompts
        self.max_bytes = free_bytes(self.forward.model.device) // 4
        self.n_prefilled = 0
        self.n_decoded = 0
        self.n_begun = 0
        self.n_given_up = 0
        # rounding is small enough to know which tokens change
        self._is_exact = checkpoint.model.dtype in (torch.float32, torch.float64)
        self._encode = encode
        self._choose = partial(choose, temperature=temperature, top_k=top_k, top_p=top_p)
        self._seconds = clock_of(self.forward.model.device)
        self._plan = AheadPlan(checkpoint.step_times, batch_size)
        # draws that had been put, and version of times, when no further draw ahead was worth it
        self._settled_at = (-1, -1)
        self._prompts: dict[int, EncodedPrompt] = {}  # of prompts that are open
        self._alike: dict[bytes, set[int]] = {}  # which of them have this key
        self._with_news: set[bytes] = set()  # keys of prompts that may be closed by now
        self._states: OrderedDict[bytes, PromptState] = OrderedDict()  # least recently used first
        self._n_bytes = 0  # of these states
        self._largest = 0  # of the states so far, in bytes
        # draws that were taken and wait for a row
        self._pending: deque[tuple[int, int, EncodedPrompt]] = deque()

    def run(self) -> None:
        """Put draws into the queue as they are finished."""
        batch = self.forward.new_batch()
        rows: list[Row] = []
        while True:
            fresh = self._next_draws(rows)
            rows += fresh
            if not rows:
                return
            with torch.inference_mode():
                if fresh:
                    states = self._states_of(fresh)
                    batch.admit(states)
                    self._append_tokens(torch.stack([state.logits for state in states]), fresh)
                    del states
                else:
                    self._step(batch, rows)
            self._put_finished(fresh or rows)
            # the rule decides on many prompts at once where no row depends on it
            if any(row.prompt.key in self._with_news and not row.is_finished for row in rows):
                self._forget_closed()
            going = [k for k, row in enumerate(rows) if self._goes_on(row)]
            if len(going) < len(rows):
                order = _close_gaps(going)
                rows = [rows[k] for k in order]
                with torch.inference_mode():
                    batch.drop(order)

    def _step(self, batch: Batch, rows: Sequence[Row]) -> None:
        """Append a token to all rows, and time it."""
        start = self._seconds()
        self._append_tokens(self.forward.step(batch, rows), rows)
        self.n_decoded += len(rows)
        self.checkpoint.step_times.add(len(rows), self._seconds() - start)

    def _put_finished(self, rows: Sequence[Row]) -> None:
        """Hand in the draws that are complete."""
        for row in rows:
            generation = self._finished(row)
            if generation is not None:
                self.queue.put(row.index, row.draw, generation)
                row.is_finished = True
                self._with_news.add(row.prompt.key)

    def _goes_on(self, row: Row) -> bool:
        """Whether a row goes on; given up where nobody waits."""
        if row.is_finished:
            return False
        if row.index in self._prompts or not self.queue.give_up(row.index, row.draw):
            return True
        self.n_given_up += 1
        return False

    def _forget_closed(self) -> None:
        """Forget prompts that are closed by now."""
        for key in self._with_news & self._alike.keys():
            alike = self._alike[key]
            for index in [i for i in alike if not self.queue.is_open(i)]:
                alike.remove(index)
                del self._prompts[index]
            if not alike:
                del self._alike[key]
                state = self._states.pop(key, None)
                self._n_bytes -= 0 if state is None else state.n_bytes
        self._with_news.clear()

    def _next_draws(self, live: list[Row]) -> list[Row]:
        """Draws that join the `live` rows now."""
        # rows of one length go through the model together, and end together
        if live and not self.forward.ragged:
            return []
        chosen: list[Row] = []
        n_free = self.batch_size - len(live)
        while len(chosen) < n_free:
            if not self._pending and not self._take(n_free - len(chosen)):
                break
            index, draw, prompt = self._pending[0]
            if prompt.key in self._with_news:
                self._forget_closed()
            if index not in self._prompts and self.queue.give_up(index, draw):
                self._pending.popleft()
                continue
            beside = (live or chosen)[:1]
            if beside and not self.forward.may_share(beside[0].prompt, prompt):
                break
            self._pending.popleft()
            chosen.append(self._row(index, draw, prompt))
        return chosen

    def _take(self, n_ahead: int) -> bool:
        """Take draws that are wanted, or else worth it."""
        self._forget_closed()
        n_open = min(self._n_fitting(self.max_bytes), OPEN_PER_ROW * self.batch_size)
        n_open = max(self.batch_size, n_open)
        requests = self.queue.take(max_prompts=n_open)
        state = self.queue.n_put, self.checkpoint.step_times.version
        if not requests and state != self._settled_at:
            requests = self._take_ahead(n_ahead)
            self._settled_at = state
        for request in requests:
            if request.prompt not in self._prompts:
                prompt = self._prompts[request.prompt] = self._encode(request.prompt)
                self._alike.setdefault(prompt.key, set()).add(request.prompt)
        # by length, so that prompts that are prefilled together need little padding
        for request in sorted(requests, key=lambda r: len(self._prompts[r.prompt].ids)):
            prompt = self._prompts[request.prompt]
            draws = range(request.start, request.stop)
            self._pending.extend((request.prompt, draw, prompt) for draw in draws)
        return bool(requests)

    def _take_ahead(self, n_draws: int) -> list[DrawRequest]:
        """Take draws that are worth making before they are wanted."""
        # draws that other requests made may have closed prompts, too
        self._with_news.update(self._alike)
        self._forget_closed()
        n_open = len(self._prompts)
        if not n_open:
            return []  # other requests make what is wanted: there is no batch to join
        return self.queue.take_ahead(
            n_draws, n_at_once=lambda chances: self._plan.n_at_once(chances, n_open)
        )

    def _n_fitting(self, n_bytes: int) -> int:
        """Number of prompt states that fit into some memory."""
        return n_bytes // self._largest if self._largest else self.batch_size

    def _row(self, index: int, draw: int, prompt: EncodedPrompt) -> Row:
        room = self.checkpoint.max_positions - (len(self.forward.start_ids) or len(prompt.ids))
        budget = int(min(self.max_new_tokens, room))
        uniforms = draw_stream(prompt.key, self.queue.seed, draw).random(budget)
        self.n_begun += 1
        return Row(prompt=prompt, index=index, draw=draw, uniforms=uniforms)

    def _states_of(self, rows: Sequence[Row]) -> list[PromptState]:
        """What decoding begins with, from memory or else computed."""
        prompts = {row.prompt.key: row.prompt for row in rows}
        missing = {key: prompt for key, prompt in prompts.items() if key not in self._states}
        for key in prompts.keys() - missing.keys():
            self._states.move_to_end(key)
        states = {key: self._states[key] for key in prompts if key not in missing}
        if missing:
            for _, _, prompt in self._pending:  # which are wanted soon
                if len(missing) >= self._n_fitting(self.max_bytes // 2):
                    break
                if prompt.key not in self._states:
                    missing[prompt.key] = prompt
            states.update(self._prefill(list(missing.values())))
        return [states[row.prompt.key] for row in rows]

    def _prefill(self, prompts: Sequence[EncodedPrompt]) -> dict[bytes, PromptState]:
        """Run prompts, and keep their states as memory allows."""
        states, n_positions = self.forward.prefill(prompts)
        self.n_prefilled += n_positions
        for key, state in states.items():
            self._states[key] = state
            self._n_bytes += state.n_bytes
            self._largest = max(self._largest, state.n_bytes)
        while self._n_bytes > self.max_bytes and self._states:
            self._n_bytes -= self._states.popitem(last=False)[1].n_bytes
        return states

    def _append_tokens(self, logits: Tensor, rows: Sequence[Row]) -> None:
        """Append one token to each row."""
        next_uniforms = [row.uniforms[len(row.tokens)] for row in rows]
        uniforms = torch.tensor(next_uniforms, dtype=torch.float64, device=logits.device)
        choice = self._choose(logits, uniforms, guard=self._is_exact)
        tokens = choice.tokens.tolist()
        logprobs = choice.logprobs.tolist()
        # another batch could round to other tokens here: a forward pass of its own decides
        for k in choice.doubtful.nonzero()[:, 0].tolist():
            alone = self.forward.logits_after(rows[k])
            settled = self._choose(alone, uniforms[k : k + 1], guard=False)
            tokens[k] = settled.tokens.item()
            logprobs[k] = settled.logprobs.item()
        for row, token, logprob in zip(rows, tokens, logprobs):
            row.tokens.append(token)
            row.logprobs.append(logprob)

    def _finished(self, row: Row) -> Generation | None:
        """The draw if its last token ends it."""
        token = row.tokens[-1]
        ended = token in self.end_ids
        full = len(row.tokens) == len(row.uniforms)
        if not (ended or full or self._may_stop(row.tokens)):
            return None
        content = row.tokens[:-1] if ended else row.tokens
        text = self.detokenizer.text(content)
        length = first_of(self.stop, text)
        is_cut = length < len(text)
        if not (ended or full or is_cut):
            return None
        spans = self.detokenizer.spans(content, text)
        if ended:
            spans.append((length, length))
        return Generation(
            response=text[:length],
            logprob=float(sum(row.logprobs)),
            n_tokens=len(row.tokens),
            token_logprobs=tuple(row.logprobs),
            token_spans=tuple((min(a, length), min(b, length)) for a, b in spans),
            finish_reason="stop" if ended or is_cut else "length",
        )

    def _may_stop(self, tokens: Sequence[int]) -> bool:
        """Whether the last tokens hold a stop string."""
        if not self.stop:
            return False
        tail = self.detokenizer.text(tokens[-self.n_tail :])
        return any(string in tail for string in self.stop)


def clock_of(device: torch.device) -> Callable[[], float]:
    """A clock for steps on a device.

    On a processor, which has other work too, it is the time of this thread; Windows counts that
    time in ticks that are longer than a step.
    """
    return thread_time if device.type == "cpu" and sys.platform != "win32" else perf_counter


def free_bytes(device: torch.device) -> int:
    """Free memory of a device; 8 GiB where unknown."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 8 * 2**30


def _close_gaps(going: list[int]) -> list[int]:
    """Order of the kept rows in which few change place.

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
