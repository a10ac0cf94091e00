"""An estimator that is told what to write instead of a model that is no generator."""

from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import InvalidParameterError

__all__ = ["GeneratorOwner"]


class GeneratorOwner(BaseEstimator):
    """An estimator with the parameter `generator`."""

    generator: Any

    def _validate_params(self) -> None:
        wrapper = _wrapper(self.generator)
        if wrapper is not None:
            raise InvalidParameterError(
                f"The 'generator' parameter of {type(self).__name__} must be None or an object "
                f"implementing 'sample' or 'stream'. Got {self.generator!r:.200} instead; wrap it "
                f"as sklearn_clm.generators.{wrapper}."
            )
        super()._validate_params()


def _wrapper(model: Any) -> str | None:
    if hasattr(model, "sample") or hasattr(model, "stream"):
        return None
    if isinstance(model, str):
        return f"TransformersGenerator({model!r:.60}) or OpenAIGenerator({model!r:.60})"
    if hasattr(model, "predict_proba"):
        return f"EstimatorGenerator({type(model).__name__}(...))"
    if hasattr(model, "generate"):
        return "TransformersGenerator(model, tokenizer=tokenizer)"
    return None
