"""What SmolLM2 can be promised to know, at every level of risk.

    python examples/risk_curves.py

The draws of the quickstart, split at random again and again: sets of answers against epsilon, one
answer or none against alpha, and sentences to rely on against alpha. Two lines bound what sets can
reach: the share of questions to which no draw is right, below which no promise can be kept, and
the share to which the first draw is wrong, above which one draw will do. No model is needed.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from smollm2 import tasks

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationWarning
from sklearn_clm.metrics import set_loss
from sklearn_clm.policies import AnswerPolicy, ExitPolicy, ThresholdPolicy

KNOWN = ("continents", "cities", "languages", "states")  # the quickstart promises something of them
POLICIES = {
    "FIRST-K": ThresholdPolicy(set_score="first_k"),
    "MAX": ThresholdPolicy(),
    "exit policy": ExitPolicy(),
}


# %% The experiment from beginning to end
def main(argv: list[str] | None = None) -> dict:
    """Calibrate on random splits, print what held, draw the pictures."""
    import matplotlib as mpl

    mpl.use("Agg")
    from sklearn_clm.inspection import RiskCurveDisplay

    args = parse(argv)
    # curves begin where all splits certify, with all draws at first
    warnings.simplefilter("ignore", NullCalibrationWarning)
    warnings.filterwarnings("ignore", "nothing smaller than the set of all")
    right = tasks.questions()
    known = {question: right[question] for question in right if tasks.kind_of(question) in KNOWN}

    sampler = ConformalSampler(
        tasks.draws("questions"),
        k_max=10,
        admission=tasks.same_answer,
        similarity="exact_match",
    )
    data = sampler.collect(list(known), list(known.values()))
    band = 1 - data.admissible.any(axis=1).mean(), 1 - data.admissible[:, 0].mean()
    levels = np.linspace(*band, args.levels + 2)[1:-1]
    sets = {}
    for name, policy in POLICIES.items():
        sampler.set_params(policy=policy)
        sets[name] = curves(sampler, "epsilon", levels, data, known, args.splits)
        print(f"\n{name}: epsilon, loss, size and draws, over {args.splits} splits")
        print(np.column_stack((levels, *sets[name].values())).round(3))
    draw_sets(sets, levels, band).savefig(args.output / "smollm2_sets.svg")

    alphas = np.linspace(0.04, 0.4, args.levels)
    sampler.set_params(policy=AnswerPolicy())
    data = sampler.collect(list(right), list(right.values()))
    answers = curves(sampler, "policy__alpha", alphas, data, right, args.splits)
    print(f"\nAnswers: alpha, wrong, answered and draws, over {args.splits} splits")
    print(np.column_stack((alphas, *answers.values())).round(3))
    draw_answers(answers, alphas).savefig(args.output / "smollm2_answers.svg")

    results = sentences(args.splits)
    figure = RiskCurveDisplay.from_trials(results).figure_
    figure.savefig(args.output / "smollm2_sentences.svg")
    return {
        "sets": sets,
        "levels": levels,
        "band": band,
        "answers": answers,
        "alphas": alphas,
        "sentences": results,
    }


# %% Options
def parse(argv: list[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=20, help="random splits")
    parser.add_argument("--levels", type=int, default=12, help="levels of risk")
    parser.add_argument("--output", type=Path, default=tasks.OUTPUT)
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    return args


# %% Random splits: two thirds of the questions calibrate, the others are new
def curves(sampler, parameter, levels, data, right, n_splits) -> dict[str, np.ndarray]:
    """Means over splits at each level; NaN where some split certifies nothing."""
    questions = np.array(list(right))
    answers = np.array(list(right.values()), dtype=object)
    found = np.full((3, n_splits, len(levels)), np.nan)
    for split in range(n_splits):
        order = np.random.default_rng(split).permutation(len(questions))
        calibrating, new = np.split(order, [2 * len(order) // 3])
        for i, level in enumerate(levels):
            sampler.set_params(**{parameter: level}).calibrate(data.take(calibrating))
            if not sampler.calibration_.certified:
                continue
            sets = sampler.predict(questions[new])
            given = sets.answered if isinstance(sampler.policy, AnswerPolicy) else sets.sizes >= 0
            loss = set_loss(answers[new][given], sets[given], admission=tasks.same_answer)
            found[:, split, i] = loss, sets.sizes.mean(), sets.n_samples.mean()
    return dict(zip(("loss", "size", "draws"), found.mean(axis=1)))


def sentences(n_splits: int):
    """Sentences to rely on, by the likelihood of their tokens and by a score that learns."""
    from sklearn_clm.evaluation import run_component_trials

    writing = tasks.draws("paragraphs")
    learnt, others = tasks.split(tasks.cities(), 1, 3)
    score = tasks.SentenceScore().fit(learnt, writing.sample(learnt, 6))
    writer = ConformalSampler(writing, k_max=6, admission=tasks.right_country)
    writer.fit(others, others)
    data = {}
    for name, component_score in (("learnt", score), ("span likelihood", "span_likelihood")):
        selector = ComponentSelector(
            writer, component_score=component_score, admission=tasks.true_sentence
        )
        data[name] = selector.collect(others, others)
    levels = np.linspace(0.04, 0.6, 15)
    return run_component_trials(data, levels, n_trials=5 * n_splits, random_state=0)


# %% Pictures
def draw_sets(sets, levels, band):
    """Error, size and draws over epsilon, from the floor to where one draw will do."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    labels = ("Share of sets without a right answer", "Answers in a set", "Draws for a question")
    for one, measure, label in zip(axes, ("loss", "size", "draws"), labels):
        for (name, found), marker in zip(sets.items(), "os^"):
            one.plot(levels, found[measure], marker=marker, markersize=4.5, label=name)
        one.axvline(band[0], color="0.4", lw=0.9, label="floor: all ten draws are wrong")
        one.axvline(band[1], color="0.4", lw=0.9, ls="--", label="the first draw is wrong")
        one.set_ylabel(label)
        one.set_xlabel("ε (tolerated risk)")
        one.set_ylim(bottom=0.0)
        one.spines[["top", "right"]].set_visible(False)
    axes[0].plot(band, band, color="0.6", ls=":", label="loss = ε: valid at or under it")
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=3, frameon=False, fontsize="small")
    return figure


def draw_answers(answers, alphas):
    """How many questions get an answer, and how many of the answers are wrong."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained")
    axes[0].plot(alphas, answers["size"], marker="o", markersize=4.5)
    axes[0].set_ylabel("Share of questions that get an answer")
    axes[1].plot(alphas, answers["loss"], marker="o", markersize=4.5)
    certified = alphas[~np.isnan(answers["loss"])]
    axes[1].plot(certified, certified, color="0.6", ls=":", label="α: valid at or under it")
    axes[1].set_ylabel("Share of the answers that are wrong")
    axes[1].legend(frameon=False, fontsize="small")
    for one in axes:
        one.set_xlabel("α (tolerated risk)")
        one.set_ylim(bottom=0.0)
        one.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
