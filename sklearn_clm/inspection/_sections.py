"""What a report says of a calibration, section by section."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm._exceptions import MORE_PROMPTS
from sklearn_clm._results import counted
from sklearn_clm.calibration import (
    CalibrationData,
    ComponentCalibrationData,
    ComponentThreshold,
    get_set_score,
    smallest_epsilon,
    wrong_fractions,
)
from sklearn_clm.calibration._component_fractions import path_part
from sklearn_clm.calibration._data import describe_repetitions
from sklearn_clm.calibration._learn_then_test import doubts_of_admission
from sklearn_clm.evaluation._expectations import (
    RuleOutcomes,
    chance_of_null,
    first_k_errors,
    rule_outcomes,
)
from sklearn_clm.evaluation._monitor import AFTER_ALARM
from sklearn_clm.inspection._budgets import AchievableBandDisplay, PromptGainDisplay
from sklearn_clm.inspection._figures import Display
from sklearn_clm.inspection._frontier import FrontierDisplay
from sklearn_clm.inspection._groups import (
    about_others,
    component_groups,
    for_others,
    group_row,
    null_groups,
)
from sklearn_clm.inspection._tables import (
    INTERVAL,
    MEANS,
    bound_of_level,
    bound_word,
    mean_cells,
    percent,
    role_of,
    rounded_up,
    share_cells,
    shown_positions,
    with_gaps,
)

# the rule is run draw by draw; more prompts would not make the means any clearer
_MAX_PROMPTS = 20_000
_GROWTH = (1, 2, 5, 10)
_OFTEN = 0.25
_NEAR_BY = 0.05


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


_WATCH_LOSSES = (
    "Watch each loss: compute it for a random share of the sets, and give the values to a "
    "sklearn_clm.evaluation.RiskMonitor of its level. After an alarm stop relying on the "
    "guarantee, and calibrate again on new prompts."
)


def sections_of(estimator: ConformalSampler | ComponentSelector) -> Iterable[Section]:
    """All that is said of a calibrated estimator."""
    record: Any = estimator.calibration_
    if isinstance(estimator, ComponentSelector):
        yield from _selector_sections(estimator, record)
    else:
        yield from _sampler_sections(estimator, record)
        if not _promises_admission(record):
            yield Section("In use", (_WATCH_LOSSES,))
            return
    watched = record.alpha if isinstance(estimator, ComponentSelector) else record.epsilon
    yield Section(
        "In use",
        (
            "How many calibration prompts another epsilon, set size or number of draws takes: "
            "sklearn_clm.evaluation.plan, or python -m sklearn_clm plan.",
            "Watch the risk: judge a random share of the sets, and give the outcomes to "
            "sklearn_clm.evaluation.RiskMonitor. After an alarm: "
            + AFTER_ALARM.format(epsilon=watched, alpha=0.05),
        ),
    )


def _sampler_sections(sampler: ConformalSampler, record: Any) -> Iterable[Section]:
    data, left, result = record.data, record.exit, record.result
    labelled, pooled = data.unknown is None, record.uses_pooled_rule
    # with several risks, or weights, counts of errors tell nothing of the tests
    counts = result is None or not labelled or not math.isnan(result.smallest_epsilon)
    outcomes = _outcomes(record) if labelled and left is None else None
    yield _sampler_guarantee(record)
    texts = null_groups(record, f"which get all {counted(record.k_max, 'draw')}")
    if counts:
        if outcomes is not None:
            texts += _sampler_warnings(record, outcomes)
        else:
            texts += _warnings_without_labels(record)
        texts += [*_equal_draws(record.data), *_repetitions(record)]
    elif not record.certified:
        texts += filter(None, [record.rule.why_null()])
    yield from _warnings(texts)
    yield from _conditions(record)
    yield _data(record, left or result, ("draws for each prompt", data.k_max))
    yield _provenance(record)
    if pooled and left is not None:
        yield _exit_policy(left)
    elif pooled and record.lambda_hat is not None:
        yield _thresholds(record)
    if counts and pooled and result is not None:
        yield _tests(record)
    if labelled and _promises_admission(record):
        yield _band(record, AchievableBandDisplay._of_calibration(sampler))
    safest = None
    if pooled and left is not None:
        yield _exit_expectations(left)
        if left.guarantee == "pac" and left.n_hopeless is not None:
            safest = "the set of all draws"
            if left.same_text is not None:
                safest += ", of like ones the first,"
    elif pooled and outcomes is not None and not _bets(record):
        yield _expectations(record, outcomes)
        safest = "the safest configuration" if counts and result is not None else None
    if safest is not None:
        yield from _more_prompts(PromptGainDisplay._of_calibration(sampler), safest)
    if outcomes is None:
        yield _judgements(record)


def _outcomes(record: Any) -> RuleOutcomes:
    """What became of the prompts that calibrated, of many of them the first."""
    n = min(record.data.n_prompts, _MAX_PROMPTS)
    part = record.data if n == record.data.n_prompts else record.data.take(np.arange(n))
    return rule_outcomes(part, record.lambda_hat, record.set_score, record.k_max)


def _exit_policy(left: Any) -> Section:
    text = (
        "A text belongs to the set, and sampling goes on, as long as the exit policy gives "
        "them at least the level. Sets are nested in the level, so that one order statistic "
        "calibrates it."
    )
    level = (
        ("what", "value"),
        ("level u-hat", f"{left.level:.6g}"),
        ("errors allowed among the calibration prompts", str(max(left.n_errors_allowed, 0))),
    )
    return Section("Exit policy", (text,), level)


def _judgements(record: Any) -> Section:
    judged = record.data.n_judged if record.n_judgements is None else record.n_judgements
    rows = (
        ("what", "number"),
        ("draws", str(record.data.n_made)),
        ("judged", str(judged)),
        ("judged for each prompt", f"{judged / record.data.n_prompts:.3g}"),
    )
    text = "Equal responses of a prompt are judged once."
    if record.n_judgements is not None:
        text = (
            "Labels were asked for until each decision was forced; the decisions are those of the "
            f"full table. {text}"
        )
    return Section("Judgements", (text,), rows)


def _warnings_without_labels(record: Any) -> list[str]:
    left, result = record.exit, record.result
    found, texts = left or result, _outside_the_band(record)
    if found is None:
        return [*texts, f"{record.data.n_prompts} prompts are too few for any test to succeed."]
    if record.by_group is not None:
        return texts
    if not record.certified:
        smallest = rounded_up(found.smallest_epsilon)
        texts.append(f"Null: no epsilon below {smallest} can be certified with these data.")
    elif left is not None and left.guarantee == "pac":
        n = left.n_calibration
        texts += _small_sample("epsilon", left.epsilon, left.delta, n)
        if left.n_hopeless is not None:
            texts += _null_near_by(left.n_hopeless, n, left.epsilon, left.delta)
    return texts


def _exit_expectations(left: Any) -> Section:
    n, bound = left.n_calibration, bound_of_level(left)
    error, interval = share_cells(left.n_errors, n)
    rows = (
        MEANS,
        ("error", bound + error, "" if bound else interval),
        ("size", *mean_cells(left.sizes)),
        ("draws", *mean_cells(left.draws)),
    )
    text = (
        f"Means over the {n} prompts of the calibration part. The level was chosen on them, so "
        "new prompts may do a little worse. Size counts the responses in a set; draws, those made "
        "for it."
    )
    return Section("What to expect of predict", (text,), rows)


def _sampler_guarantee(record: Any) -> Section:
    who = _who(record)
    if not record.certified:
        what = "configuration" if record.exit is None else "level"
        texts = [
            f"None. No {what} could be certified, so predict returns all "
            f"{record.k_max} draws for each prompt, without any guarantee."
        ]
    elif record.guarantee == "marginal":
        texts = [
            f"The set for {who} holds an admissible response with "
            f"probability at least {percent(1 - record.epsilon)}, on average over calibration "
            f"prompts and new prompts together (marginal guarantee). {_AVERAGE}"
        ]
    else:
        confidence = f"With confidence {percent(1 - record.delta)} over the calibration prompts,"
        losses = "the mean of each loss below is at most its level"
        texts = [
            f"{confidence} the set for {who} holds an admissible response with "
            f"probability at least {percent(1 - record.epsilon)}. {_AVERAGE}"
        ]
        if record.losses is not None and record.losses.admission:
            texts.append(f"With it, and with the same confidence for both, {losses}.")
        elif record.losses is not None:
            texts = [
                f"{confidence} {losses}, for {who.rstrip(',')}. Nothing is said of admissible "
                f"responses. {_AVERAGE}"
            ]
    return Section("Guarantee", (*texts, *_under_conditions(record)))


def _promises_admission(record: Any) -> bool:
    """Whether the risk of holding no admissible response is one that was tested."""
    return record.losses is None or bool(record.losses.admission)


def _bets(record: Any) -> bool:
    """Whether the prompts that calibrate are distributed otherwise than new ones."""
    return record.shift is not None and record.shift.method == "betting"


def _who(record: Any) -> str:
    """Whom a guarantee is for."""
    who = "a new prompt from the same distribution"
    if record.by_group is not None:
        who = "a new prompt of a certified group, from that group's distribution,"
    if record.shift is not None:
        shifted = "from the distribution that the weights describe"
        who = f"a new prompt {'of a certified group, ' * (record.by_group is not None)}{shifted},"
    return who


def _under_conditions(record: Any) -> Iterable[str]:
    """What groups and weights make of a guarantee."""
    if record.by_group is not None:
        how = (
            "each holds on its own, and nothing is said of all at once (Groups(guarantee='all') "
            "promises that)"
        )
        if record.groups.guarantee == "all":
            how = "with that confidence all hold together"
        yield f"There is one such claim for each group; {how}."
    if record.shift is not None:
        yield (
            "That distribution is not the one of the prompts that calibrate."
            f"{' The guarantee is approximate: weights are estimated.' * record.shift.estimated}"
        )


def _conditions(record: Any) -> Iterable[Section]:
    """Groups, a shift of prompts, and other losses, where calibration looked at them."""
    if record.by_group is not None:
        header = ("group", "", "rule", "errors", INTERVAL, "size", "draws", "smallest epsilon")
        rows = [group_row(name, rule, record) for name, rule in record.by_group.items()]
        of_prompts = (
            "Errors, size and draws are those of the group's calibration prompts under the rule "
            "that predict uses for them. The thresholds or levels were chosen on these prompts, so "
            "new ones may do a little worse."
        )
        yield Section("Groups", (for_others(record), of_prompts), (header, *rows))
    yield from _shift(record)
    if record.losses is not None:
        means = getattr(record.rule, "means", {})
        levels = [
            (name, f"{level:g}", f"{means[name]:.3g}" if name in means else "")
            for name, (_, level) in record.losses.named().items()
        ]
        columns = ("loss", "level", "mean of the calibration prompts")
        yield Section("Other losses", table=(columns, *levels))


def _shift(record: Any) -> Iterable[Section]:
    if (shift := record.shift) is not None:
        facts = [
            ("method", shift.method),
            ("largest weight", f"{shift.weight_bound:g}"),
            ("weights are estimated", "yes" if shift.estimated else "no"),
            ("prompts offered", str(shift.n_offered)),
            ("prompts that calibrate", str(shift.n_kept)),
            ("effective number of prompts", f"{shift.effective_size:.1f}"),
        ]
        yield Section("Covariate shift", table=(("what", "value"), *facts))


_AVERAGE = (
    "This is an average over new prompts, not a statement about any one of them, and it is about "
    "the generator, scores and admission that were calibrated."
)


def _warnings(texts: Sequence[str]) -> Iterable[Section]:
    if texts:
        yield Section("Warnings", tuple(texts), warning=True)


def _sampler_warnings(record: Any, outcomes: RuleOutcomes) -> list[str]:
    result, epsilon, delta = record.result, record.epsilon, record.delta
    texts = _outside_the_band(record)
    if result is None:
        return [
            *texts,
            f"{record.data.n_prompts} prompts are too few for any test to succeed at epsilon = "
            f"{epsilon:g} and delta = {delta:g}.",
        ]
    if not record.uses_pooled_rule:
        return texts
    delta = result.delta
    about = _small_sample("epsilon", epsilon, delta, result.n_calibration)
    if record.lambda_hat is None:
        about.append(
            "Null: the smallest epsilon that these data certify is "
            f"{rounded_up(result.smallest_epsilon)}."
        )
    else:
        about += _null_near_by(int(result.n_errors[0]), result.n_calibration, epsilon, delta)
    exhausted = float(outcomes.exhausted.mean())
    if record.lambda_hat is not None and record.k_max > 1 and exhausted > _OFTEN:
        about.append(
            f"The budget is exhausted often: for {percent(exhausted)} of the prompts all "
            f"{record.k_max} draws are made without reaching the set score to stop at."
        )
    return texts + [" ".join((text, *about_others(record))) for text in about]


def _outside_the_band(record: Any) -> list[str]:
    """Whether epsilon is trivial, or out of reach of all draws."""
    (low, high), epsilon, texts = record.achievable_epsilon, record.epsilon, []
    if epsilon >= high:
        texts.append(
            f"epsilon = {epsilon:g} is trivial: the first draw alone errs for {percent(high)} of "
            "the prompts."
        )
    if epsilon <= low:
        texts.append(
            f"epsilon = {epsilon:g} is out of reach: even all {record.data.k_max} draws err for "
            f"{percent(low)} of the prompts. {_what_helps(record.data)}"
        )
    return texts


def _what_helps(data: CalibrationData) -> str:
    """What lowers the error of all draws."""
    errors = first_k_errors(data.admissible)
    if doubts := doubts_of_admission(errors[-1] / data.n_prompts):
        return doubts
    enough = int(np.argmax(errors == errors[-1])) + 1
    if 2 * enough > data.k_max:
        return "Raise epsilon or k_max, or improve the generator."
    last = "first" if enough == 1 else f"first {enough}"
    return (
        f"More draws will hardly help: those after the {last} found nothing more. Raise epsilon, "
        "or improve the generator or the admission."
    )


def _equal_draws(data: CalibrationData) -> list[str]:
    if data.k_max == 1 or data.texts is None or np.any(data.texts):
        return []
    return [
        f"The {data.k_max} draws of a prompt never differ, so that more than one draw finds "
        "nothing more. Draw at a temperature above 0, or take a generator whose draws differ."
    ]


def _small_sample(name: str, level: float, delta: float, n: int) -> list[str]:
    least = smallest_epsilon(0, n, delta)
    if least <= level / 2:
        return []
    return [
        f"Small n: with {n} calibration prompts, even a rule without a single error is certified "
        f"only for {name} >= {least:.3g}."
    ]


def _null_near_by(n_errors: int, n: int, level: float, delta: float) -> list[str]:
    chance = chance_of_null(n_errors, n, level, delta)
    if chance <= _NEAR_BY:
        return []
    return [
        f"Null is near by: with another {n} calibration prompts of this kind, nothing would be "
        f"certified with probability about {percent(chance)}."
    ]


def _data(record: Any, result: Any, *more: tuple[str, int]) -> Section:
    rows = [("prompts", str(record.data.n_prompts))]
    if result is not None and hasattr(result, "n_optimization"):
        what = ("finds the frontier", "tests it")
        if getattr(record, "exit", None) is not None:
            what = ("learns the policy", "finds its level")
        rows += [
            (f"optimisation part, {what[0]}", str(result.n_optimization)),
            (f"calibration part, {what[1]}", str(result.n_calibration)),
        ]
    rows += [(what, str(number)) for what, number in more]
    if getattr(record, "seed", None) is not None:
        rows.append(("seed of the draws", str(record.seed)))
    return Section("Data", table=(("what", "number"), *rows))


_COLLECTED = ("generator", "seed", "quality", "similarity", "admission")


def _provenance(record: Any) -> Section:
    unknown = _COLLECTED if record.provenance is None else record.provenance.unknown
    text = "The data say with what they were collected; it is what the estimator uses."
    if set(_COLLECTED) <= set(unknown):
        text = "Provenance unknown: the data do not say with which generator, seed and scores they "
        text += "were collected."
    elif unknown:
        text = f"The data say with what they were collected, apart from {', '.join(unknown)} "
        text += "(provenance unknown)."
    if unknown:
        text += " The guarantee holds only if these are the estimator's own."
    return Section("Provenance", (text,))


def _repetitions(record: Any) -> list[str]:
    digests = record.data.prompts
    text = None if digests is None else describe_repetitions(digests)
    return [] if text is None else [text]


def _thresholds(record: Any) -> Section:
    l1, l2, l3 = record.lambda_hat
    name = get_set_score(record.set_score).name
    rows = (
        ("threshold", "value", "use"),
        ("similarity", f"{l1:.6g}", "reject a draw more similar than this to an accepted one"),
        ("quality", f"{l2:.6g}", "reject a draw of lower quality than this"),
        ("set_score", f"{l3:.6g}", f"stop once the set score {name} is at least this"),
        ("k_max", str(record.k_max), "stop after this many draws in any case"),
    )
    return Section("Thresholds (lambda-hat)", table=rows)


def _tests(record: Any) -> Section:
    result, lazy = record.result, record.result.exact is not None
    m, n_valid = len(result.frontier), len(result.valid_lambdas)
    chosen, weights = result.position, (record.size_weight, record.excess_weight)
    if lazy:
        text = (
            "Tested from the safest configuration on, until one failed. A test ends as soon as its "
            "decision is forced, so that errors and p-values are bounds where prompts are "
            "unsettled."
        )
    else:
        text = (
            f"The Pareto frontier has {counted(m, 'configuration')}. They were tested from the "
            f"safest on, each at level delta = {result.delta:g}, until one failed: "
        )
        if chosen is None:
            text += "the very first."
        else:
            text += f"{'all' if n_valid == m else n_valid} passed. "
            text += "lambda-hat is the one of lowest objective (Eq. 7) among them."
    objective, budgets = result.risks.objective(*weights), result.frontier.k_max
    several = budgets.min() < budgets.max()
    rows = []
    for i in shown_positions(m, n_valid, chosen):
        bound = bound_word(result, i, n_valid)
        cells = [f"{bound}{result.n_errors[i]} of {result.n_calibration}"]
        cells += [] if lazy else [f"{objective[i]:.4g}"]
        cells.append(f"{bound}{result.p_values[i]:.3g}")
        if lazy and i > n_valid:
            cells = ["", ""]
        thresholds = ", ".join(f"{value:.4g}" for value in result.frontier.lambdas[i])
        role = "lambda-hat" if i == chosen else role_of(i, n_valid)
        budget = [str(budgets[i])] if several else []
        rows.append((str(i + 1), thresholds, *budget, *cells, role))
    costs = [] if lazy else ["objective"]
    columns = ["similarity, quality, set score", *(["k_max"] if several else []), "errors", *costs]
    header = ("test", *columns, "p-value", "")
    display = None if lazy else FrontierDisplay._of(result, *weights)
    table = (header, *with_gaps(rows, m))
    return Section("Frontier and tests", (text,), table, display=display)


def _band(record: Any, display: AchievableBandDisplay) -> Section:
    n, k_max = record.data.n_prompts, record.data.k_max
    errors = first_k_errors(record.data.admissible)
    rows = (
        ("policy", "error", INTERVAL),
        ("always one draw", *share_cells(int(errors[0]), n)),
        (f"always {counted(k_max, 'draw')}", *share_cells(int(errors[-1]), n)),
    )
    text = (
        "Above the first number, epsilon is trivial; below the second, it is out of reach for "
        "this generator and budget (Appendix C). Choosing k_max or epsilon by these numbers, and "
        "calibrating on the same prompts, voids the guarantee: choose on other prompts"
        f"{', or give k_max a sequence' if record.exit is None else ''}."
    )
    return Section("Achievable band of epsilon", (text,), rows, display=display)


def _expectations(record: Any, outcomes: RuleOutcomes) -> Section:
    n, n_prompts = len(outcomes.error), record.data.n_prompts
    rows = [("error", *share_cells(int(outcomes.error.sum()), n))]
    rows += [(name, *mean_cells(getattr(outcomes, name))) for name in ("size", "draws", "excess")]
    text = f"Means over {f'the {n}' if n == n_prompts else f'{n} of the {n_prompts}'} prompts "
    text += "that calibrated. "
    if record.lambda_hat is not None:
        text += "The thresholds were chosen on them, so new prompts will do a little worse. "
    text += (
        "Size counts the responses in a set; draws, those made for it; excess is the share of "
        "them after the first admissible one."
    )
    if np.mean(outcomes.size == 0) > 0.5:
        text += " More than half of the sets are empty, and each of these takes all draws."
        if not _promises_admission(record):
            text += (
                " No loss demands an answer, and Eq. 7 prefers small sets: size_weight=0, or "
                "Losses(admission=True) with a high epsilon, gives answers."
            )
    return Section("What to expect of predict", (text,), (MEANS, *rows))


def _more_prompts(display: PromptGainDisplay | None, safest: str) -> Iterable[Section]:
    if display is None:
        return
    name, n, n_errors = display.symbol, display.n_calibration, display.n_errors
    sizes = [growth * n for growth in _GROWTH]
    smallest = display.smallest(sizes)
    rows = [
        (f"{growth} x", str(size), rounded_up(float(value)))
        for growth, size, value in zip(_GROWTH, sizes, smallest)
    ]
    rows.append(("without end", "", f"{n_errors / n:.4f}"))
    text = (
        f"The smallest {name} that can be certified, if {safest} keeps its share of errors, "
        f"{n_errors / n:.4f}, on a larger calibration part. {MORE_PROMPTS}"
    )
    header = ("calibration part", "prompts", f"smallest {name}")
    yield Section("What more prompts would gain", (text,), (header, *rows), display=display)


def _selector_sections(selector: ComponentSelector, record: Any) -> Iterable[Section]:
    yield _selector_guarantee(record)
    texts = null_groups(record, "which get empty selections")
    yield from _warnings([*texts, *_selector_warnings(record), *record.remarks])
    if record.by_group is not None:
        of_prompts = (
            "What is wrong and what is selected are means over the group's calibration prompts "
            f"with its own threshold, and {_components_of(record)} The threshold was chosen on "
            "these prompts, so new ones may do a little worse."
        )
        yield Section("Groups", (for_others(record), of_prompts), tuple(component_groups(record)))
    yield from _shift(record)
    data = record.data
    judged = [] if data.unknown is None else [("of these judged", selector.n_judgements_)]
    yield _data(record, None, ("distinct components", data.n_components), *judged)
    yield _provenance(record)
    if record.uses_pooled_rule:
        about = about_others(record)
        for one in _threshold_sections(selector, record):
            yield replace(one, paragraphs=(*about, *one.paragraphs))


def _threshold_sections(selector: ComponentSelector, record: Any) -> Iterable[Section]:
    """What the threshold for all prompts together is, how it was found and what it gives."""
    result: ComponentThreshold | None = record.result
    if math.isfinite(record.gamma_hat):
        row = ("component score", f"{record.gamma_hat:.6g}", "select a component of at least this")
        table = (("threshold", "value", "use"), row)
        yield Section("Threshold (gamma-hat)", table=table)
    if result is None or not len(result.thresholds):
        return
    yield _component_tests(record)
    if record.data.unknown is None or record.loss == "fraction":
        yield _component_band(record)
    yield _component_expectations(record)
    if record.loss == "any":
        yield from _more_prompts(
            PromptGainDisplay._of_calibration(selector), "the highest threshold"
        )


def _selector_guarantee(record: Any) -> Section:
    if not record.certified:
        text = (
            "No threshold could be certified, so every selection is empty: an empty selection "
            "holds no wrong component."
        )
        return Section("Guarantee", (text,))
    if record.loss == "fraction":
        promise = (
            f"the fraction of wrong components among those selected for {_who(record)} is at most "
            f"{percent(record.alpha)} on average, where an empty "
            "selection counts as 0. A single selection may hold more wrong ones. It holds for the "
            "sets of the sampler as it was calibrated then, and for no other"
        )
    else:
        promise = (
            f"all components selected for {_who(record)} are admissible "
            f"with probability at least {percent(1 - record.alpha)}"
        )
    confidence = f"With confidence {percent(1 - record.delta)} over the calibration prompts, "
    text = f"{confidence}{promise}. {_AVERAGE}"
    return Section("Guarantee", (text, *_under_conditions(record), _together(record)))


def _together(record: Any) -> str:
    """What is known of the sampler's guarantee and that of components at once."""
    sets = None if record.sampler is None else record.sampler.calibration_
    both = "The guarantee of the sampler's sets and this one hold at once with confidence"
    if sets is None:
        return f"{both} 1 - 2 delta, by the union bound."
    if not sets.certified:
        return "Nothing is guaranteed of the sampler's sets."
    if sets.guarantee == "marginal":
        return (
            "The guarantee of the sampler's sets holds on average over calibrations (marginal "
            "guarantee), and no confidence is known with which both hold at once."
        )
    same = sets.delta == record.delta
    confidence = "1 - 2 delta" if same else percent(1 - record.delta - sets.delta)
    return f"{both} {confidence}, by the union bound."


