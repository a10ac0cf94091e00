"""Tests of one step of a path, at level delta.

Each is a valid test of one fixed step, whatever made the path. Of several tests all must pass, with
no correction: the largest of their p-values is a p-value of "some risk is too high".
"""

from collections.abc import Callable

import numpy as np

from sklearn_clm.calibration._betting import betting_p_value
from sklearn_clm.calibration._binomial import binomial_p_value, critical_count
from sklearn_clm.calibration._certify import may_ask, settle
from sklearn_clm.calibration._path import Columns


class AdmissionTest:
    """Exact binomial test of the risk of no admissible response.

    A step passes if at most c prompts err, with c the critical count; then its p-value is at most
    delta. Of a table that is filled, errors are counted. Otherwise labels are asked for until n - c
    witnesses or c + 1 prompts without one are known.
    """

    def __init__(self, columns: Columns, epsilon: float, delta: float) -> None:
        self.columns, self.n_prompts = columns, len(columns.rows)
        self.epsilon, self.delta = epsilon, delta
        self.allowed = int(critical_count(self.n_prompts, epsilon, delta))

    def passes(self, m: int) -> bool:
        """Whether step m passes."""
        fewest, most = self.errors(m)
        if most <= self.allowed or fewest > self.allowed:
            return most <= self.allowed
        # prompts with a witness need neither labels nor later draws
        self.columns.finish(m, ~self.columns.members(m).witnessed)
        return settle(self.columns.members(m), self.n_prompts - self.allowed) > -np.inf

    def likely_last(self) -> int:
        """The step that is expected to pass last."""
        losses = np.maximum.accumulate(self.columns.frontier.loss)
        n_expected = int(np.sum(losses * self.n_prompts <= self.allowed))
        start = max(n_expected - 1, 1)  # the first step has all draws, and is the dearest to decide
        # known labels may show that an earlier step fails
        for step in range(min(start, len(self.columns))):
            if self.errors(step)[0] > self.allowed:
                return step
        return start

    def errors(self, m: int) -> tuple[int, int]:
        """Fewest and most possible errors at step m."""
        if not self.columns.table.is_lazy:
            exact = int(self.columns.risks.n_errors[m])
            return exact, exact
        members = self.columns.members(m)
        witnessed = members.witnessed
        is_open = (members.largest(members.labels < 0) > -np.inf) | self.columns.unfinished(m)
        return int(np.sum(~witnessed & ~is_open)), int(np.sum(~witnessed))

    def p_values(self) -> np.ndarray:
        """P-value of each step, from a filled table."""
        return np.asarray(
            binomial_p_value(self.columns.risks.n_errors, self.n_prompts, self.epsilon)
        )

    def may_ask(self) -> np.ndarray:
        """Texts that tests may still ask for, bool (n, K).

        A decided test stays decided, and a witness stays one, so that what no test could ask for
        now will not be asked for later.
        """
        columns, table = self.columns, self.columns.table
        asked = np.zeros((self.n_prompts, table.k_max), dtype=bool)
        to_come = np.arange(table.k_max) >= table.n_draws[columns.rows, np.newaxis]
        for m in range(len(columns)):
            fewest, most = self.errors(m)
            if fewest > self.allowed:
                break
            if most > self.allowed:
                members = columns.members(m)
                chosen = may_ask(members, self.n_prompts - self.allowed)
                asked[members.owner[chosen], members.draws[chosen]] = True
                left, k = columns.unfinished(m) & ~members.witnessed, columns.frontier.k_max[m]
                asked[left, :k] |= to_come[left, :k]
        rows, draws = np.nonzero(asked)
        texts = np.zeros_like(asked)
        texts[rows, table.texts[columns.rows[rows], draws]] = True
        return texts


class LossTest:
    """Betting test of a mean loss in [0, 1].

    ``losses(m)`` gives the loss of each prompt's set at step m, of shape (n,). Digests of the
    prompts, `keys`, determine the order of the bets.
    """

    def __init__(
        self,
        n_steps: int,
        losses: Callable[[int], np.ndarray],
        keys: np.ndarray,
        level: float,
        delta: float,
    ) -> None:
        self._losses, self._keys = losses, keys
        self.level, self.delta = level, delta
        self.means, self._p_values = np.full((2, n_steps), np.nan)

    def passes(self, m: int) -> bool:
        """Whether step m passes."""
        values = self._losses(m)
        self.means[m] = values.mean()
        self._p_values[m] = betting_p_value(values, self.level, keys=self._keys)
        return bool(self._p_values[m] <= self.delta)

    def p_values(self) -> np.ndarray:
        """P-value of each step that was tested; NaN elsewhere."""
        return self._p_values
