"""The search of configurations to test, in their order.

The optimisation part lays out a grid of thresholds, between observed values, and keeps the
Pareto frontier of loss and objective, from the safest configuration on. Whatever path comes of it,
fixed sequence testing on *other* prompts holds; a bad one only certifies less.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration._engine import Pairs, scores_of_prefixes, sets_of_pairs
from sklearn_clm.calibration._rule import Configuration
from sklearn_clm.calibration.between import middles_above, middles_below, same_sums
from sklearn_clm.calibration.checks import as_array, check_budgets
from sklearn_clm.calibration.data import CalibrationData, check_data, prompt_digests
from sklearn_clm.calibration.risk import MISSES, Risk
from sklearn_clm.calibration.set_scores import SetScore, SetScoreLike, get_set_score
from sklearn_clm.calibration.surface import Weights, evaluate_configurations

# sets that are built to observe set scores
_MAX_SETS = 20_000

# their set scores are 1, 2, ..., K: nothing has to be observed
_COUNTING = (get_set_score("first_k"), get_set_score("first_k_reject"))


@dataclass(frozen=True)
class Frontier:
    """The configurations to test, in the order of their tests.

    :func:`search_frontier` begins with the safest. That accepts everything: no rejection, no stop
    before the largest budget is used up. Where all prompts count, no configuration errs on fewer
    prompts, so that the first passes whenever any other does. The second is the same without near
    copies, where that cost no error on the optimisation part.

    Where some sets do not count, or other losses are promised besides, a policy puts the likeliest
    to pass first (:meth:`ordered`), and a frontier that the user gives may have any order.

    `seen` are digests of the prompts that were searched.
    """

    lambdas: np.ndarray  # (m, 3): thresholds on similarity, quality and set score
    k_max: np.ndarray  # (m,): budgets
    loss: np.ndarray  # (m,): means on the optimisation part; ascending as they are found
    objective: np.ndarray  # (m,): descending as they are found
    seen: np.ndarray | None = None

    tells_losses: ClassVar[bool] = True  # before a test, on whatever prompts

    def __len__(self) -> int:
        return len(self.lambdas)

    def __repr__(self) -> str:
        return f"Frontier(n_configurations={len(self)})"

    def configuration(self, m: int) -> Configuration:
        """The thresholds of step m."""
        return Configuration(*self.lambdas[m].tolist())

    def of_all_draws(self) -> "Frontier":
        """The set of all draws, which no prompt has shaped."""
        if not self.configuration(0).accepts_all or self.k_max[0] < self.k_max.max():
            raise ValueError(
                "frontier must begin with the set of all draws, which alone is tested where draws "
                "ended by verdicts on other prompts, got another first configuration instead."
            )
        return self.ordered(np.array([0]))

    def ordered(self, order: np.ndarray) -> "Frontier":
        """These configurations in another order."""
        lists = ("lambdas", "k_max", "loss", "objective")
        return replace(self, **{name: getattr(self, name)[order] for name in lists})


def search_frontier(
    optimization: CalibrationData,
    *,
    set_score: SetScoreLike = "max",
    n_lambdas: int = 25,
    size_weight: float = 0.5,
    excess_weight: float = 0.5,
    draw_weight: float = 0.0,
    k_max: int | Sequence[int] | None = None,
    risk: Risk = MISSES,
    at_stake: np.ndarray | None = None,
) -> Frontier:
    """Search the configurations that are worth testing: a :class:`Frontier`.

    Parameters
    ----------
    optimization : CalibrationData
        Prompts that will not calibrate. Labels that were estimated shape the search alone.
    set_score, n_lambdas, size_weight, excess_weight, draw_weight, k_max
        As in :func:`learn_then_test`.
    risk : Risk, default=MISSES
        What is an error, and who counts.
    at_stake : ndarray of bool, shape (n,), default=None
        Prompts whose misses are errors; None: all.
    """
    check_data(optimization)
    budgets = np.array(check_budgets(k_max, optimization.k_max))
    weights = weights_of_objective(size_weight, excess_weight, draw_weight)
    # in the order of their digests, since set scores are observed on some prompts alone
    order = optimization.order()
    optimization = optimization.take(order).truncate(int(budgets.max()))
    if at_stake is not None:
        at_stake = at_stake[order]
    score = get_set_score(set_score)
    l1, l2, l3 = threshold_grid(optimization, set_score=score, n_lambdas=n_lambdas)

    # the frontier keeps the first of several equals, so the most cautious comes first: the least
    # rejection, the largest budget, the latest stop
    grid = np.meshgrid(l1[::-1], l2, budgets[::-1], l3[::-1], indexing="ij")
    similarity, quality, budget_of, set_scores = (axis.ravel() for axis in grid)
    lambdas = np.column_stack((similarity, quality, set_scores))
    risks = evaluate_configurations(
        optimization, lambdas, set_score=score, k_max=budget_of, risk=risk, at_stake=at_stake
    )
    objective = risks.objective(**weights)
    chosen = pareto_frontier(np.column_stack((risks.loss, objective)))

    # position 0 accepts everything: tested first, it costs no power and spares needless nulls
    if chosen[0] != 0 and risk.all_draws_err_least:
        # the same without near copies comes second, if it errs as rarely: of the configurations
        # that differ from it by l1 alone, the first that is cheaper
        n_for_each_l1 = len(lambdas) // len(l1)
        places = np.arange(1, len(l1)) * n_for_each_l1
        without_copies = places[objective[places] < objective[0]][:1]
        as_safe = without_copies[risks.loss[without_copies] == risks.loss[0]]
        chosen = np.concatenate(([0], np.setdiff1d(as_safe, chosen), chosen))
    return Frontier(
        lambdas=lambdas[chosen],
        k_max=budget_of[chosen],
        loss=risks.loss[chosen],
        objective=objective[chosen],
        seen=prompt_digests(optimization),
    )


def weights_of_objective(size_weight: float, excess_weight: float, draw_weight: float) -> Weights:
    """The weights of Eq. 7, finite and at least 0."""
    weights = Weights(size_weight=size_weight, excess_weight=excess_weight, draw_weight=draw_weight)
    for name, weight in zip(weights, (size_weight, excess_weight, draw_weight)):
        if not isinstance(weight, Real) or not 0.0 <= weight < np.inf:
            raise ValueError(f"{name} must be finite and at least 0, got {weight!r} instead.")
    return weights


def pareto_frontier(costs: ArrayLike) -> np.ndarray:
    """Indices of the points that no other point beats.

    `costs` are two of each point, of shape (m, 2); lower is better. A point is beaten by another
    that is no worse in both costs and better in one; of points with equal costs the first is kept.
    The indices are by ascending first cost.

    Examples
    --------
    >>> from sklearn_clm.calibration import pareto_frontier
    >>> pareto_frontier([[0.2, 3.0], [0.1, 4.0], [0.2, 5.0], [0.3, 1.0], [0.1, 4.0]])
    array([1, 0, 3])
    """
    points = as_array(costs, "costs", (None, 2))
    # lexsort is stable: among equal points the lowest index comes first
    order = np.lexsort((points[:, 1], points[:, 0]))
    # no point before costs more by the first: a point that costs no less by the second is beaten
    second_cost = points[order, 1]
    cheapest_so_far = np.minimum.accumulate(second_cost)
    is_kept = np.ones(len(order), dtype=bool)  # the first is always kept
    is_kept[1:] = second_cost[1:] < cheapest_so_far[:-1]
    return order[is_kept]


def threshold_grid(
    data: CalibrationData, *, set_score: SetScoreLike, n_lambdas: int = 25
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thresholds to try, from the values in the data.

    Each dimension gets up to `n_lambdas` thresholds, evenly spread over the distribution of the
    observed values, and -inf and +inf; the counting set scores get 1, 2, ..., K. Each stands beside
    an observed value, in the middle of the gap that changes no decision on the data: above it for
    similarity, below it for quality and set score. Set scores are observed on the running sets of
    some prompts, under several strengths of rejection, which shifts them.
    """
    score = get_set_score(set_score)
    if not isinstance(n_lambdas, Integral) or n_lambdas < 1:
        raise ValueError(f"n_lambdas must be an integer >= 1, got {n_lambdas!r} instead.")
    l1 = np.array([np.inf])
    l2 = np.array([-np.inf])
    if score.rejects_similarity:
        later, earlier = np.tril_indices(data.k_max, -1)
        l1 = _between_infinities(middles_above(data.similarity[:, later, earlier]), n_lambdas)
    if score.rejects_quality:
        l2 = _between_infinities(middles_below(data.quality), n_lambdas)
    # sizes and draws are whole numbers, whatever was observed
    if score in _COUNTING:
        return l1, l2, np.arange(1.0, data.k_max + 1.0)
    observed = _observed_set_scores(data, score, l1, l2)
    middles = middles_below(observed, same=same_sums(data.quality))
    return l1, l2, _between_infinities(middles, n_lambdas)


