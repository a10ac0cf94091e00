"""How many verdicts of people an audit takes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sklearn_clm.calibration import prompts_needed, two_phase_power
from sklearn_clm.calibration._betting import audit_power
from sklearn_clm.calibration._binomial import check_level
from sklearn_clm.calibration._claim import percent
from sklearn_clm.evaluation._plan import chance_to_certify

_N_SIZES, _N_TRUTHS = 15, 100
_PRIOR = (0.25, 0.1, 0.1, 0.25)  # a judge that somebody takes to audit agrees more often than not
_BETTER = {"two-phase": "Two phases are", "betting": "Betting is", "people": "People alone are"}


@dataclass(frozen=True, eq=False)
class AuditPlan:
    """Numbers of verdicts for the designs of :class:`sklearn_clm.policies.AuditedJudging`.

    Parameters
    ----------
    refused, rejected, missed : float
        Estimates from the pilot: share of prompts that the model refuses; of the others, share
        whose witness people reject; share of prompts that people refuse.
    sizes : list of int
        Numbers of audited prompts.
    powers : dict of str to list of float
        Power of "two-phase", "betting" and "people" with so many audits, of betting about so: a
        mean over what the pilot leaves open.
    n_made : list of float
        How many audits betting makes on average, of at most so many.
    design : {"two-phase", "betting", "people"}
        What has the power that was asked for with the fewest audits, on average over what the
        pilot leaves open; all prompts count where it has not. One that no number of audits is sure
        to be enough for comes after those that have one.
    n_prompts : int
        Prompts that test, without those that choose the rule.
    epsilon, delta, power : float
        As asked for.
    """

    refused: float
    rejected: float
    missed: float
    sizes: list[int]
    powers: dict[str, list[float]]
    n_made: list[float]
    design: str
    n_prompts: int
    epsilon: float
    delta: float
    power: float

    def n_audits(self, design: str) -> int | None:
        """Fewest audits with enough power for a design, if any."""
        of_sizes = zip(self.sizes, self.powers[design], strict=True)
        return next((n for n, power in of_sizes if power >= self.power), None)

    def __str__(self) -> str:
        fixed, bets, alone = map(self.n_audits, _BETTER)
        none = "no number is sure to be enough, by this pilot"
        betting = bets and f"at most {bets}, {self.n_made[self.sizes.index(bets)]:.0f} on average"
        return (
            f"{_BETTER[self.design]} better here. For a power of {self.power:g} with "
            f"{self.n_prompts} prompts: audits in two phases, {fixed or none}; by betting, "
            f"{betting or none}; prompts that people judge alone, {alone or none}."
        )

    def to_markdown(self) -> str:
        """The plan in words, with a table of power."""
        lines = [
            f"{self}\n",
            f"As the pilot lets expect, the model refuses {percent(self.refused)} of the prompts, "
            f"people reject {percent(self.rejected)} of what it admits, and they refuse "
            f"{percent(self.missed)} of all. Tolerated: epsilon = {self.epsilon:g}, at "
            f"delta = {self.delta:g}.\n",
            "| audits | power in two phases | power of betting | power of people alone |",
            "|---|---|---|---|",
        ]
        for n, *powers in zip(self.sizes, *self.powers.values(), strict=True):
            lines.append(f"| {n} | {' | '.join(f'{power:.2f}' for power in powers)} |")
        return "\n".join([*lines, ""])


def plan_audits(
    by_model: ArrayLike,
    by_people: ArrayLike,
    *,
    n_prompts: int,
    epsilon: float,
    delta: float = 0.05,
    power: float = 0.8,
) -> AuditPlan:
    """Plan how people audit a model that judges.

    Parameters
    ----------
    by_model : array-like of bool, shape (m,)
        Whether the model admits a response of each prompt of the pilot; some 50 are enough.
    by_people : array-like of bool, shape (m,)
        Whether people do: the witness where the model admits one, any response elsewhere.
    n_prompts : int
        Prompts that will test, none of them of the pilot: those of ``fit`` less the optimisation
        part, a third of thresholds and of selectors that are audited.
    epsilon : float
        Tolerated risk, in (0, 1).
    delta : float, default=0.05
        Level of the test, in (0, 1).
    power : float, default=0.8
        Wanted probability that something is certified, in (0, 1).

    Returns
    -------
    AuditPlan
        Its `design`, `rejected` and ``n_audits(design)`` are for
        :class:`sklearn_clm.policies.AuditedJudging`. The plan rests on the pilot, the guarantee
        does not. Choose before the calibration labels are known, never after.

    Notes
    -----
    In simulated pilots of 50 the design was right, up to a quarter or five verdicts more than the
    best takes, in 90 % or more, with a model that is rarely lenient, often lenient, lenient with
    hard prompts, or strict. Where it refuses 2 of 100 prompts that people admit, such a pilot holds
    about one of them, and the design was right in 60 %.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.evaluation import plan_audits
    >>> by_model = np.arange(100) >= 3  # three of a hundred are refused, by people as well
    >>> plan = plan_audits(by_model, by_model, n_prompts=500, epsilon=0.1)
    >>> plan.design, plan.n_audits("two-phase") < plan.n_audits("people") / 2
    ('two-phase', True)
    """
    model, people = np.asarray(by_model), np.asarray(by_people)
    if {model.dtype, people.dtype} != {np.dtype(bool)} or not model.shape == people.shape != (0,):
        raise ValueError(
            "by_model and by_people must be booleans of shape (m,), one for each prompt of the "
            f"pilot, got {model.dtype} of shape {model.shape} and {people.dtype} of shape "
            f"{people.shape} instead."
        )
    epsilon, delta = check_level(epsilon, "epsilon"), check_level(delta, "delta")
    power = check_level(power, "power")
    fewest = prompts_needed(epsilon, delta)
    if n_prompts < fewest:
        raise ValueError(
            f"n_prompts must be at least {fewest}, since fewer certify nothing at "
            f"epsilon={epsilon:g}, delta={delta:g}, got {n_prompts} instead."
        )
    # admitted by both, by the model, by people, by none
    counts = [np.sum((model == x) & (people == y)) for x in (True, False) for y in (True, False)]
    posterior = np.array(counts) + _PRIOR
    truths = np.random.default_rng(0).dirichlet(posterior, size=_N_TRUTHS).T
    refused, missed = truths[2] + truths[3], truths[1] + truths[3]
    rejected = truths[1] / (truths[0] + truths[1])

    sizes = np.unique(np.geomspace(fewest, n_prompts, _N_SIZES).astype(int)).tolist()
    counts_of = refused, rejected, n_prompts
    # power, and mean number of audits, of each truth
    designs: dict[str, Callable[[int], tuple[np.ndarray, Any]]] = {
        "two-phase": lambda n: (two_phase_power(*counts_of, n, epsilon, delta), n),
        "betting": lambda n: audit_power(*counts_of, n, epsilon, delta),
        "people": lambda n: (chance_to_certify(n, missed, epsilon, delta), n),
    }
    powers, made, numbers = {}, {}, {}
    for design, found in designs.items():
        of_sizes = [found(n) for n in sizes]
        powers[design] = [float(np.mean(of_truths)) for of_truths, _ in of_sizes]
        made[design] = [float(np.mean(n)) for _, n in of_sizes]
        # of each truth the first size with enough power; a mean over truths would compare others
        numbers[design] = np.full(_N_TRUTHS, float(n_prompts))
        for of_truths, n in reversed(of_sizes):
            numbers[design] = np.where(of_truths >= power, n, numbers[design])
    # what cannot be counted on comes last, however few verdicts it takes where it is enough
    fewest_of = {
        design: (max(powers[design]) < power, float(numbers[design].mean())) for design in designs
    }
    mean = posterior / posterior.sum()
    return AuditPlan(
        refused=float(mean[2] + mean[3]),
        rejected=float(mean[1] / (mean[0] + mean[1])),
        missed=float(mean[1] + mean[3]),
        sizes=sizes,
        powers=powers,
        n_made=made["betting"],
        design=min(designs, key=lambda design: fewest_of[design]),
        n_prompts=n_prompts,
        epsilon=epsilon,
        delta=delta,
        power=power,
    )
