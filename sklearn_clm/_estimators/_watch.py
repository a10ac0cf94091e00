"""What new prompts get, watched against what tested prompts got.

Empty sets, and budgets that are used up, have a share that calibration saw. New prompts from the
same distribution, with the same draws and scores, have the same one: given how many have an empty
set in all, those among the new ones follow the hypergeometric distribution (Fisher's exact test).
Shares that chance makes so different once in a million times are warned of.
"""

import os
import threading
from collections.abc import Hashable, Sequence

import numpy as np
from scipy.stats import hypergeom

from sklearn_clm._estimators._calibration import SamplerCalibration
from sklearn_clm._exceptions import warn
from sklearn_clm._results import PredictionSet
from sklearn_clm.generators.prompts import CheckedPrompts

_BY_CHANCE = 1e-6  # of a false alarm, at each look
_MOST = 1024  # prompts that are watched of each group


class Counts:
    """Prompts of a group, with empty sets or all draws."""

    def __init__(self) -> None:
        self.digests = np.empty(0, dtype=np.uint64)
        self.n_empty = 0
        self.n_used_up = 0

    def add(self, digests: np.ndarray, is_empty: np.ndarray, is_used_up: np.ndarray) -> bool:
        """Count new prompts; return whether it is time to look."""
        before = len(self.digests)
        _, first = np.unique(digests, return_index=True)
        # so many prompts are enough, and memory would grow with traffic
        new = first[~np.isin(digests[first], self.digests)][: _MOST - before]
        self.digests = np.concatenate((self.digests, digests[new]))
        self.n_empty += int(is_empty[new].sum())
        self.n_used_up += int(is_used_up[new].sum())
        # beyond 1, 2, 4, ... `_MOST`: eleven looks at most, where a look at each prompt would be a
        # thousand chances of a false alarm
        return len(self.digests).bit_length() > before.bit_length()


class Watch:
    """Counts of the sets of a calibration, over all calls.

    A service predicts for one prompt at a time, so that calls are counted together. A prompt that
    comes again has the same set, and counts once. Counts are looked at whenever they have doubled:
    a look at each prompt would find a rare event some day. Another calibration is counted anew.
    """

    def __init__(self) -> None:
        self._record: SamplerCalibration | None = None  # whose sets are counted
        self._locks: dict[int, threading.Lock] = {}  # by process: a fork may leave one locked
        self._counts: dict[Hashable, Counts] = {}
        self._warned: set[tuple[Hashable, str]] = set()

    def add(
        self,
        record: SamplerCalibration,
        groups: Sequence[Hashable | None],
        prompts: CheckedPrompts,
        sets: Sequence[PredictionSet],
    ) -> None:
        """Count the sets of some prompts; warn of impossible shares."""
        # prompts that trained the generator get other sets, as do those whose draws end early
        is_whole = np.array([not a_set.needs_draws for a_set in sets], dtype=bool)
        is_like_tested = is_whole & ~record.source.has_learnt(prompts)
        for group, rule in record.in_use.items():
            of_group = [i for i, name in enumerate(groups) if name == group and is_like_tested[i]]
            if not of_group or not rule.certified or rule.tested is None:
                continue
            # what can be counted without a judge
            is_empty = np.array([not len(sets[i]) for i in of_group])
            is_used_up = np.array([sets[i].n_samples >= rule.k_max for i in of_group])
            with self._locks.setdefault(os.getpid(), threading.Lock()):
                self._begin_anew_with(record)
                counts = self._counts.setdefault(group, Counts())
                has_doubled = counts.add(prompts.digests[of_group], is_empty, is_used_up)
                n = len(counts.digests)
                n_empty = counts.n_empty
                n_used_up = counts.n_used_up
            # outside of the lock: a warning may run code of the user's
            if has_doubled:
                what_was_empty = f"got {rule.claim.risk.nothing_given}"
                n_tested = rule.tested.prompts
                self._compare(group, what_was_empty, n_empty, n, rule.tested.empty, n_tested)
                all_draws = f"took all {rule.k_max} draws"
                self._compare(group, all_draws, n_used_up, n, rule.tested.used_up, n_tested)

    def _begin_anew_with(self, record: SamplerCalibration) -> None:
        """Forget counts of another calibration."""
        if record is not self._record:
            self._record = record
            self._counts = {}
            self._warned = set()

    def _compare(
        self, group: Hashable, kind: str, now: int, n: int, before: int, n_before: int
    ) -> None:
        """Warn where a share cannot be that of calibration."""
        # one warning for each: a service would otherwise repeat it with every request
        if (group, kind) in self._warned or not is_impossible(now, n, before, n_before):
            return
        self._warned.add((group, kind))
        of_group = "" if group is None else f" of group {group!r}"
        warn(
            f"{now} of {n} new prompts{of_group} {kind}, and {before} of the {n_before} that "
            "calibrated: chance does that less than once in a million times. Prompts, draws or "
            "scores are not those of calibration (other texts, another model behind the name, "
            "scores computed otherwise), and the guarantee may not hold."
        )


def is_impossible(now: int, n: int, before: int, n_before: int) -> bool:
    """Whether chance hardly makes two shares so different."""
    # Fisher's exact test, on both sides: where shares are the same, `now` is hypergeometric
    where_same = hypergeom(n + n_before, now + before, n)
    so_few = where_same.cdf(now)
    so_many = where_same.sf(now - 1)
    return bool(2 * min(so_few, so_many) < _BY_CHANCE)
