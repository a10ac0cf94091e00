"""What both estimators have in common: options, one record of a calibration, and its files."""

import os
from abc import abstractmethod
from numbers import Integral
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, InvalidParameterError
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._exceptions import report_null
from sklearn_clm.caching import DrawMemory
from sklearn_clm.generators import ResamplingGenerator
from sklearn_clm.generators._tables import take_over_tags
from sklearn_clm.policies._files import write_content
from sklearn_clm.policies._groups import Groups

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
    groups: Groups | None
    calibration_: Any
    # parameters that may be objects with parameters of their own
    _options: ClassVar[dict[str, type[BaseEstimator]]]
    # the parameter that holds what draws
    _drawn_by: ClassVar[str]

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
    def memory_(self) -> DrawMemory:
        """The draws that this estimator and its later fits share."""
        if not hasattr(self, "_memory"):
            self._memory = DrawMemory()
        return self._memory

    def save_calibration(self, path: str | os.PathLike[str]) -> None:
        """Write what calibration found to a small, readable JSON file.

        Parameters
        ----------
        path : str or path
            The file. It holds the thresholds, what they were calibrated for, the versions in use
            and fingerprints of the generator and the scores, nothing where they are unknown; no
            data, and no model. By a digest of all that, ``load_calibration`` notices a file that
            was changed, though not one whose digest was computed anew. A sampler and the selector
            after it have a file each. A generator that was trained in ``fit`` has to be kept
            beside it: pickle `generator_`, and give it as `generator` to the sampler that loads
            the file.
        """
        check_is_fitted(self)
        write_content(path, self.calibration_.content())

    def transform(self, X: Any, *, groups: object = None) -> Any:
        """Same as :meth:`predict`, for use inside a pipeline.

        Parameters
        ----------
        X, groups
            As in :meth:`predict`.

        Returns
        -------
        PredictionSets or ComponentSets
            They are no data frame, whatever the output that scikit-learn is configured for; their
            ``to_frame()`` makes them one.
        """
        return self.predict(X, groups=groups)

    @abstractmethod
    def predict(self, X: Any, *, groups: object = None) -> Any:
        """Sets for new prompts."""

    def _refuse_missing(self, groups: object, prompt_weight: object) -> None:
        """Say what is missing that the parameters do not tell from the prompts."""
        if groups is None and self.groups is not None and self.groups.by is None:
            self.groups.of(None, 0)

    def _report_null_file(self, name: str, certified: bool, *outcome: str) -> None:
        """Warn of a file that certifies nothing, or raise it."""
        if not certified:
            message = f"{name!r} holds a calibration that certifies nothing."
            report_null(message, self.on_null, *outcome)

    def _forget(self, *kept: str) -> None:
        """Forget an earlier calibration, but for some of its attributes."""
        for name in [name for name in vars(self) if name.endswith("_") and name not in kept]:
            delattr(self, name)

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
        given = getattr(self, self._drawn_by)
        return take_over_tags(tags, ResamplingGenerator() if given is None else given)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_memory", None)
        return state
