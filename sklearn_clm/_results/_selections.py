"""Selections: the components of one prompt's responses that are trusted."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sklearn_clm._exceptions import optional_module
from sklearn_clm._results import _cards, _views
from sklearn_clm._results._base import SetOfOne, SetSequence, as_json
from sklearn_clm._results._claims import Rewritten, ShownClaim
from sklearn_clm._results._sets import PredictionSet
from sklearn_clm.calibration import Claim
from sklearn_clm.calibration.risk import WrongComponents
from sklearn_clm.calibration.words import counted
from sklearn_clm.generators.draws import Prompt, Response
from sklearn_clm.scoring import Citation, Occurrence

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class ComponentSet(SetOfOne):
    """The components selected for one prompt.

    Parameters
    ----------
    components : tuple of length m
        The components, in the order in which they first occur. May be empty.
    scores : ndarray of shape (m,)
        Their scores F^c, the maximum over occurrences.
    occurrences : tuple of m tuples of Occurrence
        Where each of them stands: index of the draw, and characters of its response.
    prediction_set : PredictionSet
        The responses that they come from.
    guaranteed : bool
        False where no threshold could be certified; the selection is empty then.
    claim : Claim, default=None
        What is guaranteed, and within which group.
    citations : tuple of m tuples of Citation, default=()
        Passages of the prompt that entail each of them, where the score says so. () stands for
        none.
    left_out : tuple of (component, float, sequence of Occurrence), default=()
        What the responses say besides, and is not selected: with scores, and where it stands.

    Examples
    --------
    >>> from sklearn_clm import PredictionSet, ComponentSet
    >>> answer = PredictionSet("Q: ?", ("Yes. No.",), [0.9], [1], 2, 0.9, True, True)
    >>> print(ComponentSet(("Yes.",), [0.8], [[(1, (0, 4))]], answer, guaranteed=True))
    Q: ?
      (2 draws, stopped)
      draw 2, quality 0.9: **Yes.** No.
    trusted components:
      0.8  Yes.  (draw 2)
    """

    components: tuple[Response, ...]
    scores: np.ndarray
    occurrences: tuple[tuple[Occurrence, ...], ...]
    prediction_set: PredictionSet
    guaranteed: bool
    claim: Claim | None = None
    citations: tuple[tuple[Citation, ...], ...] = ()
    left_out: tuple[tuple[Response, float, Sequence[Occurrence]], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", tuple(self.components))
        citations = tuple(map(tuple, self.citations)) or ((),) * len(self.components)
        object.__setattr__(self, "citations", citations)
        object.__setattr__(self, "scores", np.asarray(self.scores, dtype=np.float64))
        places = tuple(tuple(Occurrence(*place) for place in row) for row in self.occurrences)
        object.__setattr__(self, "occurrences", places)

    @property
    def prompt(self) -> Prompt:
        """The prompt."""
        return self.prediction_set.prompt

    @property
    def claims(self) -> tuple[ShownClaim, ...]:
        """All that the responses say, first what is selected."""
        rows = zip(self.components, self.scores.tolist(), self.occurrences, self.citations)
        kept = [ShownClaim(text, score, True, places, cited) for text, score, places, cited in rows]
        not_kept = [
            ShownClaim(text, float(score), False, tuple(places))
            for text, score, places in self.left_out
        ]
        return (*kept, *not_kept)

    def to_dict(self) -> dict[str, Any]:
        """The selection as values for JSON.

        `claims` tells of each component its text, score, whether it is kept, span, draws and
        citations.
        """
        content = super().to_dict()
        # both stand beside their claims
        del content["citations"], content["left_out"]
        return {**content, "claims": [as_json(claim.to_dict()) for claim in self.claims]}

    def rewritten(self, ask: Callable[..., Any]) -> Rewritten:
        """A text of the selected components, which is not promised.

        Parameters
        ----------
        ask : callable
            ``ask(question) -> str`` of a model, plain or ``async``. Nobody is asked where nothing
            is selected.

        Returns
        -------
        Rewritten
            Its `text`, and in words that the promise is about the components alone. One of texts
            has a :class:`ConformalSampler` with ``k_max=1`` that draws them: its generator is a
            function of a prompt that gives ``selector.predict([prompt])[0].rewritten(ask).text``,
            its admission judges them, and its prompts have calibrated no selector.
        """
        guarantee = "nothing is promised." if self.claim is None else self.claim.sentence()
        return Rewritten.of(ask, self.prompt, self.components, guarantee)

    @property
    def _members(self) -> tuple[Response, ...]:
        return self.components

    @property
    def _seen(self) -> Iterable[Response]:
        return [*self.components, *self.prediction_set._seen]

    def __str__(self) -> str:
        return self._text()

    def __repr__(self) -> str:
        components = counted(len(self), "component")
        return f"<ComponentSet of {components} from {self.prediction_set!r}>"

    def _marks(self, verdicts: Sequence[bool | None]) -> dict[int, list[_views.Mark]]:
        """Where the components stand in each draw.

        A place where something stands as well that is left out has no mark: a tint would stand for
        both.
        """
        marks: dict[int, list[_views.Mark]] = {}
        left_out = [
            (draw, *span)
            for _, _, places in self.left_out
            for draw, span in places
            if span is not None
        ]
        sampled = zip(self.prediction_set.indices.tolist(), self.prediction_set.responses)
        of_text = {draw for draw, response in sampled if isinstance(response, str)}
        for score, right, places in zip(self.scores, verdicts, self.occurrences):
            for draw, span in places:
                if span is None and draw in of_text:
                    continue  # a claim that stands nowhere
                # without a span the component is the whole response
                start, stop = (0, None) if span is None else span
                if any(d == draw and a < (stop or b) and start < b for d, a, b in left_out):
                    continue
                marks.setdefault(int(draw), []).append(
                    _views.Mark(start, stop, float(score), right)
                )
        return marks

    def _text(self) -> str:
        unjudged = [None] * len(self)
        lines = [self.prediction_set._text(self._marks(unjudged))]
        lines += [f"  ({_views.plain(remark)})" for remark in self.remarks()]
        lines.append("trusted components:" if len(self) else "no trusted component")
        # `claims` begin with those that are selected
        for claim in self.claims[: len(self)]:
            # people count from 1
            draws = ", ".join(str(draw + 1) for draw in sorted(set(claim.draws)))
            cited = _views.plain("".join(f"; {citation}" for citation in _cited(claim)))
            lines.append(f"  {claim.score:.3g}  {_views.plain(claim.text)}  (draw {draws}{cited})")
        return "\n".join(lines)

    def _card(self, verdicts: Sequence[bool | None]) -> str:
        unjudged = [None] * len(self.prediction_set)
        marks = self._marks(verdicts)
        shown = self.prediction_set._shown(unjudged, marks)
        tinted = {
            part.strip()
            for one in shown
            for part, mark in _views.pieces(one.text, one.marks)
            if mark is not None
        }
        # what stands word for word on a tint needs no second mention, but for its citation
        for claim, right in zip(self.claims, verdicts):
            note = "; ".join(["trusted", *_cited(claim)])
            if claim.citations or str(claim.text).strip() not in tinted:
                mark = _views.Mark(0, None, claim.score, right)
                shown.append(_cards.Shown(str(claim.text), note, (mark,)))
        components = counted(len(self), "trusted component")
        notes = [components if len(self) else "no trusted component", *self.prediction_set._notes()]
        return _cards.card(self.prompt, shown, [*notes, *self.remarks()])


def _cited(claim: ShownClaim) -> list[str]:
    """The citations of a claim in words."""
    return [f"passage {one.passage + 1}: {one.text}" for one in claim.citations]


class ComponentSets(SetSequence[ComponentSet]):
    """Selected components for n prompts, indexed like an array.

    As an array it has shape (n, m), each row the components in order, padded as in
    :class:`PredictionSets`; m is the largest number of components, but at least `min_width`.

    Parameters
    ----------
    sets : sequence of ComponentSet
        One for each prompt.
    min_width : int, default=1
        Smallest width as an array. The selector passes the budget of draws.
    selector : ComponentSelector, optional
        The estimator that made them. It does not travel with a pickle.
    index : pandas.Index, optional
        Of the data frame or the Series that held the prompts, for :meth:`to_frame`.
    """

    _maker = "selector"
    _usual_risk = WrongComponents()
    _wide_cards = True

    def __init__(
        self,
        sets: Sequence[ComponentSet],
        min_width: int = 1,
        *,
        selector: Any = None,
        index: "pd.Index | None" = None,
    ) -> None:
        self._sets = list(sets)
        self.frame_index = index
        self.min_width = int(min_width)
        self.selector = selector

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self), max([self.min_width, *map(len, self)]))

    @property
    def components(self) -> list[list[Response]]:
        """The selected components of each prompt."""
        return [list(a_set) for a_set in self]

    def to_frame(self, *, left_out: bool = False) -> "pd.DataFrame":
        """Return a pandas DataFrame with one row per selected component.

        Parameters
        ----------
        left_out : bool, default=False
            Whether to have rows for what is not selected, too.

        Returns
        -------
        pandas.DataFrame
            Its index is that of the data frame or the Series that held the prompts; otherwise rows
            are counted from 0. Columns `prompt_index` (position of the prompt, from 0),
            `component`, `score`, `draws` (tuple of the indices, from 0, of the draws that hold it)
            and "guaranteed"; with `left_out` `kept`, `span` and `citations`; `group` and
            `provenance` as for sets of responses.
        """
        optional_module("pandas", "plot", "a data frame")
        import pandas as pd

        shown = [a_set.claims if left_out else a_set.claims[: len(a_set)] for a_set in self]
        rows = []
        for i, (a_set, claims) in enumerate(zip(self, shown)):
            for c in claims:
                row = (i, c.text, c.score, c.draws, a_set.guaranteed, c.kept, c.span, c.citations)
                rows.append(row)
        columns = ["prompt_index", "component", "score", "draws", "guaranteed"]
        index = None if self.frame_index is None else self.frame_index.repeat(list(map(len, shown)))
        further = ["kept", "span", "citations"]
        frame = pd.DataFrame(rows, columns=[*columns, *further], index=index)
        frame = frame if left_out else frame[columns].copy()
        return self._with_claims(frame, [self._sets[i] for i in frame["prompt_index"]])

    def __repr__(self) -> str:
        return f"<ComponentSets of {self._headline()}>"

    def __str__(self) -> str:
        return self._text()

    def _headline(self) -> str:
        components = counted(int(self.sizes.sum()), "component")
        return f"{counted(len(self), 'prompt')}, {components}{self._remarks()}"

    def _numbers(self) -> tuple[tuple[str, str], ...]:
        return ((f"{self.sizes.mean():.1f}", "trusted components for a prompt"),)
