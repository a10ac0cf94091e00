"""Prompts and sets that components may be calibrated on, and selected from."""

from collections import Counter

import numpy as np

from sklearn_clm._exceptions import warn
from sklearn_clm._results import PredictionSets
from sklearn_clm.calibration import Provenance
from sklearn_clm.generators._prompts import CheckedPrompts
from sklearn_clm.policies import CovariateShift, Shift
from sklearn_clm.policies._records import SamplerCalibration

__all__ = [
    "kept_prompts",
    "refuse_betting",
    "refuse_larger_budget",
    "refuse_other_calibration",
    "refuse_other_draws",
    "unseen_prompts",
]


def unseen_prompts(
    known: SamplerCalibration, prompts: CheckedPrompts, loss: str, *, warns: bool = True
) -> np.ndarray:
    """Positions of the prompts that shaped nothing that the guarantee takes for fixed."""
    shaped = "trained the generator of the sampler"
    seen_by = known.source.trained_on
    if loss == "fraction" and known.data is not None and known.data.prompts is not None:
        seen_by = np.union1d(seen_by, known.data.prompts)
        shaped = "trained or calibrated the sampler"
        warns = True
    seen = np.zeros(len(prompts), dtype=bool)
    if len(seen_by):
        seen = np.isin(prompts.digests(), seen_by)
    if seen.all():
        advice = "" if loss == "any" else " A sampler= that is not fitted gets half of the prompts."
        raise ValueError(
            f"X holds {len(prompts)} prompts, all of which {shaped}; wanted at least one that it "
            f"has not seen.{advice}"
        )
    if seen.any() and warns:
        warn(
            f"X holds {len(prompts)} prompts, {seen.sum()} of which {shaped} and are left out: the "
            "guarantee needs prompts that it has not seen."
        )
    return np.flatnonzero(~seen)


def kept_prompts(calibrated: np.ndarray, prompts: CheckedPrompts, rows: np.ndarray) -> np.ndarray:
    """Those of the prompts that weights have kept for the sampler, each as often as there.

    `calibrated` holds the digests of what the sampler was calibrated on.
    """
    left = Counter(calibrated.tolist())
    kept = []
    for i, digest in zip(rows.tolist(), prompts.take(rows).digests().tolist()):
        if left[digest]:
            left[digest] -= 1
            kept.append(i)
    return np.array(kept, dtype=np.intp)


def refuse_betting(shift: CovariateShift | Shift | None) -> None:
    """Refuse weights that are bets: components have tests of counts and of shares alone."""
    if getattr(shift, "method", None) == "betting":
        raise ValueError(
            "shift must have method='rejection' for components of the same prompts, got 'betting' "
            "instead: prompts that are kept by their weight are distributed as new ones, for "
            "components too."
        )


def refuse_other_calibration(found: str | None, wanted: str | None, name: str) -> None:
    """Refuse sets of another calibration than that of the sets whose fractions were tested."""
    if wanted is not None and found not in (None, wanted):
        raise ValueError(
            f"{name} must go with the calibration of the sampler whose sets were tested, digest "
            f"{wanted}, got {found} instead: fractions of wrong components are those of the sets "
            "of one calibration. Call fit again."
        )


def refuse_other_draws(sets: PredictionSets, known: Provenance, whose: str) -> None:
    """Refuse sets of another generator or seed than those of what was calibrated."""
    found = sets.provenance
    if found is None or not {"generator", "seed"} & set(known.differences(found)):
        return
    raise ValueError(
        "X holds sets that were drawn by another generator, or with another seed, than "
        f"{whose}: (fingerprint, seed) is {(found.generator, found.seed)}, wanted "
        f"{(known.generator, known.seed)}."
    )


def refuse_larger_budget(k_max: int, n_draws: int | None) -> None:
    """Refuse a sampler that may draw more than the components were calibrated on."""
    if n_draws is not None and n_draws < k_max:
        raise ValueError(
            f"data holds components of {n_draws} draws for each prompt, fewer than the "
            f"k_max={k_max} of the sampler; the guarantee does not reach beyond. Call "
            "collect, or fit, again."
        )
