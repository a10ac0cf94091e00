"""Verdicts: references checked, and judges asked about responses."""

import math
from collections.abc import Callable, Hashable, Iterable, Reversible, Sequence
from itertools import chain
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from joblib import effective_n_jobs, parallel_config

from sklearn_clm.generators.prompts import as_python, is_missing, listed, lists_itself
from sklearn_clm.scoring._callables import (
    asked_verdict,
    check_draws,
    checked_verdict,
    distinct_items,
    map_chunks,
    name_of,
)
from sklearn_clm.scoring._exact_match import exact_match
from sklearn_clm.scoring._similarity import warn_of_script
from sklearn_clm.scoring.admission import Pairs, ThresholdAdmission, get_admission
from sklearn_clm.scoring.protocols import Admission, PairJudge, Reference, Response, hand_on

# a callable A_i, or references of which any will do
Checked: TypeAlias = Callable[[Response], bool] | tuple[Reference, ...]
Task: TypeAlias = tuple[Any, Response]


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
    on_verdict: Callable[[], object] | None = None,
) -> list[np.ndarray]:
    """Verdicts, an array for each prompt, of any length.

    `on_verdict` is called as the first verdict on a response arrives from a judge of many pairs.
    """
    checked = normalized_admissions(admissions, len(responses))
    rows = [
        [(i, references, response) for response in row]
        for i, (references, row) in enumerate(zip(checked, responses))
    ]
    # equal pairs are judged once: a judge costs, and must not contradict itself
    tasks, numbers = distinct_items(rows, _judged_alike)
    pairs = [(references, response) for _, references, response in tasks]
    verdicts = np.array(_judged(get_admission(admission), pairs, n_jobs, on_verdict), dtype=bool)
    return [verdicts[row] for row in numbers]


def _judged_alike(task: tuple[int, Checked, Response]) -> Hashable:
    """Equal for responses that share a verdict."""
    i, references, response = task
    # 1, 1.0 and True are equal, but need not be judged alike
    judge = i if callable(references) else (references, tuple(map(type, references)))
    return judge, type(response), response


def check_admissions(y: Any, n_prompts: int, *, estimator: object = None) -> list[Reference]:
    """Admissions of any container as a checked list."""
    if y is None:
        name = "This estimator" if estimator is None else type(estimator).__name__
        raise ValueError(
            f"{name} requires y to be passed, but the target y is None: admissions (y) must hold, "
            "for each prompt, a reference or a function of a response."
        )

    is_array = hasattr(y, "__array__")
    # what is reversible has an order, which a set lacks
    if isinstance(y, (str, bytes, dict)) or not (is_array or isinstance(y, Reversible)):
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

    items = [as_python(item) for item in items]
    for i, item in enumerate(items):
        if isinstance(item, float) and math.isinf(item):
            raise ValueError(f"Input y contains infinity (at position {i}).")
    # for its errors alone, which are told before draws are paid for
    normalized_admissions(items, n_prompts)
    return items


def normalized_admissions(admissions: Sequence[Any], n_prompts: int) -> list[Checked]:
    """A callable, or a tuple of references, for each prompt."""
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
    if not aliases or any(is_missing(one) or callable(one) for one in aliases):
        raise ValueError(
            f"admissions[{i}] must be a callable, a reference, or a list of references without "
            f"None, NaN or callables, got {value!r:.80} instead."
        )
    return aliases


def _judged(
    admission: Admission,
    tasks: Sequence[Task],
    n_jobs: int | None,
    on_verdict: Callable[[], object] | None = None,
) -> list[bool]:
    """Verdicts, in which later references are asked only if needed."""
    if not isinstance(admission, PairJudge) or (tasks and callable(tasks[0][0])):
        return map_chunks(_ask_each, tasks, admission, n_jobs=n_jobs)
    verdicts = [False] * len(tasks)
    undecided = list(range(len(tasks)))
    n_asked = 0
    with parallel_config(n_jobs=effective_n_jobs(n_jobs)):
        while undecided:
            # the next reference of those whose earlier references admitted nothing
            pairs = [(tasks[t][0][n_asked], tasks[t][1]) for t in undecided]
            new_verdicts: dict[int, bool] = {}

            def take(k: int, verdict: bool) -> None:
                new_verdicts[k] = verdict  # noqa: B023 - called in this round alone
                if on_verdict is not None and n_asked == 0:  # noqa: B023
                    on_verdict()

            take_verdicts(admission, pairs, take)
            for k, verdict in new_verdicts.items():
                verdicts[undecided[k]] = verdict
            n_asked += 1
            undecided = [t for t in undecided if not verdicts[t] and len(tasks[t][0]) > n_asked]
    return verdicts


def take_verdicts(admission: PairJudge, pairs: Pairs, take: Callable[[int, bool], object]) -> None:
    """Hand on each verdict, checked, as it becomes known."""
    references, responses = map(list, zip(*pairs))
    missing = set(range(len(pairs)))

    def checked(k: int, value: object) -> None:
        if k not in missing:
            raise ValueError(
                f"admission {name_of(admission)} must give each position once, got {k!r:.40} too."
            )
        take(k, checked_verdict(value, admission))
        missing.remove(k)  # last of all: where an interrupt came before, it is handed on again

    hand_on(admission.judge_pairs(references, responses), checked)
    if missing:
        raise ValueError(
            f"admission {name_of(admission)} must give (position, verdict) once for each pair, got "
            f"nothing on {len(missing)} of {len(pairs)} pairs instead."
        )


def _ask_each(tasks: Sequence[Task], admission: Admission) -> list[bool]:
    """Verdicts, by a judge of the prompt's own or `admission`."""
    # `any` stops at the first reference that admits it: the others are not paid for
    return [
        asked_verdict(judge, response)
        if callable(judge)
        else any(asked_verdict(admission, response, reference) for reference in judge)
        for judge, response in tasks
    ]


def warn_of_references(admission: str | Admission, admissions: Sequence[Any]) -> None:
    """Warn where ROUGE-L judges references of an unknown script."""
    judge = get_admission(admission)
    if isinstance(judge, ThresholdAdmission):
        checked = normalized_admissions(admissions, len(admissions))
        references = [aliases for aliases in checked if not callable(aliases)]
        warn_of_script("admission", judge.metric, chain.from_iterable(references))


def refuse_non_texts(
    admission: str | Admission, admissions: Sequence[Any], responses: Iterable[Response]
) -> None:
    """Refuse texts beside numbers or bytes, which equal none."""
    if get_admission(admission) is not exact_match:
        return
    checked = normalized_admissions(admissions, len(admissions))
    references = [one for aliases in checked if not callable(aliases) for one in aliases]
    drawn = list(responses)
    # numbers read from a file as text equal no number: all would be errors, and nobody would see
    # why
    for texts, others in ((drawn, references), (references, drawn)):
        are_texts = all(isinstance(one, str) for one in texts)
        if texts and others and are_texts and all(isinstance(one, (Real, bytes)) for one in others):
            raise TypeError(
                "admissions (y) must be texts where responses are texts, and not where they are "
                f"not, since exact_match admits no text for another value, got {references[0]!r} "
                f"and {drawn[0]!r} instead."
            )
