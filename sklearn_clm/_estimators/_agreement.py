"""Refusals of data, files and sets made with something else.

Right values in the wrong place: thresholds hold for the generator, seed, scores, judge and budget
that they were calibrated with.
"""

from collections.abc import Mapping
from typing import Any

from sklearn.utils.validation import validate_data

from sklearn_clm._results import PredictionSets
from sklearn_clm.calibration import Provenance
from sklearn_clm.generators.prompts import CheckedPrompts, check_prompts
from sklearn_clm.policies import CovariateShift
from sklearn_clm.policies.shift import Shift

_SCORES = ("quality", "similarity", "admission", "splitter", "component_score", "weight")
_OF_CODE = ("generator", *_SCORES)  # fingerprints, which a changed function changes
_ADVICE = (
    " A function that was edited or renamed, or that remembers what it was asked, is another one, "
    "unless it has a fingerprint(); CachedGenerator(generator, store, key=...) names a generator."
)


def refuse_differences(
    name: str,
    saved: Mapping[str, Any],
    wanted: Mapping[str, Any],
    named: str = "",
    *,
    of_draws: bool = True,
) -> None:
    """Refuse known values that differ from the estimator's.

    `name` is what was made with the `saved` values, such as a file; `named` tells more of the
    object that the estimator has. With `of_draws` the draws are kept, and can be used again.
    """
    kept = " (draws that were kept are reused)" if of_draws else ""
    for key, value in wanted.items():
        # unknown on either side is no difference: bare arrays do not say where they come from
        saved_value = saved.get(key)
        if None not in (saved_value, value) and saved_value != value:
            raise ValueError(
                f"{name} was made with another {key}: {saved_value!r:.200} there, {value!r:.200} "
                f"here{f', {named}' if named else ''}. Restore it, or call fit again{kept}."
                f"{_ADVICE if key in _OF_CODE else ''}"
            )


def refuse_other_shift(name: str, option: CovariateShift | None, provenance: Provenance) -> None:
    """Refuse data, or a file, of another shift."""
    if option is not None:
        shift = Shift.of(provenance)
        # data without a shift are of another one than that of the option: no weight is "none"
        made_with = {"weight_bound": "none"} if shift is None else vars(shift)
        refuse_differences(name, made_with, option.parameters())


def refuse_other_draws(sets: PredictionSets, provenance: Provenance, whose: str) -> None:
    """Refuse sets of another generator or seed."""
    drawn = sets.provenance
    if drawn is None or not {"generator", "seed"} & set(provenance.differences(drawn)):
        return
    raise ValueError(
        "X holds sets that were drawn by another generator, or with another seed, than "
        f"{whose}: (fingerprint, seed) is {(drawn.generator, drawn.seed)}, wanted "
        f"{(provenance.generator, provenance.seed)}."
    )


def refuse_larger_budget(k_max: int, n_draws: int | None) -> None:
    """Refuse more draws than were made in calibration."""
    if n_draws is not None and n_draws < k_max:
        raise ValueError(
            f"k_max must be at most {n_draws}, the number of draws whose components calibrated, "
            f"got sets of {k_max} draws instead: the guarantee holds for no more draws."
        )


def takes_numbers(estimator: object) -> bool | None:
    """Whether rows of numbers were fitted; None is unknown."""
    numeric: bool | None = getattr(estimator, "_numeric_prompts", None)  # a loaded one lacks it
    return numeric


def check_fitted_prompts(estimator: object, X: Any) -> CheckedPrompts:
    """Prompts of the kind that an estimator was fitted on."""
    if isinstance(X, CheckedPrompts):
        return X
    checked = check_prompts(X)
    # rows of numbers and lists of numbers have different digests, and so other draws
    fitted_numeric = takes_numbers(estimator)
    if fitted_numeric is not None and checked.numeric != fitted_numeric:
        kinds = ("objects such as text", "rows of numbers")
        raise ValueError(
            f"prompts (X) holds {kinds[checked.numeric]}, but this {type(estimator).__name__} was "
            f"fitted on {kinds[fitted_numeric]}."
        )
    has_names = checked.feature_names is not None and hasattr(estimator, "feature_names_in_")
    if has_names or (checked.numeric and hasattr(estimator, "n_features_in_")):
        validate_data(estimator, X, reset=False, skip_check_array=True)
    return checked
