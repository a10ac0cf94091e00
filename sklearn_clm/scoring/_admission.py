"""Admission A: whether a response is acceptable (section 3 of the paper)."""

import math
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from joblib import effective_n_jobs, parallel_config
from sklearn.utils import check_scalar

from sklearn_clm._exceptions import warn
from sklearn_clm.generators._draws import is_missing
from sklearn_clm.generators._prompts import listed, lists_itself
from sklearn_clm.scoring._callables import (
    Named,
    check_draws,
    chosen,
    map_chunks,
    name_of,
    number_from,
    numbers_from,
)
from sklearn_clm.scoring._exact_match import answer_key, exact_match
from sklearn_clm.scoring._protocols import (
    Admission,
    ArrivingVerdicts,
    PairJudge,
    PairScorer,
    Predictor,
    Reference,
    Response,
    Responses,
)
from sklearn_clm.scoring._similarity import rouge_l, warn_of_script

# a callable A_i, or references of which any will do
Checked: TypeAlias = Callable[[Response], bool] | tuple[Reference, ...]
Task: TypeAlias = tuple[Any, Response]
Pairs: TypeAlias = Sequence[tuple[Reference, Response]]

_JUDGES = "a callable (reference, response) -> bool"
_SIZEABLE = 0.05  # share of prompts, below which nothing is said of their references
_PRINTED_LIST = re.compile(r"""\s*\[\s*["'].*["']\s*,?\s*\]\s*""", re.DOTALL)
_PRINTED = (
    "a text that looks like a printed list, as one saved in a CSV file comes back, counts as one "
    "text. ast.literal_eval (in the shell --references) makes a list of it, any text of which will "
    "do."
)
_OTHER_TYPE = (
    "admission='exact_match' never takes a text for equal to another object. Convert the "
    "references to the type of the responses."
)


@dataclass(frozen=True, repr=False)
class ThresholdAdmission(Named):
    """What :func:`threshold_admission` gives."""

    metric: Callable[[Any, Any], Any]
    threshold: float

    def __call__(self, reference: Reference, response: Response) -> bool:
        """Whether the metric of `response` against `reference` is at least the threshold."""
        return number_from(self.metric, "metric", reference, response) >= self.threshold

    def __repr__(self) -> str:
        return f"threshold_admission({name_of(self.metric)}, {self.threshold})"


