"""How many verdicts of people an audit takes."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv
from scipy.stats import binom
from sklearn.utils import check_scalar

from sklearn_clm.calibration import prompts_needed, two_phase_power
from sklearn_clm.calibration.betting import audit_power
from sklearn_clm.calibration.checks import check_level
from sklearn_clm.calibration.words import percent
from sklearn_clm.evaluation.sizes import chance_to_certify

_N_SIZES = 15
# the middles of eight equal shares of a distribution
_QUANTILES = (np.arange(8) + 0.5) / 8
# Beta distributions before any verdict: as if so many prompts had been refused, or rejected, and so
# many not. A judge that somebody takes to audit is rarely lenient, and may well be strict
_REFUSED = (0.5, 0.5)
_REJECTED = (0.5, 24.5)
_MISTAKEN = (0.5, 1.0)
_FURTHER = (5, 10, 20, 40)  # verdicts that a larger pilot may take
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
    typical : dict of str to float
        Number of audits with the power that was asked for: the geometric mean over what the pilot
        leaves open, in which all prompts count where no number has it.
    design : {"two-phase", "betting", "people"}
        That of the smallest of these numbers.
    n_more : int
        So many further verdicts on refused prompts should save more audits, by a better choice of
        the design; 0 where none should.
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
    typical: dict[str, float]
    design: str
    n_more: int
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
        none = "no number reaches it"
        typical = ", ".join(f"{number:.0f}" for number in self.typical.values())
        betting = bets and f"at most {bets}, {self.n_made[self.sizes.index(bets)]:.0f} on average"
        pilot = "No larger pilot is needed: it would cost more verdicts than it saves."
        if self.n_more:
            pilot = f"First let people judge {self.n_more} more prompts that the model refuses."
        return (
            f"{_BETTER[self.design]} better here. {pilot} For a power of {self.power:g} with "
            f"{self.n_prompts} prompts: audits in two phases, {fixed or none}; by betting, "
            f"{betting or none}; prompts that people judge alone, {alone or none}. If the pilot "
            f"is typical, numbers of verdicts in the same order: {typical}."
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
    by_people: ArrayLike | Sequence[bool | None],
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
        Whether the model admits a response of each prompt of the pilot: of all that will not test.
    by_people : array-like of bool or None, shape (m,)
        Whether people do: the witness where the model admits one, any response elsewhere; None if
        they were not asked. Which they are asked about may depend on `by_model` alone: none at
        first, and then as many of the refused prompts as the plan says.
    n_prompts : int
        Prompts that will test, none of them of the pilot: those of ``fit`` less the optimisation
        part, a third of thresholds and of selectors that are audited.
    epsilon : float
        Tolerated risk, in (0, 1).
    delta : float, default=0.05
        Level of the test, in (0, 1).
    power : float, default=0.8
        Wanted probability, in (0, 1), that something is certified, often only all draws together.

    Returns
    -------
    AuditPlan
        Its `design`, `rejected` and ``n_audits(design)`` are for
        :class:`sklearn_clm.policies.AuditedJudging`. The plan rests on the pilot, the guarantee
        does not. Choose before the calibration labels are known, never after.

    Notes
    -----
    Before any verdict a third of the refused prompts is supposed to be right, as if 1.5 of them
    were known, and 2 % of the admitted ones to be wrong, as if 25 were. In 14 simulated worlds,
    whose model had judged half as many prompts as test, 30 verdicts, refused prompts first, led to
    at most a quarter, or five, audits above the best design in 90 to 100 % of the pilots. Pilots
    that ended with an `n_more` of 0 did so in 86 to 100 %, but for two worlds, where 11 audits are
    at stake and where people reject a tenth of what the model admits. They took 0 to 7 verdicts and
    saved up to 95 besides, 9 on average; where the first design is right, up to 5 were lost. In 110
    worlds drawn at random they saved 4 verdicts for the 3 that they took.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clm.evaluation import plan_audits
    >>> by_model = np.arange(250) >= 12  # twelve prompts are refused
    >>> plan_audits(by_model, [None] * 250, n_prompts=500, epsilon=0.1).n_more
    5
    >>> by_people = [False] * 5 + [None] * 245  # these five by people as well
    >>> plan = plan_audits(by_model, by_people, n_prompts=500, epsilon=0.1)
    >>> plan.design, plan.n_more, round(plan.typical["two-phase"] / plan.typical["people"], 1)
    ('two-phase', 0, 0.6)
    """
    model, pairs = _checked_pilot(by_model, by_people)

    epsilon = check_level(epsilon, "epsilon")
    delta = check_level(delta, "delta")
    power = check_level(power, "power")
    check_scalar(n_prompts, "n_prompts", Integral)
    fewest = prompts_needed(epsilon, delta)
    if n_prompts < fewest:
        raise ValueError(
            f"n_prompts must be at least {fewest}, since fewer certify nothing at "
            f"epsilon={epsilon:g}, delta={delta:g}, got {n_prompts} instead."
        )

    beliefs = _beliefs(model, pairs)
    # a few quantiles of each stand for its distribution, on a grid of all three
    refused, rejected, mistaken = np.ix_(*betaincinv(*beliefs.T[..., np.newaxis], _QUANTILES))
    missed = refused * (1.0 - mistaken) + (1.0 - refused) * rejected

    sizes = np.unique(np.geomspace(fewest, n_prompts, _N_SIZES).astype(int)).tolist()
    # power, and mean number of audits, of each truth
    designs: dict[str, Callable[[int], tuple[np.ndarray, Any]]] = {
        "two-phase": lambda n: (
            two_phase_power(refused, rejected, n_prompts, n, epsilon, delta),
            n,
        ),
        "betting": lambda n: audit_power(refused, rejected, n_prompts, n, epsilon, delta),
        "people": lambda n: (chance_to_certify(n, missed, epsilon, delta), n),
    }

    powers = {}
    mean_audits = {}
    logarithms = []
    for design, figures in designs.items():
        of_sizes = [figures(n) for n in sizes]
        powers[design] = [float(np.mean(of_truths)) for of_truths, _ in of_sizes]
        mean_audits[design] = [float(np.mean(n)) for _, n in of_sizes]
        number = _verdicts_needed(of_sizes, power, missed.shape, n_prompts)
        # of each share of refused prompts that people admit
        logarithms.append(np.log(number).mean(axis=(0, 1)))
    # by the geometric mean over what may be true: a few dear truths would rule a plain mean
    geometric_means = np.exp(np.mean(logarithms, axis=1))
    typical = dict(zip(designs, geometric_means.tolist(), strict=True))
    design = min(designs, key=lambda design: typical[design])

    def after(n: int) -> float:
        """People's verdicts expected, after n more on refused prompts."""
        # of each number of them that people admit, and then with the design that is best
        n_admitted = np.arange(n + 1)
        chances = binom.pmf(n_admitted, n, mistaken.reshape(-1, 1)) / len(_QUANTILES)
        return float(np.exp(np.min(logarithms @ chances, axis=0).sum()))

    mean_refused, mean_rejected, mean_missed = _mean_shares(beliefs)
    return AuditPlan(
        refused=mean_refused,
        rejected=mean_rejected,
        missed=mean_missed,
        sizes=sizes,
        powers=powers,
        n_made=mean_audits["betting"],
        typical=typical,
        design=design,
        n_more=next((n for n in _FURTHER if typical[design] - after(n) > n), 0),
        n_prompts=n_prompts,
        epsilon=epsilon,
        delta=delta,
        power=power,
    )


