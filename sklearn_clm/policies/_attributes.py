"""What both estimators have in common, and their attributes, read from what was calibrated."""

import os
from collections.abc import Hashable
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, InvalidParameterError
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._exceptions import report_null
from sklearn_clm.caching import DrawMemory
from sklearn_clm.calibration import (
    AchievableEpsilon,
    CalibrationData,
    ComponentCalibrationData,
    ComponentThreshold,
    Configuration,
    Frontier,
    LearnThenTestResult,
)
from sklearn_clm.generators import Generation, Generator, ResamplingGenerator
from sklearn_clm.generators._tables import take_over_tags
from sklearn_clm.policies import ExitPolicy, Shift
from sklearn_clm.policies._base import CalibratedRule
from sklearn_clm.policies._collection import CollectedDraws
from sklearn_clm.policies._files import write_calibration
from sklearn_clm.policies._records import SamplerCalibration, SelectorCalibration
from sklearn_clm.policies._source import DrawSource

# joblib refuses 0 only after draws have been paid for
N_JOBS: list[object] = [
    Interval(Integral, None, -1, closed="right"),
    Interval(Integral, 1, None, closed="left"),
    None,
]
_ADVICE = {
    "groups": "Groups(by=function); groups of the very prompts belong to fit(X, y, groups=...)",
    "shift": "CovariateShift(weight=function); weights of the very prompts belong to "
    "fit(X, y, prompt_weight=...)",
}


class CalibratedEstimator(BaseEstimator):
    """An estimator with one record of what was calibrated."""

    on_null: str
    calibration_: SamplerCalibration | SelectorCalibration
    # parameters that may be objects with parameters of their own
    _options: ClassVar[dict[str, type[BaseEstimator]]]

    def set_params(self, **params: Any) -> Self:
        """Set parameters, such as `delta` or ``groups__unknown``.

        Parameters
        ----------
        **params
            The parameters.

        Returns
        -------
        ConformalSampler or ComponentSelector
            Itself.
        """
        for name, kind in self._options.items():
            value = params.get(name, getattr(self, name))
            if not isinstance(value, BaseEstimator) and any(
                key.startswith(f"{name}__") for key in params
            ):
                raise ValueError(
                    f"{name} must be an object for its parameters to be set, such as "
                    f"{kind.__name__}(), got {value!r} instead."
                )
        super().set_params(**params)
        return self

    @property
    def shift_(self) -> Shift | None:
        """The shift of prompts that the guarantee holds for; None for none."""
        return self.calibration_.shift

    def save_calibration(self, path: str | os.PathLike[str]) -> None:
        """Write what calibration found to a small, readable JSON file.

        Parameters
        ----------
        path : str or path
            The file. It holds the thresholds, what they were calibrated for, the versions in use
            and fingerprints of the generator and the scores, null where they are unknown; no
            data, and no model. By a digest of all that, ``load_calibration`` notices a file that
            was changed, though not one whose digest was computed anew. A sampler and the selector
            after it have a file each. A generator that was trained in ``fit`` has to be kept
            beside it: pickle `generator_`, and give it as `generator` to the sampler that loads
            the file.
        """
        check_is_fitted(self)
        write_calibration(path, self.calibration_.content())

    def _report_null_file(self, name: str, certified: bool, *outcome: str) -> None:
        """Warn of a file with a null calibration, or raise it."""
        if not certified:
            message = f"{name!r} holds a null calibration: it certifies nothing."
            report_null(message, self.on_null, *outcome)

    def _validate_params(self) -> None:
        for name, kind in self._options.items():
            value = getattr(self, name)
            is_class = isinstance(value, type)
            if is_class or (name in _ADVICE and not isinstance(value, kind | None)):
                shown = f"the class {value.__name__}" if is_class else repr(value)
                raise InvalidParameterError(
                    f"The {name!r} parameter of {type(self).__name__} must be an instance, such as "
                    f"{_ADVICE.get(name, f'{kind.__name__}()')}. Got {shown:.60} instead."
                )
        super()._validate_params()
        for part in (getattr(self, name) for name in self._options):
            if isinstance(part, BaseEstimator):
                part._validate_params()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibration_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_memory", None)
        return state


