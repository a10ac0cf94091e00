"""What a guarantee costs: draws, judgements and set sizes of several methods on the same arrays.

Prompts are drawn with replacement from those of a task, so that the risk of what was calibrated is
its plain average over all of them. The draws of the three example tasks are made once with the
checkpoints beside the examples, and kept in a folder there; ``--short`` takes simulated questions
alone. The simulated worlds of ``tests/validity`` are tasks, too. Methods of others are written anew
for this comparison, see ``_field.py``.

    python -m tests.benchmarks.efficiency [--samples 100] [--task NAME] [--size N] [--page FILE]

measures the tables alone. Samples are kept beside the draws, so that it can be run in pieces, and
a last run of all tasks with ``--page tests/benchmarks/README.md`` writes them to that page.
"""

import argparse
import datetime as dt
import functools
import importlib
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np
from joblib import Memory, Parallel, delayed
from scipy.special import betaincinv
from sklearn.linear_model import LogisticRegression

from sklearn_clm.calibration import (
    CalibrationData,
    Configuration,
    clopper_pearson,
    critical_count,
    learn_then_test,
    search_frontier,
)
from sklearn_clm.calibration._learn_then_test import certify_frontier
from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration.certify import nth_largest_by_asking
from sklearn_clm.calibration.exit_model import _RHOS as BALANCES
from sklearn_clm.calibration.exit_model import ExitModel, exit_scores, impute_labels
from sklearn_clm.calibration.exit_policy import ExitEntries
from sklearn_clm.calibration.risk import MISSES
from sklearn_clm.calibration.set_scores import get_set_score
from sklearn_clm.calibration.surface import evaluate_configurations
from sklearn_clm.calibration.tests import BinomialTest
from sklearn_clm.calibration.thresholds import ThresholdPath
from sklearn_clm.policies import ExitPolicy, LazyJudging, ThresholdPolicy
from sklearn_clm.policies._classifiers import degree_two
from tests.calibration.tables import lazy_table

sys.path.append(str(Path(__file__).resolve().parents[1]))

from validity.worlds import make_world

from . import Row
from ._field import Deployed, fixed_budget, oracle, scope_gen

__all__ = ["as_markdown", "compare", "rows"]

DELTA = 0.05
#: Where epsilon lies between the risk of all draws and that of the first one.
LEVELS = {"near the floor": 0.25, "away from it": 0.6}
TASKS = {"open_domain_qa": 1500, "summarization": 1200, "report_generation": 800}
#: Simulated worlds where more draws help, so that epsilon can lie between one draw and all.
WORLDS = (
    *("mixed", "useless_quality", "adversarial_quality", "admissible_look_duplicate"),
    *("heavy_ties", "infinite_scores", "rival_draws"),
)
#: Share of hard prompts, and how sharp the answers to the others and to these are.
ANSWERS = {
    "simulated questions": (0.35, 3.2, 1.2),
    "mixed answers": (0.6, 3.0, 1.0),
    "mathematics": (0.1, 6.5, 1.6),
}
SIMULATED = (*ANSWERS, "free text")
#: What a draw costs where a response shown costs 1.
DRAW_PRICE = 0.1
_N_PLACES = 20  # of the distribution of a level's risk
METHODS = {"FIRST-K": "first_k", "FIRST-K+REJECT": "first_k_reject", "MAX": "max", "SUM": "sum"}
_OUTPUT = Path(__file__).resolve().parents[2] / "examples" / "output"
_FEW = "exit policy, few labels"
_NOTHING = Deployed(np.nan, np.nan, np.nan, np.nan, np.nan, True)
_SCOPE_GEN = {
    "SCOPE-Gen, marginal": ("diversity", "quality"),
    "SCOPE-Gen, two parts, marginal": ("quality",),
}
_BOUNDS = (
    "floor of these scores",
    "attainable, four fifths calibrate",
    "attainable, all calibrate",
    "oracle, labels known",
)

Methods = dict[str, list[Deployed]]
Exits = list[tuple[np.ndarray, np.ndarray]]
SIZES = (300, 1500)
_MARKS = "<!-- efficiency -->", "<!-- end of efficiency -->"