def _checked_pilot(
    by_model: ArrayLike, by_people: ArrayLike | Sequence[bool | None]
) -> tuple[np.ndarray, Counter[tuple[bool, bool | None]]]:
    """Verdicts of the model, and pairs with those of people."""
    model = np.asarray(by_model)
    people = np.asarray(by_people, dtype=object)
    pairs = Counter(zip(model.ravel().tolist(), people.ravel().tolist()))
    unknown = set(pairs) - set(product((True, False), (True, False, None)))
    if model.dtype != bool or model.ndim != 1 or not model.shape == people.shape or unknown:
        raise ValueError(
            "by_model must be booleans of shape (m,), and by_people such or None, one for each "
            f"prompt of the pilot, got {by_model!r:.60} and {by_people!r:.60} instead."
        )
    return model, pairs


def _beliefs(model: np.ndarray, pairs: Counter[tuple[bool, bool | None]]) -> np.ndarray:
    """Beta distributions of what the pilot leaves open, (3, 2).

    They are of the shares that the model refuses, that people reject of what it admits, and that
    they admit of what it refuses.
    """
    # counts of the pilot, on what is supposed before it
    return np.array(
        [
            np.add(_REFUSED, [np.sum(~model), np.sum(model)]),
            np.add(_REJECTED, [pairs[True, False], pairs[True, True]]),
            np.add(_MISTAKEN, [pairs[False, True], pairs[False, False]]),
        ]
    )


def _mean_shares(beliefs: np.ndarray) -> tuple[float, float, float]:
    """Mean shares of prompts that are refused, rejected and missed."""
    refused, rejected, mistaken = (beliefs[:, 0] / beliefs.sum(axis=1)).tolist()
    # people refuse what was refused rightly, or admitted wrongly
    missed = refused * (1.0 - mistaken) + (1.0 - refused) * rejected
    return refused, rejected, missed


def _verdicts_needed(
    of_sizes: Sequence[tuple[np.ndarray, Any]], power: float, shape: tuple[int, ...], most: int
) -> np.ndarray:
    """Verdicts of people that give enough power, for each truth.

    `of_sizes` are power, and mean number of verdicts, by ascending size; `most` is the number where
    no size has enough. A mean over truths would compare others.
    """
    number = np.full(shape, float(most))
    for of_truths, n in reversed(of_sizes):
        number = np.where(of_truths >= power, n, number)
    return number
