"""What the protocols of repeated random splits return."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sklearn_clm.evaluation._curves import LevelResults

__all__ = ["ComponentTrialResults", "TrialResults"]


@dataclass(frozen=True, eq=False, repr=False)
class TrialResults(LevelResults):
    """Results of :func:`run_trials`.

    Where a trial is null, its test measures are NaN: the procedure abstains and predicts
    nothing there, so that no set could be measured.

    Attributes
    ----------
    methods : tuple of str, length n_methods
        Names of the set scores.
    levels : ndarray of shape (n_levels,)
        The values of epsilon; `epsilons` is the same.
    delta : float
        The confidence level of all tests is 1 - delta.
    null : ndarray of bool, shape (n_methods, n_trials, n_levels)
        Where no configuration was found to be valid.
    trivial : ndarray of bool, shape (1, n_trials, n_levels)
        Where always returning the first generation satisfies epsilon on the test part.
    loss, excess, size, draws : ndarray of shape (n_methods, n_trials, n_levels)
        Means over the test part with lambda-hat: share of the prompts without an admissible
        response in the set; relative excess of draws in [0, 1]; responses in the set; draws
        made, rejected ones included.
    relative_size, relative_draws : ndarray of shape (n_methods, n_trials, n_levels)
        Size and draws divided by the largest budget.
    lambdas : ndarray of shape (n_methods, n_trials, n_levels, 3)
        lambda-hat: thresholds on similarity, quality and set score; NaN where null.
    budgets : ndarray of int, shape (n_methods, n_trials, n_levels)
        The budget of draws that goes with lambda-hat; 0 where null.
    first_1_error, first_k_error : ndarray of shape (n_trials,)
        Ends of the achievable band of Appendix C, on the test part.
    k_max, n_frontier, n_testing, n_test : int
        The largest budget of draws; prompts in each part of a split.
    """

    loss: np.ndarray
    excess: np.ndarray
    size: np.ndarray
    draws: np.ndarray
    lambdas: np.ndarray
    budgets: np.ndarray
    first_1_error: np.ndarray
    first_k_error: np.ndarray
    k_max: int
    n_frontier: int
    n_testing: int
    n_test: int

    measures: ClassVar[tuple[str, ...]] = (
        "loss",
        "excess",
        "size",
        "relative_size",
        "draws",
        "relative_draws",
    )
    level_name: ClassVar[str] = "epsilon"

    @property
    def epsilons(self) -> np.ndarray:
        """The values of epsilon, shape (n_levels,)."""
        return self.levels

    @property
    def relative_size(self) -> np.ndarray:
        """Set size divided by the largest budget."""
        return self.size / self.k_max

    @property
    def relative_draws(self) -> np.ndarray:
        """Draws divided by the largest budget."""
        return self.draws / self.k_max

    def _columns(self) -> dict[str, np.ndarray]:
        names = ("lambda_similarity", "lambda_quality", "lambda_set_score")
        thresholds = {name: self.lambdas[..., i] for i, name in enumerate(names)}
        return {**super()._columns(), **thresholds, "k_max": self.budgets}


@dataclass(frozen=True, eq=False, repr=False)
class ComponentTrialResults(LevelResults):
    """Results of :func:`run_component_trials`.

    Where a trial is null, the selection is empty, which is always valid: loss, number and
    recall are 0 there.

    Attributes
    ----------
    methods : tuple of str, length n_methods
        Names of the component scores.
    levels : ndarray of shape (n_levels,)
        The values of alpha; `alphas` is the same.
    delta : float
        The confidence level of all tests is 1 - delta.
    null : ndarray of bool, shape (n_methods, n_trials, n_levels)
        Where gamma-hat is +inf.
    trivial : ndarray of bool, shape (n_methods, n_trials, n_levels)
        Where selecting every component satisfies alpha on the test part.
    loss, number, recall : ndarray of shape (n_methods, n_trials, n_levels)
        Means over the test part with gamma-hat: share of the prompts with a wrong component in
        the selection; selected components; share of what the reference says that the selection
        covers, NaN if that is not known.
    gammas : ndarray of shape (n_methods, n_trials, n_levels)
        gamma-hat.
    n_calibration, n_test : int
        Prompts in each part of a split.
    """

    loss: np.ndarray
    number: np.ndarray
    recall: np.ndarray
    gammas: np.ndarray
    n_calibration: int
    n_test: int

    measures: ClassVar[tuple[str, ...]] = ("loss", "number", "recall")
    level_name: ClassVar[str] = "alpha"

    @property
    def alphas(self) -> np.ndarray:
        """The values of alpha, shape (n_levels,)."""
        return self.levels

    def _columns(self) -> dict[str, np.ndarray]:
        return {**super()._columns(), "gamma": self.gammas}
