"""What a report says of a calibrated selector, section by section."""

from collections.abc import Hashable, Iterable
from dataclasses import replace

import numpy as np

from sklearn_clm._results import counted
from sklearn_clm.calibration import ComponentCalibrationData, ComponentThreshold
from sklearn_clm.calibration._claim import percent
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
from sklearn_clm.policies._calibration import SelectorCalibration

_NEXT_TO_NOTHING = 0.1  # components for each prompt
_OF_ALL_DRAWS = (
    "the components of all draws: sets that stop early hold fewer components, and no more errors."
)
_OF_GROUPS = (
    "What is wrong and what is selected are means over the group's calibration prompts with its "
    f"own threshold, and {_OF_ALL_DRAWS} The threshold was chosen on these prompts, so new ones "
    "may do a little worse."
)
_HEADER = (
    *("group", "", "gamma-hat", "calibration prompts", "error", INTERVAL),
    *("components selected", "smallest alpha"),
)


def selector_sections(
    record: SelectorCalibration, data: ComponentCalibrationData
) -> Iterable[Section]:
    """All that is said of a calibrated selector."""
    yield guarantee(record, _together(record))
    yield from warnings(_warnings(record, data))
    rows = [_group_row(record, name) for name in record.by_group or ()]
    yield from groups(record, _OF_GROUPS, _HEADER, rows)
    yield from shift(record)
    yield _data(data)
    if record.uses_pooled_rule:
        for one in _of_threshold(record, data):
            yield replace(one, paragraphs=(*about_others(record), *one.paragraphs))
    yield in_use(record)


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


def _warnings(record: SelectorCalibration, data: ComponentCalibrationData) -> list[str]:
    texts = nulls(record, "empty selections")
    if record.uses_pooled_rule:
        about = doubts(record)
        selected = int(np.count_nonzero(data.scores >= record.gamma_hat))
        if record.claim.holds and selected < _NEXT_TO_NOTHING * data.n_prompts:
            about.append(
                f"Next to nothing is selected: {counted(selected, 'component')} of "
                f"{data.n_components} reach gamma-hat."
            )
        texts += [" ".join((text, *about_others(record))) for text in about]
    return [*texts, *record.remarks]


def _group_row(record: SelectorCalibration, name: Hashable) -> tuple[str, ...]:
    """A group's threshold, what came of its calibration prompts, what they certify."""
    status, why = record.claims[name].outcome
    result, nothing = record.results[name], ("0", "", "0")  # of an empty selection
    if result is None:
        return (str(name), status, "", why, *nothing, "")
    n, last = result.n_calibration, result.n_valid - 1
    smallest = ""
    if len(result.thresholds):
        smallest = result.bound(0) + rounded_up(result.smallest_alpha)
    if last < 0:
        return (str(name), status, "", str(n), *nothing, smallest)
    share = share_cells(int(result.n_errors[last]), n, result.bound(last))
    selected = f"{result.n_components[last]:.4g}"
    gamma = f"{result.gamma_hat:.4g}"
    return (str(name), status, gamma, str(n), *share, selected, smallest)


def _data(data: ComponentCalibrationData) -> Section:
    rows = [
        ("prompts", str(data.n_prompts)),
        ("distinct components", str(data.n_components)),
    ]
    if data.unknown is not None:
        rows.append(("of these judged", str(int(np.sum(data.labels >= 0)))))
    return Section("Data", table=(("what", "number"), *rows))


def _of_threshold(record: SelectorCalibration, data: ComponentCalibrationData) -> Iterable[Section]:
    """What the threshold for all prompts together is, how it was found and what it gives."""
    result = record.tests
    if record.claim.holds:
        row = ("component score", f"{record.gamma_hat:.6g}", "select a component of at least this")
        table = (("threshold", "value", "use"), row)
        yield Section("Threshold (gamma-hat)", table=table)
    if result is None or not len(result.thresholds):
        return
    yield _tests(result)
    if data.unknown is None:
        yield _band(result)
    yield _expectations(record, data)
    yield from more_prompts(record, "selections of the highest score")


def _tests(result: ComponentThreshold) -> Section:
    m, n_valid = len(result.thresholds), result.n_valid
    passed = "all" if n_valid == m else str(n_valid or "none")
    text = (
        f"The {counted(m, 'distinct score')} of the calibration data were tested from the largest "
        f"down, each at level delta = {result.delta:g}, until one failed: {passed} passed."
    )
    rows = [
        (
            str(i + 1),
            f"{result.thresholds[i]:.6g}",
            f"{result.bound(i)}{result.n_errors[i]} of {result.n_calibration}",
            f"{result.n_components[i]:.4g}",
            f"{result.bound(i)}{result.p_values[i]:.3g}",
            "gamma-hat" if i == n_valid - 1 else role_of(i, n_valid),
        )
        for i in shown_positions(m, n_valid, n_valid - 1 if n_valid else None)
    ]
    header = ("test", "score", "prompts with an error", "components selected", "p-value", "")
    return Section("Tests of thresholds", (text,), (header, *with_gaps(rows, m)))


def _band(result: ComponentThreshold) -> Section:
    n, (safest, every) = result.n_calibration, result.n_errors[[0, -1]].tolist()
    rows = (
        ("policy", "error", INTERVAL),
        ("select everything", *share_cells(every, n)),
        ("select what has the highest score", *share_cells(safest, n)),
    )
    text = (
        "Above the first number, alpha is trivial; below the second, next to nothing can be "
        "selected."
    )
    return Section("Achievable band of alpha", (text,), rows)


def _expectations(record: SelectorCalibration, data: ComponentCalibrationData) -> Section:
    n, chosen = data.n_prompts, data.scores >= record.gamma_hat
    number = np.bincount(data.prompt_index[chosen], minlength=n)
    # labels that no test needed are unknown: the most errors that there can be
    wrong = np.unique(data.prompt_index[chosen & (data.labels != 1)]).size
    bound = "at most " if np.any(data.labels[chosen] < 0) else ""
    rows = (
        MEANS,
        ("error", *share_cells(wrong, n, bound)),
        ("components selected", *mean_cells(number)),
    )
    text = f"Means over the {n} prompts that calibrated, with {_OF_ALL_DRAWS}"
    return Section("What to expect of predict", (text,), rows)
