"""Components of responses: their scores F^c, and their admission A^c.

Section 4.4 of the paper. A component that occurs in several draws is one component, and the
maximum over its occurrences is its score.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm.generators import Generation, draw_stream
from sklearn_clm.generators._draws import Occurrence, prompt_bytes
from sklearn_clm.scoring._admission import (
    ROUGE_L_ADMITS,
    Pairs,
    ThresholdAdmission,
    get_admission,
    verdict_of,
)
from sklearn_clm.scoring._callables import (
    Named,
    as_scores,
    chosen,
    map_chunks,
    name_of,
    numbers_from,
)
from sklearn_clm.scoring._protocols import (
    Admission,
    Classifier,
    ComponentScore,
    Draws,
    PairJudge,
    PairwiseSimilarity,
    Prompt,
    Prompts,
    Reference,
    Response,
    Responses,
    Scores,
    Similarity,
    Span,
    Spans,
)
from sklearn_clm.scoring._quality import (
    LOGPROB_ROUNDING,
    ClassifierScore,
    length_normalised,
    refuse_unfitted,
)
from sklearn_clm.scoring._similarity import RougeL, similarity_tensor
from sklearn_clm.scoring._splitters import (
    Splitter,
    component_of,
    component_spans,
    get_splitter,
    logprobs_inside,
    numbered_components,
)

ComponentScorer = Callable[[Prompt, Response], float]


class DistinctComponents(NamedTuple):
    """Distinct components of one prompt's responses, in order of first occurrence."""

    components: list[Response]
    scores: np.ndarray
    occurrences: list[list[Occurrence]]


def distinct_components(
    responses: Sequence[Response],
    draws: Sequence[int],
    spans: Sequence[Sequence[Span | None]],
    scores: Sequence[np.ndarray],
) -> DistinctComponents:
    """Merge equal components of several responses; the maximum is their score.

    Proposition 4.4 needs the maximum: the score of a component must not rise when responses are
    taken away. It can under a mean, or if the last occurrence wins.
    """
    components, ids = numbered_components(responses, spans)
    best = np.full(len(components), -np.inf)
    occurrences: list[list[Occurrence]] = [[] for _ in components]
    for draw, row, numbers, row_scores in zip(draws, spans, ids, scores):
        np.maximum.at(best, numbers, row_scores)
        for number, span in zip(numbers, row):
            occurrences[number].append(Occurrence(int(draw), span))
    return DistinctComponents(components, best, occurrences)


class SpanLikelihood(BaseEstimator):
    """Likelihood of a component's tokens in their context, under the base model.

    As :func:`likelihood`, of the tokens that produced some character of the component; 0 where
    there are none. A draw needs `token_logprobs` and `token_spans`; a response that is a single
    component by itself needs no more than `logprob`.
    """

    def score_components(self, prompts: Prompts, generations: Draws, spans: Spans) -> Scores:
        """Scores of all occurrences, as in :class:`ComponentScore`."""
        return [
            [
                np.array([self._one(draw, span) for span in components])
                for draw, components in zip(draws, rows)
            ]
            for draws, rows in zip(generations, spans)
        ]

    def _one(self, draw: Generation, span: Span | None) -> float:
        whole = span is None or component_of(draw.response, span) == draw.response.strip()
        if draw.token_logprobs is not None and draw.token_spans is not None:
            inside = list(draw.token_logprobs) if span is None else logprobs_inside(draw, span)
            n_tokens = len(inside)
        elif draw.logprob is not None and whole:
            inside, n_tokens = [draw.logprob], draw.n_tokens or 1
        else:
            inside, n_tokens = [math.nan], 1
        if not all(logprob <= LOGPROB_ROUNDING for logprob in inside):
            raise ValueError(
                "component_score='span_likelihood' needs token_logprobs of at most 0, and "
                f"token_spans, got {draw!r:.200} instead. Use a generator that gives them, or "
                "component_score='support', which counts draws that agree, or a callable."
            )
        return float(length_normalised(math.fsum(inside), n_tokens)) if inside else 0.0