def observed_quantiles(values: np.ndarray, n: int) -> np.ndarray:
    """Up to `n` distinct observed quantiles, ascending."""
    values = np.sort(values[np.isfinite(values)])
    chosen = np.empty(0, dtype=values.dtype)
    # where quantiles tie, the remaining places go to the remaining values
    while len(chosen) < n and len(values):
        missing = n - len(chosen)
        levels = (np.arange(missing) + 0.5) / missing  # the middles of so many equal shares
        positions = (levels * len(values)).astype(np.intp)
        new = np.unique(values[positions])
        chosen = np.union1d(chosen, new)
        values = values[~np.isin(values, new)]
    return chosen


def _between_infinities(values: np.ndarray, n: int) -> np.ndarray:
    return np.concatenate(([-np.inf], observed_quantiles(values, n), [np.inf]))


def _observed_set_scores(
    data: CalibrationData, score: SetScore, l1: np.ndarray, l2: np.ndarray
) -> np.ndarray:
    """Set scores of running sets, under some strengths of rejection."""
    # from no rejection to the rejection of nearly half by either criterion
    quarters_of_l1 = [len(l1) // 4, len(l1) // 2, 3 * len(l1) // 4]
    quarters_of_l2 = [len(l2) // 4, len(l2) // 2]
    some_l1 = np.unique(l1[[*quarters_of_l1, -1]])
    some_l2 = np.unique(l2[[0, *quarters_of_l2]])
    n_pairs = len(some_l1) * len(some_l2)

    # enough prompts for quantiles: each pair of thresholds makes a set of each prompt
    n_sets = data.n_prompts * n_pairs
    step = max(1, -(-n_sets // _MAX_SETS))
    thinned = data.take(slice(None, None, step))
    place_of_l1, place_of_l2 = np.divmod(np.arange(n_pairs), len(some_l2))
    sets = sets_of_pairs(thinned, Pairs(some_l1, some_l2, place_of_l1, place_of_l2))
    prefixes = np.flatnonzero(sets.new_prefixes())
    quality = sets.of_prompts(thinned.quality)
    return scores_of_prefixes(score, quality, sets.accepted, prefixes)
