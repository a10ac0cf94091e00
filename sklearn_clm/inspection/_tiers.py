"""Costs of answers, and of cascades, at other levels."""

import copy
import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from sklearn_clm import ConformalSampler
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration.tiers import Tiers
from sklearn_clm.generators import CascadeGenerator, PrecomputedGenerator
from sklearn_clm.inspection.figures import LIMIT, EstimatorDisplay, line_style
from sklearn_clm.policies import AnswerPolicy, ExitPolicy
from sklearn_clm.scoring import DrawScorer
from sklearn_clm.scoring._quality import get_quality

_N_LEVELS = 15
_SHARE = "Share of calibration prompts"
_PRICE = "Price of the draws of a prompt"


@dataclass(kw_only=True, eq=False, repr=False)
class TradeOffDisplay(EstimatorDisplay):
    """What other levels would give: answers, or prices.

    With an ``AnswerPolicy``, the share of the prompts answered against alpha; with an
    ``ExitPolicy`` and a ``CascadeGenerator``, the mean price of the draws of a prompt against
    epsilon, of the cascade and of each of its generators alone. Every point is a calibration of its
    own on the same draws; where nothing is certified a curve has a gap. Where the quality depends
    on earlier draws, as "self_consistency" does, later generators alone have no curve, since those
    draws were of others. It is for planning: decide the level before you see the data that certify.

    Parameters
    ----------
    levels : ndarray of shape (m,)
        Tolerated risks.
    curves : dict of str to ndarray of shape (m,)
        What is to be had at each, NaN where nothing is certified.
    level : float
        The one that was calibrated.
    level_name, unit : str
        What the levels are, and the curves.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.generators import EstimatorGenerator
    >>> from sklearn_clm.inspection import TradeOffDisplay
    >>> from sklearn_clm.policies import AnswerPolicy
    >>> generator = EstimatorGenerator(GaussianNB(var_smoothing=3))
    >>> sampler = ConformalSampler(generator, k_max=5, policy=AnswerPolicy(alpha=0.1))
    >>> display = TradeOffDisplay.from_estimator(sampler.fit(*load_digits(return_X_y=True)))
    >>> lowest = display.at(display.levels[0])["answered"]
    >>> bool(lowest < display.at(display.level)["answered"])
    True
    """

    levels: np.ndarray
    curves: dict[str, np.ndarray]
    level: float
    level_name: str = "epsilon"
    unit: str = _PRICE

    title = "What other levels would give"
    wanted = "have all labels, and an AnswerPolicy, or an ExitPolicy and a CascadeGenerator"

    def at(self, level: float) -> dict[str, float]:
        """What is to be had at one of the levels."""
        (here,) = np.flatnonzero(self.levels == level)
        return {name: float(curve[here]) for name, curve in self.curves.items()}

    @classmethod
    def _of(cls, estimator: ConformalSampler) -> Self | None:
        policy = estimator.policy
        data = estimator.calibration_data_
        tiers = getattr(estimator.generator_, "tiers", None)
        # other levels ask for labels that lazy tests of this one did not
        if data.unknown is not None:
            return None

        if isinstance(policy, AnswerPolicy):
            first = 1.0 - float(data.admissible[:, 0].mean())  # wrong if all are answered by it
            levels = _levels_between(first / _N_LEVELS, first, policy.alpha)
            answered = np.array([_answered(estimator, float(alpha)) for alpha in levels])
            curves = {"answered": answered}
            level = float(policy.alpha)
            return cls(levels=levels, curves=curves, level=level, level_name="alpha", unit=_SHARE)

        if tiers is None or not isinstance(policy, ExitPolicy):
            return None
        data = data.truncate(estimator.k_max_)

        parts = {"cascade": (slice(None), tiers)}
        # a score of whole rows saw cheap draws before dear ones: it is not that of the dear ones
        # alone
        scored_in_order = isinstance(get_quality(estimator.calibration_.quality), DrawScorer)
        for tier, (start, n, price) in enumerate(zip(tiers.starts, tiers.n_draws, tiers.prices)):
            if start < data.k_max and not (tier and scored_in_order):
                n = min(n, data.k_max - start)
                alone = Tiers((n,), (price,))
                parts[f"generator {tier + 1} alone"] = slice(start, start + n), alone

        never = 1.0 - data.admissible.any(axis=1).mean()
        first = 1.0 - data.admissible[:, 0].mean()
        # a calibration certifies somewhat more than what its prompts show
        levels = _levels_between(never, 1.25 * first, estimator.epsilon)
        curves = {
            name: np.array([_price(estimator, _of_tier(data, at), alone, e) for e in levels])
            for name, (at, alone) in parts.items()
        }
        return cls(levels=levels, curves=curves, level=float(estimator.epsilon))

    def _draw(self) -> None:
        for i, (name, curve) in enumerate(self.curves.items()):
            n = int(np.isnan(curve).sum())
            never = f", nothing certified at {n} of {len(curve)}" if n else ""
            self.ax_.plot(self.levels, curve, **line_style(i), label=name + never)
        symbol = f"$\\{self.level_name}$"
        self.ax_.axvline(self.level, label=f"{symbol} = {self.level:g}", **LIMIT)
        self.ax_.set_xlabel(f"{symbol}, tolerated risk")
        self.ax_.set_ylabel(self.unit)
        self.ax_.set_ylim(bottom=0.0)
        certified = ~np.isnan(list(self.curves.values())).all(axis=0)
        if certified.any():  # no empty stretch where nobody certifies anything
            begin = min(self.level, self.levels[certified.argmax()])
            self.ax_.set_xlim(left=begin - 0.05 * (self.levels[-1] - begin))


