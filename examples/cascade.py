"""FiD, GPT-3.5 and GPT-4, the dearest last, and a person after them.

    python examples/cascade.py

The answers are real, and so is what people say of them: 1,938 questions of TriviaQA (EVOUNA, in
`evouna`), each answered once by each system. They are one stream of draws at the prices 1, 1 and
25, with one promise. It is compared with each system alone, over all risks at which anything is to
be had. Then the stream is turned into answers: what is not sure enough is handed to a person.
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np

from sklearn_clm import ConformalSampler
from sklearn_clm.generators import CascadeGenerator, PrecomputedGenerator
from sklearn_clm.judging import hand_over
from sklearn_clm.metrics import set_loss
from sklearn_clm.policies import AnswerPolicy, ExitPolicy

HERE = Path(__file__).resolve().parent
SYSTEMS = ("FiD", "GPT-3.5", "GPT-4")
PRICES = (1, 1, 25)
N_NEW = 600


# %% The experiment from beginning to end
def main(argv: list[str] | None = None) -> dict:
    """Calibrate sets and answers, print what they cost, draw the pictures."""
    import matplotlib as mpl

    mpl.use("Agg")
    from sklearn_clm.inspection import TradeOffDisplay

    args = parse(argv)
    lines = read_lines(args.seed)
    questions = [line["question"] for line in lines]
    verdicts = [dict(answers_of(line)) for line in lines]
    sampler = build_sampler(lines, args)
    sampler.fit(questions[:-N_NEW], verdicts[:-N_NEW])
    data = sampler.calibration_data_
    print(f"Of {data.n_prompts} questions people call the answer right:")
    for name, share in zip(SYSTEMS, data.admissible.mean(axis=0)):
        print(f"  {name}: {share:.1%}")
    print(f"  any of them: {data.admissible.any(axis=1).mean():.1%}")
    print(sampler.calibration_.claim.sentence())
    prices = TradeOffDisplay.from_estimator(sampler)
    for i, name in enumerate(SYSTEMS, start=1):
        prices.curves[f"{name} alone"] = prices.curves.pop(f"generator {i} alone")
    for name, price in prices.at(args.epsilon).items():
        price_or_null = "nothing certified" if np.isnan(price) else f"{price:.1f} for a question"
        print(f"  {name}: {price_or_null} at epsilon = {args.epsilon:g}")
    sets = sampler.predict(questions[-N_NEW:])
    missed = set_loss(verdicts[-N_NEW:], sets)
    price = sampler.generator_.tiers.price_of(sets.n_samples).mean()
    print(
        f"Of {N_NEW} new questions {1 - missed:.1%} have a right answer in their set of "
        f"{sets.sizes.mean():.2f}, for {price:.1f}."
    )

    # the draws are there: answers cost nothing more
    sampler.set_params(policy=AnswerPolicy(args.alpha)).calibrate(data)
    print(sampler.calibration_.claim.sentence())
    answers = TradeOffDisplay.from_estimator(sampler)
    draw(prices, answers).savefig(args.output / "cascade.svg")
    sets = sampler.predict(questions[-N_NEW:])
    references = {line["question"]: line["references"][0] for line in lines}
    frame = hand_over(sets, references.get)  # a person
    answered = np.flatnonzero(sets.answered)
    wrong = set_loss([verdicts[-N_NEW:][i] for i in answered], sets[answered], average=False).sum()
    print(
        f"Of {N_NEW} new questions {len(answered)} are answered, {wrong} of them wrongly, and "
        f"{len(sets.escalated)} go to a person."
    )
    return {"prices": prices, "answers": answers, "frame": frame, "wrong": wrong}


def draw(prices, answers):
    """Prices and answers side by side."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    prices.plot(ax=axes[0])
    answers.plot(ax=axes[1])
    axes[0].set_title("Sets: the price of a question", loc="left")
    axes[1].set_title("Answers: how many questions get one", loc="left")
    return figure


# %% Options
def parse(argv: list[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, default=0.1, help="sets without a right answer")
    parser.add_argument("--alpha", type=float, default=0.05, help="wrong answers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=HERE / "output")
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    return args


# %% Questions, answers, and what people say of them
def read_lines(seed: int) -> list[dict]:
    """The questions in a random order."""
    with (HERE / "evouna" / "trivia_qa.jsonl").open(encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [lines[i] for i in np.random.default_rng(seed).permutation(len(lines))]


def answers_of(line: dict) -> list[tuple[str, bool]]:
    """The answer of each system, in order of price, and whether people call it right."""
    return [(line["answer"], line["people"]), tuple(line["gpt35"]), tuple(line["gpt4"])]


def people(verdicts: dict[str, bool], answer: str) -> bool:
    """What people say of an answer: an admission."""
    return verdicts[answer]


def agreement(first: str, second: str) -> float:
    """Share of the words of the shorter answer that the longer one holds."""
    shorter, longer = sorted((words_of(first), words_of(second)), key=len)
    return float(np.mean([word in longer for word in shorter])) if shorter else 0.0


def words_of(answer: str) -> list[str]:
    """Words without articles."""
    words = re.findall(r"\w+", answer.casefold())
    return [word for word in words if word not in ("a", "an", "the")]


def alike(question: str, answer: object) -> float:
    """Quality: nothing is known of an answer but whether others agree with it."""
    return 1.0


# %% Three systems as one generator
def build_sampler(lines: list[dict], args: argparse.Namespace) -> ConformalSampler:
    """The estimator of sets."""
    questions = [line["question"] for line in lines]
    answers = np.array([[answer for answer, _ in answers_of(line)] for line in lines], dtype=object)
    systems = [PrecomputedGenerator(questions, answers[:, [i]]) for i, _ in enumerate(SYSTEMS)]
    return ConformalSampler(
        CascadeGenerator(systems, n_draws=(1, 1, 1), prices=PRICES),
        k_max=3,
        epsilon=args.epsilon,
        admission=people,
        quality=alike,
        similarity=agreement,
        policy=ExitPolicy(),
        random_state=args.seed,
    )


if __name__ == "__main__":
    main()
