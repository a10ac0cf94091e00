"""Admission A: whether a response is acceptable (section 3 of the paper)."""

import math
import re
from collections.abc import Callable, Hashable, Iterator, Sequence, Sized
from numbers import Number, Real
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from sklearn_clm._exceptions import warn
from sklearn_clm.generators._draws import is_missing
from sklearn_clm.generators._prompts import listed, lists_itself
from sklearn_clm.scoring._exact_match import answer_key, exact_match, same_value
from sklearn_clm.scoring._parallel import map_chunks
from sklearn_clm.scoring._protocols import (
    Admission,
    PairAdmission,
    PairJudge,
    Reference,
    Response,
    Responses,
    StreamingJudge,
)
from sklearn_clm.scoring._results import (
    Named,
    as_bool,
    as_score,
    by_name,
    check_draws,
    name_of,
    wrong_kind,
)
from sklearn_clm.scoring._similarity import rouge_l, warn_of_script

# a callable A_i, or references of which any will do
Checked: TypeAlias = Callable[[Response], bool] | tuple[Reference, ...]
Task: TypeAlias = tuple[Any, Response]

_SIZEABLE = 0.05  # share of prompts, below which nothing is said of their references
_PRINTED_LIST = re.compile(r"""\s*\[\s*["'].*["']\s*,?\s*\]\s*""", re.DOTALL)


class ThresholdAdmission(Named):
    """Admission of responses whose metric reaches a threshold.

    Also under the name ``threshold_admission``.

    Parameters
    ----------
    metric : callable (reference, response) -> float
        Any metric in scikit-learn's order, ``f(y_true, y_pred)``; greater is better.
    threshold : float
        The smallest value that is admitted.

    Raises
    ------
    TypeError
        If `metric` is not callable, or `threshold` not a number.
    ValueError
        If `threshold` is NaN; when called, if the metric gives NaN or no real number.

    Notes
    -----
    It can be pickled if `metric` can.

    Examples
    --------
    >>> from sklearn_clm.scoring import rouge_l, threshold_admission
    >>> acceptable = threshold_admission(rouge_l, 0.4)
    >>> acceptable
    threshold_admission(rouge_l, 0.4)
    >>> acceptable("the heart is normal", "the heart is large")
    True
    """

    def __init__(self, metric: Callable[[Any, Any], Any], threshold: float) -> None:
        if not callable(metric):
            raise TypeError(
                f"metric must be a callable (reference, response) -> float, got {metric!r:.80}."
            )
        if not isinstance(threshold, (float, Real)):
            raise TypeError(f"threshold must be a number, got {threshold!r:.80}.")
        if np.isnan(float(threshold)):
            raise ValueError("threshold must be a number, got NaN.")
        self.metric = metric
        self.threshold = float(threshold)

    def __call__(self, reference: Reference, response: Response) -> bool:
        """Whether the metric of `response` against `reference` is at least the threshold."""
        value = as_score(
            self.metric(reference, response),
            "admission",
            self,
            f"the reference {reference!r:.80} and the response {response!r:.80}",
        )
        return value >= self.threshold

    def __repr__(self) -> str:
        return f"threshold_admission({name_of(self.metric)}, {self.threshold})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ThresholdAdmission)
            and self.metric == other.metric
            and self.threshold == other.threshold
        )

    def __hash__(self) -> int:
        return hash((self.metric, self.threshold))


threshold_admission = ThresholdAdmission