def _levels_between(low: float, high: float, chosen: float) -> np.ndarray:
    """Levels between two risks, and the chosen one."""
    # rounded, since they are read off an axis
    between = np.round(np.linspace(low, high, _N_LEVELS), 3)
    return np.union1d(between[(between > 0.0) & (between < 1.0)], chosen)


def _of_tier(data: CalibrationData, at: slice) -> CalibrationData:
    """The draws of one generator alone, without provenance."""
    texts = None
    if data.texts is not None:
        # the first draw of a text may be of another generator: of this one the first that is equal
        texts_of_tier = data.texts[:, at]
        is_equal = texts_of_tier[:, :, np.newaxis] == texts_of_tier[:, np.newaxis, :]
        texts = is_equal.argmax(axis=2)
    return CalibrationData(
        data.quality[:, at],
        data.similarity[:, at, at],
        data.admissible[:, at],
        texts=texts,
        prompts=data.prompts,  # by which they are split as they were for the estimator
    )


def _answered(estimator: ConformalSampler, alpha: float) -> float:
    """Share of prompts answered; NaN where nothing is certified."""
    policy = clone(estimator.policy).set_params(alpha=alpha)
    claim = _calibrated(estimator, estimator.calibration_data_, policy=policy).claim
    return claim.answered if claim.holds else np.nan


def _price(
    estimator: ConformalSampler, data: CalibrationData, tiers: Tiers, epsilon: float
) -> float:
    """Mean price of a prompt; NaN where nothing is certified."""
    # the sampler wants a cascade for its prices; its draws are those of the data
    stand_ins = [PrecomputedGenerator([0], [[tier]]) for tier, _ in enumerate(tiers.prices)]
    sampler = ConformalSampler(
        CascadeGenerator(stand_ins, n_draws=tiers.n_draws, prices=tiers.prices),
        k_max=data.k_max,
        epsilon=float(epsilon),
        delta=estimator.delta,
        quality="self_consistency",  # no draw is made, nor scored
        policy=clone(estimator.policy),
        optimization_fraction=estimator.optimization_fraction,
        random_state=estimator.random_state,
    )
    record = _calibrated(sampler, data)
    return float(tiers.price_of(record.outcome.draws).mean()) if record.claim.holds else np.nan


def _calibrated(estimator: ConformalSampler, data: CalibrationData, **changes: Any) -> Any:
    """Calibration of a changed copy, without warnings."""
    sampler = copy.copy(estimator).set_params(on_null="warn", **changes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of levels that nobody has chosen
        return sampler.calibrate(data).calibration_
