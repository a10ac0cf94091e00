"""What a report says of a calibrated sampler or selector, section by section."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm._exceptions import DECIDE_BEFOREHAND
from sklearn_clm._results import counted
from sklearn_clm.calibration import (
    CalibrationData,
    Claim,
    ComponentCalibrationData,
    ComponentThreshold,
    LearnThenTestResult,
    clopper_pearson,
    smallest_epsilon,
)
from sklearn_clm.calibration._binomial import mistaken_epsilon
from sklearn_clm.calibration._certify import SequenceResult
from sklearn_clm.calibration._claim import nulls_of, percent
from sklearn_clm.calibration._data import describe_repetitions
from sklearn_clm.calibration._learn_then_test import doubts_of_admission
from sklearn_clm.calibration._set_scores import get_set_score
from sklearn_clm.evaluation import chance_of_null
from sklearn_clm.evaluation._monitor import AFTER_ALARM
from sklearn_clm.evaluation._plan import first_k_errors, mean_interval, prompts_to_collect
from sklearn_clm.inspection._budgets import AchievableBandDisplay, PromptGainDisplay
from sklearn_clm.inspection._figures import Display
from sklearn_clm.inspection._frontier import FrontierDisplay
from sklearn_clm.policies._calibration import SamplerCalibration, SelectorCalibration

Record: TypeAlias = SamplerCalibration | SelectorCalibration
Row: TypeAlias = tuple[str, ...]

_GROWTH = (1, 2, 5, 10)
_NEAR_BY = 0.05
_OFTEN = 0.25
_NEXT_TO_NOTHING = 0.1  # components for each prompt
_MOST_NAMED = 10  # null groups
_POWER, _MOST_PROMPTS = 0.8, 100_000  # chance of another calibration, and where advice ends
_MOST_TESTS = 7  # rows, but for those that decided
_INTERVAL = "95 % interval"
_BAND = ("policy", "error", _INTERVAL)
_OF_UNKNOWN = "This is about prompts of unknown groups, and only these."
_OF_GROUPS = (
    "Errors and costs are those of the group's calibration prompts under the rule that predict "
    "uses for them. The rule was chosen on these prompts, so new ones may do a little worse."
)
_OF_ALL_DRAWS = (
    "The components are those of all draws: sets that stop early hold fewer components, and no "
    "more errors."
)
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
    folded : bool
        Whether it is one of the figures behind what matters, which a page folds away.

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
    folded: bool = False


_SYMBOLS = Section(
    "Symbols",
    ("Meaning and proofs: help(sklearn_clm.calibration). Equations are of arXiv:2306.10193.",),
    (
        ("symbol", "meaning"),
        ("epsilon; alpha", "tolerated risk: of sets of responses; of components and answers"),
        ("delta", "share of calibrations that may break the promise by bad luck"),
        ("K, k_max", "most draws for a prompt"),
        ("lambda-hat", "chosen thresholds of similarity, quality and set score (Algorithm 1)"),
        ("u-hat; gamma-hat", "chosen level of an exit policy; chosen threshold of components"),
        ("configuration", "one choice of thresholds; inf and -inf switch a threshold off"),
        ("frontier", "what the optimisation part found best, from the safest to the cheapest"),
        ("objective", "what a configuration costs in set size and excess draws (Eq. 7)"),
        ("p-value", "chance of so few errors if the risk were above the tolerated one"),
        (_INTERVAL, "where the share or mean of all such prompts lies, shares exactly"),
    ),
)


def sampler_sections(sampler: ConformalSampler) -> Iterable[Section]:
    """The report of a calibrated sampler: what matters, then all figures, folded away."""
    record, data = sampler.calibration_, sampler.calibration_data_
    pooled, claim = record.uses_pooled_rule, record.claim
    outcomes = record.rule.outcomes(data, record.set_score) if pooled else None
    gain = PromptGainDisplay._of(sampler)
    rule = []
    if pooled and claim.holds:
        facts = record.rule.facts(get_set_score(record.set_score).name)
        rule.append(Section(record.rule.heading, table=(("what", "value", "use"), *facts)))
    yield _guarantee(record)
    yield from _losses(record)
    yield from rule if outcomes is None else [_sets(record, outcomes)]
    yield from _groups_of_sampler(record)
    yield _enough(record, data.n_prompts, gain)
    yield from _warnings(_of_sampler(record, data, outcomes))
    details = [] if outcomes is None else rule
    details += [_data_of_sampler(record, data), *_shift(record)]
    if pooled and record.result is not None:
        details.append(_frontier(sampler, record.result))
    if data.unknown is None and claim.admission:
        details.append(_band(data, AchievableBandDisplay._of(sampler)))
    details += _more_prompts(gain, "the largest sets")
    if data.unknown is not None or record.n_judgements is not None:
        details.append(_judgements(data, record.n_judgements))
    yield from _folded(*details, _in_use(claim), _SYMBOLS)


def selector_sections(selector: ComponentSelector) -> Iterable[Section]:
    """The report of a calibrated selector: what matters, then all figures, folded away."""
    record, data = selector.calibration_, selector.calibration_data_
    result, gain = record.tests, PromptGainDisplay._of(selector)
    tested = record.uses_pooled_rule and result is not None and len(result.thresholds) > 0
    yield _guarantee(record, _together(record))
    if tested:
        yield _selections(record, data)
    yield from _groups_of_selector(record)
    yield _enough(record, data.n_prompts, gain)
    yield from _warnings(_of_selector(record, data))
    numbers = {"prompts": data.n_prompts, "distinct components": data.n_components}
    if data.unknown is not None:
        numbers["of these judged"] = int(np.sum(data.labels >= 0))
    details = [_numbers("Data", numbers), *_shift(record)]
    if record.uses_pooled_rule and record.claim.holds:
        use = "select a component of at least this"
        table = (("what", "value", "use"), ("gamma-hat", f"{record.gamma_hat:.6g}", use))
        details.append(Section("Threshold (gamma-hat)", table=table))
    if tested:
        details.append(_thresholds(result))
        if data.unknown is None:
            details.append(_band_of_components(result))
        details += _more_prompts(gain, "selections of the highest score")
    yield from _folded(*details, _in_use(record.claim), _SYMBOLS)


def _folded(*sections: Section) -> Iterable[Section]:
    return (replace(one, folded=True) for one in sections)


# what both have


def _guarantee(record: Record, *more: str) -> Section:
    """What is promised, and on which conditions."""
    claims = list(record.claims_in_use.values())
    held = [claim for claim in claims if claim.holds]
    if not held:
        return Section("Guarantee", (claims[-1].sentence(),))
    # groups may share delta, and then all claims hold with the confidence that was asked for
    claim = replace(held[0], delta=record.delta)
    return Section("Guarantee", (claim.sentence(), *claim.conditions(), *more))


def _warnings(texts: Sequence[str]) -> Iterable[Section]:
    if texts:
        yield Section("Warnings", tuple(texts), warning=True)


def _nulls(record: Record, what: str) -> list[str]:
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
        texts.append(f"{null[None].why_null()} {_OF_UNKNOWN}")
    return texts


def _doubts(record: Record) -> list[str]:
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


def _of_pooled(record: Record, texts: list[str]) -> list[str]:
    """Warnings of the rule for all prompts together, which may serve unknown groups alone."""
    return texts if record.by_group is None else [f"{text} {_OF_UNKNOWN}" for text in texts]


def _groups(record: Record, columns: Row, rows: list[Row]) -> Iterable[Section]:
    """The rule of each group, where there are groups."""
    if record.by_group is None:
        return
    others = "Prompts of other groups are refused: no rule serves all prompts together."
    if record.uses_pooled_rule:
        others = (
            "Prompts of unknown groups, and only these, get the rule for all prompts together, "
            "which all that follows is about; within a group it promises nothing."
        )
    header = ("group", "", "rule", "errors", _INTERVAL, *columns)
    yield Section("Groups", (others, _OF_GROUPS), (header, *rows))


def _shift(record: Record) -> Iterable[Section]:
    """The shift of prompts, where there is one."""
    if (found := record.shift) is not None:
        numbers = {
            "largest weight": f"{found.weight_bound:g}",
            "weights are estimated": "yes" if found.estimated else "no",
            "prompts offered": found.n_offered,
            "prompts that calibrate": found.n_kept,
            "effective number of prompts": f"{found.effective_size:.1f}",
        }
        yield _numbers("Covariate shift", numbers)


def _tests(
    result: SequenceResult,
    what: str,
    order: str,
    columns: dict[str, tuple[np.ndarray, str]],
) -> tuple[str, tuple[Row, ...]]:
    """What became of the tests, in words, and a table of those that decided and a few others.

    `columns` are what else is shown of each test, as numbers, or rows of them, and their format.
    """
    m, n_valid, chosen = len(result.p_values), result.n_valid, result.position
    passed = "all" if n_valid == m else str(n_valid or "none")
    text = (
        f"{counted(m, what)}, tested {order}, each at level delta = {result.delta:g}, until one "
        f"failed: {passed} passed."
    )
    steps = np.linspace(0, m - 1, min(m, _MOST_TESTS)).round().astype(int).tolist()
    shown = sorted({*steps, min(n_valid, m - 1), *([] if chosen is None else [chosen])})
    rows: list[Row] = [("test", *columns, "errors", "p-value", "")]
    before = -1
    for i in [*shown, m]:
        if i > before + 1:
            rows.append(("...", f"({i - before - 1} more)", *[""] * (len(columns) + 2)))
        before = i
        if i == m:
            break
        bound, known = result.bound(i), i <= n_valid or not result.bound(i)
        errors = f"{bound}{result.n_errors[i]} of {result.n_calibration}" if known else ""
        p_value = f"{bound}{result.p_values[i]:.3g}" if known else ""
        role = "not tested" if i > n_valid else "failed" if i == n_valid else "valid"
        role = "chosen" if i == chosen else role
        cells = [
            ", ".join(f"{value:{form}}" for value in np.atleast_1d(values[i]))
            for values, form in columns.values()
        ]
        rows.append((str(i + 1), *cells, errors, p_value, role))
    return text, tuple(rows)


def _enough(record: Record, n_prompts: int, gain: PromptGainDisplay | None) -> Section:
    """Whether the prompts were enough, and how many another calibration takes."""
    claims = record.claims_in_use.values()
    n_held = sum(claim.holds for claim in claims)
    answer = "Yes" if n_held == len(claims) else "No"
    if 0 < n_held < len(claims):
        answer = f"For {n_held} of {len(claims)} groups"
    texts = [f"{answer}, with {counted(n_prompts, 'prompt')}."]
    if gain is not None:
        share, part = gain.n_errors / gain.n_calibration, gain.n_calibration / n_prompts
        level, of = (
            f"{gain.symbol} = {gain.level:g}",
            "if the safest rule keeps its share of errors",
        )
        wanted = (share, gain.level, gain.delta, _POWER, 1.0 - part, _MOST_PROMPTS)
        needed = prompts_to_collect(*wanted)
        text = f"Another calibration at {level} succeeds with probability {_POWER:g} from about "
        if share >= gain.level:
            text = f"No number of prompts certifies {level} "
        elif needed is None:
            text = f"Another calibration at {level} takes more than {_MOST_PROMPTS:,} prompts "
        else:
            text += f"{needed} prompts on "
        texts.append(f"{text}({of}, {percent(share)}).")
    return Section("Were these prompts enough?", (" ".join(texts),))


def _more_prompts(display: PromptGainDisplay | None, safest: str) -> Iterable[Section]:
    """What more calibration prompts would gain; `safest` names the sets that err least."""
    if display is None:
        return
    name, n, share = display.symbol, display.n_calibration, display.n_errors / display.n_calibration
    levels = display.smallest([growth * n for growth in _GROWTH]).tolist()
    rows = [
        (f"{growth} x", str(growth * n), _rounded_up(level))
        for growth, level in zip(_GROWTH, levels)
    ]
    text = (
        f"The smallest {name} that can be certified, if {safest} keep their share of errors, "
        f"{share:.4f}, on a larger calibration part. {DECIDE_BEFOREHAND}"
    )
    header = ("calibration part", "prompts", f"smallest {name}")
    table = (header, *rows, ("without end", "", f"{share:.4f}"))
    yield Section("What more prompts would gain", (text,), table, display=display)


def _numbers(heading: str, numbers: Mapping[str, object], *texts: str) -> Section:
    rows = [(what, str(number)) for what, number in numbers.items()]
    return Section(heading, texts, (("what", "number"), *rows))


def _expected(text: str, *rows: Row) -> Section:
    return Section("What to expect of predict", (text,), (("what", "mean", _INTERVAL), *rows))


def _in_use(claim: Claim) -> Section:
    """What to do once the rule is in use."""
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


# numbers with their intervals


def _mean(values: np.ndarray) -> tuple[str, str]:
    mean, low, high = mean_interval(values)
    return f"{mean:.4g}", f"{low:.4g} to {high:.4g}"


def _share(count: int, n: int, bound: str = "") -> tuple[str, str]:
    """A share of n and its exact interval, none where the count is a bound."""
    low, high = clopper_pearson(count, n)
    return f"{bound}{count / n:.4f}", "" if bound else f"{low:.4g} to {high:.4g}"


def _errors(count: int, n: int, bound: str = "") -> tuple[str, str]:
    return f"{bound}{count} of {n}", _share(count, n, bound)[1]


def _rounded_up(level: float) -> str:
    """The level with four decimals, so that a test at the level that is named does succeed."""
    return f"{math.ceil(level * 1e4) / 1e4:.4f}"


# sections of samplers alone


def _of_sampler(record: SamplerCalibration, data: CalibrationData, outcomes: Any) -> list[str]:
    """What to be careful about."""
    texts = []
    (low, high), epsilon = record.achievable_epsilon, record.epsilon
    if not record.claim.losses and record.claim.admission:  # else epsilon alone decides nothing
        if epsilon >= high and mistaken_epsilon(epsilon, high) is None:  # else a remark says so
            texts.append(
                f"epsilon = {epsilon:g} is trivial: the first draw alone errs for {percent(high)} "
                "of the prompts."
            )
        if epsilon <= low:
            texts.append(
                f"epsilon = {epsilon:g} is out of reach: even all {data.k_max} draws err for "
                f"{percent(low)} of the prompts. {_what_helps(data)}"
            )
    texts += _nulls(record, f"all {counted(record.k_max, 'draw')}")
    if record.uses_pooled_rule:
        about, k_max = _doubts(record), record.rule.k_max
        exhausted = 0.0 if outcomes is None else float(np.mean(outcomes.draws == k_max))
        if record.claim.holds and k_max > 1 and exhausted > _OFTEN:
            about.append(
                f"The budget is exhausted often: all {k_max} draws are made for "
                f"{percent(exhausted)} of the prompts."
            )
        texts += _of_pooled(record, about)
    if data.k_max > 1 and data.texts is not None and not np.any(data.texts):
        texts.append(
            f"The {data.k_max} draws of a prompt never differ, so that more than one draw finds "
            "nothing more. Draw at a temperature above 0, or take a generator whose draws differ."
        )
    repeated = None if data.prompts is None else describe_repetitions(data.prompts)
    return [*texts, *filter(None, [repeated]), *record.remarks]


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


def _groups_of_sampler(record: SamplerCalibration) -> Iterable[Section]:
    """The rule of each group, and what it gives."""
    rows: list[Row] = []
    for name, (rule, of_group) in (record.by_group or {}).items():
        (status, why), tests = of_group.outcome, rule.result
        errors, smallest = (why, ""), ""
        if tests is not None:
            bound, n_errors = tests.errors_of_choice
            errors = _errors(n_errors, tests.n_calibration, bound)
            if not np.isnan(tests.smallest_epsilon):
                smallest = bound + _rounded_up(tests.smallest_epsilon)
        costs = [f"{cost:.4g}" for cost in rule.costs]
        rows.append((str(name), status, rule.words, *errors, *costs, smallest))
    yield from _groups(record, ("size", "draws", "smallest epsilon"), rows)


def _losses(record: SamplerCalibration) -> Iterable[Section]:
    """Levels of other losses, and what was observed of them."""
    if record.claim.losses:
        means = record.rule.means
        rows = [
            (name, f"{level:g}", f"{means[name]:.3g}" if name in means else "")
            for name, level in record.claim.losses.items()
        ]
        header = ("loss", "level", "mean of the calibration prompts")
        yield Section("Other losses", table=(header, *rows))


def _data_of_sampler(record: SamplerCalibration, data: CalibrationData) -> Section:
    tests, numbers = record.tests, {"prompts": data.n_prompts}
    if tests is not None:
        searches, certifies = tests.parts
        numbers[f"optimisation part, {searches}"] = tests.n_optimization
        numbers[f"calibration part, {certifies}"] = tests.n_calibration
    numbers |= {"draws for each prompt": data.k_max, "seed of the draws": record.source.seed}
    return _numbers("Data", numbers)


def _frontier(sampler: ConformalSampler, result: LearnThenTestResult) -> Section:
    record, path, lazily = sampler.calibration_, result.frontier, result.n_judgements is not None
    columns = {"similarity, quality, set score": (path.lambdas, ".4g")}
    if path.k_max.min() < path.k_max.max():
        columns["k_max"] = path.k_max, "d"
    display = None
    if not lazily:  # it would need labels that nobody asked for
        columns["objective"] = np.asarray(result.risks.objective(**record.weights)), ".4g"
        if not record.claim.losses:
            display = FrontierDisplay._of(sampler)
    text, table = _tests(result, "configuration", "from the safest on", columns)
    if lazily:
        text += (
            " A test ends as soon as its decision is forced, so that errors and p-values are "
            "bounds where prompts are unsettled."
        )
    elif record.claim.losses:
        text += " The p-value is the largest of those of all losses."
    return Section("Frontier and tests", (text,), table, display=display)


def _band(data: CalibrationData, display: AchievableBandDisplay) -> Section:
    errors = first_k_errors(data.admissible)
    rows = (
        ("always one draw", *_share(int(errors[0]), data.n_prompts)),
        (f"always {counted(data.k_max, 'draw')}", *_share(int(errors[-1]), data.n_prompts)),
    )
    text = (
        "Above the first number, epsilon is trivial; below the second, it is out of reach for "
        "this generator and budget (Appendix C). Choosing k_max or epsilon by these numbers, and "
        "calibrating on the same prompts, voids the guarantee: choose on other prompts."
    )
    return Section("Achievable band of epsilon", (text,), (_BAND, *rows), display=display)


def _sets(record: SamplerCalibration, outcomes: Any) -> Section:
    n = len(outcomes.size)
    rows = [
        ("error", *_share(*outcomes.errors)),
        ("size", *_mean(outcomes.size)),
        ("draws", *_mean(outcomes.draws)),
    ]
    text = f"Means over the {n} prompts that calibrated."
    if record.claim.holds:
        text += " The rule was chosen on them, so new prompts may do a little worse."
    text += " Size counts the responses in a set; draws, those made for it."
    if outcomes.excess is not None:
        rows.append(("excess", *_mean(outcomes.excess)))
        text += " Excess is the share of the draws after the first admissible one."
    return _expected(text, *rows)


def _judgements(data: CalibrationData, n_judgements: int | None) -> Section:
    judged = data.n_judged if n_judgements is None else n_judgements
    numbers = {
        "draws": data.n_made,
        "judged": judged,
        "judged for each prompt": f"{judged / data.n_prompts:.3g}",
    }
    text = (
        "Labels were asked for until each decision was forced; the decisions are those of the "
        "full table. Equal responses of a prompt are judged once."
    )
    return _numbers("Judgements", numbers, text)


# sections of selectors alone


def _together(record: SelectorCalibration) -> str:
    """What is known of the sampler's guarantee and that of components at once."""
    sets = None if record.sampler is None else record.sampler.calibration_
    both = "The guarantee of the sampler's sets and this one hold at once with confidence"
    if sets is None:
        return f"{both} 1 - 2 delta, by the union bound."
    if not sets.certified:
        return "Nothing is guaranteed of the sampler's sets."
    if sets.claim.guarantee == "marginal":
        return (
            "The guarantee of the sampler's sets holds on average over calibrations (marginal "
            "guarantee), and no confidence is known with which both hold at once."
        )
    same = sets.delta == record.delta
    confidence = "1 - 2 delta" if same else percent(1 - record.delta - sets.delta)
    return f"{both} {confidence}, by the union bound."


