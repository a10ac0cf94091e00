"""What a calibration means, in words and numbers."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from sklearn_clm._calibrating import calibrated_with
from sklearn_clm._html import Section, Table, to_html, to_markdown
from sklearn_clm.calibration import (
    CalibrationData,
    Configuration,
    SamplingRule,
    binomial_p_value,
    clopper_pearson,
    critical_count,
    relative_excess,
    smallest_epsilon,
)
from sklearn_clm.inspection._frontier import chosen_position
from sklearn_clm.scoring import get_set_score

__all__ = ["CalibrationReport", "calibration_report"]


_CONFIDENCE = 0.95
# the rule is run draw by draw; more prompts would not make the means any clearer
_MAX_PROMPTS = 20_000
_GROWTH = (1, 2, 5, 10)
_OFTEN = 0.25
_NEAR_BY = 0.05


@dataclass(frozen=True)
class Outcomes:
    """What lambda-hat does for each prompt: arrays of shape (n,)."""

    error: np.ndarray
    size: np.ndarray
    draws: np.ndarray
    excess: np.ndarray
    exhausted: np.ndarray


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """Report on a calibrated sampler, shown as HTML in a notebook and as Markdown in print.

    Create it with :meth:`ConformalSampler.report`.

    Parameters
    ----------
    sections : tuple of Section
        The contents.

    Attributes
    ----------
    warnings : tuple of str
        What to be careful about; empty if nothing.
    """

    sections: tuple[Section, ...]

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What to be careful about."""
        return sum((s.paragraphs for s in self.sections if s.warning), ())

    def to_markdown(self) -> str:
        """The report as Markdown.

        Returns
        -------
        str
            The text.
        """
        return to_markdown("Calibration report", self.sections)

    def to_html(self) -> str:
        """The report as an HTML fragment that needs nothing from elsewhere.

        Returns
        -------
        str
            The markup; all text in it is escaped.
        """
        return to_html("Calibration report", self.sections)

    def save(self, path: str | Path) -> None:
        """Write the report to a file.

        Parameters
        ----------
        path : str or Path
            A file whose name ends in .html, .htm or .md.

        Raises
        ------
        ValueError
            If it ends in something else.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in (".html", ".htm", ".md"):
            raise ValueError(f"path={str(path)!r} must end in .html, .htm or .md.")
        text = self.to_markdown()
        if suffix != ".md":
            text = (
                '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
                f"<title>Calibration report</title></head><body>{self.to_html()}</body></html>\n"
            )
        Path(path).write_text(text, encoding="utf-8")

    def __repr__(self) -> str:
        headings = ", ".join(section.heading for section in self.sections)
        return f"<CalibrationReport: {headings}>"

    def __str__(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return self.to_html()

    def _repr_markdown_(self) -> str:
        return self.to_markdown()


def calibration_report(sampler: Any) -> CalibrationReport:
    """Report on a calibrated sampler.

    Parameters
    ----------
    sampler : ConformalSampler
        A sampler after ``fit`` or ``calibrate``.

    Returns
    -------
    CalibrationReport
        The report.

    Raises
    ------
    NotFittedError
        If it was not calibrated, or has its calibration from a file and hence no data.
    """
    check_is_fitted(
        sampler,
        "calibration_data_",
        msg="This %(name)s has no calibration data to report on; call fit or calibrate. "
        "A calibration that was loaded from a file has none.",
    )
    data: CalibrationData = sampler.calibration_data_
    outcomes = _outcomes(sampler, data)
    sections = (
        _guarantee(sampler),
        _warnings(sampler, data, outcomes),
        _split(sampler, data),
        _thresholds(sampler),
        _tests(sampler),
        _band(sampler, data),
        _expectations(sampler, data, outcomes),
        _more_prompts(sampler),
    )
    return CalibrationReport(tuple(section for section in sections if section is not None))


def _guarantee(sampler: Any) -> Section:
    if sampler.lambda_hat_ is None:
        text = (
            "None. No configuration could be certified, so predict returns all "
            f"{sampler.k_max_} draws for each prompt, without any guarantee."
        )
        return Section("Guarantee", (text,))
    epsilon, delta = (calibrated_with(sampler, name) for name in ("epsilon", "delta"))
    text = (
        f"With confidence {_percent(1 - delta)} over the calibration prompts, the set for "
        "a new prompt from the same distribution holds an admissible response with probability "
        f"at least {_percent(1 - epsilon)}. This is an average over new prompts, not a "
        "statement about any one of them, and it is about the generator, scores and admission "
        "that were calibrated."
    )
    return Section("Guarantee", (text,))


def _warnings(sampler: Any, data: CalibrationData, outcomes: Outcomes) -> Section | None:
    result = sampler.result_
    epsilon, delta = (calibrated_with(sampler, name) for name in ("epsilon", "delta"))
    low, high = sampler.achievable_epsilon_
    texts = []
    if epsilon >= high:
        texts.append(
            f"epsilon = {epsilon:g} is trivial: the first draw alone errs for {_percent(high)} of "
            "the prompts."
        )
    if epsilon <= low:
        texts.append(
            f"epsilon = {epsilon:g} is out of reach: even all {data.k_max} draws err for "
            f"{_percent(low)} of the prompts. Raise epsilon or k_max, or improve the generator."
        )
    if result is None:
        texts.append(
            f"{data.n_prompts} prompts are too few for any test to succeed at epsilon = "
            f"{epsilon:g} and delta = {delta:g}."
        )
        return Section("Warnings", tuple(texts), warning=True)
    n = result.n_calibration
    if smallest_epsilon(0, n, delta) > epsilon / 2:
        texts.append(
            f"Small n: with {n} calibration prompts, even a rule without a single error is "
            f"certified only for epsilon >= {smallest_epsilon(0, n, delta):.3g}."
        )
    chance = _chance_of_null(int(result.n_errors[0]), n, epsilon, delta)
    if sampler.lambda_hat_ is None:
        texts.append(
            f"Null: the smallest epsilon that these data certify is {result.smallest_epsilon:.3g}."
        )
    elif chance > _NEAR_BY:
        texts.append(
            f"Null is near by: with another {n} calibration prompts of this kind, nothing would "
            f"be certified with probability about {_percent(chance)}."
        )
    exhausted = float(outcomes.exhausted.mean())
    if sampler.lambda_hat_ is not None and exhausted > _OFTEN:
        texts.append(
            f"The budget is exhausted often: for {_percent(exhausted)} of the prompts all "
            f"{sampler.k_max_} draws are made without reaching the set score to stop at."
        )
    return Section("Warnings", tuple(texts), warning=True) if texts else None


def _split(sampler: Any, data: CalibrationData) -> Section:
    rows = [("prompts", str(data.n_prompts))]
    if sampler.result_ is not None:
        rows += [
            ("optimisation part, finds the frontier", str(sampler.result_.n_optimization)),
            ("calibration part, tests it", str(sampler.result_.n_calibration)),
        ]
    rows += [("draws for each prompt", str(data.k_max)), ("seed of the draws", str(sampler.seed_))]
    return Section("Data", table=Table(("what", "number"), tuple(rows)))


def _thresholds(sampler: Any) -> Section | None:
    if sampler.lambda_hat_ is None:
        return None
    l1, l2, l3 = sampler.lambda_hat_
    name = get_set_score(calibrated_with(sampler, "set_score")).name
    rows = (
        ("similarity", f"{l1:.6g}", "reject a draw more similar than this to an accepted one"),
        ("quality", f"{l2:.6g}", "reject a draw of lower quality than this"),
        ("set_score", f"{l3:.6g}", f"stop once the set score {name} is at least this"),
        ("k_max", str(sampler.k_max_), "stop after this many draws in any case"),
    )
    return Section("Thresholds (lambda-hat)", table=Table(("threshold", "value", "use"), rows))


def _tests(sampler: Any) -> Section | None:
    result = sampler.result_
    if result is None:
        return None
    m, n_valid = len(result.frontier), len(result.valid_lambdas)
    chosen = chosen_position(result)
    text = (
        f"The Pareto frontier has {m} configurations. They were tested from the safest on, each "
        f"at level delta = {result.delta:g}, until one failed: "
    )
    if chosen is None:
        text += "the very first."
    else:
        text += f"{'all' if n_valid == m else n_valid} passed. "
        text += "lambda-hat is the one of lowest objective (Eq. 7) among them."
    # a few from the whole sequence, and what decided
    steps = np.linspace(0, m - 1, min(m, 7)).round().astype(int).tolist()
    shown = sorted({*steps, min(n_valid, m - 1), *([] if chosen is None else [chosen])})
    weights = (calibrated_with(sampler, name) for name in ("size_weight", "excess_weight"))
    objective = result.risks.objective(*weights)
    rows = []
    for i in shown:
        role = "not tested" if i > n_valid else "failed" if i == n_valid else "valid"
        rows.append(
            (
                str(i + 1),
                ", ".join(f"{value:.4g}" for value in result.frontier.lambdas[i]),
                f"{result.n_errors[i]} of {result.n_calibration}",
                f"{objective[i]:.4g}",
                f"{result.p_values[i]:.3g}",
                "lambda-hat" if i == chosen else role,
            )
        )
    header = ("test", "similarity, quality, set score", "errors", "objective", "p-value", "")
    return Section("Frontier and tests", (text,), Table(header, tuple(rows)))


def _band(sampler: Any, data: CalibrationData) -> Section:
    n = data.n_prompts
    found = data.admissible.any(axis=1)
    errors = (
        ("always one draw", n - int(data.admissible[:, 0].sum())),
        (f"always {data.k_max} draws", n - int(found.sum())),
    )
    rows = tuple((what, f"{count / n:.4f}", _exact_interval(count, n)) for what, count in errors)
    text = (
        "Above the first number, epsilon is trivial; below the second, it is out of reach for "
        "this generator and budget (Appendix C)."
    )
    header = ("policy", "error", f"{_percent(_CONFIDENCE)} interval")
    return Section("Achievable band of epsilon", (text,), Table(header, rows))


def _expectations(sampler: Any, data: CalibrationData, outcomes: Outcomes) -> Section:
    n = len(outcomes.error)
    errors = int(outcomes.error.sum())
    rows = [("error", f"{errors / n:.4f}", _exact_interval(errors, n))]
    for name in ("size", "draws", "excess"):
        values = np.asarray(getattr(outcomes, name), dtype=np.float64)
        half = float(ndtri(0.5 + _CONFIDENCE / 2) * values.std() / math.sqrt(n))
        low, high = values.mean() - half, values.mean() + half
        rows.append((name, f"{values.mean():.4g}", _interval(low, high)))
    shown = f"the {n}" if n == data.n_prompts else f"{n} of the {data.n_prompts}"
    text = f"Means over {shown} prompts that calibrated. "
    if sampler.lambda_hat_ is not None:
        text += "The thresholds were chosen on them, so new prompts will do a little worse. "
    text += (
        "Size counts the responses in a set; draws, those made for it; excess is the share of "
        "them after the first admissible one."
    )
    header = ("what", "mean", f"{_percent(_CONFIDENCE)} interval")
    return Section("What to expect of predict", (text,), Table(header, tuple(rows)))


def _more_prompts(sampler: Any) -> Section | None:
    result = sampler.result_
    if result is None:
        return None
    n, rate = result.n_calibration, float(result.n_errors[0]) / result.n_calibration
    rows = [
        (
            f"{growth} x",
            str(growth * n),
            f"{smallest_epsilon(int(growth * result.n_errors[0]), growth * n, result.delta):.4f}",
        )
        for growth in _GROWTH
    ]
    rows.append(("without end", "", f"{rate:.4f}"))
    text = (
        "The smallest epsilon that can be certified, if the safest configuration keeps its share "
        f"of errors, {rate:.4f}, on a larger calibration part."
    )
    header = ("calibration part", "prompts", "smallest epsilon")
    return Section("What more prompts would gain", (text,), Table(header, tuple(rows)))


def _outcomes(sampler: Any, data: CalibrationData) -> Outcomes:
    """lambda-hat, or the trivial set of all draws, on the first prompts of the data."""
    n = min(data.n_prompts, _MAX_PROMPTS)
    score, k_max = get_set_score(calibrated_with(sampler, "set_score")), sampler.k_max_
    # no rejection and no stop: all draws
    everything = Configuration(math.inf, -math.inf, math.inf)
    configuration = everything if sampler.lambda_hat_ is None else sampler.lambda_hat_
    error, exhausted = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
    size, draws = np.zeros(n), np.zeros(n)
    for i in range(n):
        rule = SamplingRule(configuration, score, k_max, width=data.k_max)
        quality, similarity = data.quality[i].tolist(), np.asarray(data.similarity[i]).tolist()
        while not rule.done:
            rule.update(quality[rule.n_samples], similarity[rule.n_samples])
        error[i] = not data.admissible[i, rule.accepted].any()
        exhausted[i] = not rule.stopped
        size[i], draws[i] = len(rule.accepted), rule.n_samples
    admissible = data.admissible[:n, :k_max]
    first = np.where(admissible.any(axis=1), admissible.argmax(axis=1) + 1, 0)
    excess = relative_excess(draws, first)
    return Outcomes(error, size, draws, excess, exhausted)


def _chance_of_null(n_errors: int, n: int, epsilon: float, delta: float) -> float:
    """Probability that the safest configuration fails on other prompts with its share of errors."""
    critical = critical_count(n, epsilon, delta)
    if critical < 0:
        return 1.0
    if n_errors in (0, n):
        return float(n_errors > critical)
    return 1.0 - float(binomial_p_value(critical, n, n_errors / n))


def _exact_interval(count: int, n: int) -> str:
    low, high = clopper_pearson(count, n, _CONFIDENCE)
    return _interval(float(low), float(high))


def _interval(low: float, high: float) -> str:
    return f"{low:.4g} to {high:.4g}"


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g} %"
