"""Prompts answered by the default, beside the better of a vote and what is learnt.

    python -m tests.benchmarks.answers [--splits 40] [--world NAME] [--alpha A] [--size N]

Each split draws n prompts of a world, and the three calibrate on the same ones: the default, a vote
on all prompts, and a learnt model, both of the latter on all K draws and with all of delta. The
better of the two is that which answers more over all splits of a cell, which nobody knows
beforehand. Shares are those of the prompts that calibrated, 0 where nothing is certified; the
interval is that of the paired bootstrap.
"""

import argparse
import functools
import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from sklearn_clm import ConformalSampler, NullCalibrationWarning
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.policies import AnswerPolicy

from . import Row
from .efficiency import free_text, questions

__all__ = ["rows"]

ALPHAS, SIZES = (0.05, 0.1, 0.2), (60, 300, 1500)
_N_PROMPTS, _N_BOOTSTRAPS = 4000, 1000
_NOTHING = 0.005  # of the prompts: shares that are printed as 0.00
_EVOUNA = Path(__file__).resolve().parents[2] / "examples" / "evouna" / "trivia_qa.jsonl"
_NOBODY = PrecomputedGenerator(["q"], [["a"]])
_POLICIES = {"auto": AnswerPolicy(), "vote": AnswerPolicy(score="vote")}
_POLICIES["learnt"] = AnswerPolicy(score="learnt", draw_price=0.0)


def voting(answers: np.ndarray, right: np.ndarray) -> CalibrationData:
    """Answers whose quality is the share of the draws before that agree."""
    same = answers[:, :, np.newaxis] == answers[:, np.newaxis, :]
    k = answers.shape[1]
    agree = np.tril(same, -1).sum(axis=2) / np.maximum(np.arange(k), 1)
    return CalibrationData(agree, same * 1.0, right, texts=same.argmax(axis=2))


def spelling_backwards(n: int, rng: np.random.Generator, k: int = 6) -> CalibrationData:
    """Each letter of a word may go wrong, in many ways: whoever agrees is right."""
    length, slips = rng.integers(3, 11, (n, 1)), rng.beta(1.2, 12, (n, 1))
    is_right = rng.random((n, k)) < (1 - slips) ** length
    wrong = 1 + rng.geometric(0.15, (n, k))
    return voting(np.where(is_right, 0, wrong), is_right)


def sums_with_a_preferred_slip(n: int, rng: np.random.Generator, k: int = 6) -> CalibrationData:
    """Where there is something to carry it is often forgotten: many agree on the same mistake."""
    carries = rng.binomial(3, 0.35, (n, 1))
    forgets = rng.random((n, 1)) < 0.06 * carries  # a sum that is mostly done wrong
    slip = np.where(forgets, 0.75, 0.06 * carries)
    drawn = rng.random((n, k))
    answers = np.where(drawn < slip, 1, 0)
    other = 2 + rng.geometric(0.2, (n, k))
    answers = np.where(drawn > 0.97 - 0.05 * carries, other, answers)
    return voting(answers, answers == 0)


def informative_quality(n: int, rng: np.random.Generator, k: int = 10) -> CalibrationData:
    """Votes tell little, and likelihoods much."""
    ease = rng.beta(1.3, 0.7, (n, 1))
    is_right = rng.random((n, k)) < 0.3 + 0.4 * ease
    answers = np.where(is_right, 0, rng.integers(1, 3, (n, k)))
    data = voting(answers, is_right)
    best = rng.normal(2.2 * ease - 1.1 + 0.3 * is_right, 0.25)
    # the likelihood of a text is that of each of its draws
    quality = np.take_along_axis(best, data.first, axis=1)
    return CalibrationData(quality, data.similarity, data.labels, texts=data.texts)


def evouna(n: int, rng: np.random.Generator) -> CalibrationData:
    """FiD, GPT-3.5 and GPT-4 on TriviaQA, judged by people.

    Two answers are alike as far as the shorter one's words stand in the other.
    """
    lines = [json.loads(line) for line in _EVOUNA.read_bytes().splitlines()]
    texts = [[one["answer"], one["gpt35"][0], one["gpt4"][0]] for one in lines]
    right = np.array([[one["people"], one["gpt35"][1], one["gpt4"][1]] for one in lines])
    words = [[set(re.findall(r"\w+", text.lower())) for text in row] for row in texts]
    similarity = np.zeros((len(lines), 3, 3))
    for i, row in enumerate(words):
        for j in range(3):
            for earlier in range(j):
                few = min(len(row[j]), len(row[earlier])) or 1
                similarity[i, j, earlier] = len(row[j] & row[earlier]) / few
    first = np.tile(np.arange(3), (len(lines), 1))
    agree = np.cumsum(similarity.sum(axis=2), axis=1) / np.arange(1, 4)
    return CalibrationData(agree, similarity, right, texts=first)


