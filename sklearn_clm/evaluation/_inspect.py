"""Samples of Inspect that need no further draw."""

from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval

from sklearn_clm._exceptions import optional_module
from sklearn_clm.calibration import critical_count
from sklearn_clm.calibration.rows import optimization_size
from sklearn_clm.generators.logs import STOPS_BY_OTHERS, verdict_of


class InspectStopping(BaseEstimator):
    """Stop samples of Inspect that need no further epoch.

    An evaluation of Inspect with `epochs` draws from each sample as often. For tests of thresholds
    an admissible draw settles its prompt: the epochs that follow it are not needed. The log is
    calibrated with as it is, see :class:`sklearn_clm.calibration.CalibrationData`: which draws were
    left out is in its ``results.early_stopping``.

    Parameters
    ----------
    scorer : str, default=None
        The scorer whose verdicts count, where a task has several.
    threshold : float, default=None
        The least score that is admissible, where scores are numbers and no verdicts.
    epsilon : float, default=None
        A risk, in (0, 1), at which nothing more is drawn once it is decided that the set of all
        draws passes its test, or fails, however the prompts are split. Of a log
        that has ended so, that set alone is certified: smaller ones would be searched on samples
        that stopped by the verdicts on others. None: each sample goes on until a success.
    delta : float, default=0.05
        Level of that test, in (0, 1).
    optimization_fraction : float, default=1/3
        Share of the prompts that will not test, in (0, 1).

    Attributes
    ----------
    witnesses_ : dict
        By id of a sample the first epoch with an admissible response.

    Notes
    -----
    It needs the extra ``inspect``. An epoch is left out only after a success in an earlier one, so
    that draws are the first ones of each sample in the order of epochs.

    Examples
    --------
    >>> from sklearn_clm.evaluation import InspectStopping
    >>> InspectStopping(scorer="exact")  # Task(..., epochs=10, early_stopping=...)
    InspectStopping(scorer='exact')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "scorer": [None, str],
        "threshold": [None, Real],
        "epsilon": [None, Interval(Real, 0, 1, closed="neither")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "optimization_fraction": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        *,
        scorer: str | None = None,
        threshold: float | None = None,
        epsilon: float | None = None,
        delta: float = 0.05,
        optimization_fraction: float = 1 / 3,
    ) -> None:
        self.scorer = scorer
        self.threshold = threshold
        self.epsilon = epsilon
        self.delta = delta
        self.optimization_fraction = optimization_fraction

    async def start_task(self, task: Any, samples: list[Any], epochs: int) -> str:
        """Begin an evaluation; Inspect calls it."""
        self._validate_params()
        self._stop = optional_module("inspect_ai.util", "inspect", "an evaluation of Inspect")
        self.witnesses_: dict[str | int, int] = {}
        self._n_failures: dict[str | int, int] = {}
        self._n_samples = len(samples)
        self._n_epochs = epochs
        self._left_out = 0
        self._by_others = False  # whether verdicts on other samples left out epochs
        # refused before anything is drawn: such an evaluation could never be decided
        if self.epsilon is not None and self._allowed(self.epsilon)[1] < 0:
            raise ValueError(
                f"epsilon={self.epsilon:g} must be one that {self._n_samples} samples can certify, "
                "got too few: take more, or a larger epsilon."
            )
        return f"sklearn_clm.{type(self).__name__}"

    async def schedule_sample(self, id: str | int, epoch: int) -> Any:
        """An ``EarlyStop`` where an epoch is not needed, or None."""
        # draws to come must not depend on whether an earlier epoch ends late
        if self.witnesses_.get(id, epoch) < epoch:
            reason = f"epoch {self.witnesses_[id]} is admissible"
        elif (decision := self._decision()) is not None:
            reason = decision
            self._by_others = True
        else:
            return None
        self._left_out += 1
        return self._stop.EarlyStop(id=id, epoch=epoch, reason=reason)

    async def complete_sample(self, id: str | int, epoch: int, scores: Mapping[str, Any]) -> None:
        """Take the verdict of an epoch."""
        if self.scorer is None and len(scores) != 1:
            raise ValueError(
                f"scorer must name one of {sorted(scores)}, whose verdicts count, got None instead."
            )
        name = next(iter(scores)) if self.scorer is None else self.scorer
        if name not in scores:
            raise ValueError(f"scorer must be one of {sorted(scores)}, got {name!r} instead.")
        if verdict_of(scores[name].score.value, self.threshold):
            self.witnesses_[id] = min(epoch, self.witnesses_.get(id, epoch))
        else:
            self._n_failures[id] = self._n_failures.get(id, 0) + 1

    async def complete_task(self) -> dict[str, Any]:
        """What the log says of the evaluation."""
        return {
            "samples": self._n_samples,
            "with an admissible response": len(self.witnesses_),
            "epochs left out": self._left_out,
            STOPS_BY_OTHERS: self._by_others,
        }

    def _allowed(self, epsilon: float) -> tuple[int, int]:
        """How many samples test, and how many may err."""
        n_searched = optimization_size(self._n_samples, self.optimization_fraction)
        n_tested = self._n_samples - n_searched
        return n_tested, int(critical_count(n_tested, epsilon, self.delta))

    def _decision(self) -> str | None:
        """Why nothing more is needed, if the test is decided."""
        if self.epsilon is None:
            return None
        n = self._n_samples
        n_witnesses = len(self.witnesses_)
        n_tested, n_allowed = self._allowed(self.epsilon)
        # only after all epochs: a later one may still be admissible
        n_failed = sum(
            failures >= self._n_epochs
            for id, failures in self._n_failures.items()
            if id not in self.witnesses_
        )
        # whatever prompts the split takes out of the test: all that may err are among those that
        # test; or all that it takes out are among those that failed
        if n - n_witnesses <= n_allowed:
            return "the set of all draws is certified"
        if n_failed - (n - n_tested) > n_allowed:
            return "nothing can be certified"
        return None
