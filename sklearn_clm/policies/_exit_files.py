"""Exit models as JSON: numbers, never code."""

from dataclasses import asdict
from typing import Any

import joblib
import numpy as np

from sklearn_clm.calibration._exit_model import ConstantClassifier, ExitModel
from sklearn_clm.calibration._texts import ScoreScale
from sklearn_clm.calibration.tiers import Tiers
from sklearn_clm.policies._classifiers import degree_two


def model_content(model: ExitModel) -> dict[str, Any]:
    """An exit model for JSON, nonlinear classifiers as a hash."""
    added = model.added_classifier
    return {
        "text": _classifier_content(model.text_classifier),
        "added": added and _classifier_content(added),
        "arrival": [_classifier_content(classifier) for classifier in model.arrival_classifiers],
        "quality": _scale_content(model.quality_scale),
        "similarity": _scale_content(model.similarity_scale),
        "rho": float(model.rho),
        "tiers": model.tiers and asdict(model.tiers),
        "same_text": model.same_text,
    }


def model_of(content: dict[str, Any], k_max: int) -> ExitModel:
    return ExitModel(
        _classifier_of(content["text"]),
        content["added"] and _classifier_of(content["added"]),
        tuple(map(_classifier_of, content["arrival"])),
        _scale_of(content["quality"]),
        _scale_of(content["similarity"]),
        float(content["rho"]),
        k_max,
        tiers_of(content["tiers"]),
        None if (same_text := content["same_text"]) is None else float(same_text),
    )


def _scale_content(scale: ScoreScale) -> dict[str, list[float]]:
    return {"low": scale.low.tolist(), "high": scale.high.tolist()}


def _scale_of(content: dict[str, Any]) -> ScoreScale:
    low, high = (np.array(content[name], dtype=np.float64) for name in ("low", "high"))
    return ScoreScale(low, high)


def _classifier_content(classifier: Any) -> dict[str, Any]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline

    if isinstance(classifier, ConstantClassifier):
        return {"probability": float(classifier.probability)}
    linear = classifier[-1] if isinstance(classifier, Pipeline) else classifier
    squares = linear is not classifier
    if isinstance(linear, LogisticRegression) and (
        not squares or repr(classifier) == repr(degree_two(linear.C))
    ):
        content = {"coefficients": linear.coef_[0].tolist(), "intercept": linear.intercept_.item()}
        return {**content, "n_features": int(classifier.n_features_in_)} if squares else content
    return {"other": type(classifier).__name__, "hash": joblib.hash(classifier)}


def _classifier_of(content: dict[str, Any]) -> Any:
    """A classifier from the content of a file, without unpickling."""
    if "probability" in content:
        return ConstantClassifier(float(content["probability"]))
    if "hash" in content:
        raise ValueError(
            "the policy's estimator must be a logistic regression for a JSON file, got "
            f"{content['other']} instead; pickle the sampler."
        )
    # coefficients make a logistic regression: of all features, or of their products as well
    classifier = degree_two()
    linear = classifier[-1]
    coefficients = np.array(content["coefficients"], dtype=np.float64)
    linear.classes_ = np.array([False, True])
    linear.coef_ = coefficients[np.newaxis]
    linear.intercept_ = np.array([float(content["intercept"])])
    if "n_features" not in content:
        return linear
    # fitting the products tells them the number of features, and nothing else
    classifier[0].fit(np.zeros((1, int(content["n_features"]))))
    return classifier


def tiers_of(content: dict[str, Any] | None) -> Tiers | None:
    """Tiers from the content of a file."""
    if content is None:
        return None
    return Tiers(*(tuple(content[name]) for name in ("n_draws", "prices")))
