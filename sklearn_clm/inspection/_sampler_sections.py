"""What a report says of a calibrated sampler, section by section."""

from collections.abc import Iterable

import numpy as np

from sklearn_clm._results import counted
from sklearn_clm.calibration import CalibrationData, LearnThenTestResult
from sklearn_clm.calibration._claim import percent
from sklearn_clm.calibration._data import describe_repetitions
from sklearn_clm.calibration._learn_then_test import doubts_of_admission
from sklearn_clm.calibration._set_scores import get_set_score
from sklearn_clm.evaluation._plan import first_k_errors
from sklearn_clm.inspection._budgets import AchievableBandDisplay
from sklearn_clm.inspection._frontier import FrontierDisplay
from sklearn_clm.inspection._sections import (
    Section,
    about_others,
    doubts,
    groups,
    guarantee,
    in_use,
    more_prompts,
    nulls,
    shift,
    warnings,
)
from sklearn_clm.inspection._tables import (
    INTERVAL,
    MEANS,
    mean_cells,
    role_of,
    rounded_up,
    share_cells,
    shown_positions,
    with_gaps,
)
from sklearn_clm.policies._calibration import SamplerCalibration
from sklearn_clm.policies._rules import Certified, Outcomes

_OFTEN = 0.25
_OF_GROUPS = (
    "Errors, size and draws are those of the group's calibration prompts under the rule that "
    "predict uses for them. The thresholds or levels were chosen on these prompts, so new ones may "
    "do a little worse."
)
_HEADER = ("group", "", "rule", "errors", INTERVAL, "size", "draws", "smallest epsilon")


def sampler_sections(
    record: SamplerCalibration, data: CalibrationData, optimization_fraction: float
) -> Iterable[Section]:
    """All that is said of a calibrated sampler."""
    pooled = record.uses_pooled_rule
    outcomes = record.rule.outcomes(data, record.set_score) if pooled else None
    yield guarantee(record)
    yield from warnings(_warnings(record, data, outcomes))
    rows = [_group_row(name, one) for name, one in (record.by_group or {}).items()]
    yield from groups(record, _OF_GROUPS, _HEADER, rows)
    yield from shift(record)
    yield from _losses(record)
    yield _data(record, data)
    if pooled and record.claim.holds:
        facts = record.rule.facts(get_set_score(record.set_score).name)
        yield Section(record.rule.heading, table=(("what", "value", "use"), *facts))
    if pooled and record.result is not None:
        yield _tests(record, record.result)
    if data.unknown is None and record.claim.admission:
        yield _band(data, AchievableBandDisplay._of_record(record, optimization_fraction))
    if outcomes is not None:
        yield _expectations(record, outcomes)
    yield from more_prompts(record, "the largest sets")
    if data.unknown is not None or record.n_judgements is not None:
        yield _judgements(record, data)
    yield in_use(record)


def _warnings(
    record: SamplerCalibration, data: CalibrationData, outcomes: Outcomes | None
) -> list[str]:
    texts = _outside_the_band(record, data)
    texts += nulls(record, f"all {counted(record.k_max, 'draw')}")
    if record.uses_pooled_rule:
        about = doubts(record)
        k_max = record.rule.k_max
        exhausted = 0.0 if outcomes is None else float(np.mean(outcomes.draws == k_max))
        if record.claim.holds and k_max > 1 and exhausted > _OFTEN:
            about.append(
                f"The budget is exhausted often: all {k_max} draws are made for "
                f"{percent(exhausted)} of the prompts."
            )
        texts += [" ".join((text, *about_others(record))) for text in about]
    if data.k_max > 1 and data.texts is not None and not np.any(data.texts):
        texts.append(
            f"The {data.k_max} draws of a prompt never differ, so that more than one draw finds "
            "nothing more. Draw at a temperature above 0, or take a generator whose draws differ."
        )
    repeated = None if data.prompts is None else describe_repetitions(data.prompts)
    return texts if repeated is None else [*texts, repeated]


