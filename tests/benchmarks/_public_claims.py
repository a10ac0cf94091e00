"""Claims with people's labels and scores, of public files: what is kept, and whether it is right.

``python tests/benchmarks/_public_claims.py FILE ...`` takes the files
`*_subclaims_with_scores.jsonl` of tatsu-lab/conformal-factual-lm, calibrates on one random half of
the prompts, and reports means over the other halves. "conformal factuality" is the rule of that
repository, "conformal-safety" those of jjcherian/conformal-safety: the unconditional one (an
interpolated quantile), and, where its package `conditionalconformal` is installed (0.0.5 wants
numpy<2.4), the conditional one. They promise on average over calibration and new prompts, the last
within each file, too. Ours holds for 95 % of calibrations. In every split the selection is compared
with a walk of a few lines.
"""

import argparse
import importlib.util
import json
import math
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import binom

from sklearn_clm import ComponentSelector, NullCalibrationWarning
from sklearn_clm.calibration import ComponentCalibrationData

RIGHT = ("Y", "S")
DELTA = 0.05


class Prompt(NamedTuple):
    """Claims of a response: their scores and labels, and what is known of the prompt."""

    scores: np.ndarray
    labels: np.ndarray
    features: np.ndarray  # one, the number of claims, the length, and of which file it is


def prompts_of(path: str, file: np.ndarray) -> list[Prompt]:
    """The prompts of a file, which is one of some."""
    entries = json.loads(Path(path).read_text(encoding="utf-8"))["data"]
    prompts = []
    for entry in entries:
        claims = entry["claims"]
        # the noise breaks ties; what lies closer than a millionth counts as one score
        scores = [round(one["frequency+gpt-score"] + one["noise"], 5) for one in claims]
        labels = [one["annotation"].strip() in RIGHT for one in claims]
        features = np.array([1.0, len(claims), len(entry["prompt"]) / 100, *file])
        prompts.append(Prompt(np.array(scores), np.array(labels, dtype=bool), features))
    return prompts


def highest_wrong(prompt, rank=0):
    """The score of the wrong claim of a rank; -inf where there are not so many."""
    wrong = np.sort(prompt.scores[~prompt.labels])[::-1]
    return wrong[rank] if len(wrong) > rank else -np.inf


def refuse_another_selection(calibration, new, alpha, max_wrong, keeps):
    """Compare with a walk: the score that must stay out, so that few enough prompts err."""
    values = sorted((highest_wrong(one, max_wrong) for one in calibration), reverse=True)
    allowed = [c for c in range(len(values)) if binom.cdf(c, len(values), alpha) <= DELTA]
    out = values[allowed[-1]] if allowed else np.inf
    for one in calibration:
        assert np.array_equal(keeps(one), one.scores > out)
    # a threshold stands in the gap above that score, where no score of calibration is
    above = [score for one in calibration for score in one.scores if score > out]
    for one in new:
        assert not keeps(one)[one.scores <= out].any()
        assert keeps(one)[one.scores >= min(above, default=np.inf)].all()


def ours(prompts, alpha, max_wrong=0):
    """The selector."""
    scores, labels, _ = zip(*prompts)
    data = ComponentCalibrationData.from_arrays(scores, labels)
    selector = ComponentSelector(
        alpha=alpha, delta=DELTA, component_score="support", max_wrong=max_wrong
    )
    with warnings.catch_warnings(action="ignore", category=NullCalibrationWarning):
        gamma = selector.calibrate(data).gamma_hat_
    return lambda one: one.scores >= gamma


def conformal_factuality(prompts, alpha):
    """The rule of the method's own repository."""
    values = sorted(max(highest_wrong(one), -100_000) for one in prompts)
    position = math.ceil((len(values) + 1) * (1 - alpha)) - 1
    threshold = values[position] if position < len(values) else np.inf
    return lambda one: one.scores >= threshold


def conformal_safety(prompts, alpha):
    """The unconditional rule of the other one: scores of wrong claims are at least 0."""
    values = [max(highest_wrong(one), 0) for one in prompts]
    threshold = np.quantile(
        values, min(1, math.ceil((1 - alpha) * (len(values) + 1)) / len(values))
    )
    return lambda one: one.scores >= threshold


def conformal_safety_conditional(prompts, alpha):
    """Its conditional rule, as its notebooks call it: a threshold that depends on the prompt."""
    from conditionalconformal import CondConf

    rule = CondConf(lambda features, values: values, lambda features: features)
    values = np.array([max(highest_wrong(one), -1) for one in prompts])
    rule.setup_problem(np.array([one.features for one in prompts]), values)

    def keeps(one):
        features = one.features.reshape(1, -1)
        try:
            out = rule.predict(1 - alpha, features, lambda cutoff, _: cutoff, randomize=True)
        except ValueError:  # ties: the notebooks keep nothing then
            out = np.inf
        return one.scores > float(np.ravel(out)[0])

    return keeps


METHODS = {
    "ours, none wrong": (ours, 0),
    "ours, at most 1 wrong": (lambda prompts, alpha: ours(prompts, alpha, 1), 1),
    "conformal factuality": (conformal_factuality, 0),
    "conformal-safety": (conformal_safety, 0),
}
if importlib.util.find_spec("conditionalconformal"):
    METHODS["conformal-safety, conditional"] = (conformal_safety_conditional, 0)


def outcome(prompts, keeps, max_wrong):
    """Error, recall of the right claims, claims kept, and whether none is, as means."""
    rows = []
    for one in prompts:
        labels = one.labels
        kept = keeps(one)
        recall = (kept & labels).sum() / labels.sum() if labels.any() else np.nan
        rows.append(((kept & ~labels).sum() > max_wrong, recall, kept.sum(), not kept.any()))
    return np.nanmean(np.array(rows, dtype=float), axis=0)


def table(name, prompts, alphas, n_splits):
    """The rows of one file."""
    found = {(alpha, method): [] for alpha in alphas for method in METHODS}
    for split in range(n_splits):
        order = np.random.default_rng(split).permutation(len(prompts))
        first, held = np.array_split(order, 2)
        calibration, new = ([prompts[i] for i in half] for half in (first, held))
        for alpha in alphas:
            for method, (rule, max_wrong) in METHODS.items():
                keeps = rule(calibration, alpha)
                if method.startswith("ours"):
                    refuse_another_selection(calibration, new, alpha, max_wrong, keeps)
                found[alpha, method].append(outcome(new, keeps, max_wrong))
    for (alpha, method), rows in found.items():
        values = np.array(rows)
        error, recall, kept, empty = values.mean(axis=0)
        over = np.mean(values[:, 0] > alpha)
        yield (
            f"| {name} | {alpha:g} | {method} | {error:.3f} | {over:.0%} | {recall:.2f} "
            f"| {kept:.1f} | {empty:.0%} |"
        )


def main(arguments=None):
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--splits", type=int, default=200)
    options = parser.parse_args(arguments)
    kinds = np.eye(len(options.files))
    names = [Path(path).name.partition("_")[0] for path in options.files]
    files = {name: prompts_of(*of_file) for name, *of_file in zip(names, options.files, kinds)}
    files["all"] = [one for prompts in files.values() for one in prompts]
    print(
        "| data | alpha | method | error, held half | halves above alpha | recall | kept | none |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, prompts in files.items():
        for row in table(name, prompts, (0.1, 0.15, 0.2, 0.3), options.splits):
            print(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
