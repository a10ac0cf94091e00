"""Further losses of sets, controlled beside the main risk."""

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm._results import PredictionSet
from sklearn_clm.calibration.algorithm_1 import StoppedSet
from sklearn_clm.calibration.checks import check_level, noting_arguments
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.thresholds import ThresholdPath
from sklearn_clm.generators import Generation
from sklearn_clm.generators.identity import score_fingerprint
from sklearn_clm.generators.prompts import CheckedPrompts
from sklearn_clm.scoring.protocols import Prompt, Reference

Loss: TypeAlias = Callable[[Prompt, Reference, PredictionSet], float]


class Losses(BaseEstimator):
    """Further losses of a set, with a level for each.

    A configuration is certified if the p-value of every risk is at most delta: the largest of them
    is a p-value of "some risk is too high". The path orders configurations by this largest p-value
    on the optimisation part.

    Parameters
    ----------
    functions : dict of callables
        By name, ``loss(prompt, reference, set) -> float`` in [0, 1], with a
        :class:`sklearn_clm.PredictionSet`: the share of wrong members, a cost, a toxicity. They
        are called for each distinct set of an optimisation prompt on the frontier, and on the
        calibration part until a test fails.
    levels : dict of float
        The tolerated mean of each loss, in (0, 1). The risk of no admissible response is controlled
        at `epsilon` as well. With a large `epsilon` most losses are smallest for empty sets, which
        Eq. 7 prefers; ``policy__size_weight=0`` leaves the size out of it.

    Notes
    -----
    The losses are tested by :func:`sklearn_clm.calibration.betting_p_value`.

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import Losses
    >>> def share_of_wrong(prompt, reference, one):
    ...     return sum(response != reference for response in one) / max(len(one), 1)
    >>> losses = Losses({"wrong": share_of_wrong}, {"wrong": 0.2})
    >>> sampler = ConformalSampler(epsilon=0.4, losses=losses)  # and few sets without an answer
    >>> sampler.get_params()["losses__levels"]
    {'wrong': 0.2}
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "functions": [dict],
        "levels": [dict],
    }

    def __init__(self, functions: Mapping[str, Loss], levels: Mapping[str, float]) -> None:
        self.functions = functions
        self.levels = levels

    def _validate_params(self) -> None:
        super()._validate_params()
        if not self.functions or set(self.functions) != set(self.levels):
            raise ValueError(
                f"levels must name the same losses as functions, {sorted(self.functions)!r}, got "
                f"{sorted(self.levels)!r} instead."
            )
        for level in self.levels.values():
            check_level(level, "levels")

    def claimed(self) -> dict[str, float]:
        """The level of each loss, by its name."""
        return {name: float(self.levels[name]) for name in self.functions}

    def content(self) -> dict[str, Any]:
        """The losses in the content of a calibration file."""
        functions = {name: score_fingerprint(loss) for name, loss in self.functions.items()}
        return {"functions": functions, "levels": self.claimed()}


class SetLosses:
    """Losses of sets of collected draws, each computed once."""

    def __init__(
        self,
        functions: Mapping[str, Loss],
        prompts: CheckedPrompts,
        references: Sequence[Reference],
        draws: Sequence[Sequence[Generation]],
    ) -> None:
        self.functions = functions
        self._prompts = prompts
        self._references = references
        self._draws = draws
        self._loss_of_set: dict[tuple[str, int, StoppedSet], float] = {}

    def __call__(self, name: str, path: ThresholdPath, step: int) -> np.ndarray:
        """The loss of each set at a step."""
        values = np.empty(len(path.rows))
        for position, (i, stopped) in enumerate(zip(path.rows.tolist(), path.stopped_sets(step))):
            key = name, i, stopped
            # the steps of a frontier make few distinct sets of a prompt, and a loss may be dear: a
            # judge, or a call of a service
            if key not in self._loss_of_set:
                a_set = self._set(i, stopped, path.table)
                prompt = a_set.prompt
                reference = self._references[i]
                with noting_arguments(f"loss {name!r}", prompt, reference, a_set):
                    loss = self.functions[name](prompt, reference, a_set)
                self._loss_of_set[key] = _checked(loss, name, i)
            values[position] = self._loss_of_set[key]
        return values

    def _set(self, i: int, stopped: StoppedSet, table: Table) -> PredictionSet:
        """The set of prompt i, as prediction returns it."""
        # a set shows each text once, in the order of first draws, and remembers the repetitions
        draws_of_text: dict[int, list[int]] = {}
        for draw in stopped.accepted:
            draws_of_text.setdefault(int(table.texts[i, draw]), []).append(draw)
        return PredictionSet.of_draws(
            self._prompts.prompts[i],
            self._draws[i][: stopped.n_samples],
            table.data.quality[i],
            list(draws_of_text.values()),
            set_score=stopped.score,
            stopped=stopped.by_score,
            guaranteed=False,  # its rule is still to be tested
        )


def _checked(value: object, name: str, i: int) -> float:
    # the negated comparison refuses NaN as well
    if not isinstance(value, (Real, np.bool_)) or not 0.0 <= float(value) <= 1.0:
        raise ValueError(
            f"loss {name!r} must return a number in [0, 1], got {value!r:.40} for prompt {i} "
            "instead."
        )
    return float(value)
