"""Further losses of sets, controlled beside the main risk."""

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm._results import PredictionSet
from sklearn_clm.calibration import SamplingRule
from sklearn_clm.calibration.checks import check_level
from sklearn_clm.calibration.path import ThresholdPath
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
        self.functions, self._prompts = functions, prompts
        self._references, self._draws = references, draws
        self._known: dict[tuple[object, ...], float] = {}

    def __call__(self, name: str, path: ThresholdPath, m: int) -> np.ndarray:
        """The loss of each set at step m."""
        k_max = int(path.frontier.k_max[m])
        scores = path.table.part(path.rows)
        values = np.empty(len(path.rows))
        for position, i in enumerate(path.rows.tolist()):
            # the plain rule, as in prediction
            rule = SamplingRule(path.frontier.configuration(m), path.set_score, k_max, scores.k_max)
            quality = scores.quality[position]
            similarity = scores.similarity[position]
            texts = scores.first[position].tolist()
            while not rule.done:
                j = rule.n_samples
                rule.update(float(quality[j]), similarity[j], texts[j])
            values[position] = self._loss(name, i, rule, quality)
        return values

    def _loss(self, name: str, i: int, rule: SamplingRule, quality: np.ndarray) -> float:
        key = name, i, tuple(rule.accepted), rule.n_samples, rule.score, rule.stopped
        if key not in self._known:
            a_set = PredictionSet.of_draws(
                self._prompts.prompts[i],
                self._draws[i][: rule.n_samples],
                quality,
                rule.texts.values(),
                set_score=rule.score,
                stopped=rule.stopped,
                guaranteed=False,
            )
            loss = self.functions[name](a_set.prompt, self._references[i], a_set)
            self._known[key] = _checked(loss, name, i)
        return self._known[key]


def _checked(value: object, name: str, i: int) -> float:
    if not isinstance(value, (Real, np.bool_)) or not 0.0 <= float(value) <= 1.0:
        raise ValueError(
            f"loss {name!r} must return a number in [0, 1], got {value!r:.40} for prompt {i} "
            "instead."
        )
    return float(value)