class SamplerAttributes(CalibratedEstimator):
    """What a sampler has collected and calibrated; no parameter has a part in it."""

    generator: Generator | None
    verbose: int
    policy: Any
    calibration_: SamplerCalibration
    _source: DrawSource
    _collected: CollectedDraws | None

    def __sklearn_tags__(self) -> Any:
        own = ResamplingGenerator() if self.generator is None else self.generator
        return take_over_tags(super().__sklearn_tags__(), own)

    @property
    def lambda_hat_(self) -> Configuration | None:
        """The chosen thresholds; None for null, and of an exit policy."""
        return self.calibration_.lambda_hat

    @property
    def exit_level_(self) -> float:
        """The calibrated level of an exit policy; -inf for null."""
        found = self.calibration_
        if found.exit is not None:
            return found.exit.level
        if isinstance(self.policy, ExitPolicy) and not found.rule.certified:
            return -np.inf  # too few prompts for any test: no policy was learnt
        raise AttributeError("exit_level_ needs a calibrated exit policy.")

    @property
    def groups_(self) -> dict[Hashable, CalibratedRule]:
        """The rule of each group."""
        if self.calibration_.by_group is None:
            raise AttributeError("groups_ needs a calibration with groups.")
        return dict(self.calibration_.by_group)

    @property
    def n_judgements_(self) -> int:
        """How many draws were judged, equal responses of a prompt once."""
        lazily = self.calibration_.n_judgements
        return self.calibration_data_.n_judged if lazily is None else lazily

    @property
    def n_draws_(self) -> int:
        """How many draws of the collected prompts were made."""
        return self.calibration_data_.n_made

    @property
    def k_max_(self) -> int:
        """The budget in force."""
        return self.calibration_.k_max

    @property
    def valid_lambdas_(self) -> np.ndarray:
        """Every certified configuration, of shape (m, 3)."""
        result = self.result_
        return np.empty((0, 3)) if result is None else result.valid_lambdas

    @property
    def frontier_(self) -> Frontier | None:
        """The tested configurations, from the safest."""
        return None if self.result_ is None else self.result_.frontier

    @property
    def p_values_(self) -> np.ndarray:
        """Binomial p-value of each tested configuration."""
        return np.empty(0) if self.result_ is None else self.result_.p_values

    @property
    def achievable_epsilon_(self) -> AchievableEpsilon:
        """Error of always drawing K, and of always drawing one."""
        return self.calibration_.achievable_epsilon

    @property
    def result_(self) -> LearnThenTestResult | None:
        """The whole result of calibration; None where there were too few prompts."""
        if self.calibration_.data is None:
            raise AttributeError("result_ is not in a calibration that was loaded from a file.")
        return self.calibration_.result

    @property
    def calibration_data_(self) -> CalibrationData:
        """Scores, similarities and admissions of the draws that calibration saw."""
        holder = self.__dict__.get("calibration_") or self._own_collected
        if holder.data is None:
            raise AttributeError("calibration_data_ is not in a file of a calibration.")
        return holder.data

    @property
    def _own_collected(self) -> CollectedDraws:
        if self._collected is None:
            raise AttributeError(
                "calibration_indices_ and calibration_draws_ need data that this estimator "
                "collected."
            )
        return self._collected

    @property
    def calibration_indices_(self) -> np.ndarray:
        """Positions in X of the prompts that calibrated."""
        return self._own_collected.asked.indices

    @property
    def memory_(self) -> DrawMemory:
        """The draws that this estimator, its later fits and its selector share."""
        if not hasattr(self, "_memory"):
            self._memory = DrawMemory()
        return self._memory

    @property
    def calibration_draws_(self) -> list[list[Generation]]:
        """The draws of the prompts that calibrated; those no longer in memory are remade."""
        collected = self._own_collected
        if collected.lazily is not None:
            return [list(row) for row in collected.lazily.draws]
        prompts, n_draws = collected.asked.prompts, self.calibration_data_.k_max
        return collected.source.draw(self.memory_, prompts, n_draws, self.verbose)

    @property
    def generator_(self) -> Generator:
        """The generator in use, fitted where it can be."""
        return self._source.generator

    @property
    def seed_(self) -> int:
        """The seed of all draws."""
        return self._source.seed


class SelectorAttributes(CalibratedEstimator):
    """What a selector of components has calibrated; no parameter has a part in it."""

    sampler: BaseEstimator | None
    calibration_: SelectorCalibration

    def __sklearn_tags__(self) -> Any:
        # the default sampler draws from the default generator
        own = ResamplingGenerator() if self.sampler is None else self.sampler
        return take_over_tags(super().__sklearn_tags__(), own)

    @property
    def gamma_hat_(self) -> float:
        """The threshold; +inf where none could be certified."""
        return self.calibration_.gamma_hat

    @property
    def groups_(self) -> dict[Hashable, float]:
        """The threshold of each group; +inf where none could be certified."""
        if self.calibration_.by_group is None:
            raise AttributeError("groups_ needs a calibration with groups.")
        return dict(self.calibration_.by_group)

    @property
    def group_results_(self) -> dict[Hashable, ComponentThreshold | None]:
        """The whole result of each group; None where there were too few prompts."""
        if self.calibration_.group_results is None:
            raise AttributeError("group_results_ needs a calibration with groups, not from a file.")
        return dict(self.calibration_.group_results)

    @property
    def result_(self) -> ComponentThreshold | None:
        """The whole result of calibration; None where there were too few prompts."""
        if self.calibration_.data is None:
            raise AttributeError("result_ is not in a calibration that was loaded from a file.")
        return self.calibration_.result

    @property
    def thresholds_(self) -> np.ndarray:
        """The thresholds that were tested, from the largest down."""
        return np.empty(0) if self.result_ is None else self.result_.thresholds

    @property
    def n_errors_(self) -> np.ndarray:
        """Prompts with an inadmissible component selected, for each threshold."""
        return np.empty(0, dtype=np.int64) if self.result_ is None else self.result_.n_errors

    @property
    def p_values_(self) -> np.ndarray:
        """The p-value of each threshold."""
        return np.empty(0) if self.result_ is None else self.result_.p_values

    @property
    def achievable_alpha_(self) -> tuple[float, float]:
        """Mean loss of calibration prompts at the highest threshold and the lowest."""
        return self.calibration_.achievable_alpha

    @property
    def calibration_data_(self) -> ComponentCalibrationData:
        """Scores and labels of the distinct components of the calibration prompts."""
        if self.calibration_.data is None:
            raise AttributeError("calibration_data_ is not in a file of a calibration.")
        return self.calibration_.data

    @property
    def n_judgements_(self) -> int:
        """How many of the components of `calibration_data_` have a label."""
        return int(np.sum(self.calibration_data_.labels >= 0))