class LabelMatch(Named, PairAdmission):
    """Admission of responses to which a labeller gives the labels of the reference.

    As the paper judges radiology reports: by the 14 labels that CheXbert finds in the report
    drawn and in the radiologist's. Also under the name ``label_match``.

    Parameters
    ----------
    labeler : callable, or fitted classifier with ``predict``
        Gives a text its labels: a label, or a vector of them. Vectors are equal if all entries
        are.
    batched : bool, default=None
        Whether `labeler` takes a list of texts and gives the labels of each, in order, rather than
        a single text. None: only if it has a method ``predict``, which is then called.

    Raises
    ------
    TypeError
        If `labeler` is neither callable nor has ``predict``.
    ValueError
        When called: if a label is None or NaN, or if there are not as many labels as texts.

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

    judges_whole = True
    judges_aliases = True

    def __init__(self, labeler: Any, *, batched: bool | None = None) -> None:
        has_predict = hasattr(labeler, "predict")
        if isinstance(labeler, type) or not (callable(labeler) or has_predict):
            raise wrong_kind("labeler", "a callable, or a classifier with predict", labeler)
        self.labeler = labeler
        self.batched = has_predict if batched is None else bool(batched)

    def judge_pairs(
        self, references: Responses, responses: Responses, *, n_jobs: int | None = None
    ) -> list[bool]:
        """Verdict on each pair, as in :class:`PairJudge`; each distinct text is labelled once."""
        texts = list(dict.fromkeys([*references, *responses]))
        labels = dict(zip(texts, map_chunks(self._label, texts, n_jobs=n_jobs)))
        return [
            same_value(labels[reference], labels[response])
            for reference, response in zip(references, responses)
        ]

    def _label(self, texts: list[Response]) -> list[Response]:
        if not self.batched:
            return [_as_labels(self.labeler(text), text, self) for text in texts]
        predict = getattr(self.labeler, "predict", self.labeler)
        labels = list(predict(texts))
        if len(labels) != len(texts):
            raise ValueError(
                f"admission {self!r}: the labeler gave {len(labels)} labels for {len(texts)} "
                "texts; wanted one (or one row) for each."
            )
        return [_as_labels(label, text, self) for label, text in zip(labels, texts)]

    def __repr__(self) -> str:
        return f"label_match({name_of(self.labeler)})"


label_match = LabelMatch


def _as_labels(label: object, text: Response, admission: LabelMatch) -> object:
    if hasattr(label, "detach"):
        # a tensor, wherever it lives
        label = label.detach().cpu().numpy()
    entries = np.ravel(np.asarray(label, dtype=object))
    if any(entry is None or entry != entry for entry in entries):
        raise ValueError(
            f"admission {admission!r}: the labeler gave {label!r:.80} for {text!r:.80}; wanted a "
            "label or a vector of labels without None or NaN."
        )
    return label


# the paper takes 0.4 for sentences and 0.35 for summaries: what holds for the stricter of the two
# holds for the other as well
ROUGE_L_ADMITS = 0.4
_ADMISSIONS: dict[str, Admission] = {
    "exact_match": exact_match,
    "rouge_l": ThresholdAdmission(rouge_l, ROUGE_L_ADMITS),
}


def get_admission(admission: str | Admission) -> Admission:
    """Admission from its name.

    Parameters
    ----------
    admission : {"exact_match", "rouge_l"} or callable
        "rouge_l" admits a ROUGE-L of at least 0.4. A callable
        ``f(reference, response) -> bool`` judges one response. Where it has a method
        ``judge_pairs``, that is used instead: see :class:`PairJudge`.

    Returns
    -------
    callable (reference, response) -> bool
        The admission.

    Raises
    ------
    ValueError
        If the name is unknown.
    TypeError
        If it is neither a name nor a callable.

    Examples
    --------
    >>> from sklearn_clm.scoring import get_admission
    >>> get_admission("rouge_l")
    threshold_admission(rouge_l, 0.4)
    """
    if isinstance(admission, str):
        others = " or a callable (reference, response) -> bool"
        return by_name("admission", admission, _ADMISSIONS, others)
    if isinstance(admission, type) or not callable(admission):
        wanted = "a name or a callable (reference, response) -> bool"
        raise wrong_kind("admission", wanted, admission)
    return admission


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
        As in :func:`get_admission`. Not used where `admissions` are callables.
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

    Raises
    ------
    TypeError
        If an admission returns something other than a bool, 0 or 1, or if callables and
        references are mixed.
    ValueError
        If `admissions` and `responses` differ in length, a reference is None or NaN, a set of
        references is empty, or prompts have different numbers of responses.

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
    """:func:`admission_matrix` for prompts with different numbers of responses.

    Returns a boolean array for each prompt.
    """
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
    if tasks and callable(tasks[0][0]):
        verdicts = map_chunks(_ask_each, tasks, n_jobs=n_jobs)
    else:
        verdicts = _judge_references(get_admission(admission), tasks, n_jobs)
    known = np.array(verdicts, dtype=bool)
    return [known[np.array(row_tasks, dtype=np.intp)] for row_tasks in rows]


def check_admissions(y: Any, n_prompts: int, *, estimator: object = None) -> list[Reference]:
    """Admissions of any container as a list: callables, references or lists of references."""
    name = "This estimator" if estimator is None else type(estimator).__name__
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")
    if isinstance(y, (str, bytes, dict, Number)) or callable(y):
        raise TypeError(
            f"admissions (y) must be a sequence with one entry per prompt, got "
            f"{type(y).__name__} {y!r:.60}."
        )
    if sparse.issparse(y):
        raise TypeError("admissions (y) must be dense, got a sparse matrix.")
    if hasattr(y, "__array__"):
        array = np.asarray(y)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim == 0:
            raise TypeError("admissions (y) must be a sequence with one entry per prompt.")
        # a row of numbers is one reference, such as a vector of labels
        items = listed(y, array) if array.ndim == 1 or lists_itself(y) else list(array)
    elif hasattr(y, "__len__") and hasattr(y, "__iter__"):
        items = list(y)
    else:
        raise TypeError(
            f"admissions (y) must be a sequence with one entry per prompt, got {type(y).__name__}."
        )
    items = [_plain(item) for item in items]
    for i, item in enumerate(items):
        if is_missing(item):
            raise ValueError(
                f"admissions (y) holds {item!r} at position {i}; wanted a callable, a reference "
                "or a list of references for every prompt."
            )
        if isinstance(item, float) and math.isinf(item):
            raise ValueError(f"Input y contains infinity (at position {i}).")
    if len(items) != n_prompts:
        raise ValueError(
            f"prompts (X) holds {n_prompts} and admissions (y) {len(items)} entries; wanted one "
            "admission per prompt."
        )
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
    if isinstance(admissions, (str, bytes)) or not isinstance(admissions, Sized):
        raise TypeError(
            "admissions must be a sequence with a callable or a reference for each prompt, got "
            f"{type(admissions).__name__} {admissions!r:.80}."
        )
    if len(admissions) != n_prompts:
        raise ValueError(
            f"admissions has length {len(admissions)}; wanted {n_prompts}, one for each prompt."
        )
    checked = list(admissions)
    of_callables = bool(checked) and callable(checked[0])
    kinds = ("callable", "reference") if of_callables else ("reference", "callable")
    for i, value in enumerate(checked):
        if callable(value) != of_callables:
            raise TypeError(
                f"admissions mixes callables and references: admissions[0] is a {kinds[0]} and "
                f"admissions[{i}] a {kinds[1]} ({value!r:.80}); wanted one kind for all prompts."
            )
    if of_callables:
        return checked
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
    if not aliases:
        raise ValueError(
            f"admissions[{i}] is an empty {type(value).__name__} of references; wanted at least "
            "one."
        )
    for alias in aliases:
        if is_missing(alias):
            raise ValueError(
                f"admissions[{i}] is {value!r:.80}; wanted a reference, or a list of references, "
                "without None or NaN."
            )
    return aliases


def _judge_references(
    admission: Admission, tasks: Sequence[Task], n_jobs: int | None
) -> list[bool]:
    if not isinstance(admission, PairJudge):
        return map_chunks(_compare_each, tasks, admission, n_jobs=n_jobs)
    whole = getattr(admission, "judges_whole", False)
    if whole and not getattr(admission, "judges_aliases", False):
        return _judge_in_rounds(admission, tasks, n_jobs)
    pairs = [(reference, response) for aliases, response in tasks for reference in aliases]
    if not pairs:
        return []
    if whole:
        values = _judge_chunk(pairs, admission, n_jobs=n_jobs)
    else:
        values = map_chunks(_judge_chunk, pairs, admission, n_jobs=n_jobs)
    first = np.cumsum([0] + [len(aliases) for aliases, _ in tasks[:-1]])
    return list(np.logical_or.reduceat(np.array(values, dtype=bool), first))


def _judge_in_rounds(admission: PairJudge, tasks: Sequence[Task], n_jobs: int | None) -> list[bool]:
    """Verdicts of a judge who is asked about a reference only where no earlier one matched."""
    verdicts = [False] * len(tasks)
    undecided = list(range(len(tasks)))
    n_asked = 0
    while undecided:
        pairs = [(tasks[t][0][n_asked], tasks[t][1]) for t in undecided]
        values = _judge_chunk(pairs, admission, n_jobs=n_jobs)
        for t, value in zip(undecided, values):
            verdicts[t] = value
        n_asked += 1
        undecided = [t for t in undecided if not verdicts[t] and len(tasks[t][0]) > n_asked]
    return verdicts


def _judge_chunk(
    pairs: Sequence[tuple[Reference, Response]], admission: PairJudge, **options: int | None
) -> list[bool]:
    references, responses = map(list, zip(*pairs))
    values = list(admission.judge_pairs(references, responses, **options))
    if len(values) != len(pairs):
        raise _wrong_count(admission, len(values), len(pairs))
    return [
        _as_verdict(value, admission, response, reference)
        for value, (reference, response) in zip(values, pairs)
    ]


def stream_verdicts(
    admission: StreamingJudge, pairs: Sequence[tuple[Reference, Response]]
) -> Iterator[tuple[int, bool]]:
    """Positions of pairs and their verdicts, checked, as they become known."""
    references = [reference for reference, _ in pairs]
    checked_admissions([(reference,) for reference in references], len(pairs))
    wanted = set(range(len(pairs)))
    for k, value in admission.stream_verdicts(references, [response for _, response in pairs]):
        if k not in wanted:
            raise ValueError(
                f"admission {name_of(admission)} gave a verdict on pair {k!r:.20}; wanted one on "
                f"each of the pairs 0 to {len(pairs) - 1}."
            )
        wanted.remove(k)
        reference, response = pairs[k]
        yield k, _as_verdict(value, admission, response, reference)
    if wanted:
        raise _wrong_count(admission, len(pairs) - len(wanted), len(pairs))


def _wrong_count(admission: object, n_verdicts: int, n_pairs: int) -> ValueError:
    return ValueError(
        f"admission {name_of(admission)} gave {n_verdicts} verdicts for {n_pairs} pairs of "
        "reference and response."
    )


def _compare_each(tasks: Sequence[Task], admission: Admission) -> list[bool]:
    return [
        any(_verdict_of(admission, text, alias) for alias in aliases) for aliases, text in tasks
    ]


def _ask_each(tasks: Sequence[Task]) -> list[bool]:
    return [_verdict_of(accept, response) for accept, response in tasks]


def _verdict_of(
    admission: Callable[..., object], response: Response, reference: Reference = None
) -> bool:
    try:
        value = admission(response) if reference is None else admission(reference, response)
    except Exception as error:
        asked = _about(response, reference)
        error.add_note(f"admission {name_of(admission)} was asked about {asked}.")
        error.asked_about = reference, response  # type: ignore[attr-defined]
        raise
    return _as_verdict(value, admission, response, reference)


def _about(response: Response, reference: Reference) -> str:
    given = "" if reference is None else f"the reference {reference!r:.80} and "
    return f"{given}the response {response!r:.80}"


def _as_verdict(
    value: object, admission: object, response: Response, reference: Reference = None
) -> bool:
    verdict = as_bool(value)
    if verdict is None:
        raise TypeError(
            f"admission {name_of(admission)} returned {value!r:.80} ({type(value).__name__}) for "
            f"{_about(response, reference)}; wanted a bool (or 0 or 1)."
        )
    return verdict


def warn_of_references(
    admission: str | Admission,
    admissions: Sequence[Any],
    responses: Sequence[Sequence[Response]] = (),
) -> None:
    """Warn of references that can hardly be judged.

    Parameters
    ----------
    admission : str or callable
        As in :func:`get_admission`. Of others than "exact_match" and those that compare by
        ROUGE-L, only printed lists are known to be hard to judge.
    admissions : sequence of length n
        As in :func:`admission_matrix`.
    responses : sequence of n sequences of responses, default=()
        Some or all draws, where they are known.

    Warns
    -----
    UserWarning
        Where references that recur, as class labels do, are distinguished only by what matching
        ignores ("a_b" and "a-b", "US" and "us"); where the references of 5 % of the prompts or
        more are no texts but all responses are, or the other way round, so that none can match;
        where as many references are texts of a printed list; and where ROUGE-L meets references
        in another script than the Latin one, whose words it does not know.

    Examples
    --------
    >>> import warnings
    >>> from sklearn_clm.scoring import warn_of_references
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_references("exact_match", ["us", "US", "us", "US"])
    >>> print(caught[0].message)
    admission='exact_match' takes the references 'US' and 'us' for equal...
    """
    judge = get_admission(admission)
    every = checked_admissions(admissions, len(admissions))
    checked = [value for value in every if not callable(value)]
    _warn_of_printed_lists(checked, responses)
    if judge is not exact_match and not isinstance(judge, ThresholdAdmission):
        return
    if isinstance(judge, ThresholdAdmission):
        aliases = (alias for value in checked for alias in value)
        warn_of_script("admission", judge.metric, aliases)
        return
    texts = [value[0] for value in checked if len(value) == 1 and isinstance(value[0], str)]
    labels = sorted({text.strip() for text in texts})
    if len(texts) == len(checked) and 2 * len(labels) <= len(texts):
        seen: dict[Hashable, str] = {}
        for label in labels:
            other = seen.setdefault(answer_key(label), label)
            if other != label:
                warn(
                    f"admission='exact_match' takes the references {other!r:.80} and {label!r:.80} "
                    "for equal: it ignores case, articles and most punctuation. For labels that "
                    "differ in these, use admission=operator.eq."
                )
                break
    _warn_of_other_types(checked, [response for row in responses for response in row])


def _warn_of_other_types(references: list[tuple[Reference, ...]], drawn: list[Response]) -> None:
    kinds = {isinstance(response, str) for response in drawn}
    lost = [row for row in references if kinds.isdisjoint(isinstance(one, str) for one in row)]
    if len(kinds) == 1 and lost and len(lost) >= _SIZEABLE * len(references):
        warn(
            f"References are of type {type(lost[0][0]).__name__} and responses of type "
            f"{type(drawn[0]).__name__}, such as {lost[0][0]!r:.40} and {drawn[0]!r:.40}, for "
            f"{len(lost)} of {len(references)} prompts looked at: admission='exact_match' never "
            "takes a text for equal to another object, so that no response is admissible there. "
            "Convert the references to the type of the responses."
        )


def _warn_of_printed_lists(
    references: list[tuple[Reference, ...]], responses: Sequence[Sequence[Response]]
) -> None:
    printed = [one for row in references for one in row if _looks_like_a_list(one)]
    if len(printed) < max(_SIZEABLE * len(references), 1):
        return
    if any(_looks_like_a_list(one) for row in responses for one in row):
        return  # lists are what is asked for
    warn(
        f"{len(printed)} references of {len(references)} prompts looked at are texts that look "
        f"like a printed list, such as {printed[0]!r:.80}, and each counts as one text: a list "
        "that was saved in a CSV file comes back so. Wanted lists, any text of which will do, as "
        "ast.literal_eval makes them, unless an admission of your own reads such texts."
    )


def _looks_like_a_list(value: object) -> bool:
    return isinstance(value, str) and _PRINTED_LIST.fullmatch(value) is not None