def _of_selector(record: SelectorCalibration, data: ComponentCalibrationData) -> list[str]:
    """What to be careful about."""
    texts = _nulls(record, "empty selections")
    if record.uses_pooled_rule:
        about = _doubts(record)
        selected = int(np.count_nonzero(data.scores >= record.gamma_hat))
        if record.claim.holds and selected < _NEXT_TO_NOTHING * data.n_prompts:
            about.append(
                f"Next to nothing is selected: {counted(selected, 'component')} of "
                f"{data.n_components} reach gamma-hat."
            )
        texts += _of_pooled(record, about)
    return [*texts, *record.remarks]


def _groups_of_selector(record: SelectorCalibration) -> Iterable[Section]:
    """The threshold of each group, and what it selects."""
    rows: list[Row] = []
    for name, (selection, claim) in (record.by_group or {}).items():
        (status, why), result = claim.outcome, selection.result
        errors, smallest, rule, selected = (why, ""), "", "", 0.0
        if result is not None:
            errors = _errors(0, result.n_calibration)  # of an empty selection
            if len(result.thresholds):
                smallest = result.bound(0) + _rounded_up(result.smallest_alpha)
            if result.position is not None:
                rule, selected = (
                    f"gamma-hat {selection.gamma_hat:.4g}",
                    result.n_components[result.position],
                )
                bound, n_errors = result.errors_of_choice
                errors = _errors(n_errors, result.n_calibration, bound)
        rows.append((str(name), status, rule, *errors, f"{selected:.4g}", smallest))
    yield from _groups(record, ("components selected", "smallest alpha"), rows)