def rows(quick: bool = False) -> Iterator[Row]:
    """Draws of new prompts and judge calls of calibration prompts, beside the paper's MAX."""
    sizes, n_samples = (SIZES[:1], 6) if quick else (SIZES, 100)
    for title, data, epsilon, table in tables(data_sets(quick), sizes, n_samples, keep=not quick):
        print(as_markdown(title, table, epsilon), file=sys.stderr, flush=True)
        usual = _means(table["MAX"])
        for method in ("exit policy", "exit policy, marginal"):
            ours = _means(table[method])
            yield Row(
                f"draws per new prompt, {title}",
                f"MAX {usual.draws:.3g} (size {usual.size:.3g})",
                f"{method} {ours.draws:.3g} (size {ours.size:.3g})",
                ours.draws / usual.draws,
            )
        for method in ("MAX, lazy", "MAX, lazy, last", _FEW):
            ours = _means(table[method])
            yield Row(
                f"judge calls per calibration prompt, {title}",
                f"all draws {data.k_max}",
                f"{method} {ours.judgements:.3g}",
                ours.judgements / data.k_max,
            )


def tables(
    data_sets: Iterable[tuple[str, CalibrationData]],
    sizes: Iterable[int],
    n_samples: int,
    n_jobs: int = 2,
    keep: bool = True,
) -> Iterator[tuple[str, CalibrationData, float, Methods]]:
    """The title, data, epsilon and methods of each table."""
    for name, data in data_sets:
        epsilons = levels(data)
        for n in sizes:
            found = compare(data, epsilons, n, n_samples, n_jobs, keep)
            for place, epsilon, table in zip(LEVELS, epsilons, found):
                yield f"{name}, n = {n}, epsilon = {epsilon:g} ({place})", data, epsilon, table


