"""Loss, excess and size of response sets against epsilon."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from sklearn_clm.inspection._curves import CurveDisplay

__all__ = ["RiskCurveDisplay"]


class RiskCurveDisplay(CurveDisplay):
    """Loss, relative excess and set size against epsilon (section 6).

    A row for each measure, a curve for each method: the mean over trials, with a band of one
    standard deviation on each side. A valid method keeps its loss at or under the dotted
    diagonal. Grey marks the trivial epsilons, which always returning the first generation
    satisfies. Create it with :meth:`from_trials` or :meth:`from_estimator`.

    Parameters
    ----------
    levels : ndarray of shape (n_levels,)
        The values of epsilon.
    methods : sequence of str, length n_methods
        Names for the legend.
    mean, std : dict of str to ndarray of shape (n_methods, n_levels)
        For each measure the mean and the standard deviation over trials; NaN is not drawn.
    auc : dict of str to ndarray of shape (n_methods,)
        For each measure the normalised area under the curve.
    trivial_level : float, optional
        The smallest trivial epsilon.

    Attributes
    ----------
    figure_ : matplotlib Figure
        The figure.
    axes_ : ndarray of matplotlib Axes, shape (n_measures,)
        One for each measure.
    lines_ : list of matplotlib Line2D
        The curves, measure by measure.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.inspection import RiskCurveDisplay
    >>> levels = np.array([0.1, 0.2, 0.3])
    >>> display = RiskCurveDisplay(
    ...     levels=levels,
    ...     methods=["max"],
    ...     mean={"loss": levels[None] - 0.02},
    ...     std={"loss": np.full((1, 3), 0.01)},
    ...     auc={"loss": np.array([0.18])},
    ... )
    >>> display.levels.shape
    (3,)
    """

    default_measures: ClassVar[tuple[str, ...]] = ("loss", "excess", "relative_size")
    level_label: ClassVar[str] = "ε (tolerated risk)"
    measure_labels: ClassVar[dict[str, str]] = {
        "loss": "Loss",
        "excess": "Relative excess",
        "size": "Set size",
        "relative_size": "Set size / $k_{max}$",
        "draws": "Draws",
        "relative_draws": "Draws / $k_{max}$",
    }

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        methods: Sequence[Any] | None = None,
        measures: Sequence[str] | None = None,
        epsilons: Any = None,
        n_trials: int = 30,
        random_state: Any = None,
        n_jobs: int | None = None,
        common: bool = True,
        min_share: float = 1.0,
        ax: Any = None,
    ) -> Self:
        """Run the protocol on the data that a sampler was calibrated on, and plot it.

        Parameters
        ----------
        estimator : ConformalSampler
            A fitted sampler; nothing is drawn or judged anew.
        methods : sequence of str or callable, optional
            Set scores as in :func:`~sklearn_clm.evaluation.run_trials`. Default: the sampler's
            own.
        measures : sequence of str, optional
            What to show, one row each.
        epsilons : array-like, optional
            Values of epsilon in [0, 1].
        n_trials : int, default=30
            Number of random splits.
        random_state : int, RandomState or None, default=None
            Seed of the splits.
        n_jobs : int, optional
            Processes, as in joblib.
        common, min_share, ax
            As in :meth:`from_trials`.

        Returns
        -------
        RiskCurveDisplay
            The display, plotted.
        """
        from sklearn.utils.validation import check_is_fitted

        from sklearn_clm.evaluation import run_trials

        check_is_fitted(estimator, "calibration_data_")
        results = run_trials(
            estimator.calibration_data_,
            (estimator.set_score,) if methods is None else methods,
            epsilons,
            delta=estimator.delta,
            n_trials=n_trials,
            n_lambdas=estimator.n_lambdas,
            size_weight=estimator.size_weight,
            excess_weight=estimator.excess_weight,
            random_state=random_state,
            n_jobs=n_jobs,
        )
        return cls.from_trials(
            results, measures=measures, common=common, min_share=min_share, ax=ax
        )