def _thresholds(result: ComponentThreshold) -> Section:
    columns = {
        "score": (result.thresholds, ".6g"),
        "components selected": (result.n_components, ".4g"),
    }
    text, table = _tests(result, "distinct score", "from the largest down", columns)
    return Section("Tests of thresholds", (text,), table)


def _band_of_components(result: ComponentThreshold) -> Section:
    n, (safest, every) = result.n_calibration, result.n_errors[[0, -1]].tolist()
    rows = (
        ("select everything", *_share(every, n)),
        ("select what has the highest score", *_share(safest, n)),
    )
    text = (
        "Above the first number, alpha is trivial; below the second, next to nothing can be "
        "selected."
    )
    return Section("Achievable band of alpha", (text,), (_BAND, *rows))


def _selections(record: SelectorCalibration, data: ComponentCalibrationData) -> Section:
    n, chosen = data.n_prompts, data.scores >= record.gamma_hat
    number = np.bincount(data.prompt_index[chosen], minlength=n)
    # labels that no test needed are unknown: the most errors that there can be
    wrong = np.unique(data.prompt_index[chosen & (data.labels != 1)]).size
    bound = "at most " if np.any(data.labels[chosen] < 0) else ""
    text = f"Means over the {n} prompts that calibrated. {_OF_ALL_DRAWS}"
    rows = ("error", *_share(wrong, n, bound)), ("components selected", *_mean(number))
    return _expected(text, *rows)