def _selector_warnings(record: Any) -> list[str]:
    result, alpha, delta = record.result, record.alpha, record.delta
    if record.by_group is not None and record.uses_pooled_rule:
        delta = record.groups.level(delta, len(record.by_group))
    if result is None:
        return [
            f"{record.data.n_prompts} prompts are too few for any test to succeed at alpha = "
            f"{alpha:g} and delta = {delta:g}."
        ]
    if not len(result.thresholds):
        return ["No response of the calibration prompts has any component."]
    if not record.uses_pooled_rule:
        return []
    texts = _small_sample("alpha", alpha, delta, result.n_calibration)
    if record.gamma_hat == math.inf:
        texts.append(
            f"Null: the smallest alpha that these data certify is "
            f"{'' if result.exact[0] else 'at least '}{rounded_up(result.smallest_alpha)}."
        )
    else:
        if record.loss == "any":
            texts += _null_near_by(int(result.n_errors[0]), result.n_calibration, alpha, delta)
        selected = int(np.count_nonzero(record.data.scores >= record.gamma_hat))
        if selected < 0.1 * record.data.n_prompts:
            texts.append(
                f"Next to nothing is selected: {counted(selected, 'component')} of "
                f"{record.data.n_components} reach gamma-hat."
            )
    return [" ".join((text, *about_others(record))) for text in texts]


