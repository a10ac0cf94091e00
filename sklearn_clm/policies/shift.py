"""Covariate shift: new prompts from another distribution."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval

from sklearn_clm.calibration import Provenance, keep_by_weight
from sklearn_clm.calibration.checks import noting_arguments
from sklearn_clm.calibration.digests import numbered
from sklearn_clm.calibration.rows import check_weights
from sklearn_clm.generators.draws import Prompt
from sklearn_clm.generators.identity import score_fingerprint
from sklearn_clm.generators.prompts import CheckedPrompts
from sklearn_clm.policies.groups import given_or_computed


@dataclass(frozen=True)
class Shift:
    """The covariate shift for which a calibration holds."""

    weight_bound: float
    estimated: bool  # so that the guarantee is approximate
    n_offered: int
    n_kept: int
    weight: str | None = None  # fingerprint of the function that computed them, or "given"

    def to_json(self) -> str:
        """The shift as text, for a provenance."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, provenance: Provenance) -> Self | None:
        """The shift in a provenance; None if there is none."""
        if provenance.shift is None:
            return None
        # a text of another version has other fields, or is no JSON
        try:
            return cls(**json.loads(provenance.shift))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"shift of the provenance must be one of this version of sklearn_clm, got "
                f"{provenance.shift!r:.120} instead; call collect, or fit, again."
            ) from error


class CovariateShift(BaseEstimator):
    """A guarantee for new prompts from another distribution.

    The weight of a prompt is the density of new prompts relative to calibration prompts, up to a
    common factor. Each calibration prompt is kept with probability weight / `weight_bound`. Given
    a prompt, its references must have the same distribution in both.

    Parameters
    ----------
    weight : callable, default=None
        ``weight(prompt) -> float``. None: weights are given, to ``fit(X, y, prompt_weight=...)``.
    weight_bound : float, default=5.0
        Largest possible weight of any prompt, fixed without a look at the calibration prompts.
    estimated : bool, default=False
        Whether the weights are estimates, such as the odds of a classifier that tells new prompts
        from old ones. The guarantee is approximate then, and each set says so.

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import CovariateShift
    >>> longer = CovariateShift(lambda prompt: 2.0 if len(prompt) > 100 else 0.5, weight_bound=2.0)
    >>> ConformalSampler(shift=longer).get_params()["shift__weight_bound"]
    2.0
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "weight": [None, callable],
        "weight_bound": [Interval(Real, 0, None, closed="neither")],
        "estimated": ["boolean"],
    }

    def __init__(
        self,
        weight: Callable[[Prompt], float] | None = None,
        *,
        weight_bound: float = 5.0,
        estimated: bool = False,
    ) -> None:
        self.weight = weight
        self.weight_bound = weight_bound
        self.estimated = estimated

    def applied(
        self, weights: np.ndarray, digests: np.ndarray, seed: int
    ) -> tuple[np.ndarray, Shift]:
        """Positions of the prompts kept, and the shift's record.

        `digests` are those of the prompts, `seed` is that of the draws.
        """
        n = len(weights)
        bound = float(self.weight_bound)
        # each copy of a prompt is kept or dropped by itself, like an independent prompt
        keys = numbered(digests)
        # dropped before anything is drawn: prompts that do not count cost nothing
        rows = np.flatnonzero(keep_by_weight(weights, bound, keys, seed=seed))
        if not len(rows):
            raise ValueError(f"prompt_weight must keep some of {n} prompts, got none instead.")
        return rows, Shift(
            weight_bound=bound,
            estimated=bool(self.estimated),
            n_offered=n,
            n_kept=len(rows),
            weight=self.parameters()["weight"] or "given",
        )

    def parameters(self) -> dict[str, Any]:
        """Values that data, or a file, must agree with."""
        return {
            "weight_bound": float(self.weight_bound),
            "estimated": bool(self.estimated),
            "weight": None if self.weight is None else score_fingerprint(self.weight),
        }


def weights_of(
    option: CovariateShift | None, prompt_weight: object, prompts: CheckedPrompts
) -> np.ndarray | None:
    """The weight of each prompt, given or computed, or None."""
    if option is None:
        if prompt_weight is not None:
            raise ValueError(
                "shift must be a CovariateShift where prompt_weight is given, got None instead: "
                "its weight_bound says how large a weight may be."
            )
        return None
    # by the prompt alone: a weight that knew responses or labels would choose among the losses
    computed = None
    if option.weight is not None:
        computed = []
        for prompt in prompts:
            with noting_arguments("weight", prompt):
                computed.append(option.weight(prompt))
    prompt_weight = given_or_computed(
        "prompt_weight", "CovariateShift(weight=function)", prompt_weight, computed
    )
    weights = check_weights(prompt_weight, float(option.weight_bound), "prompt_weight")
    if len(weights) != len(prompts):
        raise ValueError(
            f"prompt_weight must be as many as prompts, {len(prompts)}, got {len(weights)} instead."
        )
    return weights
