"""Rows: which prompts count, by a split, groups, a shift.

One part of the prompts may be spent on the search of a path; the others test it. Rows are taken in
the order of the digests of their prompts, and split at random in that order: whatever follows sees
the same rows in the same order, however the table was sorted.

**Groups** partition the prompts: a certificate for all of them together says nothing about a group,
since easy groups pay for hard ones.

1. Given the optimisation part, the path is fixed, and the calibration prompts of a group are
   independent draws from that group.
2. Hence a test at level d on them speaks, with confidence 1 - d, of the risk *within the group*.
3. With d = delta each of the G claims holds with probability 1 - delta. With d = delta / G all hold
   together with probability 1 - delta (union bound).

The group of a prompt must be known from the prompt alone: a group that depends on the responses or
on their labels makes step 1 wrong.

**A shift** keeps some of the prompts: new ones have the density w(x) relative to the calibration
prompts, with 0 <= w(x) <= B, and prompt i is kept with probability w_i / B, independently of
everything else.

1. P(x is kept) is proportional to w(x), so that a kept prompt is distributed as a new one.
2. The decision uses the prompt alone, hence given the number of kept prompts their losses are
   i.i.d. with the new risk.
3. The exact binomial test on the kept prompts is therefore valid, given that number. What is
   dropped need not be judged.

With weights that were estimated the guarantee is approximate.
"""

import hashlib
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration.checks import as_array
from sklearn_clm.calibration.digests import numbered

_FEW_REPEATED = 0.9  # share of independent rows from which on repetitions are not worth a word
# the same of all rows, where few tested ones repeat: a prompt that is missing in a third of tests
# makes .053 of the calibrations false at most where .05 may be
_FEW_UNTESTED = 0.8
_MORE_OFTEN = (
    "the risk may exceed its bound more often than is promised. Pass each prompt once, with a list "
    "of references where it has several."
)
_SEED_OF_STAKES = 0x636F7374  # of the coins that put prompts at stake

RandomState = int | np.random.Generator | np.random.RandomState | None


class Part(NamedTuple):
    """Prompts that are tested together."""

    rows: np.ndarray  # positions of the tested prompts
    searched: np.ndarray  # positions in the optimisation part, of the same group
    delta: float  # level of their tests
    group: Hashable | None = None  # None for all prompts together
    # digests of the prompts, of the same group, that trained a generator or a score
    left_out: np.ndarray = np.empty(0, dtype=np.uint64)

    @property
    def all_rows(self) -> np.ndarray:
        """Positions of all prompts, those that searched first."""
        return np.concatenate((self.searched, self.rows))


def parts_to_test(
    searched: np.ndarray,
    tested: np.ndarray,
    delta: float,
    groups: Sequence[Hashable] | None = None,
    *,
    together: bool = False,
) -> list[Part]:
    """The tested parts: each group, and last all prompts.

    With `together` the claims of all groups hold with confidence 1 - delta, otherwise each one
    does. Where there are groups, all prompts are tested for comparison alone.
    """
    if groups is None:
        return [Part(tested, searched, delta)]
    names = list(dict.fromkeys(groups))
    number_of = {name: number for number, name in enumerate(names)}
    group_of_prompt = np.array([number_of[name] for name in groups])
    level = delta / len(names) if together else delta
    parts = []
    for number, name in enumerate(names):
        tested_of_group = tested[group_of_prompt[tested] == number]
        searched_of_group = searched[group_of_prompt[searched] == number]
        parts.append(Part(tested_of_group, searched_of_group, level, name))
    return [*parts, Part(tested, searched, delta)]


