"""Ways to get it wrong. A study that does not notice them proves nothing.

Each mutation breaks one step of the calibration, in a cell that is sensitive to it: either epsilon
lies just under the risk of every configuration, so that each certification is an error, or many
configurations have risks close to epsilon, so that a careless choice among them is punished.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from unittest.mock import patch

import numpy as np

from sklearn_clm.calibration import critical_count
from sklearn_clm.calibration.between import SAME
from sklearn_clm.calibration.tests import BinomialTest

from .answers import ANSWER_MUTATIONS, VOTE_MUTATIONS, coin_answers
from .audits import AUDIT_MUTATIONS, audits
from .claims import claims
from .deployment import DEPLOYMENT_MUTATIONS
from .policies import (
    TIERS,
    copies_by_any_label,
    exit_policy,
    learnt_on_the_calibration_part,
    rho_of_the_calibration_part,
    skip_by_the_level,
    stop_at_the_first_failure,
    tested_without_labels,
    two_labels_of_equal_texts,
)
from .precision import (
    exit_levels_of_a_batch,
    on_the_scores,
    risk_at_three_tenths,
    room_by_size,
)
from .procedures import Setting, components, groups_each
from .runs import RUN_MUTATIONS
from .study import (
    PROCEDURES,
    Cell,
    audit_cell,
    claim_cell,
    first_k_error,
    hard_group_error,
    margin_cell,
    order_cell,
    path_cell,
)

_LEARN_THEN_TEST = "sklearn_clm.calibration._learn_then_test"


@dataclass(frozen=True)
class Mutation:
    """A broken procedure and the cell that must expose it.

    Parameters
    ----------
    cell : Cell
        Where it is tried.
    break_it : callable () -> context manager
        In its context, calibration is broken.
    procedure : callable, or None
        What runs in place of the cell's own procedure, where patching is not enough.
    cost : int
        Roughly how many calibrations of arrays one of its calibrations takes as long as.
    n : int
        Calibrations in which the test suite notices it; the command takes more.
    """

    cell: Cell
    break_it: Callable[[], AbstractContextManager] = nullcontext
    procedure: Callable | None = None
    cost: int = 1
    n: int = 150

    def run(self, world, set_score, setting, rng):
        """Same signature as the procedures of the study."""
        with self.break_it():
            return (self.procedure or PROCEDURES[self.cell.procedure])(
                world, set_score, setting, rng
            )


def _split_into_twice_the_same(data, fraction, random_state=None):
    return np.arange(data.n_prompts), np.arange(data.n_prompts)


def _split_by_position(data, fraction, random_state=None):
    """As positions are split by a seed: of sorted rows the same share of the same ones."""
    order = np.random.default_rng(random_state).permutation(data.n_prompts)
    n_first = round(fraction * data.n_prompts)
    return np.sort(order[:n_first]), np.sort(order[n_first:])


def _go_on_after_failures(passes, n_steps, start=0):
    return max((m + 1 for m in range(n_steps) if passes(m)), default=0)


def _count_from_float_mean(test, m):
    risks = test.path.risks(test.risk)
    return int(risks.loss[m] * test.n_prompts) <= test.n_allowed(m)


def _one_error_more(n, epsilon, delta):
    return critical_count(n, epsilon, delta) + 1


def _mean_of_repeats(scores, axis):
    present = ~np.isnan(scores)
    total = np.where(present, scores, 0.0).sum(axis=axis)
    count = present.sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _standing_on_scores(module: str) -> AbstractContextManager:
    """Thresholds of a module of `calibration` stand on scores."""
    name = f"sklearn_clm.calibration.{module}"
    return patch.multiple(name, middles_below=on_the_scores, middles_above=on_the_scores)


def _just_out_of_reach(n: int, delta: float) -> Cell:
    world = "all_duplicates"  # where every configuration has the same risk
    return Cell("response_sets", world, "first_k", Setting(n, first_k_error(world) - 0.001, delta))


_WITHIN_REACH = Setting(150, first_k_error("mixed") + 0.1, 0.1)
_SUMS_OF_HALVES = Cell(
    "sums_in_half_precision",
    "mixed",
    "sum",
    Setting(1500, risk_at_three_tenths("mixed") - 0.001, 0.1),
)
_MANY_CLOSE = Cell("response_sets", "useless_quality", "sum", Setting(60, 0.5, 0.1))

MUTATIONS = {
    "optimisation part leaks into testing": Mutation(
        _MANY_CLOSE,
        lambda: patch(f"{_LEARN_THEN_TEST}.split_of", _split_into_twice_the_same),
        n=500,
    ),
    "split by position": Mutation(
        order_cell("split_thresholds_by_topic_seed_42", "wrong_on_one_topic"),
        lambda: patch(f"{_LEARN_THEN_TEST}.split_of", _split_by_position),
    ),
    "testing goes on past the first failure": Mutation(
        Cell("response_sets", "rival_draws", "max", Setting(90, 0.299, 0.2)),
        lambda: patch("sklearn_clm.calibration.tests.count_passed", _go_on_after_failures),
        n=300,
    ),
    # 47 of 71 prompts are left for calibration; 24 errors are one too many, but 24 / 47 * 47 < 24
    "error count from a float mean": Mutation(
        _just_out_of_reach(71, 0.18),
        lambda: patch.object(BinomialTest, "passes", _count_from_float_mean),
        n=1000,
    ),
    "one error too many": Mutation(
        _just_out_of_reach(60, 0.1),
        lambda: patch("sklearn_clm.calibration.tests.critical_count", _one_error_more),
        n=700,
    ),
    "exit policy learnt on the calibration part": Mutation(
        Cell("exit_policy", "useless_quality", "exit policy", Setting(60, 0.45, 0.1)),
        procedure=learnt_on_the_calibration_part,
        cost=10,
        n=300,
    ),
    "near copies judged by any of them": Mutation(
        Cell("near_copies", "useless_quality", "exit policy", Setting(60, 0.45, 0.1)),
        procedure=copies_by_any_label,
    ),
    "what stands for labels enters the test": Mutation(
        Cell("unlabeled_policy", "all_duplicates", "exit policy", Setting(60, 0.45, 0.1)),
        procedure=tested_without_labels,
    ),
    "one error too many at the exit level": Mutation(
        Cell("exit_policy", "useless_quality", "exit policy", Setting(10, 0.5, 0.1)),
        procedure=partial(exit_policy, n_errors=_one_error_more),
        n=1500,
    ),
    "marginal count in place of the critical one": Mutation(
        Cell("exit_policy", "mixed", "exit policy", Setting(60, 0.45, 0.1)),
        procedure=partial(
            exit_policy, n_errors=lambda n, epsilon, delta: int((n + 1) * epsilon) - 1
        ),
    ),
    "judging that stops at the first failure": Mutation(
        Cell("exit_policy", "mixed", "exit policy", Setting(60, 0.45, 0.1)),
        procedure=partial(exit_policy, judge=stop_at_the_first_failure),
    ),
    "equal texts with two labels": Mutation(
        Cell("exit_policy", "all_duplicates", "exit policy", Setting(60, 0.6, 0.1)),
        procedure=partial(exit_policy, judge=two_labels_of_equal_texts),
    ),
    **{
        f"threshold on the score, {what}": Mutation(
            Cell(procedure, "mixed", "max", _WITHIN_REACH),
            partial(_standing_on_scores, "_search"),
        )
        for what, procedure in (
            ("another batch", "scores_of_a_batch"),
            ("lower precision", "arrays_of_lower_precision"),
        )
    },
    "sums of halves as exact as others": Mutation(
        Cell(
            "sums_in_half_precision",
            "mixed",
            "sum",
            Setting(1500, risk_at_three_tenths("mixed") - 0.001, 0.1),
        ),
        lambda: patch("sklearn_clm.calibration._search.same_sums", lambda scores: SAME),
    ),
    "steps of an exit policy's scales on scores": Mutation(
        Cell(
            "exit_levels_of_a_batch",
            "mixed",
            "max",
            Setting(150, first_k_error("mixed") + 0.1, 0.1),
        ),
        partial(_standing_on_scores, "_texts"),
        procedure=partial(exit_levels_of_a_batch, stand="on"),
    ),
    "scores about zero told apart by their own size": Mutation(
        margin_cell(), lambda: patch("sklearn_clm.calibration.between._room", room_by_size), n=300
    ),
    "repeated components scored by their mean": Mutation(
        Cell("components", "mixed", "max", Setting(150, 0.1, 0.1)),
        procedure=partial(components, combine=_mean_of_repeats),
    ),
    "repeated claims scored by their mean": Mutation(
        Cell("claims", "mixed", "max", Setting(150, 0.1, 0.1)),
        procedure=partial(claims, combine=_mean_of_repeats),
    ),
    "parents heeded in calibration alone": Mutation(
        claim_cell("claims"), procedure=partial(claims, ignored="in selections")
    ),
    # a safe mistake: it fails more rarely than it may, since it keeps too few
    "parents ignored in V": Mutation(
        claim_cell("claims_but_1"), procedure=partial(claims, max_wrong=1, ignored="in V"), n=400
    ),
    "groups pooled": Mutation(
        Cell("groups_each", "mixed", "max", Setting(200, hard_group_error("mixed") - 0.005, 0.1)),
        procedure=partial(groups_each, pooled=True),
    ),
    **{
        name: Mutation(
            Cell("coin_answers", "mixed", "answers", Setting(300, 0.2, 0.1)),
            procedure=partial(coin_answers, choose=choose),
        )
        for name, choose in ANSWER_MUTATIONS.items()
    },
    **{
        name: Mutation(
            Cell("coin_votes", "useless_quality", "answers", Setting(300, 0.2, 0.1)),
            procedure=procedure,
            cost=10,
        )
        for name, procedure in VOTE_MUTATIONS.items()
    },
    "chances for a price learnt on the calibration part": Mutation(
        Cell("cascade", "useless_quality", "exit policy", Setting(60, 0.45, 0.1)),
        procedure=partial(learnt_on_the_calibration_part, tiers=TIERS),
        cost=10,
    ),
    "rho chosen on the calibration part": Mutation(
        Cell("exit_policy", "rival_draws", "exit policy", Setting(60, 0.299, 0.1)),
        procedure=rho_of_the_calibration_part,
        cost=10,
    ),
    **{
        name: Mutation(
            Cell(procedure, "mixed", "by_outcome", Setting(300, 0.1, 0.1)),
            partial(patch.multiple, "sklearn_clm.runs._gate", **broken),
            cost=10,
        )
        for name, (procedure, broken) in RUN_MUTATIONS.items()
    },
    "a tier is skipped by the level": Mutation(
        Cell("cascade", "mixed", "exit policy", Setting(300, 0.45, 0.1)),
        procedure=skip_by_the_level,
    ),
    **{
        name: Mutation(path_cell(cell, "mixed", 200), procedure=procedure)
        for name, (cell, procedure) in DEPLOYMENT_MUTATIONS.items()
    },
    **{
        name: Mutation(
            audit_cell("audits", judge, world), procedure=partial(audits, audit=audit), cost=10, n=n
        )
        for name, (world, judge, n, audit) in AUDIT_MUTATIONS.items()
    },
}