class PairThresholdAdmission(ThresholdAdmission, PairJudge):
    """The same of a metric that scores many pairs at once."""

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

    Returns
    -------
    callable (reference, response) -> bool
        The admission. It can be pickled if `metric` can.

    Examples
    --------
    >>> from sklearn_clm.scoring import rouge_l, threshold_admission
    >>> acceptable = threshold_admission(rouge_l, 0.4)
    >>> acceptable
    threshold_admission(rouge_l, 0.4)
    >>> acceptable("the heart is normal", "the heart is large")
    True
    """
    chosen("metric", metric, {}, "a callable (reference, response) -> float")
    check_scalar(threshold, "threshold", Real)
    kind = PairThresholdAdmission if isinstance(metric, PairScorer) else ThresholdAdmission
    return kind(metric, float(threshold))


class LabelMatch(Named, PairJudge):
    """What :func:`label_match` gives."""

    def __init__(self, labeler: Any) -> None:
        self.labeler = labeler

    def judge_pairs(
        self, references: Sequence[Reference], responses: Responses
    ) -> Iterator[tuple[int, bool]]:
        """Verdicts, as in :class:`PairJudge`; each distinct text is labelled once."""
        texts = list(dict.fromkeys([*references, *responses]))
        labels = dict(zip(texts, map_chunks(self._label, texts)))
        return enumerate(
            np.array_equal(labels[a], labels[b]) for a, b in zip(references, responses)
        )

    def _label(self, texts: list[Response]) -> list[np.ndarray]:
        if isinstance(self.labeler, Predictor):
            labels = self.labeler.predict(texts)
        else:
            labels = map(self.labeler, texts)
        labelled = []
        for text, label in zip(texts, labels, strict=True):
            entries = np.asarray(label, dtype=object)
            if any(map(is_missing, entries.flat)):
                raise ValueError(
                    f"labeler of {self!r} must give a label, or a vector of labels, without None "
                    f"or NaN, got {label!r:.80} for {text!r:.80} instead."
                )
            labelled.append(entries)
        return labelled

    def __repr__(self) -> str:
        return f"label_match({name_of(self.labeler)})"


def label_match(labeler: Callable[[Response], Any] | Predictor) -> PairJudge:
    """Admission of responses that a labeller labels as the reference.

    As the paper judges radiology reports by the 14 labels that CheXbert finds.

    Parameters
    ----------
    labeler : callable, or fitted classifier with ``predict``
        A callable gives one text its label, or its vector of labels; ``predict`` gives those of a
        list of texts. Vectors are equal if all entries are. A label may be neither None nor NaN.

    Returns
    -------
    callable (reference, response) -> bool, and PairJudge
        The admission.

    Examples
    --------
    >>> from sklearn_clm.scoring import label_match
    >>> def findings(report):
    ...     return [word in report for word in ("fracture", "effusion")]
    >>> same_findings = label_match(findings)
    >>> same_findings("small effusion", "an effusion on the left")
    True
    >>> same_findings("small effusion", "effusion and fracture")
    False
    """
    others = "a callable, or a classifier with predict"
    return LabelMatch(chosen("labeler", labeler, {}, others, (Predictor,)))


# the paper takes 0.4 for sentences and 0.35 for summaries: what holds for the stricter of the two
# holds for the other as well
ROUGE_L_ADMITS = 0.4
_ADMISSIONS: dict[str, Admission] = {
    "exact_match": exact_match,
    "rouge_l": ThresholdAdmission(rouge_l, ROUGE_L_ADMITS),
}


def get_admission(admission: str | Admission) -> Admission:
    """Admission from its name, "exact_match" or "rouge_l"; a callable is one already."""
    return chosen("admission", admission, _ADMISSIONS, _JUDGES)


def admission_matrix(
    admission: str | Admission,
    admissions: Sequence[Any],
    responses: Sequence[Sequence[Response]],
    *,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Which responses are acceptable.

    Parameters
    ----------
    admission : {"exact_match", "rouge_l"} or callable (reference, response) -> bool
        "rouge_l" admits a ROUGE-L of at least 0.4. A callable judges one response, unless it is a
        :class:`PairJudge`. Not used where `admissions` are callables.
    admissions : sequence of length n
        For each prompt a callable ``A_i(response) -> bool``, or a reference. A list, tuple, set
        or array of texts or objects is a set of references, any of which will do; an array of
        numbers is one reference.
    responses : sequence of n sequences of K responses
        The draws, which callables are given as they are, white space at their ends included; the
        names ignore it.
    n_jobs : int, default=None
        Number of workers, as in joblib; a :obj:`joblib.parallel_config` context chooses the
        backend.

    Returns
    -------
    ndarray of shape (n, K), bool
        True for acceptable. Equal pairs of reference and response are judged once.

    Examples
    --------
    >>> from sklearn_clm.scoring import admission_matrix
    >>> draws = [["Paris.", "Lyon"], ["6", "six"]]
    >>> admission_matrix("exact_match", ["Paris", ["six", "half a dozen"]], draws)
    array([[ True, False],
           [False,  True]])
    """
    responses = [list(row) for row in responses]
    size = check_draws(responses, "responses")
    verdicts = judge(admission, admissions, responses, n_jobs=n_jobs)
    return np.array(verdicts, dtype=bool).reshape(len(responses), size)


def judge(
    admission: str | Admission,
    admissions: Sequence[Any],
    responses: Sequence[Sequence[Response]],
    *,
    n_jobs: int | None = None,
) -> list[np.ndarray]:
    """A boolean array for each prompt: :func:`admission_matrix` for any numbers of responses."""
    checked = checked_admissions(admissions, len(responses))
    judged: dict[Hashable, int] = {}
    tasks: list[Task] = []
    rows: list[list[int]] = []
    for i, (references, row) in enumerate(zip(checked, responses)):
        # 1, 1.0 and True are equal, but need not be judged alike
        judged_by = i if callable(references) else (references, tuple(map(type, references)))
        row_tasks = []
        for response in row:
            try:
                place = judged.setdefault((judged_by, type(response), response), len(judged))
            except TypeError:  # it cannot be hashed
                place = judged.setdefault(object(), len(judged))
            if place == len(tasks):
                tasks.append((references, response))
            row_tasks.append(place)
        rows.append(row_tasks)
    verdicts = np.array(_judged(get_admission(admission), tasks, n_jobs), dtype=bool)
    return [verdicts[np.array(row_tasks, dtype=np.intp)] for row_tasks in rows]