def check_groups(groups: object, n_prompts: int) -> list[Hashable]:
    """The group of each prompt."""
    # a set has no order, and a mapping would give its keys
    if isinstance(groups, (str, bytes, Mapping, Set)) or not isinstance(groups, Iterable):
        raise TypeError(f"groups must be a sequence, got {type(groups).__name__} instead.")
    items = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
    if len(items) != n_prompts:
        raise ValueError(
            f"groups must be as many as prompts, {n_prompts}, got {len(items)} instead."
        )
    try:
        # NaN and NaT differ from themselves
        if any(item is None or item != item for item in items):
            raise ValueError("groups must not be missing, got None or NaN instead.")
        names = [item.item() if isinstance(item, np.generic) else item for item in items]
        first: dict[Hashable, Hashable] = {}  # 1 and True are equal: the first stands for both
        return [first.setdefault(name, name) for name in names]
    except TypeError:  # which pandas.NA raises, too
        raise TypeError("groups must be hashable, such as text or numbers.") from None


def split_prompts(
    digests: np.ndarray, n_first: int, random_state: RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Split rows at random, equal digests into the same part.

    The first part has as near to `n_first` rows as whole prompts allow. Each part has one prompt at
    least, if there are two prompts; a single prompt is in the first part. Which prompts a part has
    depends on the digests and on `random_state` alone: tables come sorted, by topic or by outcome,
    and a split by positions would not be a random one. The positions are in the order of the
    digests; those of equal digests ascend.
    """
    distinct, prompt_of_row, n_rows = np.unique(digests, return_inverse=True, return_counts=True)
    shuffled = random_stream(distinct, random_state).permutation(len(distinct))
    # rows in the first part if it has one prompt, two, ..., all but one
    sizes = np.cumsum(n_rows[shuffled])[:-1]
    n_prompts = 1
    if len(sizes):
        n_prompts += int(np.argmin(np.abs(sizes - n_first)))
    order = np.argsort(prompt_of_row, kind="stable")
    is_first = np.isin(prompt_of_row[order], shuffled[:n_prompts])
    return order[is_first], order[~is_first]


def optimization_size(n_prompts: int, fraction: float) -> int:
    """Number of prompts in the optimisation part."""
    if not 0.0 < fraction < 1.0:
        raise ValueError(f"fraction must lie strictly between 0 and 1, got {fraction!r} instead.")
    if n_prompts < 2:
        raise ValueError(f"data must hold at least 2 prompts to split, got {n_prompts} instead.")
    return min(max(round(fraction * n_prompts), 1), n_prompts - 1)


def size_that_leaves(n_calibration: int, fraction: float) -> int:
    """Fewest prompts whose split leaves `n_calibration` for the tests."""
    if n_calibration == 1:
        return 2  # every split leaves a prompt
    # start a little below the share, with at least one prompt for the search: sizes are rounded
    below_share = math.floor((n_calibration - 0.5) / (1.0 - fraction)) - 1
    total = max(n_calibration + 1, below_share)
    while total - optimization_size(total, fraction) < n_calibration:
        total += 1
    return total


def describe_repetitions(tested: np.ndarray, level: float, untested: np.ndarray) -> str | None:
    """What repetitions among prompts mean, if they are many.

    Rows of one prompt at worst succeed or fail together, and those that err may be the very ones
    that repeat: hard prompts are the ones that are noted twice. Of many prompts a few may be all of
    a group, or of those that are answered: `tested` are the digests of the rows of one test, and
    `untested` of those that would count for it, had they not taught.
    """
    n = len(tested)
    worth = _independent_rows(tested, level, _FEW_REPEATED)
    if worth is None:
        return _describe_untested(tested, level, untested)
    return (
        f"{n - len(np.unique(tested))} of {n} tested prompts repeat an earlier one. Rows of one "
        "prompt succeed or fail together: where errors are among them, these may tell no more than "
        f"{worth:.0f} independent prompts, and {_MORE_OFTEN}"
    )


def _describe_untested(tested: np.ndarray, level: float, untested: np.ndarray) -> str | None:
    """What repetitions among prompts that taught mean, if many.

    A split leaves all rows of a prompt in one part, so that what is frequent among the `untested`
    is missing in the test, and in no other sample, where it may be most of the errors.
    """
    rows = np.concatenate((tested, untested))
    if not len(untested) or _independent_rows(rows, level, _FEW_UNTESTED) is None:
        return None
    return (
        f"{len(rows) - len(np.unique(rows))} of {len(rows)} prompts repeat an earlier one. Rows of "
        "one prompt stand in one part together, and the part that teaches is not tested: where "
        f"what is frequent in it errs, no test has seen that, and {_MORE_OFTEN}"
    )


def _independent_rows(digests: np.ndarray, level: float, enough: float) -> float | None:
    """As how many independent rows these scatter, if clearly fewer.

    Where a share `level` of n rows errs, and these stand m times each, on average, the number of
    errors scatters as that of n / m independent rows. At worst the rows that err are those of most
    copies. None where the independent rows are a share `enough` of n.
    """
    _, prompt_of_row, n_rows = np.unique(digests, return_inverse=True, return_counts=True)
    n = len(digests)
    n_erring = max(math.ceil(level * n), 1)
    copies = np.sort(n_rows[prompt_of_row])[::-1][:n_erring]
    if not n or enough * copies.sum() <= len(copies):
        return None
    return float(n * len(copies) / copies.sum())


def random_stream(digests: np.ndarray, random_state: RandomState) -> np.random.Generator:
    """Random numbers from the content of digests, and a seed.

    One fixed permutation for all data would take nearly the same places of the sorted digests each
    time, and favour some prompts of a population over others.
    """
    content = np.ascontiguousarray(digests).tobytes()
    digest = hashlib.blake2b(content, digest_size=16).digest()
    of_content = int.from_bytes(digest, "big")
    if random_state is None:
        # None is no fresh seed, as it is elsewhere: the same data are split alike again
        return np.random.default_rng(of_content)
    if isinstance(random_state, np.random.RandomState):
        seed = int(random_state.randint(2**31 - 1))
    elif isinstance(random_state, np.random.Generator):
        seed = int(random_state.integers(2**31 - 1))
    else:
        seed = int(random_state)
    return np.random.default_rng([seed, of_content])


def keep_by_weight(
    weights: ArrayLike, bound: float, keys: ArrayLike, *, seed: int = 0
) -> np.ndarray:
    """Choose prompts that are then distributed as new ones.

    Parameters
    ----------
    weights : array-like of shape (n,)
        Density of the new prompts relative to the calibration prompts, in [0, bound].
    bound : float
        Largest weight that any prompt may have, B; fixed without a look at these prompts.
    keys, seed : array-like of int, shape (n,), and int
        A number for each prompt, such as a digest, and a seed. With them and its own weight a
        prompt is kept with probability ``weight / bound``, whatever the others. Numbers of rows
        will not do where the rows are sorted by their losses, or grouped.
    """
    values = check_weights(weights, bound)
    numbers = as_array(keys, "keys", values.shape, np.uint64)
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    random_bits = mixed(numbers ^ start)
    # the upper 53 bits make a uniform number in [0, 1)
    uniform = (random_bits >> np.uint64(11)) * 2.0**-53
    return uniform * bound < values


def at_stake(costs: np.ndarray, digests: np.ndarray, ties: np.ndarray | None = None) -> np.ndarray:
    """Rows chosen with the probability of their cost.

    Each copy of a prompt, in the order of `ties`, has a coin of its own: by one coin for all the
    errors of a popular prompt would count in full, or not at all, in every sample.
    """
    # a seed of its own: the coins of a shift, or of audits, must not decide here as well
    return keep_by_weight(costs, 1.0, numbered(digests, ties), seed=_SEED_OF_STAKES)


def check_weights(weights: object, bound: float, name: str = "weights") -> np.ndarray:
    """Weights in [0, bound], not all zero, as an array."""
    if not 0.0 < bound < np.inf:
        raise ValueError(f"bound must be positive and finite, got {bound!r} instead.")
    values = as_array(weights, name, (None,), low=0.0, high=bound)
    if not values.any():
        raise ValueError(f"{name} must not all be zero.")
    return values


def mixed(numbers: np.ndarray) -> np.ndarray:
    """The output function of SplitMix64, which mixes all bits."""
    bits = numbers + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