def _component_tests(record: Any) -> Section:
    result: ComponentThreshold = record.result
    m = len(result.thresholds)
    n_valid = int(np.count_nonzero(result.thresholds >= record.gamma_hat))
    fraction = result.loss == "fraction"
    what, of = "distinct score", "of the calibration data were tested"
    if fraction:
        what = "threshold"
        of = f"from the scores of {counted(record.data.n_prompts - result.n_calibration, 'prompt')}"
        of += f", which took no other part, were tested on the other {result.n_calibration}"
    text = (
        f"The {counted(m, what)} {of} from the largest down, each at level delta = "
        f"{result.delta:g}, until one failed: "
        f"{'all' if n_valid == m else n_valid or 'none'} passed."
    )
    rows = []
    for i in shown_positions(m, n_valid, n_valid - 1 if n_valid else None):
        bound = bound_word(result, i, n_valid)
        errors = f"{bound}{result.n_errors[i]} of {result.n_calibration}"
        rows.append(
            (
                str(i + 1),
                f"{result.thresholds[i]:.6g}",
                f"{result.losses[i]:.4g}" if fraction else errors,
                f"{result.n_components[i]:.4g}",
                f"{bound}{result.p_values[i]:.3g}",
                "gamma-hat" if i == n_valid - 1 else role_of(i, n_valid),
            )
        )
    loss = "mean fraction wrong" if fraction else "prompts with an error"
    header = ("test", "score", loss, "components selected", "p-value", "")
    return Section("Tests of thresholds", (text,), (header, *with_gaps(rows, m)))