def main(arguments: list[str] | None = None) -> None:
    """Measure tables, print them, and write them to a page where one is given."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.efficiency")
    parser.add_argument("--samples", type=int, default=100, help="of each task and size")
    tasks = [*SIMULATED, *WORLDS, *TASKS]
    parser.add_argument("--task", action="append", choices=tasks)
    parser.add_argument("--size", action="append", type=int, choices=SIZES)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--page", type=Path, help="write the tables there")
    options = parser.parse_args(arguments)
    lines, pages = [], []
    data, sizes = data_sets(False, options.task or tasks), options.size or SIZES
    for title, _, epsilon, table in tables(data, sizes, options.samples, options.jobs):
        lines.append(as_line(title, table))
        detailed = as_markdown(title, table, epsilon)
        print(detailed, flush=True)
        if not title.startswith(tuple(f"{world}," for world in WORLDS)):
            pages.append(detailed)
    summary = "\n".join([*_SUMMARY, *lines])
    print(summary)
    if options.page is not None:
        before, _, rest = options.page.read_text("utf-8").partition(_MARKS[0])
        after = rest.partition(_MARKS[1])[2]
        body = "\n\n".join([f"Written {dt.date.today():%d %B %Y}.", summary, "\n".join(pages)])
        options.page.write_text(f"{before}{_MARKS[0]}\n\n{body}\n{_MARKS[1]}{after}", "utf-8")


def levels(data: CalibrationData) -> list[float]:
    """One epsilon near the risk of all draws, and one away from it."""
    low, high = 1.0 - data.admissible.any(axis=1).mean(), 1.0 - data.admissible[:, 0].mean()
    return [round(float(low + share * (high - low)), 2) for share in LEVELS.values()]


def data_sets(
    quick: bool, names: Collection[str] = (*SIMULATED, *WORLDS, *TASKS)
) -> Iterator[tuple[str, CalibrationData]]:
    """Names and draws."""
    for name in ("simulated questions",) if quick else SIMULATED:
        if name in names:
            make = free_text if name == "free text" else functools.partial(questions, kind=name)
            yield name, make(2000 if quick else 4000, np.random.default_rng(0))
    if quick:
        return
    for world in WORLDS:
        if world in names:
            yield world, make_world(world).population
    sys.path.insert(0, str(_OUTPUT.parent))
    for script, n_prompts in TASKS.items():
        if script not in names:
            continue
        kept = _OUTPUT / f"efficiency_{script}.npz"
        if not kept.exists():
            kept.parent.mkdir(exist_ok=True)
            _drawn(script, n_prompts).save(kept)
        yield script, CalibrationData.load(kept)


def _drawn(script: str, n_prompts: int) -> CalibrationData:
    """Draws of an example task by its own generator."""
    example = importlib.import_module(script)
    if script == "report_generation":
        args = example.parse(["--images", str(n_prompts)])
        task = example.load_task(args)
        return example.build_sampler(task, args).collect(task.images, task.reports)
    args = example.parse([])
    found = example.load_data(args)
    if script == "open_domain_qa":
        header, prompts, references = found
        sampler = example.build_sampler(args, header)
    else:
        prompts, references = found[1]
        sampler = example.build_sampler(args)
    return sampler.collect(prompts[:n_prompts], references[:n_prompts])


def questions(n: int, rng: np.random.Generator, kind: str, k: int = 20, n_answers: int = 25):
    """Questions whose frequent answers tend to be right; some are hopeless."""
    share_hard, sharp, sharp_if_hard = ANSWERS[kind]
    hard = rng.random((n, 1)) < share_hard
    logits = rng.normal(0, 1, (n, n_answers)) * np.where(hard, sharp_if_hard, sharp)
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


def free_text(n: int, rng: np.random.Generator, k: int = 20):
    """No text repeats, one in five nearly; right texts lie around one place, others elsewhere."""
    hard = rng.random(n) < 0.22
    rate = np.where(hard, rng.beta(1, 6, n), rng.beta(5, 1.6, n))
    admissible = rng.random((n, k)) < rate[:, np.newaxis]
    places, meant = rng.normal(size=(n, 7, 8)), rng.integers(1, 7, (n, k))
    places = np.take_along_axis(places, np.where(admissible, 0, meant)[..., np.newaxis], axis=1)
    places += 0.6 * rng.normal(size=places.shape)
    for j in range(1, k):
        copies = np.flatnonzero(rng.random(n) < 0.2)
        of = rng.integers(0, j, len(copies))
        admissible[copies, j] = admissible[copies, of]
        places[copies, j] = places[copies, of] + 0.05 * rng.normal(size=(len(copies), 8))
    distance = np.linalg.norm(places[:, :, np.newaxis] - places[:, np.newaxis], axis=-1)
    of_prompt = rng.normal(0, 0.5, (n, 1))
    quality = rng.normal(np.where(admissible, 0.25, -0.25) + of_prompt, 1.0)
    texts = np.tile(np.arange(k), (n, 1))
    return CalibrationData(quality, np.exp(-distance / 3), admissible, texts=texts)


def compare(
    data: CalibrationData,
    epsilons: list[float],
    n: int,
    n_samples: int,
    n_jobs: int = 2,
    keep: bool = True,
) -> list[Methods]:
    """For each epsilon every method on random samples of n prompts, evaluated on all prompts.

    Samples that were kept are not computed again.
    """
    memory = Memory(_OUTPUT / "efficiency_samples" if keep else None, verbose=0)
    sample = memory.cache(_one_sample)
    done = Parallel(n_jobs=n_jobs)(
        delayed(sample)(data, epsilons, n, seed) for seed in range(n_samples)
    )
    bounds = [
        [*memory.cache(_bounds)(data, epsilon, n), oracle(data, epsilon)] for epsilon in epsilons
    ]
    return [
        {method: [found[e][method] for found in done] for method in done[0][e]}
        | {name: [bound] for name, bound in zip(_BOUNDS, bounds[e])}
        for e in range(len(epsilons))
    ]


def _bounds(data: CalibrationData, epsilon: float, n: int) -> list[Deployed]:
    """The floor, and what is attainable where the exact test finds the level.

    Each is learnt on one half of all prompts and measured on the other half, for the cheapest of
    two classifiers and of all balances of showing and drawing. At the floor the loss is epsilon.
    That of the level which N prompts find, of whatever continuous scores, is Beta(c + 1, N - c).
    """
    places = (np.arange(_N_PLACES) + 0.5) / _N_PLACES
    losses = [np.array([epsilon])]
    for n_calibration in (n - round(ExitPolicy().searched_share(n) * n), n):
        count = int(critical_count(n_calibration, epsilon, DELTA))
        losses.append(betaincinv(count + 1, n_calibration - count, places))
    squares = degree_two()
    half = np.random.default_rng(0).permutation(data.n_prompts) < data.n_prompts // 2
    found: list[list[np.ndarray]] = [[], [], []]
    for members in (half, ~half):
        train, rest = data.take(np.flatnonzero(members)), data.take(np.flatnonzero(~members))
        models = [ExitPolicy(estimator).fit(train).model_ for estimator in (None, squares)]
        exits = [one for model in models for one in _exits(model, rest)]
        for bound, risks in zip(found, losses):
            # of every risk, loss, size and draws of each choice
            choices = np.mean([_choices(exits, rest, risk) for risk in risks], axis=0)
            bound.append(min(choices, key=lambda one: one[1] + DRAW_PRICE * one[2]))
    means = np.mean(found, axis=1)
    return [Deployed(*map(float, mean), np.nan, np.nan, False) for mean in means]


def _choices(exits: Exits, data: CalibrationData, loss: float) -> list[tuple[float, float, float]]:
    """Loss, size and draws of each balance of showing and drawing, at the level of a loss."""
    found = []
    for tau, scores in exits:
        best = np.sort(np.where(data.admissible, tau, -np.inf).max(axis=1))
        level = best[min(int(loss * len(best) + 1e-9), len(best) - 1)]
        found.append(_measured(tau, scores, data, level))
    return found


def _measured(
    tau: np.ndarray, exits: np.ndarray, data: CalibrationData, level: float
) -> tuple[float, float, float]:
    """Loss, size and draws at a level."""
    members = (tau >= level) & (tau > -np.inf)
    missed = np.mean(~np.any(members & data.admissible, axis=1))
    draws = 1 + np.sum(exits[:, :-1] >= level, axis=1).mean()
    return float(missed), float(members.sum(axis=1).mean()), float(draws)


def _exits(model: ExitModel, data: CalibrationData) -> Exits:
    """tau and m of all texts, for each balance of showing and drawing."""
    n, k_max = data.quality.shape
    paths, rows = model.paths(n), np.arange(n)
    text, arrival = np.zeros((n, k_max, k_max)), np.zeros((n, k_max))
    for k in range(k_max):
        paths.update(rows, data.quality[:, k], data.similarity[:, k], data.first[:, k])
        text[:, k], arrival[:, k] = model.probabilities(paths, rows)
    return [exit_scores(text, arrival, rho) for rho in BALANCES]


def _means(deployed: list[Deployed]) -> Deployed:
    return Deployed(*_mean_and_error(deployed)[0])


def _mean_and_error(deployed: list[Deployed]) -> tuple[np.ndarray, np.ndarray]:
    """Means over the samples that were not null, and half widths of their 95 % intervals."""
    values = np.ma.masked_invalid(np.array(deployed, dtype=np.float64))
    spread = values.std(axis=0) / np.sqrt(np.maximum(values.count(axis=0) - 1, 1))
    return values.mean(axis=0).filled(np.nan), 1.96 * spread.filled(np.nan)


_SUMMARY = (
    "| task | samples | draws, exit / MAX | size, exit / MAX | judged, MAX lazy | judged, exit "
    "| null: MAX, exit | exit alone |",
    "|---|---|---|---|---|---|---|---|",
)


def as_line(title: str, table: Methods) -> str:
    """The exit policy beside the paper's MAX, and judge calls for each calibration prompt.

    Means of draws and sizes are over the samples where neither of them is null.
    """
    usual, ours = (np.array(table[name], dtype=np.float64) for name in ("MAX", "exit policy"))
    null, ours_null = usual[:, 5] > 0, ours[:, 5] > 0
    both = ~(null | ours_null)
    size, draws = (
        f"{ours[both, column].mean() / usual[both, column].mean():.2f}" if both.any() else ""
        for column in (1, 2)
    )
    judged = [f"{_means(table[name]).judgements:.2f}" for name in ("MAX, lazy", _FEW)]
    nulls = [f"{null.mean():.2f}, {ours_null.mean():.2f}", f"{np.mean(ours_null & ~null):.2f}"]
    return f"| {' | '.join([title, str(len(both)), draws, size, *judged, *nulls])} |"


def as_markdown(title: str, table: Methods, epsilon: float) -> str:
    """A table of methods."""
    floor, *_, known = (_price(_means(table[name])) for name in _BOUNDS)
    lines = [
        f"**{title}**, {len(next(iter(table.values())))} samples",
        "",
        "| method | loss | over epsilon | size | draws | J | J / floor | J / oracle "
        "| size / exit alike | judged | drawn | null |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for method, deployed in table.items():
        mean, error = _mean_and_error(deployed)
        measured = [
            "" if np.isnan(m) else f"{m:.3g} \u00b1 {e:.1g}" for m, e in zip(mean[:5], error[:5])
        ]
        n_over, n_null = sum(one.loss > epsilon for one in deployed), sum(d.null for d in deployed)
        low, high = clopper_pearson(n_over, len(deployed))
        over = f"{n_over / len(deployed):.2f} ({float(low):.2f} to {float(high):.2f})"
        null, price = f"{n_null / len(deployed):.2f}", _price(Deployed(*mean))
        if method in _BOUNDS:
            measured, over, null = [f"{m:.3g}" for m in mean[:3]] + ["", ""], "", ""
        prices = [
            "" if np.isnan(price) else f"{one:.2f}" for one in (price, price / floor, price / known)
        ]
        cells = [method, measured[0], over, *measured[1:3], *prices, _alike(deployed)]
        lines.append(f"| {' | '.join([*cells, *measured[3:], null])} |")
    return "\n".join([*lines, ""])


def _price(method: Deployed) -> float:
    return method.size + DRAW_PRICE * method.draws


def _alike(deployed: list[Deployed]) -> str:
    """A method's size over that of the exit policy at its loss and draws, where there is one."""
    both = [one for one in deployed if one.exit_size > 0]
    if not both:
        return ""
    ratio = sum(one.size for one in both) / sum(one.exit_size for one in both)
    return f"{ratio:.2f} ({len(both)})"


