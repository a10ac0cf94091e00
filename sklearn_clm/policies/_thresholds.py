"""Thresholds on similarity, quality and set score: Algorithm 1 of the paper."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import StrOptions

from sklearn_clm.caching import VerdictsWanted
from sklearn_clm.calibration import (
    AchievableEpsilon,
    CalibrationData,
    Configuration,
    Frontier,
    LearnThenTestResult,
    critical_count,
    evaluate_configurations,
    get_set_score,
    learn_then_test_lazily,
    search_frontier,
    sets_at_stop,
    texts_for_tests,
)
from sklearn_clm.calibration._data import refuse_common_prompts
from sklearn_clm.calibration._learn_then_test import (
    choose_configuration,
    doubts_of_admission,
    frontier_tests,
)
from sklearn_clm.policies._base import Policy, Request, ThresholdRule
from sklearn_clm.policies._risks import Stop
from sklearn_clm.policies._shift import low_weights


class ThresholdPolicy(Policy[Frontier]):
    """Algorithm 1 of the paper: thresholds on similarity, quality and set score.

    ``policy="thresholds"`` of a :class:`ConformalSampler` stands for one with default parameters.

    Parameters
    ----------
    select : {"objective", "last"}, default="objective"
        Which of the certified configurations is used: that of lowest objective (Eq. 7), or the
        last one that was certified, the least cautious. With lazy judging the objective is that
        of size and draws alone, since the excess would need labels that no test asks for.
    frontier : Frontier, default=None
        Configurations to test, in this order, from other data, such as the `frontier_` of another
        sampler. All prompts then test them, and none is spent on the search.

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import ThresholdPolicy
    >>> ConformalSampler(policy=ThresholdPolicy(select="last")).get_params()["policy__select"]
    'last'
    """

    kind: ClassVar[str] = "thresholds"
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "select": [StrOptions({"objective", "last"})],
        "frontier": [None, Frontier],
    }

    def __init__(
        self,
        *,
        select: Literal["objective", "last"] = "objective",
        frontier: Frontier | None = None,
    ) -> None:
        self.select = select
        self.frontier = frontier

    @property
    def path(self) -> Frontier | None:
        """The frontier from other data."""
        return self.frontier

    def refuse(self, k_max: int | Sequence[int], guarantee: str, risks: str | None) -> None:
        if guarantee == "marginal":
            raise ValueError(
                "guarantee must be 'pac' with a policy of thresholds, got 'marginal' instead: it "
                "needs nested sets, which the frontier of thresholds has not; take an ExitPolicy."
            )
        self._refuse_frontier(int(np.max(k_max)))

    def refuse_path(self, path: Frontier, data: CalibrationData, request: Request) -> None:
        refuse_common_prompts("the policy's frontier", path.seen, data)

    def _refuse_frontier(self, largest: int) -> None:
        """Refuse a frontier of nothing, or of other budgets."""
        path = self.frontier
        if path is None:
            return
        lambdas, budgets = np.asarray(path.lambdas), np.asarray(path.k_max)
        if not len(lambdas) or len(lambdas) != len(budgets):
            raise ValueError(
                "frontier must hold configurations, at least one, and as many budgets, got "
                f"{len(lambdas)} and {len(budgets)} instead."
            )
        for name, array, kinds in (("lambdas", lambdas, "fiu"), ("k_max", budgets, "iu")):
            if not isinstance(getattr(path, name), np.ndarray) or array.dtype.kind not in kinds:
                raise TypeError(
                    f"frontier.{name} must be an array of {'numbers' if 'f' in kinds else 'int'}, "
                    f"got {type(getattr(path, name)).__name__} of {array.dtype} instead."
                )
        if int(budgets.max()) != largest:
            raise ValueError(
                f"k_max must be {budgets.max()}, the largest budget of the policy's frontier, got "
                f"{largest} instead."
            )

    def search(self, part: CalibrationData, rows: np.ndarray, request: Request) -> Frontier:
        if request.judging is not None:
            table = request.search_table(part.first, part.labels, rows)
            part = part.with_labels(request.judging.labels(part, part.first, table))
        frontier = search_frontier(
            part,
            set_score=request.set_score,
            n_lambdas=request.n_lambdas,
            k_max=request.budgets,
            **request.weights,
        )
        if request.risks is None or request.risks.losses is None:
            return frontier
        # the set of all draws errs least, but may well have the largest of other losses
        p_values = np.array([p for p, _ in _p_values(part, rows, frontier, request)])
        order = np.argsort(p_values, kind="stable")
        fields = ("lambdas", "k_max", "loss", "objective")
        return replace(frontier, **{name: getattr(frontier, name)[order] for name in fields})

    def test(
        self,
        data: CalibrationData,
        seen: np.ndarray,
        rows: np.ndarray,
        path: Frontier,
        request: Request,
    ) -> ThresholdRule:
        drawn, weights = request.drawn(data, rows), request.weights
        part = data.take(rows) if drawn is None else drawn.data
        means: dict[str, float] = {}
        why = None
        result: LearnThenTestResult
        if request.risks is not None:
            result, means, why = self._test_risks(part, rows, path, request)
        elif request.judging is None:
            (result,) = frontier_tests(
                part,
                path,
                [request.epsilon],
                request.delta,
                set_score=request.set_score,
                select=self.select,
                **weights,
            )
        else:
            table = request.table(part.first, request.labels(data, rows), rows)
            try:
                result = learn_then_test_lazily(
                    part,
                    path,
                    request.epsilon,
                    request.delta,
                    table,
                    set_score=request.set_score,
                    size_weight=weights["size_weight"],
                    draw_weight=weights["draw_weight"],
                    select=self.select,
                    draw=None if drawn is None else drawn.draw,
                )
            except VerdictsWanted as error:
                score = get_set_score(request.set_score)
                sets = (
                    sets_at_stop(part, Configuration(*thresholds), int(k_max), score)[0]
                    for thresholds, k_max in zip(path.lambdas.tolist(), path.k_max)
                )
                allowed = int(critical_count(len(rows), request.epsilon, request.delta))
                texts = texts_for_tests(sets, allowed, table)
                n_more = 0 if drawn is None else drawn.n_missing
                raise request.wanted(error, texts, rows, n_more) from None
        if request.judging is None:
            labels = data.admissible[np.concatenate((seen, rows))]
            result = replace(result, achievable_epsilon=AchievableEpsilon.of_labels(labels))
        result = replace(result, n_optimization=len(seen))
        k_max = request.budgets[-1] if result.k_max_hat is None else int(result.k_max_hat)
        return ThresholdRule(result.lambda_hat, k_max, result, means, why)

    def _test_risks(
        self, part: CalibrationData, rows: np.ndarray, path: Frontier, request: Request
    ) -> tuple[LearnThenTestResult, dict[str, float], str | None]:
        """Fixed sequence testing of the largest p-value of several risks."""
        m, n = len(path), part.n_prompts
        p_values, means = np.full(m, np.nan), []
        for i, (p_value, losses) in enumerate(_p_values(part, rows, path, request)):
            p_values[i] = p_value
            means.append(losses)
            if p_value > request.delta:
                break
        risks = evaluate_configurations(
            part, path.lambdas, set_score=request.set_score, k_max=path.k_max
        )
        objective = risks.objective(**request.weights)
        chosen = choose_configuration(path, p_values <= request.delta, objective, self.select)
        first = "".join(f", mean {name} {value:.3g}" for name, value in means[0].items())
        about_admission = request.risks is None or request.risks.tests_admission
        level = f"epsilon={request.epsilon:g}, " if about_admission else "the levels of losses, "
        missed = f"{risks.n_errors[0]} sets without an admissible response"
        why = (
            f"no configuration is certified at {level}delta={request.delta:g} with {n} calibration "
            f"prompts. The first that was tested has a p-value of {p_values[0]:.3g}: "
            f"{missed if about_admission else ''}{first if about_admission else first[2:]}."
        )
        if about_admission and (doubts := doubts_of_admission(risks.n_errors[0] / n)):
            why += f" {doubts}"
        if request.risks is not None and request.risks.weights is not None:
            low = low_weights(request.risks.weights[rows], request.risks.weight_bound)
            why += "" if low is None else f" Note that {low}"
        result = LearnThenTestResult(
            **chosen,
            frontier=path,
            n_errors=risks.n_errors,
            p_values=p_values,
            n_optimization=0,
            n_calibration=n,
            epsilon=float(request.epsilon),
            delta=float(request.delta),
            smallest_epsilon=np.nan,
            achievable_epsilon=AchievableEpsilon(np.nan, np.nan),
            risks=risks,
            provenance=part.provenance,
        )
        return result, {} if result.position is None else means[result.position], why


def _p_values(
    part: CalibrationData, rows: np.ndarray, path: Frontier, request: Request
) -> Iterator[tuple[float, dict[str, float]]]:
    """The largest p-value and the mean losses of each configuration, in order."""
    score, test = get_set_score(request.set_score), request.risks
    for thresholds, k_max in zip(path.lambdas.tolist(), path.k_max.tolist(), strict=True):
        accepted, samples = sets_at_stop(part, Configuration(*thresholds), k_max, score)
        missed = ~np.any(accepted & part.admissible, axis=1)
        if test is not None:
            stop = Stop(score, thresholds[2], k_max)
            yield test.p_value(rows, part.quality, accepted, samples, missed, request.epsilon, stop)