def _component_band(record: Any) -> Section:
    result: ComponentThreshold = record.result
    n = result.n_calibration
    if result.loss == "fraction":
        name, data = "mean fraction wrong", _tested(record)
        safest, every = (
            mean_cells(wrong_fractions(data, result.thresholds[[i]])[:, 0]) for i in (0, -1)
        )
    else:
        name = "error"
        safest, every = (share_cells(int(result.n_errors[i]), n) for i in (0, -1))
    rows = (
        ("policy", name, INTERVAL),
        ("select everything", *every),
        ("select what has the highest score", *safest),
    )
    text = (
        "Above the first number, alpha is trivial; below the second, next to nothing can be "
        "selected."
    )
    return Section("Achievable band of alpha", (text,), rows)


def _component_expectations(record: Any) -> Section:
    fraction = record.loss == "fraction"
    data = _tested(record) if fraction else record.data
    n, chosen = data.n_prompts, data.scores >= record.gamma_hat
    number = np.bincount(data.prompt_index[chosen], minlength=n)
    # the most there can be, where labels that no test needed are unknown
    wrong = np.bincount(data.prompt_index[chosen & (data.labels != 1)], minlength=n) > 0
    rows = [
        MEANS,
        ("error" if not fraction else "any wrong", *share_cells(int(wrong.sum()), n)),
        ("components selected", *mean_cells(number)),
    ]
    text = f"Means over the {n} prompts that calibrated, with {_components_of(record)}"
    if fraction:
        share = wrong_fractions(data, [record.gamma_hat])[:, 0]
        rows.insert(1, ("fraction wrong", *mean_cells(share)))
    return Section("What to expect of predict", (text,), tuple(rows))


def _components_of(record: Any) -> str:
    """Which components a selector was calibrated on."""
    if record.loss == "fraction":
        return "the components of the sets that predict makes for them."
    return (
        "the components of all draws: sets that stop early hold fewer components, and no more "
        "errors."
    )


def _tested(record: Any) -> ComponentCalibrationData:
    """The prompts that were tested; the others gave thresholds."""
    data: ComponentCalibrationData = record.data
    if data.n_prompts == record.result.n_calibration:
        return data
    n_path = data.n_prompts - record.result.n_calibration
    return data.take(path_part(data.n_prompts, n_path / data.n_prompts, data.prompts)[1])
