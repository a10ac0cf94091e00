"""Learn Then Test for groups of prompts: one path for all, one test for each.

A certificate for all prompts together says nothing about a group of them: easy groups pay for hard
ones. Here the frontier is searched on the optimisation part of all groups, and each group tests it
on its own calibration prompts.

1. Given the optimisation part, the frontier is fixed, and the calibration prompts of a group are
   i.i.d. from that group.
2. Hence fixed sequence testing at level d on them certifies, with probability 1 - d, only
   configurations whose risk *within the group* is at most epsilon.
3. With d = delta each of the G claims holds with probability 1 - delta. With d = delta / G all hold
   together with probability 1 - delta (union bound).

The group of a prompt must be known from the prompt alone: a group that depends on the responses or
on their labels makes step 1 wrong.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from sklearn_clm.calibration._binomial import (
    check_probability,
    mistaken_delta,
    mistaken_epsilon,
    prompts_needed,
    warn_caller,
)
from sklearn_clm.calibration._data import CalibrationData, RandomState, check_data, split_of
from sklearn_clm.calibration._learn_then_test import (
    Frontier,
    LearnThenTestResult,
    frontier_tests,
    refuse_frontier,
    search_frontier,
)
from sklearn_clm.calibration._set_scores import SetScoreLike


@dataclass(frozen=True, eq=False)
class GroupResults(Mapping[Hashable, LearnThenTestResult | None]):
    """Results of Learn Then Test by group.

    A mapping from each group to its result; None for a group with too few prompts for any test,
    which is null like a result whose `lambda_hat` is None.

    Parameters
    ----------
    results : mapping from group to LearnThenTestResult or None
        In the order in which groups first occur.
    frontier : Frontier
        The configurations that all groups tested.
    n_calibration : mapping from group to int
        Prompts of each group in the calibration part.
    n_needed : int
        Calibration prompts that a group needs for any test.
    epsilon, delta : float
        As asked for.
    group_guarantee : {"each", "all"}
        Whether each claim holds with probability ``1 - delta``, or all do together.
    group_delta : float
        Level of the tests within a group: delta, or delta / G.

    Examples
    --------
    See :func:`learn_then_test_groups`.
    """

    results: Mapping[Hashable, LearnThenTestResult | None]
    frontier: Frontier
    n_calibration: Mapping[Hashable, int]
    n_needed: int
    epsilon: float
    delta: float
    group_guarantee: Literal["each", "all"]
    group_delta: float

    def __getitem__(self, group: Hashable) -> LearnThenTestResult | None:
        return self.results[group]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    @property
    def null_groups(self) -> tuple[Hashable, ...]:
        """Groups for which nothing was certified."""
        return tuple(
            group for group, result in self.items() if result is None or result.lambda_hat is None
        )

    @property
    def missing_prompts(self) -> dict[Hashable, int]:
        """Calibration prompts that each group too small for a test lacks."""
        return {
            group: self.n_needed - n
            for group, n in self.n_calibration.items()
            if self.results[group] is None
        }

    def why_null(self) -> str | None:
        """Why groups are null, and what would help.

        Returns
        -------
        str or None
            A sentence for each null group; None if there is none.
        """
        sentences = []
        for group in self.null_groups:
            result, n = self.results[group], self.n_calibration[group]
            if result is None:
                sentences.append(
                    f"Group {group!r} is null: {n} calibration prompts are too few for any test "
                    f"at epsilon={self.epsilon:g} and level {self.group_delta:g}, it lacks "
                    f"{self.n_needed - n} of {self.n_needed}."
                )
            else:
                sentences.append(
                    f"Group {group!r} is null: no configuration could be certified with {n} "
                    f"calibration prompts; the smallest epsilon that they certify is "
                    f"{result.smallest_epsilon:.3g}."
                )
        return " ".join(sentences) or None

    def __repr__(self) -> str:
        return f"GroupResults(groups={list(self.results)!r}, null={list(self.null_groups)!r})"


def learn_then_test_groups(
    data: CalibrationData,
    groups: Sequence[Hashable] | np.ndarray,
    epsilon: float,
    delta: float = 0.05,
    *,
    group_guarantee: Literal["each", "all"] = "each",
    set_score: SetScoreLike = "max",
    random_state: RandomState = None,
    n_lambdas: int = 25,
    optimization_fraction: float = 1 / 3,
    size_weight: float = 0.5,
    excess_weight: float = 0.5,
    draw_weight: float = 0.0,
    select: Literal["objective", "last"] = "objective",
    k_max: int | Sequence[int] | None = None,
    frontier: Frontier | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> GroupResults:
    """Choose a configuration for each group whose risk within it is at most epsilon.

    Parameters
    ----------
    data : CalibrationData
        Independent prompts, identically distributed within each group with those to come.
    groups : sequence of hashable, shape (n,)
        Group of each prompt, known from the prompt alone.
    epsilon : float
        Tolerated risk within each group, in (0, 1).
    delta : float, default=0.05
        Tolerated probability, over the calibration data, that a risk is exceeded; in (0, 1).
    group_guarantee : {"each", "all"}, default="each"
        "each": the claim for any one group holds with probability ``1 - delta``. "all": the
        claims for all groups hold together with it; each of the G groups is tested at delta / G.
    set_score, random_state, n_lambdas, optimization_fraction
        As in :func:`learn_then_test`. The split is one for all groups.
    size_weight, excess_weight, draw_weight, select, k_max, frontier, n_jobs, verbose
        As in :func:`learn_then_test`.

    Returns
    -------
    GroupResults
        A result for each group. Groups that are too small are null, and
        :meth:`GroupResults.why_null` says how many prompts they lack.

    Raises
    ------
    ValueError
        If `groups` has another length than the data, or a group is None or NaN; if a parameter
        is out of range; if all groups are too small.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.calibration import CalibrationData, learn_then_test_groups
    >>> rng = np.random.default_rng(0)
    >>> quality = rng.random((600, 5))
    >>> data = CalibrationData(quality, rng.random((600, 5, 5)), rng.random((600, 5)) < quality)
    >>> groups = np.repeat(["Romance", "Slavic", "Uralic"], [400, 190, 10])
    >>> found = learn_then_test_groups(data, groups, 0.3, random_state=0)
    >>> found.null_groups, found.missing_prompts
    (('Uralic',), {'Uralic': 4})
    >>> found["Slavic"].n_calibration
    127
    """
    check_data(data)
    check_probability(epsilon, "epsilon")
    check_probability(delta, "delta")
    if group_guarantee not in ("each", "all"):
        raise ValueError(
            f"group_guarantee must be 'each' or 'all', got {group_guarantee!r} instead."
        )
    if np.ndim(epsilon) != 0 or np.ndim(delta) != 0:
        raise ValueError(
            f"epsilon and delta must be single numbers, got {epsilon!r} and {delta!r} instead."
        )
    first_error = float(np.mean(~data.admissible[:, 0]))
    warn_caller(mistaken_delta(delta), mistaken_epsilon(epsilon, first_error))
    names, of_prompt = check_groups(groups, data.n_prompts)
    calibration = np.arange(data.n_prompts)
    if frontier is None:
        optimization, calibration = split_of(data, optimization_fraction, random_state)
        frontier = search_frontier(
            data.take(optimization),
            set_score=set_score,
            n_lambdas=n_lambdas,
            size_weight=size_weight,
            excess_weight=excess_weight,
            draw_weight=draw_weight,
            k_max=k_max,
            n_jobs=n_jobs,
            verbose=verbose,
        )
    else:
        refuse_frontier(frontier, data)
    level = float(delta) / len(names) if group_guarantee == "all" else float(delta)
    needed = prompts_needed(float(epsilon), level)
    members = [calibration[of_prompt[calibration] == g] for g in range(len(names))]
    if max(map(len, members)) < needed:
        raise ValueError(
            f"groups must hold at least {needed} calibration prompts for a test at epsilon="
            f"{epsilon:g} and level {level:g}, got "
            + ", ".join(f"{len(part)} in {name!r}" for name, part in zip(names, members))
            + " instead."
        )
    results: dict[Hashable, LearnThenTestResult | None] = {
        name: None
        if len(part) < needed
        else frontier_tests(
            data.take(part),
            frontier,
            [float(epsilon)],
            level,
            set_score=set_score,
            select=select,
            n_jobs=n_jobs,
            verbose=verbose,
            size_weight=size_weight,
            excess_weight=excess_weight,
            draw_weight=draw_weight,
        )[0]
        for name, part in zip(names, members)
    }
    return GroupResults(
        results=results,
        frontier=frontier,
        n_calibration={name: len(part) for name, part in zip(names, members)},
        n_needed=needed,
        epsilon=float(epsilon),
        delta=float(delta),
        group_guarantee=group_guarantee,
        group_delta=level,
    )


def check_groups(groups: object, n_prompts: int) -> tuple[list[Hashable], np.ndarray]:
    """The groups in the order in which they first occur, and the position of each prompt's."""
    # a set has no order, and a mapping would give its keys
    if isinstance(groups, (str, bytes, Mapping, Set)) or not isinstance(groups, _Column):
        raise TypeError(
            f"groups must be a sequence with one group for each prompt, got "
            f"{type(groups).__name__} instead."
        )
    if isinstance(groups, _Shaped) and len(groups.shape) != 1:
        raise ValueError(f"groups must have shape (n,), got {tuple(groups.shape)} instead.")
    items = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
    if len(items) != n_prompts:
        raise ValueError(
            f"groups must be as many as prompts, {n_prompts}, got {len(items)} instead."
        )
    positions: dict[Hashable, int] = {}
    of_prompt = np.empty(n_prompts, dtype=np.intp)
    for i, item in enumerate(items):
        if _is_missing(item):
            raise ValueError(f"groups must not be missing, got {item!r} at position {i} instead.")
        name = item.item() if isinstance(item, np.generic) else item
        try:
            of_prompt[i] = positions.setdefault(name, len(positions))
        except TypeError:
            raise TypeError(
                f"groups must be hashable, such as text or numbers, got {type(item).__name__} at "
                f"position {i} instead."
            ) from None
    return list(positions), of_prompt


def _is_missing(item: object) -> bool:
    # NaN alone differs from itself; a comparison with the NA of pandas has no truth value, nor has
    # one of arrays, and a signaling NaN refuses it
    if item is None or type(item).__name__ in ("NAType", "NaTType"):
        return True
    try:
        return bool(item != item)
    except ArithmeticError:
        return True
    except ValueError:
        return False


@runtime_checkable
class _Shaped(Protocol):
    """An array or a data frame."""

    @property
    def shape(self) -> tuple[int, ...]: ...


@runtime_checkable
class _Column(Protocol):
    """A column of items, such as an array or a series."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[object]: ...
