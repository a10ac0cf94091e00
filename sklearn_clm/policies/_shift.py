"""Covariate shift: new prompts are distributed otherwise than those that calibrate."""

import copy
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._exceptions import warn
from sklearn_clm.calibration import CalibrationData, Provenance, keep_by_weight
from sklearn_clm.calibration._data import row_digests
from sklearn_clm.calibration._shift import check_weights, effective_size
from sklearn_clm.generators._draws import Prompt
from sklearn_clm.generators._prompts import CheckedPrompts, check_prompts
from sklearn_clm.policies._groups import given_or_told

_FEW_KEPT = 0.1  # of all prompts
_MOST_SEEN = 0.1


@dataclass(frozen=True)
class Shift:
    """The shift that a calibration holds for."""

    weight_bound: float
    estimated: bool  # so that the guarantee is approximate
    n_offered: int
    n_kept: int
    # how many prompts of equal weight would tell as much: (sum of weights)^2 / sum of squares
    effective_size: float

    def to_json(self) -> str:
        """Text for a provenance."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, provenance: Provenance) -> Self | None:
        """The shift that a provenance tells of."""
        return None if provenance.shift is None else cls(**json.loads(provenance.shift))


class CovariateShift(BaseEstimator):
    """A guarantee for new prompts that are distributed otherwise than those that calibrate.

    A prompt's weight is the density of new prompts there, relative to the calibration prompts, up
    to a common factor: what counts is weight / `weight_bound`, the probability that a prompt is
    kept. References given a prompt must be distributed alike in both.

    Parameters
    ----------
    weight : callable, default=None
        ``weight(prompt) -> float``, such as a fitted :class:`DensityRatio`. None: weights are
        given, to ``fit(X, y, prompt_weight=...)``.
    weight_bound : float, default=5.0
        Largest weight that any prompt may have, fixed without a look at the prompts that calibrate.
    estimated : bool, default=False
        Whether weights that are given were estimated. Then, and with a :class:`DensityRatio`, the
        guarantee is approximate, and each set says so.

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
        weight: "Callable[[Prompt], float] | DensityRatio | None" = None,
        *,
        weight_bound: float = 5.0,
        estimated: bool = False,
    ) -> None:
        self.weight = weight
        self.weight_bound = weight_bound
        self.estimated = estimated

    def of(
        self, given: object, n_prompts: int, prompts: CheckedPrompts | None = None
    ) -> np.ndarray:
        """The weight of each prompt, as given or found from it."""
        told: object = None
        if isinstance(self.weight, DensityRatio) and prompts is not None:
            told = self.weight.of_unseen(prompts)
        elif self.weight is not None and prompts is not None:
            told = [self.weight(prompt) for prompt in prompts]
        given = given_or_told("prompt_weight", "CovariateShift(weight=function)", given, told)
        weights = check_weights(given, float(self.weight_bound), "prompt_weight")
        if len(weights) != n_prompts:
            raise ValueError(
                f"prompt_weight must be as many as prompts, {n_prompts}, got {len(weights)} "
                "instead."
            )
        return weights

    def applied(
        self, weights: np.ndarray, digests: np.ndarray, seed: int
    ) -> tuple[np.ndarray, Shift]:
        """Positions of the prompts that calibrate, and what is recorded of the shift.

        `digests` are those of the prompts, `seed` is that of the draws.
        """
        n, bound = len(weights), float(self.weight_bound)
        # repetitions of a prompt are kept or dropped each by itself
        order = np.argsort(digests, kind="stable")
        new = np.concatenate(([True], digests[order][1:] != digests[order][:-1]))
        place = np.arange(n)
        repetition = np.empty(n, dtype=np.uint64)
        repetition[order] = (place - np.maximum.accumulate(np.where(new, place, 0))).astype("u8")
        keys = digests + repetition * np.uint64(0x9E3779B97F4A7C15)
        rows = np.flatnonzero(keep_by_weight(weights, bound, keys, seed=seed))
        if not len(rows):
            raise ValueError(f"prompt_weight must let some of {n} prompts calibrate, got none.")
        if len(rows) < _FEW_KEPT * n:
            warn(
                f"the shift keeps {len(rows)} of {n} prompts for calibration, each with "
                f"probability weight / weight_bound, where the mean weight is "
                f"{weights.mean():.3g} and weight_bound={bound:g}. More are kept with a smaller "
                "bound or larger weights: a common factor does not matter."
            )
        return rows, Shift(
            weight_bound=bound,
            estimated=self.estimated or isinstance(self.weight, DensityRatio),
            n_offered=n,
            n_kept=len(rows),
            effective_size=effective_size(weights),
        )


def weights_of(
    option: CovariateShift | None, given: object, n_prompts: int, prompts: CheckedPrompts | None
) -> np.ndarray | None:
    """The weight of each prompt; None where there are none."""
    if option is not None:
        return option.of(given, n_prompts, prompts)
    if given is not None:
        raise ValueError(
            "shift must be a CovariateShift where prompt_weight is given, got None instead: its "
            "weight_bound says how large a weight may be."
        )
    return None


