"""Other losses of a set that are kept besides that of admission."""

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_clm._results import PredictionSet
from sklearn_clm.calibration import Claim, SamplingRule
from sklearn_clm.calibration._binomial import check_probability
from sklearn_clm.calibration._path import Columns
from sklearn_clm.calibration._tests import LossTest
from sklearn_clm.generators import Generation
from sklearn_clm.generators._identity import score_fingerprint
from sklearn_clm.generators._prompts import CheckedPrompts
from sklearn_clm.scoring._protocols import Prompt, Reference

Loss: TypeAlias = Callable[[Prompt, Reference, PredictionSet], float]


class Losses(BaseEstimator):
    """Other losses of a set that are to be kept, each at a level of its own.

    A configuration is certified where the p-value of every risk is at most delta: the largest of
    them is a p-value of "some risk is too high". The path orders configurations by that largest
    p-value on the optimisation part.

    Parameters
    ----------
    functions : callable, or dict of them
        ``loss(prompt, reference, set) -> float`` in [0, 1], with a
        :class:`sklearn_clm.PredictionSet`: the share of wrong members, a cost, a toxicity. They
        are called for each distinct set that the frontier gives an optimisation prompt, and on the
        calibration part until a test fails.
    levels : float or dict, default=0.1
        The tolerated mean of each, in (0, 1): one for all, or one by name.
    admission : bool, default=True
        Whether the risk of holding no admissible response is kept as well, at `epsilon`. Otherwise
        admissions shape the path alone, and nothing demands an answer: most losses of an empty set
        are 0, and Eq. 7 prefers it. ``policy__size_weight=0`` leaves the size out of that choice.

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
        "functions": [callable, dict],
        "levels": [Real, dict],
        "admission": ["boolean"],
    }

    def __init__(
        self,
        functions: Loss | Mapping[str, Loss],
        levels: float | Mapping[str, float] = 0.1,
        *,
        admission: bool = True,
    ) -> None:
        self.functions = functions
        self.levels = levels
        self.admission = admission

    def _validate_params(self) -> None:
        super()._validate_params()
        self.named()

    def named(self) -> dict[str, tuple[Loss, float]]:
        """Each loss and its level by name."""
        functions = self.functions
        if not isinstance(functions, Mapping):
            functions = {getattr(functions, "__name__", "loss"): functions}
        levels = self.levels
        if not isinstance(levels, Mapping):
            levels = dict.fromkeys(functions, levels)
        if not functions or set(functions) != set(levels):
            raise ValueError(
                f"levels must name the same losses as functions, {sorted(functions)!r}, got "
                f"{sorted(levels)!r} instead."
            )
        for level in levels.values():
            check_probability(level, "levels")
        return {name: (function, float(levels[name])) for name, function in functions.items()}

    def claimed(self) -> dict[str, Any]:
        """What a claim says of them."""
        levels = {name: level for name, (_, level) in self.named().items()}
        return {"losses": levels, "admission": bool(self.admission)}

    def content(self) -> dict[str, Any]:
        """What a file of a calibration holds of them."""
        functions = {name: score_fingerprint(loss) for name, (loss, _) in self.named().items()}
        claimed = self.claimed()
        return {
            "functions": functions,
            "levels": claimed["losses"],
            "admission": claimed["admission"],
        }


def why_empty(claim: Claim, epsilon: float) -> str:
    """Warning: the certified sets are empty for more than half of the prompts."""
    if not claim.losses:
        return (
            f"epsilon={epsilon:g} is certified with sets that are empty for more than half of the "
            "calibration prompts: it is the tolerated share of errors, not the coverage."
        )
    what = f"epsilon={epsilon:g} tolerates as many without an admissible response"
    wanted = "a smaller epsilon"
    if not claim.admission:
        what = "Losses(admission=False) demands no answer, and Eq. 7 prefers the smallest sets"
        wanted = (
            "admission=True, with epsilon the tolerated share of prompts without an admissible "
            "response"
        )
    return (
        "the levels of losses are certified with sets that are empty for more than half of the "
        f"calibration prompts, each of which takes all draws: {what}; wanted, for answers, "
        f"policy__size_weight=0, so that small sets are not preferred, or {wanted}."
    )


class SetLosses:
    """Tests of losses on the sets of collected draws, each of which is computed once."""

    def __init__(
        self,
        losses: Losses,
        prompts: CheckedPrompts,
        references: Sequence[Reference],
        draws: Sequence[Sequence[Generation]],
    ) -> None:
        self.admission, self.named = losses.admission, losses.named()
        self._prompts, self._references, self._draws = prompts, references, draws
        self._known: dict[tuple[object, ...], float] = {}

    def tests(self, columns: Columns, rows: np.ndarray, delta: float) -> list[LossTest]:
        """The test of each loss, for the prompts at `rows` and what `columns` make of them."""
        return [
            LossTest(len(columns), self._of(name, columns, rows), level, delta)
            for name, (_, level) in self.named.items()
        ]

    def _of(self, name: str, columns: Columns, rows: np.ndarray) -> Callable[[int], np.ndarray]:
        def losses(m: int) -> np.ndarray:
            k_max = int(columns.frontier.k_max[m])
            scores = columns.table.part(columns.rows)
            values = np.empty(len(rows))
            for position, i in enumerate(rows.tolist()):
                # the plain rule, which prediction runs
                rule = SamplingRule(
                    columns.frontier.configuration(m), columns.set_score, k_max, scores.k_max
                )
                quality, similarity = scores.quality[position], scores.similarity[position]
                while not rule.done:
                    rule.update(float(quality[rule.n_samples]), similarity[rule.n_samples])
                values[position] = self._loss(name, i, rule, quality)
            return values

        return losses

    def _loss(self, name: str, i: int, rule: SamplingRule, quality: np.ndarray) -> float:
        key = name, i, tuple(rule.accepted), rule.n_samples, rule.score, rule.stopped
        if key not in self._known:
            draws = self._draws[i]
            one = PredictionSet(
                prompt=self._prompts.prompts[i],
                responses=tuple(draws[j].response for j in rule.accepted),
                quality=quality[rule.accepted],
                indices=np.array(rule.accepted, dtype=np.intp),
                n_samples=rule.n_samples,
                set_score=rule.score,
                stopped=rule.stopped,
                guaranteed=False,
                generations=tuple(draws[: rule.n_samples]),
            )
            loss, _ = self.named[name]
            self._known[key] = _checked(loss(one.prompt, self._references[i], one), name, i)
        return self._known[key]


def _checked(value: object, name: str, i: int) -> float:
    if not isinstance(value, (Real, np.bool_)) or not 0.0 <= float(value) <= 1.0:
        raise ValueError(
            f"loss {name!r} must return a number in [0, 1], got {value!r:.40} for prompt {i} "
            "instead."
        )
    return float(value)