def _one_sample(
    data: CalibrationData, epsilons: list[float], n: int, seed: int
) -> list[dict[str, Deployed]]:
    rng = np.random.default_rng(seed)
    part = data.take(rng.integers(data.n_prompts, size=n))
    found: list[dict[str, Deployed]] = [{} for _ in epsilons]
    for name, set_score in METHODS.items():
        for e, one in enumerate(_thresholds(part, data, epsilons, seed, set_score)):
            found[e][name] = one
    order = rng.permutation(n)
    optimization, calibration = _split(part, order, ThresholdPolicy().searched_share(n))
    known, n_known = _some_labels(optimization, rng)
    labels = impute_labels(optimization, optimization.first, known, LogisticRegression)
    frontier = search_frontier(optimization.with_labels(labels))
    for epsilon, methods in zip(epsilons, found):
        methods["MAX, lazy"] = _lazy(calibration, frontier, data, epsilon, n_known, "objective")
        methods["MAX, lazy, last"] = _lazy(calibration, frontier, data, epsilon, n_known, "last")
    optimization, calibration = _split(part, order, ExitPolicy().searched_share(n))
    known, n_known = _some_labels(optimization, rng)
    for epsilon, methods in zip(epsilons, found):
        counts = {
            "exit policy": int(critical_count(calibration.n_prompts, epsilon, DELTA)),
            "exit policy, marginal": int((calibration.n_prompts + 1) * epsilon) - 1,
        }
        n_texts = int(np.sum(optimization.first == np.arange(data.k_max)))
        for few, texts in ((", few labels", n_known), ("", n_texts)):
            seen = optimization.with_labels(known) if few else optimization
            policy = ExitPolicy().fit(seen, epsilon=epsilon)
            exits = _exits(policy.model_, data)
            new = exits[int(np.argmin(np.abs(BALANCES - policy.model_.rho)))]
            for name, allowed in counts.items():
                methods[name + few] = _exit(
                    policy.model_, allowed, calibration, optimization.n_prompts, texts, new, data
                )
        for name, filters in _SCOPE_GEN.items():
            methods[name] = scope_gen(part, data, epsilon, rng, filters)
        methods["fixed budget (SAFER)"] = fixed_budget(part, data, epsilon, DELTA)
        for name, one in methods.items():
            if not one.null:
                methods[name] = one._replace(exit_size=_size_like(one, exits, data))
    return found


