"""The table that the tests of a sampler are given.

Data that a sampler has collected may lack draws and labels, which tests then ask of the collection;
all other data must hold what is tested.
"""

from collections.abc import Sequence

import numpy as np

from sklearn_clm._estimators._collection import Collection
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.calibration.data import check_data
from sklearn_clm.calibration.risk import Risk
from sklearn_clm.calibration.rows import at_stake
from sklearn_clm.calibration.table import Draw, Judge, Table
from sklearn_clm.calibration.tiers import Tiers
from sklearn_clm.policies import Losses
from sklearn_clm.policies.judging import Judging


def table_of(
    data: CalibrationData,
    collected: Collection | None,
    *,
    budgets: Sequence[int],
    tiers: Tiers | None,
    judging: Judging,
    risk: Risk,
    losses: Losses | None,
) -> Table:
    """The table of data, of which `collected` may make more.

    `budgets` are numbers of draws, `tiers` their prices; `risk` and `losses` say what an error
    costs, and what else is lost.
    """
    data, draw, judge = _with_what_can_be_had(data, collected, budgets, lazily=judging.lazily)
    is_lazy = draw is not None or judge is not None

    # what an error costs depends on the prompt, which arrays do not hold
    may_err = None
    if risk.has_costs:
        if collected is None:
            raise ValueError(
                f"data must be what this sampler has collected {risk.where}, which depends on "
                "the prompt, got other data instead."
            )
        prompts = collected.prompts
        costs = risk.costs_of(prompts.prompts)
        may_err = at_stake(costs, prompts.digests, collected.place)

    # other losses, and people who audit, are given sets of texts, which arrays do not hold
    needs_texts = losses is not None or judging.people is not None
    if needs_texts and (collected is None or is_lazy):
        raise ValueError(
            "data must be all that this sampler has collected, with all labels, where "
            "there are losses or people audit, got other data instead."
        )
    losses_of_sets = None
    if collected is not None and losses is not None:
        losses_of_sets = collected.set_losses(losses)
    return Table(
        data, draw, judge, budgets=budgets, tiers=tiers, at_stake=may_err, losses=losses_of_sets
    )


def _with_what_can_be_had(
    data: CalibrationData,
    collected: Collection | None,
    budgets: Sequence[int],
    *,
    lazily: bool,
) -> tuple[CalibrationData, Draw | None, Judge | None]:
    """The data, and who makes missing draws and labels."""
    if collected is not None:
        data = collected.with_known_labels(data, lazily=lazily)
    # draws are keyed: the first draws of many are those that a smaller budget would make
    data = data.truncate(budgets[-1])
    has_holes = collected is not None and collected.has_holes
    lacks_labels = bool(np.any((data.labels < 0) & data.made))
    if collected is not None and has_holes and lacks_labels:
        # nobody makes the missing draws, but there is a judge of those that are there
        return data, None, collected.verdicts
    if collected is not None and not has_holes and data.unknown is not None:
        # fit left draws and labels to be asked for as tests need them
        return data, collected.draw, collected.verdicts
    check_data(data, draws=collected is not None and not has_holes)
    return data, None, None
