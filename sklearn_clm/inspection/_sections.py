"""Sections of a report, and those that samplers and selectors share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from sklearn_clm._exceptions import MORE_PROMPTS
from sklearn_clm._results import counted
from sklearn_clm.calibration import smallest_epsilon
from sklearn_clm.calibration._claim import nulls_of, percent
from sklearn_clm.evaluation import chance_of_null
from sklearn_clm.evaluation._monitor import AFTER_ALARM
from sklearn_clm.inspection._budgets import PromptGainDisplay
from sklearn_clm.inspection._figures import Display
from sklearn_clm.inspection._tables import rounded_up
from sklearn_clm.policies._calibration import SamplerCalibration, SelectorCalibration

Record: TypeAlias = SamplerCalibration | SelectorCalibration

_GROWTH = (1, 2, 5, 10)
_NEAR_BY = 0.05
_MOST_NAMED = 10  # null groups
OF_UNKNOWN = "This is about prompts of unknown groups, and only these."
_WATCH_LOSSES = (
    "Watch each loss: compute it for a random share of the sets, and give the values to a "
    "sklearn_clm.evaluation.RiskMonitor of its level. After an alarm stop relying on the "
    "guarantee, and calibrate again on new prompts."
)


@dataclass(frozen=True)
class Section:
    """A heading with what stands under it.

    Parameters
    ----------
    heading : str
        The heading.
    paragraphs : tuple of str
        Sentences.
    table : tuple of tuple of str
        Rows of cells, the first of them the header; empty for no table.
    warning : bool
        Whether the paragraphs are warnings.
    display : display or None
        A picture, not drawn yet.

    Examples
    --------
    >>> from sklearn_clm.inspection import Section
    >>> Section("Guarantee", ("None.",)).warning
    False
    """

    heading: str
    paragraphs: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()
    warning: bool = False
    display: Display | None = field(default=None, compare=False, repr=False)


def guarantee(record: Record, *more: str) -> Section:
    """What is promised, and on which conditions."""
    claims = list(record.claims_in_use.values())
    held = [claim for claim in claims if claim.holds]
    if not held:
        return Section("Guarantee", (claims[-1].sentence(),))
    # groups may share delta, and then all claims hold with the confidence that was asked for
    claim = replace(held[0], delta=record.delta)
    return Section("Guarantee", (claim.sentence(), *claim.conditions(), *more))


def warnings(texts: Sequence[str]) -> Iterable[Section]:
    """The warnings, if there are any."""
    if texts:
        yield Section("Warnings", tuple(texts), warning=True)


def nulls(record: Record, what: str) -> list[str]:
    """To whom nothing is promised, and why; `what` they get."""
    claims = record.claims_in_use
    null = {name: claim for name, claim in claims.items() if not claim.holds}
    if null and len(null) == len(claims):
        return [nulls_of(null.values()) or ""]
    texts = []
    names = [f"{name!r:.40}" for name in null if name is not None]
    if names:
        of = f"{len(names)} of {counted(len(record.by_group or ()), 'group')}"
        shown = names[:_MOST_NAMED]
        if len(names) > _MOST_NAMED:
            shown.append(f"{len(names) - _MOST_NAMED} more")
        texts.append(
            f"Nothing is guaranteed for prompts of {of}, which get {what}: {', '.join(shown)}."
        )
    if None in null:
        texts.append(f"{null[None].why_null()} {OF_UNKNOWN}")
    return texts


def doubts(record: Record) -> list[str]:
    """What might have gone wrong by chance with the rule for all prompts together."""
    claim, tests = record.claim, record.tests
    if tests is None or claim.guarantee == "marginal" or not claim.admission:
        return []
    n, texts = tests.n_calibration, []
    least = smallest_epsilon(0, n, claim.delta)
    if least > claim.level / 2:
        texts.append(
            f"Small n: with {n} calibration prompts, even a rule without a single error is "
            f"certified only for {claim.level_name} >= {least:.3g}."
        )
    n_errors = tests.errors_of_safest
    if claim.holds and n_errors is not None:
        chance = chance_of_null(n_errors, n, claim.level, claim.delta)
        if chance > _NEAR_BY:
            texts.append(
                f"Null is near by: with another {n} calibration prompts of this kind, nothing "
                f"would be certified with probability about {percent(chance)}."
            )
    return texts


def about_others(record: Record) -> tuple[str, ...]:
    """Whom the rule for all prompts together serves, where groups have their own."""
    return () if record.by_group is None else (OF_UNKNOWN,)


def groups(
    record: Record, text: str, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]
) -> Iterable[Section]:
    """The rule of each group, where there are groups."""
    if record.by_group is None:
        return
    others = "Prompts of other groups are refused: no rule serves all prompts together."
    if record.uses_pooled_rule:
        others = (
            "Prompts of unknown groups, and only these, get the rule for all prompts together, "
            "which all that follows is about; within a group it promises nothing."
        )
    yield Section("Groups", (others, text), (header, *rows))


def shift(record: Record) -> Iterable[Section]:
    """The shift of prompts, where there is one."""
    if (found := record.shift) is not None:
        facts = (
            ("largest weight", f"{found.weight_bound:g}"),
            ("weights are estimated", "yes" if found.estimated else "no"),
            ("prompts offered", str(found.n_offered)),
            ("prompts that calibrate", str(found.n_kept)),
            ("effective number of prompts", f"{found.effective_size:.1f}"),
        )
        yield Section("Covariate shift", table=(("what", "value"), *facts))


def more_prompts(record: Record, safest: str) -> Iterable[Section]:
    """What more calibration prompts would gain; `safest` names the sets that err least."""
    display = PromptGainDisplay._of_record(record)
    if display is None:
        return
    name, n, share = display.symbol, display.n_calibration, display.n_errors / display.n_calibration
    sizes = [growth * n for growth in _GROWTH]
    levels = display.smallest(sizes).tolist()
    rows = [
        (f"{growth} x", str(size), rounded_up(level))
        for growth, size, level in zip(_GROWTH, sizes, levels)
    ]
    text = (
        f"The smallest {name} that can be certified, if {safest} keep their share of errors, "
        f"{share:.4f}, on a larger calibration part. {MORE_PROMPTS}"
    )
    header = ("calibration part", "prompts", f"smallest {name}")
    table = (header, *rows, ("without end", "", f"{share:.4f}"))
    yield Section("What more prompts would gain", (text,), table, display=display)


def in_use(record: Record) -> Section:
    """What to do once the rule is in use."""
    claim = record.claim
    if not claim.admission:
        return Section("In use", (_WATCH_LOSSES,))
    return Section(
        "In use",
        (
            "How many calibration prompts another epsilon, set size or number of draws takes: "
            "sklearn_clm.evaluation.plan, or python -m sklearn_clm plan.",
            "Watch the risk: judge a random share of the sets, and give the outcomes to "
            "sklearn_clm.evaluation.RiskMonitor. After an alarm: "
            + AFTER_ALARM.format(epsilon=claim.level, alpha=0.05),
        ),
    )
