"""What a guarantee costs: draws, judgements and set sizes of several methods on the same arrays.

The draws of the question answering and summarisation examples are made once and kept beside the
examples; ``--quick`` takes simulated questions alone. Methods of others are written anew for this
comparison, see ``_field.py``.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from sklearn.linear_model import LogisticRegression

from sklearn_clm.calibration import (
    CalibrationData,
    Configuration,
    LabelTable,
    critical_count,
    evaluate_configurations,
    exit_level,
    impute_labels,
    judge_in_falling_order,
    learn_then_test,
    learn_then_test_lazily,
    search_frontier,
)
from sklearn_clm.policies import ExitPolicy

from . import Row
from ._field import Deployed, fixed_budget, scope_gen

__all__ = ["compare", "rows"]

DELTA = 0.05
_NOTHING = Deployed(np.nan, np.nan, np.nan, np.nan, np.nan, True)


def rows(quick: bool = False) -> Iterator[Row]:
    """Draws of new prompts and judge calls of calibration prompts, beside the paper's MAX."""
    n_splits = 6 if quick else 100
    for name, data, epsilon in data_sets(quick):
        for n in (300,) if quick else (300, 1000):
            table = compare(data, epsilon, n, n_splits)
            print(as_text(f"{name}, n = {n}, epsilon = {epsilon:g}", table), file=sys.stderr)
            usual = table["MAX"]
            for method in ("exit policy", "exit policy, marginal"):
                ours = table[method]
                yield Row(
                    f"draws per new prompt, {name}, n = {n}, epsilon = {epsilon:g}",
                    f"MAX {usual.draws:.3g} (size {usual.size:.3g})",
                    f"{method} {ours.draws:.3g} (size {ours.size:.3g})",
                    ours.draws / usual.draws,
                )
            for method in ("MAX, lazy", "exit policy"):
                ours = table[method]
                yield Row(
                    f"judge calls per prompt, {name}, n = {n}, epsilon = {epsilon:g}",
                    f"all draws {data.k_max}",
                    f"{method} {ours.judgements:.3g}",
                    ours.judgements / data.k_max,
                )


def data_sets(quick: bool) -> Iterator[tuple[str, CalibrationData, float]]:
    """Names, draws, and a risk in the middle of what can be reached."""
    yield "simulated questions", questions(2000 if quick else 4000, np.random.default_rng(0)), 0.35
    if quick:
        return
    folder = Path(__file__).resolve().parents[2] / "examples"
    sys.path.insert(0, str(folder))
    for script in ("open_domain_qa", "summarization"):
        example = importlib.import_module(script)
        args = example.parse([])
        found = example.load_data(args)
        if script == "open_domain_qa":
            header, prompts, references = found
            sampler = example.build_sampler(args, header)
        else:
            prompts, references = found[1]
            sampler = example.build_sampler(args)
        data = sampler.collect(prompts, references)
        low = 1.0 - data.admissible.any(axis=1).mean()
        high = 1.0 - data.admissible[:, 0].mean()
        yield script, data, round(float(low + 0.4 * (high - low)), 2)


