"""The base of policies: search on one part, test another."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm.calibration import CalibrationData, Claim
from sklearn_clm.calibration._data import refuse_common_prompts, split_of
from sklearn_clm.calibration._learn_then_test import AchievableEpsilon
from sklearn_clm.calibration._rows import Part, RandomState
from sklearn_clm.calibration._surface import Weights
from sklearn_clm.calibration._table import Table
from sklearn_clm.policies._asking import bounding
from sklearn_clm.policies._judging import Judging
from sklearn_clm.policies._rules import Everything, Rule, Rules, rules_of_parts


def draw_budgets(k_max: int | Sequence[int]) -> list[int]:
    """Values of the parameter `k_max` in ascending order."""
    if isinstance(k_max, (int, Integral)):
        return [int(k_max)]
    budgets = list(k_max)
    if not budgets or not all(isinstance(k, Integral) and int(k) >= 1 for k in budgets):
        raise ValueError(f"k_max must be one int >= 1, or several, got {k_max!r} instead.")
    return sorted({int(k) for k in budgets})


class Policy(BaseEstimator, ABC):
    """When sampling stops, and what is returned."""

    rule: ClassVar[type[Rule]]  # the class of rule that calibration returns
    _learnt_as: ClassVar[str] = ""  # name of the attribute that `fit` sets
    guarantee: Literal["pac", "marginal"]
    set_score: Any = "max"  # the score of a set that predict reports

    @property
    def weights(self) -> Weights:
        """Prices of size, excess and draws in ``score``."""
        return {"size_weight": 0.5, "excess_weight": 0.5, "draw_weight": 0.0}

    @property
    def described(self) -> dict[str, object]:
        """Values that a file must agree with; None is any."""
        return {"policy": self.rule.kind}

    def promise(self, epsilon: float) -> dict[str, Any]:
        """Fields of a claim that depend on the policy."""
        return {"level": epsilon, "guarantee": self.guarantee}

    @property
    def path(self) -> Any:
        """The path learnt on other data, if there is one."""
        return getattr(self, self._learnt_as, None)

    def __sklearn_clone__(self) -> Self:
        # a policy that was fitted on other data stays fitted, like a frozen estimator
        copy: Self = super().__sklearn_clone__()
        if self._learnt_as in vars(self):
            setattr(copy, self._learnt_as, self.path)
        return copy

    def refuse(self, k_max: int | Sequence[int]) -> None:
        """Refuse contradicting parameters before draws are paid for."""
        if np.size(k_max) > 1:
            raise ValueError(
                f"k_max must be one integer with {type(self).__name__}, got {k_max!r} instead."
            )
        if self.path is not None and self.path.k_max != np.max(k_max):
            raise ValueError(
                f"policy must be fitted with k_max={np.max(k_max)} draws, got one fitted with "
                f"{self.path.k_max} instead."
            )

    def searched_share(self, n_prompts: int) -> float:
        """Default share of `n_prompts` prompts for the optimisation part."""
        return 1 / 3

    def split(
        self,
        data: CalibrationData,
        fraction: float | str,
        random_state: RandomState,
        ties: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Prompts that search the path, and prompts that test it.

        Both are in the order of the data's digests, rows of one prompt in that of `ties`.
        """
        n = data.n_prompts
        if self.path is not None or n == 1:
            return np.arange(0), data.order(ties)
        share = self.searched_share(n) if isinstance(fraction, str) else fraction
        return split_of(data, share, random_state, ties)

    @abstractmethod
    def search(self, table: Table, rows: np.ndarray, claim: Claim, judging: Judging) -> Any:
        """Search, or learn, on the optimisation prompts at `rows`."""

    @abstractmethod
    def test(self, path: Any, table: Table, part: Part, claim: Claim) -> Rule:
        """Test the path on the prompts of a part."""

    def texts(self, table: Table, rows: np.ndarray) -> np.ndarray:
        """For each draw, the first draw with the same text."""
        return table.texts[rows]

    def calibrate(self, table: Table, parts: list[Part], claim: Claim, judging: Judging) -> Rules:
        """Search on one part of the prompts, test another.

        Parts are the groups, where there are any, and at last all prompts, whose `claim` is
        promised where a test passes; with groups they are tested for comparison, if no verdict is
        asked for. Nothing is certified for a group with too few prompts, nor for
        any of them where the calibration part as a whole is too small.
        """
        whole, path = parts[-1], self.path
        left = partial(self._unjudged, table, whole.rows)
        bounded = partial(bounding, table.judge, whole.rows, left)
        if path is not None:
            refuse_common_prompts("policy", path.seen, table.data)
        elif len(whole.rows) >= claim.fewest_prompts:
            table.ensure(whole.searched, table.k_max)
            with bounded(also=True):
                path = self.search(table, whole.searched, claim, judging)

        def test(part: Part, own: Claim) -> Rule:
            with nullcontext() if len(parts) == 1 else bounded():
                return judging.test(self, path, table, part, own)

        nothing = partial(Everything, k_max=table.k_max)
        # people, or a judge, are asked for what prediction uses alone
        compares = not table.is_lazy and not judging.audits
        rules = rules_of_parts(parts, claim, table.data.prompts, nothing, test, compares=compares)
        return {part.group: _explained(rules[part.group], table, part) for part in parts}

    def _unjudged(self, table: Table, rows: np.ndarray) -> np.ndarray:
        """All texts without a label, while the path is unknown.

        No smaller number of verdicts is sure to be enough. If the text that a test comes to last
        is the first admissible one of each prompt, but for c prompts that have none, then the test
        of the largest sets is open until all are judged.
        """
        texts, draws = self.texts(table, rows), np.arange(table.k_max)
        labels = table.labels_at(rows[:, np.newaxis], draws[np.newaxis])
        return np.asarray((texts == draws) & (labels < 0))


def _explained(rule: Any, table: Table, part: Part) -> Rule:
    """The rule, with advice from labels where nothing is certified."""
    claim = rule.claim
    if claim.holds or claim.losses or table.is_lazy:
        return rule
    band = AchievableEpsilon.of_labels(table.labels[[*part.searched, *part.rows]] == 1)
    if (claim.about == "answers" or claim.audit is not None) and band.low < 1.0:
        return rule
    return replace(rule, claim=claim.advised(band.words(table.k_max)))