def _thresholds(
    part: CalibrationData, new: CalibrationData, epsilons: list[float], seed: int, set_score: str
) -> Iterator[Deployed]:
    """The frontier does not depend on epsilon: one search for all."""
    result = learn_then_test(part, max(epsilons), DELTA, set_score=set_score, random_state=seed)
    objective, most = result.risks.objective(), np.maximum.accumulate(result.n_errors)
    for epsilon in epsilons:
        n_certified = int(np.sum(most <= critical_count(result.n_calibration, epsilon, DELTA)))
        chosen = None
        if n_certified:
            chosen = Configuration(*result.frontier.lambdas[objective[:n_certified].argmin()])
        yield _deployed(chosen, new, set_score, part.k_max, part.k_max)


def _deployed(
    configuration: Configuration | None,
    new: CalibrationData,
    set_score: str,
    judged: float,
    drawn: float,
) -> Deployed:
    if configuration is None:
        return _NOTHING._replace(judgements=judged, calibration_draws=drawn)
    risks = evaluate_configurations(new, np.array([configuration]), set_score=set_score)
    means = (float(values[0]) for values in (risks.loss, risks.size, risks.samples))
    return Deployed(*means, judged, drawn, False)


def _split(part: CalibrationData, order: np.ndarray, fraction: float):
    n = round(fraction * part.n_prompts)
    return part.take(np.sort(order[:n])), part.take(np.sort(order[n:]))