def check_admissions(y: Any, n_prompts: int, *, estimator: object = None) -> list[Reference]:
    """Admissions of any container as a list: callables, references or lists of references."""
    if y is None:
        name = "This estimator" if estimator is None else type(estimator).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")
    is_array = hasattr(y, "__array__")
    if isinstance(y, (str, bytes, dict)) or not (is_array or isinstance(y, Collection)):
        raise TypeError(
            "admissions (y) must be a dense sequence with one entry per prompt, got "
            f"{type(y).__name__} {y!r:.60} instead."
        )
    items = [] if is_array else list(y)
    if is_array:
        array = np.asarray(y)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        # a row of numbers is one reference, such as a vector of labels
        items = listed(y) if lists_itself(y) else list(array)
    items = [_plain(item) for item in items]
    for i, item in enumerate(items):
        if isinstance(item, float) and math.isinf(item):
            raise ValueError(f"Input y contains infinity (at position {i}).")
    # known to fail later, when draws have been paid for
    checked_admissions(items, n_prompts)
    return items


def _plain(item: Reference) -> Reference:
    if isinstance(item, np.generic):
        return item.item()
    if isinstance(item, np.ndarray) and item.dtype.kind not in "biufc":
        return item.tolist()
    return item


def checked_admissions(admissions: Sequence[Any], n_prompts: int) -> list[Checked]:
    """Callables, or tuples of references."""
    if len(admissions) != n_prompts:
        raise ValueError(
            "prompts (X) and admissions (y) must be of one length, got "
            f"{n_prompts} and {len(admissions)} instead."
        )
    checked = list(admissions)
    are_callable = [callable(value) for value in checked]
    if checked and all(are_callable):
        return checked
    if any(are_callable):
        other = are_callable.index(not are_callable[0])
        raise TypeError(
            "admissions must be callables, or references, for all prompts, got "
            f"{checked[0]!r:.80} at position 0 and {checked[other]!r:.80} at {other} instead."
        )
    return [_references(value, i) for i, value in enumerate(checked)]


def _references(value: Reference, i: int) -> tuple[Reference, ...]:
    if isinstance(value, (set, frozenset)):
        # the order of a set of texts differs between processes
        aliases = tuple(sorted(value, key=repr))
    elif isinstance(value, (list, tuple)) or (
        isinstance(value, np.ndarray) and value.ndim > 0 and value.dtype.kind in "OUT"
    ):
        aliases = tuple(value)
    else:
        aliases = (value,)
    if not aliases or any(map(is_missing, aliases)):
        raise ValueError(
            f"admissions[{i}] must be a reference, or a list of at least one, without None or NaN, "
            f"got {value!r:.80} instead."
        )
    return aliases


def _judged(admission: Admission, tasks: Sequence[Task], n_jobs: int | None) -> list[bool]:
    """Verdicts; a reference is asked about only where no earlier one of its list matched."""
    if not isinstance(admission, PairJudge) or (tasks and callable(tasks[0][0])):
        return map_chunks(_ask_each, tasks, admission, n_jobs=n_jobs)
    verdicts = [False] * len(tasks)
    undecided = list(range(len(tasks)))
    n_asked = 0
    with parallel_config(n_jobs=effective_n_jobs(n_jobs)):
        while undecided:
            pairs = [(tasks[t][0][n_asked], tasks[t][1]) for t in undecided]
            known: dict[int, bool] = {}
            take_verdicts(admission, pairs, known.__setitem__)
            for k, verdict in known.items():
                verdicts[undecided[k]] = verdict
            n_asked += 1
            undecided = [t for t in undecided if not verdicts[t] and len(tasks[t][0]) > n_asked]
    return verdicts


