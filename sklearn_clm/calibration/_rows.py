"""Which prompts count, and for what: the parts of a calibration.

One part of the prompts may be spent on the search of a path; the others test it. Groups partition
those that test: a certificate for all prompts together says nothing about a group of them, since
easy groups pay for hard ones.

1. Given the optimisation part, the path is fixed, and the calibration prompts of a group are
   independent draws from that group.
2. Hence a test at level d on them speaks, with confidence 1 - d, of the risk *within the group*.
3. With d = delta each of the G claims holds with probability 1 - delta. With d = delta / G all hold
   together with probability 1 - delta (union bound).

The group of a prompt must be known from the prompt alone: a group that depends on the responses or
on their labels makes step 1 wrong.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np


class Part(NamedTuple):
    """Prompts that are tested together."""

    rows: np.ndarray  # positions, ascending
    searched: np.ndarray  # of those of the same group that searched the path
    delta: float  # level of their tests
    group: Hashable | None = None  # None for all prompts together


def parts_of(
    searched: np.ndarray,
    tested: np.ndarray,
    delta: float,
    groups: Sequence[Hashable] | None = None,
    *,
    together: bool = False,
) -> list[Part]:
    """The parts that are tested: each group, where there are any, and at last all prompts.

    With `together` the claims of all groups hold with confidence 1 - delta, otherwise each one
    does. Where there are groups, all prompts are tested for comparison alone.
    """
    if groups is None:
        return [Part(tested, searched, delta)]
    names, of_prompt = check_groups(groups, len(groups))
    level = delta / len(names) if together else delta
    parts = [
        Part(tested[of_prompt[tested] == g], searched[of_prompt[searched] == g], level, name)
        for g, name in enumerate(names)
    ]
    return [*parts, Part(tested, searched, delta)]


def check_groups(groups: object, n_prompts: int) -> tuple[list[Hashable], np.ndarray]:
    """The groups in the order in which they first occur, and the position of each prompt's."""
    # a set has no order, and a mapping would give its keys
    if isinstance(groups, (str, bytes, Mapping, Set)) or not isinstance(groups, Iterable):
        raise TypeError(f"groups must be a sequence, got {type(groups).__name__} instead.")
    items = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
    if len(items) != n_prompts:
        raise ValueError(
            f"groups must be as many as prompts, {n_prompts}, got {len(items)} instead."
        )
    try:
        if any(item is None or item != item for item in items):  # NaN and NaT
            raise ValueError("groups must not be missing, got None or NaN instead.")
        names = [item.item() if isinstance(item, np.generic) else item for item in items]
        positions = {name: g for g, name in enumerate(dict.fromkeys(names))}
    except TypeError:  # which pandas.NA raises, too
        raise TypeError("groups must be hashable, such as text or numbers.") from None
    return list(positions), np.array([positions[name] for name in names], dtype=np.intp)
