"""How many draws of a prompt to make at once.

Rows that are decoded together share most of the time of a step. So a draw that nobody has asked for
yet may cost less now, beside draws that are under way, than later, when it would need steps of its
own; or it may be in vain, since sampling stops before. Which of the two is cheaper on average
follows from the chance that each draw will be wanted, which calibration knows, and from what a step
takes with so many rows, which is measured while decoding.
"""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

# The least of so many times counts: whatever else the machine does only adds to a time.
N_RECENT = 16
# A number of rows that was not met in so many steps is measured anew when it is worth a try.
N_REMEMBERED = 1_000
# Times that differ by less, relatively, are one, so that plans are seldom made anew.
TOLERANCE = 0.1


class StepTimes:
    """Times of decoding steps, by their number of rows.

    Several threads may share one.

    Examples
    --------
    >>> times = StepTimes()
    >>> times.add(1, 0.02); times.add(5, 0.04); times.add(5, 0.041)
    >>> times.version
    2
    >>> times.estimate([1, 3, 5, 9]).tolist()
    [0.02, 0.03, 0.04, 0.04]
    """

    def __init__(self) -> None:
        self.least: dict[int, float] = {}  # seconds, by rows; replaced and never changed
        self.version = 0  # of these
        self._recent: dict[int, deque[float]] = {}
        self._last_step: dict[int, int] = {}
        self._n_steps = 0

    def add(self, n_rows: int, seconds: float) -> None:
        """Note the time of a step."""
        self._n_steps += 1
        self._last_step[n_rows] = self._n_steps
        recent = self._recent.setdefault(n_rows, deque(maxlen=N_RECENT))
        recent.append(seconds)
        least = min(recent)
        before = self.least.get(n_rows)
        if before is None or abs(least - before) > TOLERANCE * before:
            self.least = {**self.least, n_rows: least}
            self.version += 1
        if self._n_steps % N_REMEMBERED == 0:
            self._forget_old()

    def estimate(self, n_rows: Sequence[float] | np.ndarray) -> np.ndarray:
        """Seconds of steps with so many rows.

        Linear between measured numbers of rows. What was not measured is hoped to be cheap, so that
        it is tried where that matters: more rows cost nothing, and a row of a smaller batch no more
        than one of the smallest that was measured.
        """
        measured = sorted(self.least.items())
        counts = np.array([0, *(count for count, _ in measured)], dtype=float)
        seconds = np.array([0.0, *(seconds for _, seconds in measured)])
        return np.asarray(np.interp(n_rows, counts, seconds))

    def _forget_old(self) -> None:
        """Forget what was measured long ago."""
        oldest = self._n_steps - N_REMEMBERED
        # other threads add and forget meanwhile
        for n_rows in [n for n, step in list(self._last_step.items()) if step <= oldest]:
            self._last_step.pop(n_rows, None)
            self._recent.pop(n_rows, None)
        self.least = {n: seconds for n, seconds in self.least.items() if n in self._recent}
        self.version += 1


class AheadPlan:
    """How many draws of a prompt to have under way."""

    def __init__(self, times: StepTimes, batch_size: int) -> None:
        self._times = times
        self._batch_size = batch_size
        self._version = -1  # of the times that the counts rest on
        self._counts: dict[tuple[int, tuple[float, ...]], int] = {}

    def n_at_once(self, chances: Sequence[float], n_open: int) -> int:
        """How many draws of each open prompt are worth it.

        Batches grow to twice the largest that was measured at most: where rows turn out to be dear,
        few were tried.
        """
        if not self._times.least:
            return 1
        # what was planned rests on times that have changed since
        if self._version != self._times.version:
            self._version = self._times.version
            self._counts.clear()
        key = n_open, tuple(chances[: self._batch_size])
        count = self._counts.get(key)
        if count is None:
            # an estimate beyond what was measured is a hope: batches grow step by step
            limit = max(1, 2 * max(self._times.least) // n_open)
            best = cheapest_count(np.array(key[1]), n_open, self._seconds)
            count = self._counts[key] = min(best, limit)
        return count

    def _seconds(self, n_rows: np.ndarray) -> np.ndarray:
        """Seconds of a step; more rows than fit wait."""
        fitting = np.minimum(n_rows, self._batch_size)
        return self._times.estimate(fitting) * (n_rows / fitting)


def cheapest_count(
    chances: np.ndarray, n_open: int, seconds: Callable[[np.ndarray], np.ndarray]
) -> int:
    """Number of draws at once of the least expected cost.

    Draws are made in rounds: m draws of each prompt that is open, then others of those that are
    still open after these. With N_k prompts open after k draws, expected, a round of m draws takes
    the steps of ``max(N_k, 1) m`` rows if any prompt is open, which has a chance of at most
    ``min(N_k, 1)``; the cheapest rounds follow backwards from the last draw. A round of all draws,
    and rounds of one each, are among those compared: neither is cheaper.

    Parameters
    ----------
    chances : ndarray of shape (K,)
        The chance that each of the next draws will be wanted, from 1 on, never rising.
    n_open : int
        Prompts that are open, each taken to be as far as this one, >= 1.
    seconds : callable
        Seconds of a step with so many rows, for an array of numbers of rows > 0.

    Returns
    -------
    int
        Draws of the first round, from 1 to K.

    Examples
    --------
    Two prompts in three want another draw each time; a row costs a tenth of a step, or half:

    >>> chances = (2 / 3) ** np.arange(20)
    >>> cheapest_count(chances, 1, lambda n_rows: 0.9 + 0.1 * n_rows)
    5
    >>> cheapest_count(chances, 1, lambda n_rows: 0.5 + 0.5 * n_rows)
    2
    """
    n_draws = len(chances)
    n_expected = n_open * chances  # prompts that are still open after k draws
    n_rows = np.outer(np.maximum(n_expected, 1.0), np.arange(1, n_draws + 1))
    costs = np.minimum(n_expected, 1.0)[:, np.newaxis] * seconds(n_rows)
    cost_after = np.zeros(n_draws + 1)  # the expected cost of all rounds after k draws
    count = 1
    # what comes after a round does not depend on what came before it: cheapest ends first
    for k in reversed(range(n_draws)):
        totals = costs[k, : n_draws - k] + cost_after[k + 1 :]
        count = int(np.argmin(totals)) + 1
        cost_after[k] = totals[count - 1]
    return count