class Support(BaseEstimator):
    """Number of draws that hold the component or a near-duplicate of it.

    All draws taken for a prompt count, accepted or not, each of them once.

    Parameters
    ----------
    similarity : str or callable (component, component) -> float, default="rouge_l"
        As for the sampler. Components that are not text compare by equality under a name.
    threshold : float, default=0.9
        Similarity from which two components are near-duplicates.

    Notes
    -----
    Proposition 4.4 needs a component of a prediction set never to score higher than among all K
    draws, which calibrate. The first S <= K draws of a prompt are the same in both (draws are
    keyed), so those among them that hold the component are a subset of those among all K, and are
    no more. Rejected draws count on both sides: near-duplicates, which the sampling rule rejects,
    are the agreement that is looked for.

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> from sklearn_clm.scoring import Support
    >>> draws = [Generation("It is big."), Generation("It is big!"), Generation("No.")]
    >>> spans = [[(0, 10)], [(0, 10)], [(0, 3)]]
    >>> Support().score_components(["Size?"], [draws], [spans])
    [[array([2.]), array([2.]), array([1.])]]
    """

    counts_taken_draws = True

    def __init__(
        self, similarity: str | Similarity | PairwiseSimilarity = "rouge_l", threshold: float = 0.9
    ) -> None:
        self.similarity = similarity
        self.threshold = threshold

    def score_components(self, prompts: Prompts, generations: Draws, spans: Spans) -> Scores:
        """Scores of all occurrences, as in :class:`ComponentScore`."""
        return [self._one_prompt(draws, rows) for draws, rows in zip(generations, spans)]

    def _one_prompt(
        self, draws: Sequence[Generation], rows: Sequence[Sequence[Span | None]]
    ) -> list[np.ndarray]:
        components, ids = numbered_components((draw.response for draw in draws), rows)
        holds = np.zeros((len(rows), len(components)), dtype=bool)
        for j, row_ids in enumerate(ids):
            holds[j, row_ids] = True
        to_earlier = similarity_tensor(self.similarity, [components])[0]
        alike = to_earlier + to_earlier.T >= self.threshold
        np.fill_diagonal(alike, True)
        counts = (holds @ alike.T).sum(axis=0, dtype=np.float64)
        return [counts[row_ids] for row_ids in ids]


class CallableScore:
    """A callable (prompt, component) -> float, asked once for each distinct component."""

    def __init__(self, function: ComponentScorer) -> None:
        self.function = function
        self.__name__ = name_of(function)

    def score_components(self, prompts: Prompts, generations: Draws, spans: Spans) -> Scores:
        """Scores of all occurrences, as in :class:`ComponentScore`."""
        scored = []
        for prompt, draws, rows in zip(prompts, generations, spans):
            components, ids = numbered_components((draw.response for draw in draws), rows)
            pairs = [(prompt, component) for component in components]
            scores = np.array(numbers_from(self.function, "component_score", pairs, n_jobs=1))
            scored.append([scores[row] for row in ids])
        return scored


def _uniform(seed: int, prompt: Prompt, component: Response) -> float:
    """A uniform random number, by (prompt, component, seed): the paper's baseline."""
    salt = b"component " + prompt_bytes(component)
    return float(draw_stream(prompt, seed, 0, salt=salt).random())


def get_component_score(
    component_score: str | ComponentScorer | ComponentScore | Classifier, *, seed: int = 0
) -> ComponentScore:
    """Component score from its name, a callable ``f(prompt, component)``, or a classifier."""
    known: dict[str, ComponentScorer | ComponentScore | Classifier] = {
        "random": partial(_uniform, seed),
        "span_likelihood": SpanLikelihood(),
        "support": Support(),
    }
    others = "a callable, a fitted classifier, or an object with a method score_components"
    found = chosen("component_score", component_score, known, others, (ComponentScore, Classifier))
    if isinstance(found, ComponentScore):
        return found
    if isinstance(found, Classifier):
        refuse_unfitted(found, "component_score")
        return ClassifierScore(found)
    return CallableScore(found)


