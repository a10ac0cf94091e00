"""Sets of responses: what a sampler predicts."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sklearn_clm._exceptions import optional_module
from sklearn_clm._results import _cards, _views
from sklearn_clm._results._base import SetOfOne, SetSequence
from sklearn_clm.calibration import Claim, Provenance
from sklearn_clm.calibration.risk import MISSES
from sklearn_clm.calibration.words import counted
from sklearn_clm.generators import Generation
from sklearn_clm.generators.draws import Prompt, Response, text_key
from sklearn_clm.generators.prompts import prompt_line

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class PredictionSet(SetOfOne):
    """The set of responses returned for one prompt.

    Parameters
    ----------
    prompt : object
        The prompt.
    responses : tuple of length m
        The accepted responses, each text once, in the order they were drawn, and as the model gave
        them: leading white space stays, which "exact_match" and "rouge_l" ignore. May be empty.
    quality : ndarray of shape (m,)
        Their quality; where several draws gave a text, the largest.
    indices : ndarray of shape (m,) of int
        Which draws they are, counted from 0; printed sets and pages count from 1.
    n_samples : int
        Draws taken, rejected ones included.
    set_score : float
        The set score F at the stop; -inf for an empty set.
    stopped : bool
        Whether the set score reached its threshold, as opposed to the budget being used up.
    guaranteed : bool
        False where nothing was certified, so that the set holds every draw, where it
        `needs_draws`, and in what ``fit_transform`` returns for prompts that trained the generator.
    generations : tuple of `n_samples` Generation
        All draws taken, the rejected ones included.
    claim : Claim, default=None
        What is guaranteed, and within which group; ``claim.sentence()`` says it in words.
    repeats : tuple of m tuples of int, default=()
        For each response the later draws that gave it again: accepted, and part of the set score,
        but not shown. () stands for none.
    needs_draws : bool, default=False
        Whether the rule wants further draws, and a table of draws holds no more: the set is not
        complete, and not guaranteed.

    Examples
    --------
    >>> from sklearn_clm import PredictionSet
    >>> answer = PredictionSet("Q: ?", ("yes",), [0.9], [1], 2, 0.9, stopped=True, guaranteed=True)
    >>> len(answer), "yes" in answer
    (1, True)
    >>> print(answer)
    'Q: ?' -> {'yes'} (2 draws, stopped)
    >>> answer.to_dict()["responses"]
    ['yes']
    """

    prompt: Prompt
    responses: tuple[Response, ...]
    quality: np.ndarray
    indices: np.ndarray
    n_samples: int
    set_score: float
    stopped: bool
    guaranteed: bool
    generations: tuple[Generation, ...] = ()
    claim: Claim | None = None
    repeats: tuple[tuple[int, ...], ...] = ()
    needs_draws: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "responses", tuple(self.responses))
        repeats = tuple(map(tuple, self.repeats)) or ((),) * len(self.responses)
        object.__setattr__(self, "repeats", repeats)
        object.__setattr__(self, "quality", np.asarray(self.quality, dtype=np.float64))
        object.__setattr__(self, "indices", np.asarray(self.indices, dtype=np.intp))
        object.__setattr__(self, "generations", tuple(self.generations))

    @classmethod
    def of_draws(
        cls,
        prompt: Prompt,
        draws: Sequence[Generation],
        quality: Sequence[float] | np.ndarray,
        texts: Sequence[Sequence[int]],
        *,
        set_score: float,
        stopped: bool,
        guaranteed: bool,
        claim: Claim | None = None,
        needs_draws: bool = False,
    ) -> Self:
        """The set of a prompt from the draws taken.

        `texts` are the accepted draws of each text.
        """
        first_draws = [accepted[0] for accepted in texts]
        return cls(
            prompt=prompt,
            responses=tuple(draws[j].response for j in first_draws),
            quality=np.array([max(quality[j] for j in accepted) for accepted in texts]),
            indices=np.array(first_draws, dtype=np.intp),
            n_samples=len(draws),
            set_score=set_score,
            stopped=stopped,
            guaranteed=guaranteed,
            generations=tuple(draws),
            claim=claim,
            repeats=tuple(tuple(accepted[1:]) for accepted in texts),
            needs_draws=needs_draws,
        )

    @property
    def agreement(self) -> np.ndarray:
        """Shares of the draws taken that say each response.

        An ndarray of shape (m,); NaN where the draws are not known.
        """
        if not self.generations:
            return np.full(len(self.responses), np.nan)
        counts = Counter(text_key(draw.response) for draw in self.generations)
        equal = [counts[text_key(response)] for response in self.responses]
        return np.array(equal, dtype=np.float64) / len(self.generations)

    @property
    def _members(self) -> tuple[Response, ...]:
        return self.responses

    @property
    def _seen(self) -> Iterable[Response]:
        return [draw.response for draw in self.generations] or self.responses

    @property
    def accepted(self) -> np.ndarray:
        """All accepted draws, those that repeat a text included."""
        return np.sort([*self.indices, *chain.from_iterable(self.repeats)]).astype(np.intp)

    def __str__(self) -> str:
        shown = ", ".join(map(_views.member, self.responses))
        return f"{prompt_line(self.prompt)} -> {{{shown}}} ({self._ending()})"

    def __repr__(self) -> str:
        return f"<PredictionSet {textwrap.shorten(str(self), 400, placeholder=' …')}>"

    def _text(self, marks: Mapping[int, list[_views.Mark]] | None = None) -> str:
        lines = [_views.prompt_in_full(self.prompt), f"  ({_views.plain(self._ending())})"]
        named = zip(self.responses, self.quality, self.indices.tolist(), self._drawn())
        for response, quality, draw, drawn in named:
            text = _views.marked(str(response), (marks or {}).get(draw, []))
            lines.append(f"  {drawn}, quality {quality:.3g}: {text}")
        if not self.responses:
            lines.append("  (no response was accepted)")
        return "\n".join(lines)

    def _card(self, verdicts: Sequence[bool | None]) -> str:
        return _cards.card(self.prompt, self._shown(verdicts, {}), self._notes())

    def _shown(
        self, verdicts: Sequence[bool | None], marks: Mapping[int, list[_views.Mark]]
    ) -> list[_cards.Shown]:
        """The responses as a card has them."""
        rows = zip(self.responses, self.quality, self.indices.tolist(), self._drawn(), verdicts)
        return [
            _cards.Shown(
                str(response),
                f"{drawn}, quality {quality:.2g}",
                tuple(marks.get(draw, [])),
                right,
            )
            for response, quality, draw, drawn, right in rows
        ]

    def _drawn(self) -> list[str]:
        """The draws of each response, in words."""
        words = []
        for draw, repeats in zip(self.indices.tolist(), self.repeats):
            again = ", ".join(str(j + 1) for j in repeats)
            words.append(f"draw {draw + 1}" + (f" (again {again})" if again else ""))
        return words

    def _notes(self) -> list[str]:
        """What a card says below the responses."""
        empty = [] if self.responses else ["(no response was accepted)"]
        return [*empty, self._ending()]

    def _ending(self) -> str:
        """How the set ended, and remarks on its guarantee."""
        stopped = "stopped" if self.stopped else "budget used up"
        if self.claim is not None and self.claim.risk.escalates:
            risk = self.claim.risk
            stopped = risk.answered if self.answered else risk.unanswered
        if self.needs_draws:
            stopped = "needs further draws"
        remarks = "".join(f"; {remark}" for remark in self.remarks())
        return f"{counted(self.n_samples, 'draw')}, {stopped}{remarks}"


class PredictionSets(SetSequence[PredictionSet]):
    """Sets of responses for n prompts, indexed like an array.

    As an array it has shape (n, `k_max`), each row the accepted responses in order, padded with NaN
    where all responses are numbers and with None otherwise.

    Parameters
    ----------
    sets : sequence of PredictionSet
        One for each prompt.
    k_max : int
        The budget of draws, of several the largest, which is the width as an array.
    sampler : ConformalSampler, optional
        The estimator that made them. It does not travel with a pickle.
    provenance : Provenance, optional
        What they were drawn and scored with.
    index : pandas.Index, optional
        Of the data frame or the Series that held the prompts, for :meth:`to_frame`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm import PredictionSet, PredictionSets
    >>> one = PredictionSet("a", ("x", "y"), [0.9, 0.8], [0, 2], 3, 0.9, True, True)
    >>> two = PredictionSet("b", (), [], [], 3, -np.inf, False, True)
    >>> sets = PredictionSets([one, two], k_max=3)
    >>> np.asarray(sets)
    array([['x', 'y', None],
           [None, None, None]], dtype=object)
    >>> print(sets[::-1])
    PredictionSets of 2 prompts, k_max=3
    'b' -> {} (3 draws, budget used up)
    'a' -> {'x', 'y'} (3 draws, stopped)
    """

    _maker = "sampler"
    _usual_risk = MISSES

    def __init__(
        self,
        sets: Sequence[PredictionSet],
        k_max: int,
        *,
        sampler: Any = None,
        provenance: Provenance | None = None,
        index: "pd.Index | None" = None,
    ) -> None:
        self._sets = list(sets)
        self.frame_index = index
        self.k_max = int(k_max)
        self.sampler = sampler
        self.provenance = provenance
        # of the very prompts that the sampler was fitted on, by its fit_transform
        self.of_fit = False

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self), self.k_max)

    @property
    def responses(self) -> list[list[Response]]:
        """The accepted responses of each prompt."""
        return [list(a_set) for a_set in self]

    @property
    def n_samples(self) -> np.ndarray:
        """Draws taken for each prompt, an array of int."""
        return np.array([a_set.n_samples for a_set in self], dtype=np.intp)

    @property
    def answered(self) -> np.ndarray:
        """Which prompts have a guaranteed answer, an array of bool."""
        return np.array([a_set.answered for a_set in self], dtype=bool)

    @property
    def escalated(self) -> "PredictionSets":
        """The sets of the prompts that are not `answered`."""
        return self[~self.answered]

    def to_frame(self) -> "pd.DataFrame":
        """Return a pandas DataFrame with one row per prompt.

        Returns
        -------
        pandas.DataFrame
            Its index is that of the data frame or the Series that held the prompts, and 0 to
            n - 1 otherwise. Columns `prompt`, `responses`, `quality`, `agreement` (share of the
            draws taken that say the same), `indices`, `repeats` (these five are tuples of one
            length), `size`, `n_samples`, `set_score`, `stopped` and "guaranteed"; `group`,
            `approximate` and `guarantee`, where there are groups, estimated weights or a marginal
            guarantee; and `provenance`, where it is unknown. To have a row per response, for a file
            say, call ``explode(["responses", "quality", "agreement", "indices", "repeats"])`` on
            it.
        """
        optional_module("pandas", "plot", "a data frame")
        import pandas as pd

        columns: dict[str, Sequence[Any]] = {
            "prompt": [a_set.prompt for a_set in self],
            "responses": [a_set.responses for a_set in self],
            "quality": [tuple(a_set.quality.tolist()) for a_set in self],
            "agreement": [tuple(a_set.agreement.tolist()) for a_set in self],
            "indices": [tuple(a_set.indices.tolist()) for a_set in self],
            "repeats": [a_set.repeats for a_set in self],
            "size": self.sizes.tolist(),
        }
        for name in ("n_samples", "set_score", "stopped", "guaranteed"):
            columns[name] = [getattr(a_set, name) for a_set in self]
        # columns for what is unusual come only where it is
        return self._with_claims(pd.DataFrame(columns, index=self.frame_index), self)

    def __repr__(self) -> str:
        return f"<{self._headline()}>"

    def __str__(self) -> str:
        shown = map(str, self._sets[: _views.SHOWN_SETS])
        lines = [self._headline(), *self._guarantees(), *shown]
        if len(self) > _views.SHOWN_SETS:
            lines.append(f"... and {len(self) - _views.SHOWN_SETS} more")
        return "\n".join(lines)

    def _headline(self) -> str:
        number = counted(len(self), "prompt")
        return f"PredictionSets of {number}, k_max={self.k_max}{self._remarks()}"

    def _numbers(self) -> tuple[tuple[str, str], ...]:
        draws = (f"{self.n_samples.mean():.1f}", f"draws, of at most {self.k_max}")
        words = [claim.risk.answered for claim in self._claims() if claim.risk.escalates]
        if words:
            return ((f"{self.answered.mean():.0%}", words[0]), draws)
        return ((f"{self.sizes.mean():.1f}", "responses in a set"), draws)
