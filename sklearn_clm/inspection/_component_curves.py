"""Loss, number and recall of selected components against alpha."""

from typing import Any, ClassVar, Self

from sklearn_clm.inspection._curves import CurveDisplay

__all__ = ["ComponentCurveDisplay"]


class ComponentCurveDisplay(CurveDisplay):
    """Loss, number and recall of the selected components against alpha (section 6, Appendix G).

    A row for each measure, a curve for each component score: the mean over trials, with a band
    of one standard deviation on each side. A valid method keeps its loss at or under the dotted
    diagonal. Grey marks the trivial alphas, at which every component could be selected. Create
    it with :meth:`from_trials` or :meth:`from_estimator`.

    Parameters
    ----------
    levels : ndarray of shape (n_levels,)
        The values of alpha.
    methods : sequence of str, length n_methods
        Names for the legend.
    mean, std : dict of str to ndarray of shape (n_methods, n_levels)
        For each measure the mean and the standard deviation over trials; NaN is not drawn.
    auc : dict of str to ndarray of shape (n_methods,)
        For each measure the normalised area under the curve.
    trivial_level : float, optional
        The smallest trivial alpha.

    Attributes
    ----------
    figure_ : matplotlib Figure
        The figure.
    axes_ : ndarray of matplotlib Axes, shape (n_measures,)
        One for each measure.
    lines_ : list of matplotlib Line2D
        The curves, measure by measure.
    """

    default_measures: ClassVar[tuple[str, ...]] = ("loss", "number", "recall")
    level_label: ClassVar[str] = "α (tolerated risk)"
    measure_labels: ClassVar[dict[str, str]] = {
        "loss": "Loss",
        "number": "Components selected",
        "recall": "Recall",
    }

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        name: str | None = None,
        alphas: Any = None,
        n_trials: int = 30,
        random_state: Any = None,
        common: bool = True,
        min_share: float = 1.0,
        ax: Any = None,
    ) -> Self:
        """Run the protocol on the data that a selector was calibrated on, and plot it.

        Parameters
        ----------
        estimator : ComponentSelector
            A fitted selector; nothing is drawn, split or judged anew.
        name : str, optional
            What to call its component score in the legend.
        alphas : array-like, optional
            Values of alpha in [0, 1].
        n_trials : int, default=30
            Number of random splits.
        random_state : int, RandomState or None, default=None
            Seed of the splits.
        common, min_share, ax
            As in :meth:`from_trials`.

        Returns
        -------
        ComponentCurveDisplay
            The display, plotted.
        """
        from sklearn.utils.validation import check_is_fitted

        from sklearn_clm.evaluation import run_component_trials

        check_is_fitted(estimator, "calibration_data_")
        if name is None:
            score = estimator.component_score
            name = score if isinstance(score, str) else type(score).__name__
        results = run_component_trials(
            {name: estimator.calibration_data_},
            alphas,
            delta=estimator.delta,
            n_trials=n_trials,
            random_state=random_state,
        )
        return cls.from_trials(results, common=common, min_share=min_share, ax=ax)
