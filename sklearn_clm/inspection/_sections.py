"""What a report says of a calibrated sampler or selector, section by section."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeAlias

import numpy as np

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm._exceptions import DECIDE_BEFOREHAND
from sklearn_clm._results import counted
from sklearn_clm._version import __version__
from sklearn_clm.calibration import (
    CalibrationData,
    Claim,
    ComponentThreshold,
    LearnThenTestResult,
    clopper_pearson,
)
from sklearn_clm.calibration._certify import SequenceResult
from sklearn_clm.calibration._claim import nulls_of, percent
from sklearn_clm.calibration._set_scores import get_set_score
from sklearn_clm.evaluation import chance_of_null
from sklearn_clm.evaluation._monitor import AFTER_ALARM
from sklearn_clm.evaluation._plan import first_k_errors, mean_interval, prompts_to_collect
from sklearn_clm.generators._identity import title_of
from sklearn_clm.inspection._budgets import AchievableBandDisplay, PromptGainDisplay
from sklearn_clm.inspection._figures import Display
from sklearn_clm.inspection._frontier import FrontierDisplay
from sklearn_clm.policies._calibration import PARTS, SamplerCalibration, SelectorCalibration
from sklearn_clm.policies._collection import SCORES
from sklearn_clm.policies._rules import Outcomes

Record: TypeAlias = SamplerCalibration | SelectorCalibration
Row: TypeAlias = tuple[str, ...]

_GROWTH = (1, 2, 5, 10)
_OFTEN = 0.25
_NEXT_TO_NOTHING = 0.1  # components for each prompt
_POWER, _MOST_PROMPTS = 0.8, 100_000  # chance of another calibration, and where advice ends
_INTERVAL = "95 % interval"
_BAND = ("policy", "error", _INTERVAL)
_OF_GROUPS = (
    "Errors and costs are those of the group's calibration prompts under the rule that predict "
    "uses for them. The rule was chosen on these prompts, so new ones may do a little worse."
)
_WATCH_ANSWERS = (
    "Watch the answers: judge a random share of them, and give the errors to a "
    "sklearn_clm.evaluation.RiskMonitor of alpha. After an alarm stop relying on the guarantee, "
    "and calibrate again on new prompts."
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


def sections(estimator: ConformalSampler | ComponentSelector) -> Iterable[Section]:
    """The report of a calibrated estimator: what matters, then all figures, folded away."""
    record, data = estimator.calibration_, estimator.calibration_.data  # None from a file
    rule, claim, tests = record.rule, record.claim, record.tests
    whole, of_sets = record.by_group is None, isinstance(record, SamplerCalibration)
    set_score = record.set_score if of_sets else "max"
    outcomes = rule.outcomes(data, set_score) if whole and data is not None else None
    gain = PromptGainDisplay._of(estimator)
    facts = []
    if whole and claim.holds:
        rows = rule.facts(get_set_score(set_score).name)
        facts.append(Section(rule.heading, table=(("what", "value", "use"), *rows)))
    yield _guarantee(record)
    yield from _losses(record)
    yield from facts if outcomes is None else [_expected(record, outcomes)]
    yield from _groups(record)
    if data is not None:
        yield _enough(record, data.n_prompts, gain)
    texts = _of_draws(record) if of_sets else []
    texts += [*_nulls(record), *(_doubts(record, outcomes) if whole else []), *record.remarks]
    if texts:
        yield Section("Warnings", tuple(texts), warning=True)
    details = [] if outcomes is None else facts
    details += [] if data is None else [_numbers("Data", record.numbers())]
    details += _shift(record)
    if whole and isinstance(tests, LearnThenTestResult):
        details.append(_frontier(estimator, tests))
    audited = claim.audit is not None  # the labels are those of a model
    if whole and isinstance(tests, ComponentThreshold) and len(tests.thresholds):
        details += _thresholds(tests, exact=data.unknown is None and not audited)
    judged = of_sets and data is not None and data.unknown is None
    if judged and claim.about != "answers" and not audited:
        details.append(_band(data, AchievableBandDisplay._of(estimator)))
    details += _more_prompts(gain)
    if of_sets and data is not None and (data.unknown is not None or record.n_judgements):
        details.append(_judgements(data, record.n_judgements))
    yield from (replace(one, folded=True) for one in (*details, _in_use(claim), _SYMBOLS))


def _guarantee(record: Record) -> Section:
    """What is promised, and on which conditions."""
    claims = list(record.claims_in_use.values())
    held = [claim for claim in claims if claim.holds]
    if not held:
        return Section("Guarantee", (claims[-1].sentence(), _of_what(record)))
    # groups may share delta, and then all claims hold with the confidence that was asked for
    claim = replace(held[0], delta=record.delta)
    return Section("Guarantee", (claim.sentence(), _of_what(record), *record.conditions()))


def _of_what(record: Record) -> str:
    """What was calibrated, and when this was said of it."""
    if isinstance(record, SamplerCalibration):
        of_draws, names = record, SCORES
    else:
        of_draws, names = record.sampler and record.sampler.calibration_, PARTS
    generator = "unknown" if of_draws is None else title_of(of_draws.source.generator)
    known = {name: getattr(record.provenance, name) or "unknown" for name in names}
    scores = [f"{name} {value.partition(':')[0]}" for name, value in known.items()]
    return (
        f"It is of the generator {generator}, {', '.join(scores)}. Report of "
        f"{datetime.now(UTC).date()}, sklearn_clm {__version__}."
    )


def _nulls(record: Record) -> list[str]:
    """To whom nothing is promised, and why."""
    return (nulls_of(record.claims_in_use.values()) or "").splitlines()


def _doubts(record: Record, outcomes: Outcomes | None) -> list[str]:
    """What is doubtful of the rule for all prompts."""
    claim, texts = record.claim, []
    if claim.holds and outcomes is not None:
        k_max, means = record.rule.k_max, outcomes.of_prompts
        exhausted = float(np.mean(means["draws"] == k_max)) if "draws" in means else 0.0
        if k_max != 1 and exhausted > _OFTEN:
            texts.append(
                f"The budget is exhausted often: all {k_max} draws are made for "
                f"{percent(exhausted)} of the prompts."
            )
        selected = means.get("components selected")
        if selected is not None and np.mean(selected) < _NEXT_TO_NOTHING:
            texts.append(
                f"Next to nothing is selected: {counted(int(selected.sum()), 'component')} of "
                f"{record.data.n_components} reach gamma-hat."
            )
    return texts


def _groups(record: Record) -> Iterable[Section]:
    """The rule of each group, where there are groups."""
    if record.by_group is None:
        return
    rows = []
    for name, (rule, claim) in record.by_group.items():
        (status, why), smallest = claim.outcome, ""
        errors: Row = (why, "")
        if rule.result is not None:
            bound, n_errors = rule.errors
            n = rule.result.n_calibration
            errors = (f"{bound}{n_errors} of {n}", _share(n_errors, n, bound)[1])
            bound, level = rule.smallest
            smallest = "" if np.isnan(level) else bound + _rounded_up(level)
        costs = ["" if np.isnan(cost) else f"{cost:.4g}" for cost in rule.costs]
        rows.append((str(name), status, rule.words, *errors, *costs, smallest))
    others = "Prompts of other groups are refused: no rule serves all prompts together."
    columns = (*record.rule.priced, f"smallest {record.claim.level_name}")
    audited = any(claim.audit is not None for _, claim in record.by_group.values())
    errors_by = "refused by the model, or by people alone" if audited else "errors"
    header = ("group", "", "rule", errors_by, _INTERVAL, *columns)
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
    """What became of the tests, in words, and a table of those that decided.

    `columns` are what else is shown of each test, as numbers, or rows of them, and their format.
    """
    m, n_valid, chosen = len(result.p_values), result.n_valid, result.position
    passed = "all" if n_valid == m else str(n_valid or "none")
    text = (
        f"{counted(m, what)}, tested {order}, each at level delta = {result.delta:g}, until one "
        f"failed: {passed} passed."
    )
    shown = sorted({0, min(n_valid, m - 1), m - 1, *([] if chosen is None else [chosen])})
    errors = "errors" if result.audit is None else "refused by the model"
    rows: list[Row] = [("test", *columns, errors, "p-value", "")]
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
        n, level, delta = gain.n_calibration, gain.level, gain.delta
        share, part = gain.n_errors / n, n / n_prompts
        again = 1.0 - chance_of_null(gain.n_errors, n, level, delta)
        needed = prompts_to_collect(share, level, delta, _POWER, 1.0 - part, _MOST_PROMPTS)
        others = f"and about {needed} with probability {percent(_POWER)}"
        if needed is None:
            others = f"and {_MOST_PROMPTS:,} hardly more often"
        texts.append(
            f"As many others certify {gain.symbol} = {level:g} with probability {percent(again)}, "
            f"{others}, if the safest rule keeps its share of errors, {percent(share)}."
        )
    return Section("Were these prompts enough?", (" ".join(texts),))


def _more_prompts(display: PromptGainDisplay | None) -> Iterable[Section]:
    """What more calibration prompts would gain."""
    if display is None:
        return
    name, n, share = display.symbol, display.n_calibration, display.n_errors / display.n_calibration
    levels = display.smallest([growth * n for growth in _GROWTH]).tolist()
    rows = [
        (f"{growth} x", str(growth * n), _rounded_up(level))
        for growth, level in zip(_GROWTH, levels)
    ]
    text = (
        f"The smallest {name} that can be certified, if the safest sets keep their share of "
        f"errors, {share:.4f}, on a larger calibration part. {DECIDE_BEFOREHAND}"
    )
    header = ("calibration part", "prompts", f"smallest {name}")
    table = (header, *rows, ("without end", "", f"{share:.4f}"))
    yield Section("What more prompts would gain", (text,), table, display=display)


def _numbers(heading: str, numbers: Mapping[str, object], *texts: str) -> Section:
    rows = [(what, str(number)) for what, number in numbers.items()]
    return Section(heading, texts, (("what", "number"), *rows))


def _expected(record: Record, outcomes: Outcomes) -> Section:
    """What the prompts that calibrated were given."""
    error = "error" if record.claim.audit is None else "error by the model's standard"
    rows = [(error, *_share(*outcomes.errors))]
    rows += [(name, *_mean(values)) for name, values in outcomes.of_prompts.items()]
    n = len(next(iter(outcomes.of_prompts.values())))
    text = f"Means over the {n} prompts that calibrated. {record.rule.counts}"
    if record.claim.holds:
        text += " The rule was chosen on these prompts, so new ones may do a little worse."
    return Section("What to expect of predict", (text,), (("what", "mean", _INTERVAL), *rows))


def _in_use(claim: Claim) -> Section:
    """What to do once the rule is in use."""
    text = (
        "Watch the risk: judge a random share of the sets, and give the outcomes to "
        "sklearn_clm.evaluation.RiskMonitor. After an alarm: "
    ) + AFTER_ALARM.format(epsilon=claim.level, alpha=0.05)
    return Section("In use", (_WATCH_ANSWERS if claim.about == "answers" else text,))


# numbers with their intervals


def _mean(values: np.ndarray) -> tuple[str, str]:
    mean, low, high = mean_interval(values)
    return f"{mean:.4g}", f"{low:.4g} to {high:.4g}"


def _share(count: int, n: int, bound: str = "") -> tuple[str, str]:
    """A share of n and its exact interval, none where the count is a bound."""
    low, high = clopper_pearson(count, n)
    return f"{bound}{count / n:.4f}", "" if bound else f"{low:.4g} to {high:.4g}"


def _rounded_up(level: float) -> str:
    """The level with four decimals, so that a test at the level that is named does succeed."""
    return f"{math.ceil(level * 1e4) / 1e4:.4f}"


def _of_draws(record: SamplerCalibration) -> list[str]:
    """What the draws of calibration make doubtful."""
    (_, high), epsilon = record.achievable_epsilon, record.epsilon
    if record.claim.losses or record.claim.about == "answers":  # epsilon alone decides nothing
        return []
    if not epsilon >= high:
        return []
    return [
        f"epsilon = {epsilon:g} is trivial: the first draw alone errs for {percent(high)} "
        "of the prompts."
    ]


def _losses(record: Record) -> Iterable[Section]:
    """Levels of other losses, and what was observed of them."""
    if record.claim.losses:
        means = record.rule.means
        rows = [
            (name, f"{level:g}", f"{means[name]:.3g}" if name in means else "")
            for name, level in record.claim.losses.items()
        ]
        header = ("loss", "level", "mean of the calibration prompts")
        yield Section("Other losses", table=(header, *rows))


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


def _thresholds(result: ComponentThreshold, *, exact: bool) -> Iterable[Section]:
    """Tests of components, and the levels between which they decide."""
    columns = {
        "score": (result.thresholds, ".6g"),
        "components selected": (result.n_components, ".4g"),
    }
    text, table = _tests(result, "distinct score", "from the largest down", columns)
    yield Section("Tests of thresholds", (text,), table)
    if not exact:
        return
    n, (safest, every) = result.n_calibration, result.n_errors[[0, -1]].tolist()
    rows = (
        ("select everything", *_share(every, n)),
        ("select what has the highest score", *_share(safest, n)),
    )
    text = (
        "Above the first number, alpha is trivial; below the second, next to nothing can be "
        "selected."
    )
    yield Section("Achievable band of alpha", (text,), (_BAND, *rows))
