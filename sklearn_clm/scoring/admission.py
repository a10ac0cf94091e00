"""Admission A: whether a response is acceptable (section 3)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils import check_scalar

from sklearn_clm.scoring._callables import (
    asked_verdict,
    chosen,
    map_chunks,
    number_from,
    numbers_from,
)
from sklearn_clm.scoring._exact_match import exact_match
from sklearn_clm.scoring._similarity import RougeL
from sklearn_clm.scoring._splitters import (
    Splitter,
    component_of,
    component_spans,
    splitter_of_references,
)
from sklearn_clm.scoring.protocols import (
    Admission,
    PairJudge,
    PairScorer,
    Part,
    Reference,
    Response,
    Responses,
)

Pairs: TypeAlias = Sequence[tuple[Reference, Response]]

_JUDGES = "a callable (reference, response) -> bool"


@dataclass(frozen=True)
class ThresholdAdmission:
    """What :func:`threshold_admission` gives."""

    metric: Callable[[Any, Any], Any]
    threshold: float

    def __call__(self, reference: Reference, response: Response) -> bool:
        """Whether the metric of a response reaches the threshold."""
        return number_from(self.metric, "metric", reference, response) >= self.threshold


class PairThresholdAdmission(ThresholdAdmission, PairJudge):
    """Threshold admission by a metric of many pairs."""

    def judge_pairs(
        self, references: Sequence[Reference], responses: Responses
    ) -> Iterator[tuple[int, bool]]:
        """Verdicts, as in :class:`PairJudge`."""
        pairs = list(zip(references, responses))
        values = numbers_from(self.metric, "metric", pairs, n_jobs=None)
        return enumerate(value >= self.threshold for value in values)


def threshold_admission(metric: Callable[[Any, Any], Any], threshold: float) -> Admission:
    """Admission of responses whose metric reaches a threshold.

    Parameters
    ----------
    metric : callable (reference, response) -> float
        Any metric in scikit-learn's order, ``f(y_true, y_pred)``; greater is better. An
        :class:`EntailmentScore` is asked about many pairs at once.
    threshold : float
        The smallest value that is admitted.

    Examples
    --------
    >>> from sklearn_clm.scoring import rouge_l, threshold_admission
    >>> threshold_admission(rouge_l, 0.4)("the heart is normal", "the heart is large")
    True
    """
    chosen("metric", metric, {}, "a callable (reference, response) -> float")
    check_scalar(threshold, "threshold", Real)
    # a metric of many pairs at once, such as a model's, is asked in batches
    kind = PairThresholdAdmission if isinstance(metric, PairScorer) else ThresholdAdmission
    return kind(metric, float(threshold))


# the paper takes 0.4 for sentences and 0.35 for summaries: what holds for the stricter of the two
# holds for the other as well
_ADMISSIONS: dict[str, Admission] = {
    "exact_match": exact_match,
    "rouge_l": ThresholdAdmission(RougeL(), 0.4),
}


def get_admission(admission: str | Admission, argument: str = "admission") -> Admission:
    """Admission from its name, "exact_match" or "rouge_l", or a callable."""
    return chosen(argument, admission, _ADMISSIONS, _JUDGES)


@dataclass(frozen=True)
class ComponentMatch(PairJudge):
    """What :func:`component_match` gives."""

    admission: Admission
    splitter: Callable[[str], list[Part]]

    def judge_pairs(
        self, references: Sequence[Reference], components: Responses
    ) -> Iterator[tuple[int, bool]]:
        """Verdicts; each run of equal references is split once."""
        pairs = zip(references, components)
        # by identity: equal references need not be hashable, and a run holds one object
        by_reference = groupby(pairs, key=lambda pair: id(pair[0]))
        runs = [list(run) for _, run in by_reference]
        return enumerate(map_chunks(self._judge_runs, runs))

    def _judge_runs(self, runs: Sequence[Pairs]) -> list[bool]:
        """Verdicts on the components of runs of one reference each."""
        judge = self.admission
        verdicts: list[bool] = []

        for run in runs:
            reference, _ = run[0]
            parts = self.parts(reference)
            components = [component for _, component in run]
            # ROUGE-L of all pairs of a run at once, which is many times as fast
            if isinstance(judge, ThresholdAdmission) and isinstance(judge.metric, RougeL):
                values = judge.metric.pairwise(parts, components)
                verdicts.extend(np.any(values >= judge.threshold, axis=0).tolist())
            else:
                for component in components:
                    matches = (asked_verdict(judge, component, part) for part in parts)
                    verdicts.append(any(matches))
        return verdicts

    def parts(self, reference: Reference) -> list[Response]:
        """The components of a reference."""
        spans = component_spans(self.splitter, reference)
        return [component_of(reference, span) for span in spans]


def component_match(
    admission: Admission | str, splitter: Splitter | str = "sentence"
) -> ComponentMatch:
    """Admission of components that match some component of the reference.

    Parameters
    ----------
    admission : callable (reference component, component) -> bool, or {"exact_match", "rouge_l"}
        Judges two components, such as ``threshold_admission(rouge_l, 0.5)``. "rouge_l" is a
        ROUGE-L of at least 0.4, as the paper has it.
    splitter : str or callable, default="sentence"
        Splits references, as in :func:`get_splitter`; into sentences, where it is ``async`` or
        takes a prompt. A reference that is not text is a single component; one without components
        admits nothing.

    Examples
    --------
    >>> from sklearn_clm.scoring import component_match
    >>> almost = component_match("rouge_l")
    >>> almost("The lungs are clear. No effusion.", "There is no effusion.")
    True
    """
    return ComponentMatch(get_admission(admission), splitter_of_references(splitter))


def get_component_admission(admission: str | Admission, splitter: Splitter | str) -> Admission:
    """Admission A^c; a name compares with each component."""
    if isinstance(admission, str):
        return component_match(admission, splitter)
    return get_admission(admission)