def _outside_the_band(record: SamplerCalibration, data: CalibrationData) -> list[str]:
    """Whether epsilon is trivial, or out of reach of all draws."""
    (low, high), epsilon = record.achievable_epsilon, record.epsilon
    if record.claim.losses or not record.claim.admission:  # epsilon alone decides nothing
        return []
    texts = []
    if epsilon >= high:
        texts.append(
            f"epsilon = {epsilon:g} is trivial: the first draw alone errs for {percent(high)} of "
            "the prompts."
        )
    if epsilon <= low:
        texts.append(
            f"epsilon = {epsilon:g} is out of reach: even all {data.k_max} draws err for "
            f"{percent(low)} of the prompts. {_what_helps(data)}"
        )
    return texts


def _what_helps(data: CalibrationData) -> str:
    """What lowers the error of all draws."""
    errors = first_k_errors(data.admissible)
    if suspicion := doubts_of_admission(errors[-1] / data.n_prompts):
        return suspicion
    if errors[(data.k_max - 1) // 2] > errors[-1]:
        return "Raise epsilon or k_max, or improve the generator."
    return (
        "More draws will hardly help: those after the first half found nothing more. Raise "
        "epsilon, or improve the generator or the admission."
    )


def _group_row(name: object, one: Certified) -> tuple[str, ...]:
    """A group's rule, what came of its calibration prompts, and what they certify."""
    rule, claim, tests = one.rule, one.claim, one.rule.result
    start = (str(name), claim.outcome[0], rule.words)
    size, draws = (f"{cost:.4g}" for cost in rule.costs)
    if tests is None:
        return (*start, claim.outcome[1], "", size, draws, "")
    bound, n_errors = tests.errors_of_choice
    n, smallest = tests.n_calibration, tests.smallest_epsilon
    return (
        *start,
        f"{bound}{n_errors} of {n}",
        share_cells(n_errors, n, bound)[1],
        size,
        draws,
        "" if np.isnan(smallest) else f"{bound}{rounded_up(smallest)}",
    )


def _losses(record: SamplerCalibration) -> Iterable[Section]:
    """Other losses, where there are any."""
    if levels := record.claim.losses:
        means = record.rule.means
        rows = [
            (name, f"{level:g}", f"{means[name]:.3g}" if name in means else "")
            for name, level in levels.items()
        ]
        columns = ("loss", "level", "mean of the calibration prompts")
        yield Section("Other losses", table=(columns, *rows))


def _data(record: SamplerCalibration, data: CalibrationData) -> Section:
    tests = record.tests
    rows = [("prompts", str(data.n_prompts))]
    if tests is not None:
        searches, certifies = tests.parts
        rows.append((f"optimisation part, {searches}", str(tests.n_optimization)))
        rows.append((f"calibration part, {certifies}", str(tests.n_calibration)))
    rows.append(("draws for each prompt", str(data.k_max)))
    rows.append(("seed of the draws", str(record.source.seed)))
    return Section("Data", table=(("what", "number"), *rows))


def _tests(record: SamplerCalibration, result: LearnThenTestResult) -> Section:
    lazily, chosen = result.exact is not None, result.position
    m, n_valid = len(result.frontier), len(result.valid_lambdas)
    objective, budgets = result.risks.objective(**record.weights), result.frontier.k_max
    rows = []
    for i in shown_positions(m, n_valid, chosen):
        bound, errors = result.bound(i), f"{result.n_errors[i]} of {result.n_calibration}"
        known = i <= n_valid or not lazily
        rows.append(
            (
                str(i + 1),
                ", ".join(f"{value:.4g}" for value in result.frontier.lambdas[i]),
                str(budgets[i]),
                bound + errors if known else "",
                "" if lazily else f"{objective[i]:.4g}",
                f"{bound}{result.p_values[i]:.3g}" if known else "",
                "lambda-hat" if i == chosen else role_of(i, n_valid),
            )
        )
    thresholds = "similarity, quality, set score"
    header = ("test", thresholds, "k_max", "errors", "objective", "p-value", "")
    # what tells nothing: one budget, and an objective that would need labels nobody asked for
    shown = [True, True, budgets.min() < budgets.max(), True, not lazily, True, True]
    cells = [tuple(cell for cell, show in zip(row, shown) if show) for row in (header, *rows)]
    display = None
    if not lazily and not record.claim.losses:
        display = FrontierDisplay._of_tests(result, record.weights)
    table = (cells[0], *with_gaps(cells[1:], m))
    text = _what_was_tested(record, result)
    return Section("Frontier and tests", (text,), table, display=display)


def _what_was_tested(record: SamplerCalibration, result: LearnThenTestResult) -> str:
    m, n_valid = len(result.frontier), len(result.valid_lambdas)
    passed = "all passed" if n_valid == m else f"{n_valid} passed"
    text = (
        f"The frontier has {counted(m, 'configuration')}. They were tested from the safest on, "
        f"each at level delta = {result.delta:g}, until one failed: "
        f"{passed if n_valid else 'the very first'}."
    )
    if result.exact is not None:
        return (
            f"{text} A test ends as soon as its decision is forced, so that errors and p-values "
            "are bounds where prompts are unsettled."
        )
    if record.claim.losses:
        text += " The p-value is the largest of those of all losses."
    if n_valid:
        text += " lambda-hat was chosen among those that passed."
    return text


def _band(data: CalibrationData, display: AchievableBandDisplay) -> Section:
    errors = first_k_errors(data.admissible)
    rows = (
        ("policy", "error", INTERVAL),
        ("always one draw", *share_cells(int(errors[0]), data.n_prompts)),
        (f"always {counted(data.k_max, 'draw')}", *share_cells(int(errors[-1]), data.n_prompts)),
    )
    text = (
        "Above the first number, epsilon is trivial; below the second, it is out of reach for "
        "this generator and budget (Appendix C). Choosing k_max or epsilon by these numbers, and "
        "calibrating on the same prompts, voids the guarantee: choose on other prompts."
    )
    return Section("Achievable band of epsilon", (text,), rows, display=display)


def _expectations(record: SamplerCalibration, outcomes: Outcomes) -> Section:
    bound, n_errors = outcomes.errors
    n = len(outcomes.size)
    rows = [
        ("error", *share_cells(n_errors, n, bound)),
        ("size", *mean_cells(outcomes.size)),
        ("draws", *mean_cells(outcomes.draws)),
    ]
    text = f"Means over the {n} prompts that calibrated."
    if record.claim.holds:
        text += " The rule was chosen on them, so new prompts may do a little worse."
    text += " Size counts the responses in a set; draws, those made for it."
    if outcomes.excess is not None:
        rows.append(("excess", *mean_cells(outcomes.excess)))
        text += " Excess is the share of the draws after the first admissible one."
    if np.mean(outcomes.size == 0) > 0.5:
        text += " More than half of the sets are empty, and each of these takes all draws."
        if not record.claim.admission:
            text += (
                " No loss demands an answer, and Eq. 7 prefers small sets: size_weight=0, or "
                "Losses(admission=True) with a high epsilon, gives answers."
            )
    return Section("What to expect of predict", (text,), (MEANS, *rows))


def _judgements(record: SamplerCalibration, data: CalibrationData) -> Section:
    judged = data.n_judged if record.n_judgements is None else record.n_judgements
    rows = (
        ("what", "number"),
        ("draws", str(data.n_made)),
        ("judged", str(judged)),
        ("judged for each prompt", f"{judged / data.n_prompts:.3g}"),
    )
    text = (
        "Labels were asked for until each decision was forced; the decisions are those of the "
        "full table. Equal responses of a prompt are judged once."
    )
    return Section("Judgements", (text,), rows)