WORLDS: dict[str, Callable[..., CalibrationData]] = {
    "spelling backwards": spelling_backwards,
    "sums with a preferred slip": sums_with_a_preferred_slip,
    **{
        name: functools.partial(questions, kind=name)
        for name in ("simulated questions", "mixed answers", "mathematics")
    },
    "free text": free_text,
    "informative quality": informative_quality,
    "EVOUNA": evouna,
}


def shares(data: CalibrationData, alpha: float, n: int, n_splits: int) -> dict[str, np.ndarray]:
    """Share of prompts that each policy answers, of each split."""
    found: dict[str, list[float]] = {name: [] for name in _POLICIES}
    for seed in range(n_splits):
        rng = np.random.default_rng(seed)
        part = data.take(rng.permutation(data.n_prompts)[:n])
        for name, policy in _POLICIES.items():
            same_text = None if data.k_max > 3 else 0.99
            policy = policy.set_params(alpha=alpha, same_text=same_text)
            sampler = ConformalSampler(_NOBODY, k_max=data.k_max, policy=policy, random_state=0)
            sampler.set_params(quality="self_consistency", similarity="exact_match")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                warnings.simplefilter("ignore", NullCalibrationWarning)
                rule = sampler.calibrate(part).calibration_.rule
            found[name].append(rule.outcome.size if rule.certified else 0.0)
    return {name: np.array(values) for name, values in found.items()}


def ratio(found: dict[str, np.ndarray]) -> tuple[str, float, float, float]:
    """The better one, and what the default answers of it, with an interval of 95 %."""
    better = max(("vote", "learnt"), key=lambda name: found[name].mean())
    ours, theirs = found["auto"], found[better]
    if not theirs.any():
        return better, np.nan, np.nan, np.nan
    drawn = np.random.default_rng(0).integers(len(ours), size=(_N_BOOTSTRAPS, len(ours)))
    of_both = np.stack((ours[drawn].mean(axis=1), theirs[drawn].mean(axis=1)))
    some = of_both[:, of_both[1] > 0]
    low, high = np.quantile(some[0] / some[1], [0.025, 0.975])
    return better, float(ours.mean() / theirs.mean()), float(low), float(high)


def rows(quick: bool = False) -> Iterator[Row]:
    """The share of prompts answered, beside that of the better of both."""
    for world, make in WORLDS.items():
        data = make(_N_PROMPTS, np.random.default_rng(0))
        for alpha in ALPHAS[1:2] if quick else ALPHAS:
            for n in SIZES[1:2] if quick else SIZES:
                found = shares(data, alpha, n, 4 if quick else 40)
                better, value, low, high = ratio(found)
                yield Row(
                    f"prompts answered, {world}, alpha = {alpha:g}, n = {n:,}",
                    f"{better} {found[better].mean():.3f}",
                    f"{found['auto'].mean():.3f} ({low:.2f} to {high:.2f})",
                    value,
                )


def main(arguments: list[str] | None = None) -> None:
    """Print the cells that are asked for, as lines of a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.answers")
    parser.add_argument("--splits", type=int, default=40)
    parser.add_argument("--world", action="append", choices=list(WORLDS))
    parser.add_argument("--alpha", action="append", type=float)
    parser.add_argument("--size", action="append", type=int)
    options = parser.parse_args(arguments)
    alphas = options.alpha or ALPHAS
    print("| world | n |", *(f"alpha = {alpha:g} |" for alpha in alphas))
    print("|---" * (2 + len(alphas)) + "|")
    for world in options.world or WORLDS:
        data = WORLDS[world](_N_PROMPTS, np.random.default_rng(0))
        for n in options.size or SIZES:
            cells = [_cell(shares(data, alpha, n, options.splits)) for alpha in alphas]
            print(f"| {world}, {data.k_max} | {n:,} | {' | '.join(cells)} |", flush=True)


def _cell(found: dict[str, np.ndarray]) -> str:
    """Vote, learnt, default, and what the default answers of the better one."""
    vote, learnt, ours = (found[name].mean() for name in ("vote", "learnt", "auto"))
    if max(vote, learnt, ours) < _NOTHING:
        return "nothing"
    _, value, low, high = ratio(found)
    return f"{vote:.2f}, {learnt:.2f}, {ours:.2f}: {value:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