def questions(n: int, rng: np.random.Generator, k: int = 20, n_answers: int = 25):
    """Questions whose frequent answers tend to be right; some are hopeless."""
    hard = rng.random((n, 1)) < 0.35
    logits = rng.normal(0, 1, (n, n_answers)) * np.where(hard, 1.2, 3.2)
    share = np.exp(logits - logits.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    answers = (rng.random((n, k, 1)) > np.cumsum(share, axis=1)[:, np.newaxis]).sum(axis=2)
    answers = np.minimum(answers, n_answers - 1)
    right = (rng.random((n, 1)) > np.cumsum(share, axis=1)).sum(axis=1)
    admissible = (answers == right[:, np.newaxis]) & (rng.random((n, 1)) > 0.05)
    same = answers[:, :, np.newaxis] == answers[:, np.newaxis, :]
    place = np.take_along_axis(rng.random((n, n_answers)), answers, axis=1)
    distance = np.abs(place[:, :, np.newaxis] - place[:, np.newaxis, :])
    return CalibrationData(
        np.take_along_axis(share, answers, axis=1),
        np.where(same, 1.0, 0.5 * (1.0 - distance)),
        admissible,
        texts=same.argmax(axis=2),
    )


def compare(
    data: CalibrationData, epsilon: float, n: int, n_splits: int, n_jobs: int = 2
) -> dict[str, Deployed]:
    """Means of every method over random splits into calibration and test prompts."""
    done = Parallel(n_jobs=n_jobs)(
        delayed(_one_split)(data, epsilon, n, seed) for seed in range(n_splits)
    )
    return {
        method: Deployed(*np.nanmean([split[method] for split in done], axis=0))
        for method in done[0]
    }


def as_text(title: str, table: dict[str, Deployed]) -> str:
    """A table of methods."""
    head = f"{'':24}{'loss':>8}{'size':>8}{'draws':>8}{'judged':>8}{'drawn':>8}{'null':>7}"
    lines = [
        f"{method:24}{one.loss:8.3f}{one.size:8.2f}{one.draws:8.2f}{one.judgements:8.2f}"
        f"{one.calibration_draws:8.2f}{one.null:7.2f}"
        for method, one in table.items()
    ]
    return "\n".join([title, head, *lines])


def _one_split(data: CalibrationData, epsilon: float, n: int, seed: int) -> dict[str, Deployed]:
    rng = np.random.default_rng(seed)
    order = rng.permutation(data.n_prompts)
    part, test = data.take(order[:n]), data.take(order[n:])
    found = {
        name: _thresholds(part, test, epsilon, seed, set_score)
        for name, set_score in (
            ("FIRST-K", "first_k"),
            ("FIRST-K+REJECT", "first_k_reject"),
            ("MAX", "max"),
            ("SUM", "sum"),
        )
    }
    found["MAX, lazy"] = _lazy(part, test, epsilon, rng)
    found["exit policy"] = _exit(part, test, epsilon, rng, critical_count)
    found["exit policy, marginal"] = _exit(
        part, test, epsilon, rng, lambda n, epsilon, delta: int((n + 1) * epsilon) - 1
    )
    found["SCOPE-Gen (marginal)"] = scope_gen(part, test, epsilon, rng)
    found["fixed budget (SAFER)"] = fixed_budget(part, test, epsilon, DELTA)
    return found


def _thresholds(
    part: CalibrationData, test: CalibrationData, epsilon: float, seed: int, set_score: str
) -> Deployed:
    result = learn_then_test(part, epsilon, DELTA, set_score=set_score, random_state=seed)
    return _deployed(result.lambda_hat, test, set_score, part.k_max, part.k_max)


def _deployed(
    configuration: Configuration | None,
    test: CalibrationData,
    set_score: str,
    judged: float,
    drawn: float,
) -> Deployed:
    if configuration is None:
        return _NOTHING._replace(judgements=judged, calibration_draws=drawn)
    risks = evaluate_configurations(test, np.array([configuration]), set_score=set_score)
    means = (float(values[0]) for values in (risks.loss, risks.size, risks.samples))
    return Deployed(*means, judged, drawn, False)


def _split(part: CalibrationData, rng: np.random.Generator):
    order = rng.permutation(part.n_prompts)
    third = round(part.n_prompts / 3)
    return part.take(np.sort(order[:third])), part.take(np.sort(order[third:]))


def _lazy(
    part: CalibrationData, test: CalibrationData, epsilon: float, rng: np.random.Generator
) -> Deployed:
    """Three judgements for each optimisation prompt, and what the tests need of the others."""
    optimization, calibration = _split(part, rng)
    known, n_known = _some_labels(optimization, rng)
    labels = impute_labels(optimization, optimization.first, known, LogisticRegression)
    frontier = search_frontier(optimization.with_labels(labels))
    table = _table(calibration)
    result = learn_then_test_lazily(calibration, frontier, epsilon, DELTA, table)
    judged = (n_known + table.n_judgements) / part.n_prompts
    return _deployed(result.lambda_hat, test, "max", judged, part.k_max)


def _exit(
    part: CalibrationData,
    test: CalibrationData,
    epsilon: float,
    rng: np.random.Generator,
    count: Callable[[int, float, float], int],
) -> Deployed:
    optimization, calibration = _split(part, rng)
    known, n_known = _some_labels(optimization, rng)
    policy = ExitPolicy().fit(optimization, optimization.first, labels=known, epsilon=epsilon)
    allowed = int(count(calibration.n_prompts, epsilon, DELTA))
    tau, exits = policy.model_.scores(
        calibration.quality, calibration.similarity, calibration.first
    )
    table = _table(calibration)
    level = exit_level(judge_in_falling_order(tau, allowed, table), allowed)
    judged = (n_known + table.n_judgements) / part.n_prompts
    used = np.minimum(1 + np.sum(exits[:, :-1] >= level, axis=1), part.k_max)
    drawn = (used.sum() + optimization.admissible.size) / part.n_prompts
    if level == -np.inf:
        return _NOTHING._replace(judgements=judged, calibration_draws=drawn)
    tau, exits = policy.model_.scores(test.quality, test.similarity, test.first)
    members = tau >= level
    return Deployed(
        float(np.mean(~np.any(members & test.admissible, axis=1))),
        float(members.sum(axis=1).mean()),
        float(1 + np.sum(exits[:, :-1] >= level, axis=1).mean()),
        judged,
        drawn,
        False,
    )


def _some_labels(
    data: CalibrationData, rng: np.random.Generator, n_texts: int = 3
) -> tuple[np.ndarray, int]:
    """Labels of three texts of each prompt at most, and how many texts that are."""
    known = np.full(data.admissible.shape, -1, dtype=np.int8)
    n_judged = 0
    for i, texts in enumerate(data.first):
        distinct = np.unique(texts)
        chosen = rng.choice(distinct, min(n_texts, len(distinct)), replace=False)
        seen = np.isin(texts, chosen)
        known[i, seen] = data.admissible[i, seen]
        n_judged += len(chosen)
    return known, n_judged


def _table(data: CalibrationData) -> LabelTable:
    return LabelTable(data.first, lambda prompts, draws: data.admissible[prompts, draws])
