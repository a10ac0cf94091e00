"""Sections of a report on a calibrated estimator."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeAlias

import numpy as np
from scipy.special import ndtri

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm._estimators import PARTS, SCORES, SamplerCalibration, SelectorCalibration
from sklearn_clm._results._cards import Summary
from sklearn_clm._version import __version__
from sklearn_clm.calibration import (
    Claim,
    ComponentCalibrationData,
    ComponentThreshold,
    LearnThenTestResult,
    clopper_pearson,
    component_learn_then_test,
    prompts_needed,
)
from sklearn_clm.calibration.certify import SequenceResult
from sklearn_clm.calibration.claim import reasons_of_nulls
from sklearn_clm.calibration.outcome import Outcome
from sklearn_clm.calibration.words import Bound, ErrorCount, counted, percent, rounded_up
from sklearn_clm.evaluation.sizes import chance_to_certify, prompts_to_collect
from sklearn_clm.generators.identity import title_of
from sklearn_clm.inspection._band import AchievableBandDisplay
from sklearn_clm.inspection._frontier import FrontierDisplay
from sklearn_clm.inspection.figures import Display
from sklearn_clm.policies.rules import Expected
from sklearn_clm.policies.selection import SelectionRule, selected
from sklearn_clm.scoring import get_set_score

Record: TypeAlias = SamplerCalibration | SelectorCalibration
TableRow: TypeAlias = tuple[str, ...]

_POWER = 0.8  # of another calibration: below it a report says how many prompts would do
_MOST_PROMPTS = 100_000  # where such advice ends
_CONFIDENCE = 0.95  # of intervals
_INTERVAL = "95 % interval"
_LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)  # of alpha, for comparison
_OF_GROUPS = (
    "Errors and costs are those of the group's calibration prompts under the rule that predict "
    "uses for them. The rule was chosen on these prompts, so new ones may do a little worse."
)


@dataclass(frozen=True)
class Section:
    """A heading with what stands under it.

    The first row of a table is its header, a display is not drawn yet, a summary stands large on a
    page, and a page folds away what is `folded`, but for the first picture.
    """

    heading: str
    paragraphs: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()
    warning: bool = False
    display: Display | None = field(default=None, compare=False, repr=False)
    summary: Summary | None = field(default=None, compare=False, repr=False)
    folded: bool = False


_IN_USE = Section(
    "In use",
    (
        "Watch the risk: give losses of a random share of the sets (or answers, or selections) to "
        "sklearn_clm.evaluation.RiskMonitor. After an alarm stop relying on the guarantee, and "
        "calibrate again on new prompts.",
    ),
)
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
        ("frontier", "what the optimisation part found best, in the order of the tests"),
        ("excess", "share of the draws made after the first admissible one"),
        ("objective", "what a configuration costs in set size and excess draws (Eq. 7)"),
        ("p-value", "chance of so few errors if the risk were above the tolerated one"),
        (_INTERVAL, "where the share or mean of all such prompts lies, shares exactly"),
    ),
)


def sections(estimator: ConformalSampler | ComponentSelector) -> Iterable[Section]:
    """The sections of a report; all figures are folded away."""
    record = estimator.calibration_
    data = record.data  # None from a file
    rule = record.rule
    claim = record.claim
    tests = record.tests
    has_one_rule = record.by_group is None
    set_score = record.set_score if isinstance(record, SamplerCalibration) else "max"

    # groups have a rule each, so that no numbers are those of all prompts
    expected = rule.expected(data, set_score) if has_one_rule and data is not None else None
    facts = []
    if has_one_rule and claim.holds:
        rows = rule.facts(get_set_score(set_score).name)
        facts.append(Section(rule.heading, table=(("what", "value", "use"), *rows)))

    # first what is promised, what predict gives, and whether the prompts were enough ...
    yield replace(_guarantee(record), summary=_summary(record, expected))
    yield from _losses(record)
    yield from facts if expected is None else [_expected(record, expected)]
    yield from _groups(record)
    if isinstance(record, SelectorCalibration) and expected is not None:
        yield from _levels(record)
    if data is not None:
        yield _enough(record, data.n_prompts)

    # what is not guaranteed is not folded away
    nulls = (reasons_of_nulls(record.claims_in_use) or "").splitlines()
    if texts := (*nulls, *record.remarks):
        yield Section("Warnings", texts, warning=True)

    # ... then all figures, folded: the thresholds stand above where nothing is expected of them
    details = [] if expected is None else facts
    if data is not None:
        details.append(_data(record))
    if has_one_rule and isinstance(tests, LearnThenTestResult):
        details.append(_frontier(estimator, tests))
    if has_one_rule and isinstance(tests, ComponentThreshold) and len(tests.thresholds):
        details.append(_thresholds(tests))
    if data is not None and claim.risk.has_band and claim.audit is None:
        details += _band(AchievableBandDisplay._of(estimator))
    details += [_IN_USE, _SYMBOLS] if record.certified else [_SYMBOLS]
    yield from (replace(detail, folded=True) for detail in details)


def _guarantee(record: Record) -> Section:
    """What is promised, and on which conditions."""
    conditions = record.conditions() if record.certified else ()
    return Section("Guarantee", (record.claim.sentence(), _of_what(record), *conditions))


def _summary(record: Record, expected: Expected | None) -> Summary:
    """The promise, and the share of prompts that kept it."""
    promised = 1 - record.claim.level if record.certified else None
    further_numbers: list[tuple[str, str]] = []
    held = None
    where = record.claim.risk.held
    if record.by_group is not None:
        n_certified = sum(rule.certified for rule in record.by_group.values())
        further_numbers.append((f"{n_certified} of {len(record.by_group)}", "groups are certified"))
    elif expected is not None and promised is not None and record.claim.audit is None:
        n_errors, n_tested, bound = expected.errors
        if n_tested and bound is Bound.EXACT:  # a bound is no share
            held = 1 - n_errors / n_tested
            n = len(next(iter(expected.of_prompts.values())))
            who = "calibration prompts" if n_tested == n else record.claim.risk.of_counted
            where = f"{where}, of the {n_tested} {who}"
    if expected is not None and isinstance(record, SelectorCalibration):
        # before all else: an empty selection keeps the promise and tells nothing
        further_numbers += [
            (f"{values.mean():{'.1f' if name == 'components selected' else '.0%'}}", name)
            for name, values in expected.of_prompts.items()
            if len(values)
        ]
    if record.data is not None:
        further_numbers.append((str(record.data.n_prompts), "calibration prompts"))
    return Summary(promised, held, tuple(further_numbers), where)


def _of_what(record: Record) -> str:
    """What was calibrated, and when this was said of it."""
    if isinstance(record, SamplerCalibration):
        of_draws, names = record, SCORES
    else:
        of_draws = record.sampler and record.sampler.calibration_
        names = PARTS
    # names alone: a report is read by people who know the generator, not its digest
    generator = "unknown" if of_draws is None else title_of(of_draws.source.generator)
    fingerprints = {name: getattr(record.provenance, name) or "unknown" for name in names}
    scores = [f"{name} {value.partition(':')[0]}" for name, value in fingerprints.items()]
    return (
        f"It is of the generator {generator}, {', '.join(scores)}. Report of "
        f"{datetime.now(UTC).date()}, sklearn_clm {__version__}."
    )


def _groups(record: Record) -> Iterable[Section]:
    """The rule of each group, where there are groups."""
    if record.by_group is None:
        return
    # of selections all that a report says of one group alone: an empty one tells nothing
    data = record.data if isinstance(record, SelectorCalibration) else None
    priced = record.rule.priced if data is None else tuple(_of_selections(data, np.inf))
    rows = []
    for group, rule in record.by_group.items():
        status = "certified" if rule.certified else "null"
        smallest = ""
        errors: TableRow = (rule.claim.null or "", "")
        if (outcome := rule.outcome) is not None:
            _, interval = _share(outcome.errors)
            errors = (outcome.errors.words, interval)
            level = outcome.smallest_level
            bound = outcome.smallest_bound.words
            smallest = "" if np.isnan(level) else f"{bound}{rounded_up(level):.4f}"
        costs = ["" if np.isnan(cost) else f"{cost:.4g}" for cost in rule.costs]
        if data is not None and isinstance(rule, SelectionRule):
            of_group = {}
            if outcome is not None:
                of_group = _of_selections(data.take(outcome.rows), rule.gamma_hat)
            costs = [of_group.get(name, "") for name in priced]
        rows.append((str(group), status, rule.words, *errors, *costs, smallest))
    note = "Prompts of other groups are refused: no rule serves all prompts together."
    columns = (*priced, f"smallest {record.claim.level_name}")
    audited = any(rule.claim.audit is not None for rule in record.by_group.values())
    errors_by = "refused by the model, or by people alone" if audited else "errors"
    header = ("group", "", "rule", errors_by, _INTERVAL, *columns)
    yield Section("Groups", (note, _OF_GROUPS), (header, *rows))


def _data(record: Record) -> Section:
    """Numbers of the data, of their shift and of judgements."""
    data = record.data
    numbers = record.numbers()
    if (shift := record.shift) is not None:
        numbers |= {
            "largest weight": f"{shift.weight_bound:g}",
            "weights are estimated": "yes" if shift.estimated else "no",
            "prompts offered": shift.n_offered,
            "prompts that calibrate": shift.n_kept,
        }
    if isinstance(record, SamplerCalibration) and (
        data.unknown is not None or record.n_judgements is not None
    ):
        judged = data.n_judged if record.n_judgements is None else record.n_judgements
        each = f"{judged / data.n_prompts:.3g}"
        numbers |= {"draws": data.n_made, "judged": judged, "judged for each prompt": each}
    rows = [(what, str(number)) for what, number in numbers.items()]
    return Section("Data", table=(("what", "number"), *rows))


def _tests(
    result: SequenceResult, what: str, order: str, columns: dict[str, tuple[np.ndarray, str]]
) -> tuple[str, tuple[TableRow, ...]]:
    """Outcome of the tests in words, and their decisive rows.

    `columns` are what else is shown of each test, as numbers, or rows of them, and their format.
    """
    m = len(result.p_values)
    n_valid = result.n_valid
    chosen = result.position
    passed = "all" if n_valid == m else str(n_valid or "none")
    text = (
        f"{counted(m, what)}, tested {order}, each at level delta = {result.delta:g}, until one "
        f"failed: {passed} passed."
    )

    # the first, those around the end of the sequence, the last, and the chosen one
    decisive = {0, min(n_valid, m - 1), m - 1}
    if chosen is not None:
        decisive.add(chosen)

    errors_by = "errors" if result.audit is None else "refused by the model"
    rows: list[TableRow] = [("test", *columns, errors_by, "p-value", "")]
    for i in sorted(decisive):
        bound = result.bound(i)
        # beyond the first failure nothing was tested, and lazily nothing was asked
        is_known = i <= n_valid or bound is Bound.EXACT
        errors = result.errors_of(i).words if is_known else ""
        p_value = f"{bound.words}{result.p_values[i]:.3g}" if is_known else ""
        if i == chosen:
            role = "chosen"
        elif i < n_valid:
            role = "valid"
        else:
            role = "failed" if i == n_valid else "not tested"
        cells = [
            ", ".join(f"{value:{form}}" for value in np.atleast_1d(values[i]))
            for values, form in columns.values()
        ]
        rows.append((str(i + 1), *cells, errors, p_value, role))
    return text, tuple(rows)


def _enough(record: Record, n_prompts: int) -> Section:
    """Whether the prompts were enough for another calibration."""
    claims = record.claims_in_use
    n_held = sum(claim.holds for claim in claims)
    answer = "Yes" if n_held == len(claims) else "No"
    if 0 < n_held < len(claims):
        answer = f"For {n_held} of {len(claims)} groups"
    texts = [f"{answer}, with {counted(n_prompts, 'prompt')}."]

    claim = record.claim
    outcome = record.outcome
    # groups have tests of their own, and a marginal guarantee has no chance to fail
    has_one_test = record.by_group is None and claim.guarantee == "pac"
    # by a model's standard errors say nothing of what people would certify, nor do they of losses
    errors_decide = claim.audit is None and not claim.losses
    if outcome is not None and has_one_test and errors_decide:
        texts += _chances_of_others(claim, outcome, n_prompts)
    return Section("Were these prompts enough?", (" ".join(texts),))


def _chances_of_others(claim: Claim, outcome: Outcome, n_prompts: int) -> list[str]:
    """How likely as many other prompts certify, in sentences."""
    if outcome.safest is None:
        return []
    n = outcome.n_calibration
    level = claim.level
    delta = claim.delta
    share = outcome.safest.n_errors / n
    lowest, highest = clopper_pearson(outcome.safest.n_errors, n)
    # the larger share of errors gives the lower chance
    low = percent(float(chance_to_certify(n, highest, level, delta)))
    high = percent(float(chance_to_certify(n, lowest, level, delta)))
    chance = low if low == high else f"{low} to {high}"
    texts = [
        f"Another {n_prompts} prompts would certify {claim.level_name} = {level:g} in {chance} of "
        f"cases, since {outcome.safest.words} errs for {percent(lowest)} to {percent(highest)} of "
        f"new prompts ({_INTERVAL})."
    ]
    if chance_to_certify(n, share, level, delta) < _POWER:
        # another calibration spends the same share on the search
        searched = 1.0 - n / n_prompts
        needed = prompts_to_collect(share, level, delta, _POWER, searched, _MOST_PROMPTS)
        enough = f"no number up to {_MOST_PROMPTS:,}" if needed is None else f"about {needed}"
        texts.append(
            f"If it does for {percent(share)}, as here, {enough} would in {percent(_POWER)}, "
            "with the same split."
        )
    return texts


def _expected(record: Record, expected: Expected) -> Section:
    """What the prompts that calibrated were given."""
    error = record.claim.risk.mean_error
    if record.claim.audit is not None:
        error += " by the model's standard"
    n = len(next(iter(expected.of_prompts.values())))
    _, n_tested, _ = expected.errors
    error += "" if n_tested == n else f", of the {n_tested} {record.claim.risk.of_counted}"
    rows = [(error, *_share(expected.errors))]
    rows += [(name, *mean_in_words(values)) for name, values in expected.of_prompts.items()]
    text = f"Means over the {n} prompts that calibrated. {record.rule.legend}"
    if record.claim.holds:
        text += " The rule was chosen on these prompts, so new ones may do a little worse."
    return Section("What to expect of predict", (text,), (("what", "mean", _INTERVAL), *rows))


# numbers with their intervals


def mean_in_words(values: np.ndarray) -> tuple[str, str]:
    """A mean, or of booleans a share, and its interval."""
    if not len(values):
        return "", ""
    if values.dtype == bool:
        return _share(ErrorCount(int(values.sum()), len(values)))
    mean, low, high = _mean_interval(values)
    low = max(low, 0.0)  # counts and shares are not negative, a normal interval may be
    return f"{mean:.4g}", f"{low:.4g} to {high:.4g}"


def _share(errors: ErrorCount) -> tuple[str, str]:
    """The share that errs with its exact interval."""
    low, high = clopper_pearson(errors.n_errors, errors.n_counted)
    interval = f"{low:.4g} to {high:.4g}" if errors.bound is Bound.EXACT else ""
    return f"{errors.bound.words}{errors.n_errors / errors.n_counted:.4f}", interval


def _losses(record: Record) -> Iterable[Section]:
    """Levels of other losses, and what was observed of them."""
    if record.claim.losses:
        outcome = record.outcome if record.by_group is None and record.certified else None
        means = {} if outcome is None else outcome.means
        rows = [
            (name, f"{level:g}", f"{means[name]:.3g}" if name in means else "")
            for name, level in record.claim.losses.items()
        ]
        header = ("loss", "level", "mean of the calibration prompts")
        yield Section("Other losses", table=(header, *rows))


def _frontier(sampler: ConformalSampler, result: LearnThenTestResult) -> Section:
    record = sampler.calibration_
    path = result.frontier
    lazily = result.n_judgements is not None
    has_holes = bool(np.any(np.isnan(result.risks.size)))

    columns = {"similarity, quality, set score": (path.lambdas, ".4g")}
    if path.k_max.min() < path.k_max.max():
        columns["k_max"] = path.k_max, "d"
    display = None
    if not lazily and not has_holes:  # it would need labels that nobody asked for
        columns["objective"] = np.asarray(result.risks.objective(**record.weights)), ".4g"
        if not record.claim.losses:
            display = FrontierDisplay._of(sampler)

    # other losses, or sets that do not count, give a frontier another order
    is_from_the_safest = bool(np.all(np.diff(path.loss) >= 0))
    order = "from the safest on" if is_from_the_safest else "in the order of the frontier"
    text, table = _tests(result, "configuration", order, columns)
    if lazily:
        text += (
            " A test ends as soon as its decision is forced, so that errors and p-values are "
            "bounds where prompts are unsettled."
        )
    elif has_holes:
        text += (
            " Draws of some prompts end before their stop; where they show no admissible member of "
            "the set, the prompt counts as an error."
        )
    elif record.claim.losses:
        text += " The p-value is the largest of those of all losses."
    return Section("Frontier and tests", (text,), table, display=display)


def _levels(record: SelectorCalibration) -> Iterable[Section]:
    """What would be selected at other levels."""
    data = record.data
    claim = record.claim
    if data.unknown is not None or claim.audit is not None:
        return  # what other levels need to know was not asked for
    rows = []
    for alpha in sorted({*_LEVELS, claim.level}):
        if data.n_prompts >= prompts_needed(alpha, claim.delta):
            tests = component_learn_then_test(data, alpha, claim.delta, max_wrong=claim.max_wrong)
            cells = _of_selections(data, tests.gamma_hat).values()
            rows.append((f"{alpha:g}", f"{tests.gamma_hat:.4g}", *cells))
    text = (
        "What these prompts would be given at other levels. Choosing alpha by these numbers, and "
        "calibrating on the same prompts, voids the guarantee: choose on other prompts."
    )
    header = ("alpha", "gamma-hat", *_of_selections(data, np.inf))
    yield Section("Other levels", (text,), (header, *rows))


def _of_selections(data: ComponentCalibrationData, gamma: float) -> dict[str, str]:
    """Means of what a threshold selects, with intervals."""
    means = {name: mean_in_words(values) for name, values in selected(data, gamma).items()}
    return {
        f"{name} ({_INTERVAL})": f"{mean} ({interval})" if mean else ""
        for name, (mean, interval) in means.items()
    }


def _band(display: AchievableBandDisplay | None) -> Iterable[Section]:
    if display is None:  # not all labels are known
        return
    errors = display.n_errors.tolist()
    n = display.n_prompts
    rows = (
        ("always one draw", *_share(ErrorCount(errors[0], n))),
        (f"always {counted(len(errors), 'draw')}", *_share(ErrorCount(errors[-1], n))),
    )
    text = (
        "Above the first number, epsilon is trivial; below the second, it is out of reach for "
        "this generator and budget (Appendix C). Choosing k_max or epsilon by these numbers, and "
        "calibrating on the same prompts, voids the guarantee: choose on other prompts."
    )
    header = ("policy", "error", _INTERVAL)
    yield Section("Achievable band of epsilon", (text,), (header, *rows), display=display)


def _thresholds(result: ComponentThreshold) -> Section:
    """Tests of components."""
    columns = {
        "score": (result.thresholds, ".6g"),
        "components selected": (result.n_components, ".4g"),
    }
    text, table = _tests(result, "distinct score", "from the largest down", columns)
    return Section("Tests of thresholds", (text,), table)


def _mean_interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean of independent values with its normal 95 % interval."""
    mean = float(np.mean(values))
    standard_error = np.std(values) / math.sqrt(len(values))
    half = float(ndtri(0.5 + _CONFIDENCE / 2) * standard_error)
    return mean, mean - half, mean + half
