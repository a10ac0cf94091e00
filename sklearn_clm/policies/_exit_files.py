"""Exit models as JSON: numbers, never code."""

from dataclasses import asdict
from typing import Any

import joblib
import numpy as np

from sklearn_clm.calibration._texts import ScoreScale
from sklearn_clm.calibration.exit_model import ConstantClassifier, ExitModel, is_logistic
from sklearn_clm.calibration.tiers import Tiers
from sklearn_clm.policies._classifiers import degree_two


def model_to_json(model: ExitModel) -> dict[str, Any]:
    """What a file says of an exit model.

    "text", "added" and "arrival" are its classifiers. They tell whether a text is admissible;
    whether it is so and none ranked above it, None where that is the same; and whether an
    admissible text arrives, one for each horizon. "rho" is what probabilities of arrival are
    divided by, where they are weighed against those of texts. "same_text" is the similarity above
    which a response repeats an earlier text, None where only equal ones do.
    """
    added = None
    if model.added_classifier is not None:
        added = _classifier_to_json(model.added_classifier)
    return {
        "text": _classifier_to_json(model.text_classifier),
        "added": added,
        "arrival": [_classifier_to_json(classifier) for classifier in model.arrival_classifiers],
        "quality": _scale_to_json(model.quality_scale),
        "similarity": _scale_to_json(model.similarity_scale),
        "rho": float(model.rho),
        "tiers": None if model.tiers is None else asdict(model.tiers),
        "same_text": model.same_text,
    }


def model_from_json(content: dict[str, Any], k_max: int) -> ExitModel:
    """The exit model that a file describes."""
    added = None
    if content["added"] is not None:
        added = _classifier_from_json(content["added"])
    # None says that equal responses alone are one text
    same_text = None
    if content["same_text"] is not None:
        same_text = float(content["same_text"])
    return ExitModel(
        text_classifier=_classifier_from_json(content["text"]),
        added_classifier=added,
        arrival_classifiers=tuple(map(_classifier_from_json, content["arrival"])),
        quality_scale=_scale_from_json(content["quality"]),
        similarity_scale=_scale_from_json(content["similarity"]),
        rho=float(content["rho"]),
        k_max=k_max,
        tiers=tiers_of(content["tiers"]),
        same_text=same_text,
    )


def _scale_to_json(scale: ScoreScale) -> dict[str, list[float]]:
    return {"low": scale.low.tolist(), "high": scale.high.tolist()}


def _scale_from_json(content: dict[str, Any]) -> ScoreScale:
    low = np.array(content["low"], dtype=np.float64)
    high = np.array(content["high"], dtype=np.float64)
    return ScoreScale(low, high)


def _classifier_to_json(classifier: Any) -> dict[str, Any]:
    """Coefficients of a classifier, for a file without code.

    Of a classifier that is none of ours there is a hash, by which a file is told from another.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline

    if isinstance(classifier, ConstantClassifier):
        return {"probability": float(classifier.probability)}
    is_pipeline = isinstance(classifier, Pipeline)
    linear = classifier[-1] if is_pipeline else classifier
    is_linear = isinstance(linear, LogisticRegression) and is_logistic(linear)
    # of pipelines coefficients tell all where the first step makes products, and nothing else does
    is_of_products = is_pipeline and is_linear and repr(classifier) == repr(degree_two(linear.C))
    if not is_linear or (is_pipeline and not is_of_products):
        return {"other": type(classifier).__name__, "hash": joblib.hash(classifier)}
    content: dict[str, Any] = {
        "coefficients": linear.coef_[0].tolist(),
        "intercept": linear.intercept_.item(),
    }
    if is_of_products:
        content["n_features"] = int(classifier.n_features_in_)
    return content


def _classifier_from_json(content: dict[str, Any]) -> Any:
    """The classifier that a file describes, without unpickling."""
    if "probability" in content:
        return ConstantClassifier(float(content["probability"]))
    # a classifier that only a pickle could hold
    if "hash" in content:
        raise ValueError(
            "the policy's estimator must be a logistic regression for a JSON file, got "
            f"{content['other']} instead; pickle the sampler."
        )
    # coefficients make a logistic regression, whoever wrote them: nothing in a file is run. It is
    # one of all features, or of their products as well
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