def take_verdicts(admission: PairJudge, pairs: Pairs, take: Callable[[int, bool], object]) -> None:
    """Hand on the verdict on each pair, checked, as it becomes known."""
    references, responses = map(list, zip(*pairs))
    wanted = set(range(len(pairs)))

    def checked(k: int, value: object) -> None:
        if k not in wanted:
            raise ValueError(
                f"admission {name_of(admission)} must give each position once, got {k!r:.40} too."
            )
        take(k, _as_verdict(value, admission))
        wanted.remove(k)  # last of all: where an interrupt came before, it is handed on again

    verdicts = admission.judge_pairs(references, responses)
    if isinstance(verdicts, ArrivingVerdicts):
        verdicts.hand_to(checked)
    else:
        for k, value in verdicts:
            checked(k, value)
    if wanted:
        raise ValueError(
            f"admission {name_of(admission)} must give (position, verdict) once for each pair, got "
            f"nothing on {len(wanted)} of {len(pairs)} pairs instead."
        )


def _ask_each(tasks: Sequence[Task], admission: Admission) -> list[bool]:
    return [
        verdict_of(judge, response)
        if callable(judge)
        else any(verdict_of(admission, response, reference) for reference in judge)
        for judge, response in tasks
    ]


def verdict_of(
    admission: Callable[..., object], response: Response, reference: Reference = None
) -> bool:
    """The verdict of a callable on one response, checked; errors tell what it was asked about."""
    try:
        value = admission(response) if reference is None else admission(reference, response)
        return _as_verdict(value, admission)
    except Exception as error:
        error.add_note(
            f"admission {name_of(admission)} was asked about the reference {reference!r:.80} and "
            f"the response {response!r:.80}."
        )
        error.asked_about = reference, response  # type: ignore[attr-defined]
        raise


def _as_verdict(value: object, admission: object) -> bool:
    if isinstance(value, (bool, np.bool_, int, np.integer)) and value in (0, 1):
        return bool(value)
    raise TypeError(
        f"admission {name_of(admission)} must return a bool (or 0 or 1), got {value!r:.80} instead."
    )


def warn_of_references(
    admission: str | Admission,
    admissions: Sequence[Any],
    responses: Sequence[Sequence[Response]] = (),
) -> None:
    """Warn of references that can hardly be judged, of all draws or some or none.

    A script that ROUGE-L does not know; labels that differ only in what matching ignores; printed
    lists; references that are no texts where all responses are, or the other way round.
    """
    judge = get_admission(admission)
    every = checked_admissions(admissions, len(admissions))
    references = [aliases for aliases in every if not callable(aliases)]
    drawn = list(chain.from_iterable(responses))
    if isinstance(judge, ThresholdAdmission):
        warn_of_script("admission", judge.metric, chain.from_iterable(references))
    if judge is exact_match:
        _warn_of_equal_labels(references)
    doubts: dict[str, list[tuple[Reference, ...]]] = {}
    if not any(map(_looks_like_a_list, drawn)):
        doubts[_PRINTED] = [row for row in references if any(map(_looks_like_a_list, row))]
    kinds = {isinstance(response, str) for response in drawn}
    if judge is exact_match and len(kinds) == 1:
        doubts[_OTHER_TYPE] = [
            row for row in references if kinds.isdisjoint(isinstance(one, str) for one in row)
        ]
    for why, rows in doubts.items():
        if rows and len(rows) >= _SIZEABLE * len(references):
            beside = f", to judge responses such as {drawn[0]!r:.40}" if drawn else ""
            warn(
                f"References of {len(rows)} of the {len(references)} prompts looked at, such as "
                f"{rows[0][0]!r:.80}{beside}, will hardly match any: {why}"
            )


def _warn_of_equal_labels(references: list[tuple[Reference, ...]]) -> None:
    texts = [row[0] for row in references if len(row) == 1 and isinstance(row[0], str)]
    labels = sorted({text.strip() for text in texts})
    # answers of open questions hardly recur
    if len(texts) < len(references) or 2 * len(labels) > len(texts):
        return
    first: dict[Hashable, str] = {}
    for label in labels:
        other = first.setdefault(answer_key(label), label)
        if other != label:
            warn(
                f"admission='exact_match' takes the references {other!r:.80} and {label!r:.80} "
                "for equal: it ignores case, articles and most punctuation. For labels that "
                "differ in these, use admission=operator.eq."
            )
            return


def _looks_like_a_list(value: object) -> bool:
    return isinstance(value, str) and _PRINTED_LIST.fullmatch(value) is not None
