"""Draws in tiers: cheap ones first, dearer ones after them."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Tiers:
    """Consecutive draws at one price each.

    Parameters
    ----------
    n_draws : tuple of int
        Number of draws of each tier.
    prices : tuple of float
        Price of a draw of each.

    Examples
    --------
    >>> from sklearn_clm.calibration.tiers import Tiers
    >>> Tiers((2, 1), (1.0, 25.0)).price_of([1, 2, 3])
    array([ 1.,  2., 27.])
    """

    n_draws: tuple[int, ...]
    prices: tuple[float, ...]

    @property
    def starts(self) -> tuple[int, ...]:
        """The first draw of each tier, and K."""
        return tuple(np.cumsum([0, *self.n_draws]).tolist())

    @property
    def of_draw(self) -> np.ndarray:
        """The tier of each draw."""
        return np.repeat(np.arange(len(self.n_draws)), self.n_draws)

    def counts(self, n_draws: object) -> np.ndarray:
        """Draws of each tier among the first, (..., tiers)."""
        n_drawn = np.asarray(n_draws)[..., np.newaxis]
        n_since_start = n_drawn - np.array(self.starts[:-1])
        return np.clip(n_since_start, 0, np.array(self.n_draws))

    def depth(self, n_draws: object) -> np.ndarray:
        """log(1 + draws) of later tiers, on a last axis."""
        return np.asarray(np.log1p(self.counts(n_draws)[..., 1:]))

    def price_of(self, n_draws: object) -> np.ndarray:
        """Price of the first `n_draws` draws of a prompt."""
        return np.asarray(self.counts(n_draws) @ np.array(self.prices))


def check_tiers(tiers: object, k_max: int) -> None:
    """Refuse other objects than Tiers, and too many draws."""
    if tiers is None:
        return
    if not isinstance(tiers, Tiers):
        raise TypeError(
            f"tiers must be generator.tiers of a CascadeGenerator, got {tiers!r:.80} instead."
        )
    if k_max > (n_draws := sum(tiers.n_draws)):
        raise ValueError(
            f"k_max must be at most the {n_draws} draws of the cascade, got {k_max} instead."
        )
