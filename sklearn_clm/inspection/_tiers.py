"""What answers, and draws of several generators, cost at other levels."""

import copy
import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from sklearn_clm import ConformalSampler
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration._tiers import Tiers
from sklearn_clm.generators import CascadeGenerator, PrecomputedGenerator
from sklearn_clm.inspection._figures import LIMIT, EstimatorDisplay, line_style
from sklearn_clm.policies import AnswerPolicy, ExitPolicy

_LEVELS = np.round(np.linspace(0.05, 0.4, 8), 3)


@dataclass(kw_only=True, eq=False, repr=False)
class AnswerDisplay(EstimatorDisplay):
    """The share of prompts answered, for other tolerated shares of wrong answers.

    Every point is a calibration of its own on the same data. It is for planning: `alpha` is to be
    decided before the data that certify are seen. Create it with :meth:`from_estimator`.

    Parameters
    ----------
    alphas, answered : ndarray of shape (m,)
        Tolerated shares of wrong answers, and the shares of prompts answered; 0 where nothing is
        certified.
    alpha : float
        The one that was calibrated.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.inspection import AnswerDisplay
    >>> shares = np.array([0.0, 0.3, 0.6])
    >>> AnswerDisplay(alphas=np.array([0.05, 0.1, 0.2]), answered=shares, alpha=0.1).at(0.1)
    0.3
    """

    alphas: np.ndarray
    answered: np.ndarray
    alpha: float

    title = "Answered at a tolerated share of wrong answers"
    wanted = "have an AnswerPolicy and all labels"

    def at(self, alpha: float) -> float:
        """Share answered at one of the levels."""
        return float(self.answered[np.flatnonzero(self.alphas == alpha)[0]])

    @classmethod
    def _of(cls, estimator: ConformalSampler) -> Self | None:
        policy, data = estimator.policy, estimator.calibration_data_
        if not isinstance(policy, AnswerPolicy) or data.unknown is not None:
            return None
        alphas = np.union1d(_LEVELS, policy.alpha)
        shares = []
        for alpha in alphas:
            own = clone(policy).set_params(alpha=float(alpha))
            record = _calibrated(estimator, data, policy=own)
            shares.append(record.claim.answered if record.claim.holds else 0.0)
        return cls(alphas=alphas, answered=np.array(shares), alpha=float(policy.alpha))

    def _draw(self) -> None:
        ax, here = self.ax_, self.at(self.alpha)
        ax.plot(self.alphas, self.answered, **line_style(0), label="answered, 0 where null")
        label = f"$\\alpha$ = {self.alpha:g}: {here:.3g}"
        ax.plot([self.alpha], [here], "o", ms=11, mfc="none", color="black", label=label)
        ax.set_xlabel("$\\alpha$, tolerated share of wrong answers")
        ax.set_ylabel("Share of calibration prompts")
        ax.set_ylim(0.0, 1.0)


@dataclass(kw_only=True, eq=False, repr=False)
class PriceDisplay(EstimatorDisplay):
    """Price of a prompt against epsilon: of a cascade, and of each of its generators alone.

    Every point is a calibration of its own on the draws of the same prompts: those of the cascade,
    or of one generator. Where a generator alone certifies nothing its curve has a gap. It is for
    planning, as `epsilon` is to be decided beforehand. Create it with :meth:`from_estimator`.

    Parameters
    ----------
    epsilons : ndarray of shape (m,)
        Tolerated risks.
    prices : dict of str to ndarray of shape (m,)
        Mean price of the draws of a calibration prompt, NaN where nothing is certified.
    epsilon : float
        The one that was calibrated.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.inspection import PriceDisplay
    >>> prices = {"cascade": np.array([50.0, 27.0]), "generator 2": np.array([np.nan, 62.0])}
    >>> PriceDisplay(epsilons=np.array([0.15, 0.2]), prices=prices, epsilon=0.2).nulls
    {'cascade': [], 'generator 2': [0.15]}
    """

    epsilons: np.ndarray
    prices: dict[str, np.ndarray]
    epsilon: float

    title = "Price of a prompt"
    wanted = "have an ExitPolicy, a CascadeGenerator and all labels"

    @property
    def nulls(self) -> dict[str, list[float]]:
        """Where nothing is certified."""
        return {name: self.epsilons[np.isnan(of)].tolist() for name, of in self.prices.items()}

    @classmethod
    def _of(cls, estimator: ConformalSampler) -> Self | None:
        policy, data = estimator.policy, estimator.calibration_data_
        tiers = getattr(estimator.generator_, "tiers", None)
        if tiers is None or not isinstance(policy, ExitPolicy) or data.unknown is not None:
            return None
        data = data.truncate(estimator.k_max_)
        parts = {"cascade": (slice(None), tiers)}
        for tier, (start, n, price) in enumerate(zip(tiers.starts, tiers.n_draws, tiers.prices)):
            if start < data.k_max:
                n = min(n, data.k_max - start)
                alone = Tiers((n,), (price,))
                parts[f"generator {tier + 1} alone"] = slice(start, start + n), alone
        epsilons = np.union1d(_LEVELS, estimator.epsilon)
        prices = {
            name: np.array([_price(estimator, _of_tier(data, at), own, e) for e in epsilons])
            for name, (at, own) in parts.items()
        }
        return cls(epsilons=epsilons, prices=prices, epsilon=float(estimator.epsilon))

    def _draw(self) -> None:
        for i, (name, prices) in enumerate(self.prices.items()):
            n = int(np.isnan(prices).sum())
            null = f", null at {n} of {len(prices)}" if n else ""
            self.ax_.plot(self.epsilons, prices, **line_style(i), label=name + null)
        self.ax_.axvline(self.epsilon, label=f"$\\epsilon$ = {self.epsilon:g}", **LIMIT)
        self.ax_.set_xlabel("$\\epsilon$, tolerated share without an admissible response")
        self.ax_.set_ylabel("Price of the draws of a prompt")
        self.ax_.set_ylim(bottom=0.0)


def _of_tier(data: CalibrationData, at: slice) -> CalibrationData:
    """The draws of one generator as if there were no others, without provenance."""
    texts = None
    if data.texts is not None:
        own = data.texts[:, at]
        texts = (own[:, :, np.newaxis] == own[:, np.newaxis, :]).argmax(axis=2)
    return CalibrationData(
        data.quality[:, at], data.similarity[:, at, at], data.admissible[:, at], texts=texts
    )


def _price(estimator: ConformalSampler, data: CalibrationData, tiers: Tiers, epsilon: float) -> Any:
    """Mean price of a calibration prompt; NaN where nothing is certified."""
    nobody = [PrecomputedGenerator([0], [[tier]]) for tier, _ in enumerate(tiers.prices)]
    sampler = ConformalSampler(
        CascadeGenerator(nobody, n_draws=tiers.n_draws, prices=tiers.prices),
        k_max=data.k_max,
        epsilon=float(epsilon),
        delta=estimator.delta,
        quality="self_consistency",  # no draw is made, nor scored
        policy=clone(estimator.policy),
        optimization_fraction=estimator.optimization_fraction,
        random_state=estimator.random_state,
    )
    record = _calibrated(sampler, data)
    if not record.claim.holds:
        return np.nan
    draws = record.rule.result.draws
    return float(tiers.price_of(draws).mean())


def _calibrated(estimator: ConformalSampler, data: CalibrationData, **changes: Any) -> Any:
    """What a copy of an estimator calibrates with other parameters, without its warnings."""
    sampler = copy.copy(estimator).set_params(on_null="warn", **changes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sampler.calibrate(data).calibration_