def _lazy(
    calibration: CalibrationData,
    frontier: Frontier,
    new: CalibrationData,
    epsilon: float,
    n_known: int,
    select: str,
) -> Deployed:
    """A few judgements of each optimisation prompt, and what the tests need of the others."""
    table = lazy_table(calibration, draws=False)
    columns = ThresholdPath(table, np.arange(len(table.n_draws)), frontier, get_set_score("max"))
    test, nobody = BinomialTest(columns, MISSES, epsilon, DELTA), np.arange(0)
    weights = {"size_weight": 0.5, "excess_weight": 0.5, "draw_weight": 0.0}
    result = certify_frontier(test, searched=nobody, weights=weights, select=select)
    n = 1.5 * calibration.n_prompts
    judged = (n_known + table.n_judgements) / n
    drawn = (table.n_draws.sum() + n / 3 * new.k_max) / n
    return _deployed(result.lambda_hat, new, "max", judged, drawn)


def _exit(
    model: ExitModel,
    allowed: int,
    calibration: CalibrationData,
    n_seen: int,
    n_known: int,
    scores_of_new: tuple[np.ndarray, np.ndarray],
    new: CalibrationData,
) -> Deployed:
    (new_tau, new_exits), table = scores_of_new, lazy_table(calibration, draws=False)
    entries = ExitEntries(table, np.arange(calibration.n_prompts), model)
    level = entries.below(nth_largest_by_asking(entries, calibration.n_prompts - allowed))
    entries.draw_to(level)
    # with the prompts that taught the policy, which have all draws
    n = calibration.n_prompts + n_seen
    judged = (n_known + table.n_judgements) / n
    drawn = (table.n_draws.sum() + n_seen * new.k_max) / n
    if level == -np.inf:
        return _NOTHING._replace(judgements=judged, calibration_draws=drawn)
    return Deployed(*_measured(new_tau, new_exits, new, level), judged, drawn, False)


def _size_like(method: Deployed, exits: Exits, data: CalibrationData) -> float:
    """Smallest size of the exit policy with at most the loss and draws of a method."""
    choices = _choices(exits, data, method.loss)
    few = [size for loss, size, n in choices if loss <= method.loss and n <= method.draws + 1e-9]
    return min(few, default=np.nan)


def _some_labels(data: CalibrationData, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Labels of as many texts of each prompt as lazy judging asks for, and how many these are."""
    n_texts = LazyJudging().judgements_per_prompt(data.n_prompts, data.k_max)
    known = np.full(data.admissible.shape, -1, dtype=np.int8)
    n_judged = 0
    for i, texts in enumerate(data.first):
        distinct = np.unique(texts)
        chosen = rng.choice(distinct, min(n_texts, len(distinct)), replace=False)
        seen = np.isin(texts, chosen)
        known[i, seen] = data.admissible[i, seen]
        n_judged += len(chosen)
    return known, n_judged


if __name__ == "__main__":
    main()