def component_scores(
    score: ComponentScore,
    prompts: Prompts,
    generations: Draws,
    spans: Spans,
    *,
    members: Sequence[Sequence[int] | np.ndarray] | None = None,
) -> Scores:
    """Scores, checked, of all components, or of those of `members`, the draws accepted."""
    if members is not None:
        if getattr(score, "counts_taken_draws", False):
            taken = component_scores(score, prompts, generations, spans)
            return [[row[j] for j in of] for row, of in zip(taken, members)]
        accepted = [[row[j] for j in of] for row, of in zip(generations, members)]
        accepted_spans = [[row[j] for j in of] for row, of in zip(spans, members)]
        return component_scores(score, prompts, accepted, accepted_spans)
    rows = score.score_components(prompts, generations, spans)
    n_given, n_wanted = [len(row) for row in rows], [len(row) for row in spans]
    if n_given != n_wanted:
        raise ValueError(
            f"component_score {name_of(score)} must return scores for {n_wanted} draws of the "
            f"prompts, got {n_given} instead."
        )
    return [
        [
            as_scores(given, (len(parts),), "component_score", score)
            for given, parts in zip(row, wanted)
        ]
        for row, wanted in zip(rows, spans)
    ]


class ComponentMatch(Named, PairJudge):
    """What :func:`component_match` gives."""

    def __init__(self, admission: Admission, splitter: Callable[[str], list[Span]]) -> None:
        self.admission = admission
        self.splitter = splitter

    def judge_pairs(
        self, references: Sequence[Reference], components: Responses
    ) -> Iterator[tuple[int, bool]]:
        """Verdicts, as in :class:`PairJudge`; each run of equal references is split once."""
        pairs = zip(references, components)
        runs = [list(run) for _, run in groupby(pairs, key=lambda pair: id(pair[0]))]
        return enumerate(chain.from_iterable(map_chunks(self._judge_runs, runs)))

    def _judge_runs(self, runs: Sequence[Pairs]) -> list[list[bool]]:
        return [
            self._against(self.parts(run[0][0]), [component for _, component in run])
            for run in runs
        ]

    def parts(self, reference: Reference) -> list[Response]:
        """The components of a reference."""
        spans = component_spans(self.splitter, reference)
        return [component_of(reference, span) for span in spans]

    def _against(self, parts: list[Response], components: Sequence[Response]) -> list[bool]:
        judge = self.admission
        if isinstance(judge, ThresholdAdmission) and isinstance(judge.metric, PairwiseSimilarity):
            shape = len(parts), len(components)
            values = as_scores(judge.metric.pairwise(parts, components), shape, "metric", judge)
            admitted: list[bool] = (values >= judge.threshold).any(axis=0).tolist()
            return admitted
        return [any(verdict_of(judge, one, part) for part in parts) for one in components]

    def __repr__(self) -> str:
        return f"component_match({name_of(self.admission)}, {name_of(self.splitter)})"


def component_match(
    admission: Admission | str, splitter: Splitter | str = "sentence"
) -> ComponentMatch:
    """Admission of components that match some component of the reference.

    Parameters
    ----------
    admission : callable (reference component, component) -> bool, or {"exact_match", "rouge_l"}
        Judges two components, such as ``threshold_admission(rouge_l, 0.5)``. "rouge_l" is a
        ROUGE-L of at least 0.4, as the paper has it; what is not text compares by equality there.
    splitter : str or callable, default="sentence"
        Splits references, as in :func:`get_splitter`. A reference that is not text is a single
        component; one without components admits nothing.

    Returns
    -------
    callable (reference, component) -> bool, and PairJudge
        The admission.

    Examples
    --------
    >>> from sklearn_clm.scoring import component_match
    >>> almost = component_match("rouge_l")
    >>> almost("The lungs are clear. No effusion.", "There is no effusion.")
    True
    >>> almost("", "There is no effusion.")
    False
    """
    if admission == "rouge_l":
        admission = ThresholdAdmission(RougeL(), ROUGE_L_ADMITS)
    return ComponentMatch(get_admission(admission), get_splitter(splitter))


def get_component_admission(
    admission: str | Admission, splitter: Splitter | str = "sentence"
) -> Admission:
    """Admission A^c: a name compares with each component of the reference, not with all of it."""
    if isinstance(admission, str):
        return component_match(admission, splitter)
    return get_admission(admission)
