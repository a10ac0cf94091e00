"""How many draws are judged."""

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import HasMethods, Interval

from sklearn_clm.calibration import (
    CalibrationData,
    LabelTable,
    impute_labels,
)
from sklearn_clm.policies._exit import classifier_factory

__all__ = ["LazyJudging"]


class LazyJudging(BaseEstimator):
    """Judge only what a decision still needs.

    On the calibration part labels are asked for until each test is decided; the decisions are
    those of the full table of labels. On the optimisation part a few draws of each prompt are
    judged, and the other labels are estimated: there they shape the path of the tests alone.

    Parameters
    ----------
    optimization_judgements : int or None, default=3
        How many draws of each optimisation prompt are judged, at most K; equal responses count as
        one. None judges all of them. With 0 no label is known, and those of all draws are
        estimated by their share among the draws.
    estimator : classifier with ``predict_proba``, default=None
        Estimates the labels of the other draws from their quality, frequency and similarity to
        judged draws. None is a logistic regression with ``C=1``.

    Examples
    --------
    >>> from sklearn_clm.policies import LazyJudging
    >>> sampler = ConformalSampler(judging=LazyJudging(optimization_judgements=2))
    >>> sampler.get_params()["judging__optimization_judgements"]
    2
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "optimization_judgements": [None, Interval(Integral, 0, None, closed="left")],
        "estimator": [None, HasMethods(["fit", "predict_proba"])],
    }

    def __init__(
        self,
        *,
        optimization_judgements: int | None = 3,
        estimator: BaseEstimator | None = None,
    ) -> None:
        self.optimization_judgements = optimization_judgements
        self.estimator = estimator

    def labels(
        self, data: CalibrationData, first: np.ndarray, table: LabelTable, random_state: int = 0
    ) -> np.ndarray:
        """Labels of the optimisation part: some judged, the others estimated.

        Parameters
        ----------
        data : CalibrationData
            The optimisation part; its labels are not looked at.
        first : ndarray of int, shape (n, K)
            Draw in which each draw's text occurs first.
        table : LabelTable
            What is known, and who is asked.
        random_state : int, default=0
            Seed of the draws that are judged and of the labels that are estimated.

        Returns
        -------
        ndarray of bool, shape (n, K)

        Raises
        ------
        ValueError
            If more draws are to be judged than there are.
        """
        self._validate_params()
        n, k_max = first.shape
        wanted = k_max if self.optimization_judgements is None else self.optimization_judgements
        if wanted > k_max:
            raise ValueError(
                f"optimization_judgements must be at most k_max={k_max}, got {wanted} instead."
            )
        rng = np.random.default_rng(random_state)
        order = np.argsort(rng.random((n, k_max)), axis=1)
        is_text = first == np.arange(k_max)
        # texts in random order, so that those which are judged stand for all
        rank = np.where(np.take_along_axis(is_text, order, axis=1), 0, k_max)
        order = np.take_along_axis(order, np.argsort(rank, axis=1, kind="stable"), axis=1)
        for judgement in range(wanted):
            draws = order[:, judgement]
            rows = np.flatnonzero(is_text[np.arange(n), draws] & (_known(table, draws) < 0))
            if len(rows):
                table.ask(rows, draws[rows])
        known = table.labels
        if (known >= 0).any():
            return impute_labels(
                data, first, known, classifier_factory(self.estimator), random_state
            )
        counts = np.sum(first[:, :, np.newaxis] == first[:, np.newaxis, :], axis=2)
        chance = np.take_along_axis(rng.random((n, k_max)), first, axis=1)
        return chance < counts / k_max


def _known(table: LabelTable, draws: np.ndarray) -> np.ndarray:
    return table.labels[np.arange(len(draws)), draws]