def weighted(
    option: CovariateShift | None,
    given: object,
    data: CalibrationData,
    prompts: CheckedPrompts | None,
    seed: int,
) -> tuple[np.ndarray, Provenance]:
    """Positions of the prompts of data that weights keep, and their provenance."""
    known, shift = data.provenance, Shift.of(data.provenance)
    if shift is None:
        weights = weights_of(option, given, data.n_prompts, prompts)
        if weights is None or option is None:
            return np.arange(data.n_prompts), known
        rows, shift = option.applied(weights, row_digests(data.quality), seed)
        return rows, replace(known, shift=shift.to_json())
    if given is not None:
        raise ValueError(
            "prompt_weight must be None for data that were collected with weights, got weights "
            "instead."
        )
    if option is not None and shift.weight_bound != float(option.weight_bound):
        raise ValueError(
            f"data was collected with {shift}, but now shift={option!r}; call collect, or fit, "
            "again."
        )
    return np.arange(data.n_prompts), known


class DensityRatio(BaseEstimator):
    """Weights of prompts, from a classifier that tells new prompts from old ones.

    It learns on prompts of its own, which take no part in calibration: prompts like those that
    calibrate, and new ones, neither of which need references.

    Parameters
    ----------
    classifier : classifier with ``predict_proba``, default=None
        Cloned. None is a logistic regression, on words and pairs of words for text.
    weight_bound : float, default=5.0
        Weights above it are clipped.

    Attributes
    ----------
    classifier_ : classifier
        Learnt from all prompts.
    mean_weight_ : float
        Cross-fitted mean weight of the old prompts, before clipping; 1 for a calibrated classifier.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.policies import DensityRatio
    >>> rng = np.random.default_rng(0)
    >>> ratio = DensityRatio().fit(rng.normal(0, 1, (500, 1)), rng.normal(1, 1, (500, 1)))
    >>> bool(ratio([2.0]) > 2 > 1 > ratio([0.0])), round(ratio.mean_weight_)
    (True, 1)
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "classifier": [None, HasMethods(["fit", "predict_proba"])],
        "weight_bound": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self, classifier: BaseEstimator | None = None, *, weight_bound: float = 5.0
    ) -> None:
        self.classifier = classifier
        self.weight_bound = weight_bound

    def fit(self, old: object, new: object) -> Self:
        """Learn to tell new prompts from old ones.

        Parameters
        ----------
        old : sequence of prompts, or numeric array
            Prompts like those that calibrate, but others.
        new : sequence of prompts, or numeric array
            Prompts like those to come.

        Returns
        -------
        DensityRatio
            Itself.
        """
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_predict
        from sklearn.pipeline import make_pipeline

        self._validate_params()
        parts = check_prompts(old), check_prompts(new)
        if not _are_alike(*parts):
            raise ValueError("old and new must hold prompts of one kind, with the same columns.")
        model = self.classifier
        if model is None:
            model = LogisticRegression()
            if not parts[0].numeric:
                model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), model)
        y = np.repeat([0, 1], [len(part) for part in parts])
        data: Any = [*parts[0], *parts[1]]
        self._learnt = parts[0].take([])
        if parts[0].numeric:
            data = np.asarray(data)
        self._odds = len(parts[0]) / len(parts[1])
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        chance = cross_val_predict(clone(model), data, y, cv=folds, method="predict_proba")[:, 1]
        self.mean_weight_ = float(self._ratio(chance[y == 0]).mean())
        self.classifier_ = clone(model).fit(data, y)
        self.seen_ = np.unique(np.concatenate([part.digests() for part in parts]))
        return self

    def _ratio(self, chance: np.ndarray) -> np.ndarray:
        return np.asarray(chance / np.maximum(1.0 - chance, 1e-12) * self._odds)

    def weights(self, prompts: object) -> np.ndarray:
        """Weights of prompts, clipped at the bound.

        Parameters
        ----------
        prompts : sequence of prompts
            The prompts.

        Returns
        -------
        ndarray of shape (n,)
        """
        check_is_fitted(self)
        checked = check_prompts(prompts)
        if not _are_alike(self._learnt, checked):
            raise ValueError("prompts must have the columns that DensityRatio was learnt from.")
        chance = self.classifier_.predict_proba(checked.prompts)[:, 1]
        return np.minimum(self._ratio(chance), self.weight_bound)

    def __call__(self, prompt: Prompt) -> float:
        """The weight of one prompt."""
        return float(self.weights([prompt])[0])

    def __sklearn_clone__(self) -> Self:
        # what was learnt on other prompts is kept, as in a frozen estimator
        return copy.copy(self)

    def of_unseen(self, prompts: CheckedPrompts) -> np.ndarray:
        """Weights of prompts that it was not learnt from, but for some that are asked again."""
        check_is_fitted(self)
        n_seen = int(np.isin(prompts.digests(), self.seen_).sum())
        if n_seen > _MOST_SEEN * len(prompts):
            raise ValueError(
                f"prompts must be others than those that DensityRatio was learnt from, got "
                f"{n_seen} of {len(prompts)} that it has seen: weights would fit them too well."
            )
        return self.weights(prompts)


def _are_alike(one: CheckedPrompts, other: CheckedPrompts) -> bool:
    """Whether prompts are of one kind, and columns of numbers the same where they have names."""
    if not one.numeric or not other.numeric:
        return one.numeric == other.numeric
    if one.feature_names is None or other.feature_names is None:
        return one.n_features == other.n_features
    return np.array_equal(one.feature_names, other.feature_names)
