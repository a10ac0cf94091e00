"""A small language model, a large one, and a person as the last tier.

    python examples/cascade.py

Both answer questions of open_domain_qa.py, those about territories whose English name is one word.
A draw's price is tokens times parameters: their answers are equally long, so that it is 1 for the
small model and 7 for the large one. The two are one stream of draws, with one promise. It is
compared with each of them alone, then turned into answers: what is not sure enough is handed to a
person.
"""

import argparse
import re
from pathlib import Path

import numpy as np
import open_domain_qa
from _protocols.tasks import OUTPUT, cached_generator

from sklearn_clm import ConformalSampler
from sklearn_clm.generators import CascadeGenerator
from sklearn_clm.judging import hand_over
from sklearn_clm.metrics import set_loss
from sklearn_clm.policies import AnswerPolicy, ExitPolicy

LARGE = open_domain_qa.CHECKPOINT
MODELS = (LARGE / "small", LARGE)
PRICES = (1, 7)  # 127,424 and 894,336 parameters
N_NEW = 300


# %% The experiment from beginning to end
def main(argv: list[str] | None = None) -> dict:
    """Calibrate sets and answers, print what they cost, draw the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from sklearn_clm.inspection import TradeOffDisplay

    args = parse(argv)
    prompts, references = load_data(args)
    sampler = build_sampler(args)
    sampler.fit(prompts[:-N_NEW], references[:-N_NEW])
    data, tiers = sampler.calibration_data_, sampler.generator_.tiers
    small, large = data.admissible[:, [0, tiers.starts[1]]].mean(axis=0)
    print(
        f"Of {data.n_prompts} questions the small model's first draw is right for {small:.0%}, "
        f"the large one's for {large:.0%}."
    )
    print(sampler.calibration_.claim.sentence())
    for name, value, use in sampler.calibration_.rule.costs_of_tiers():
        print(f"  {name}: {value} {use}")
    display = TradeOffDisplay.from_estimator(sampler)
    for name, price in display.at(args.epsilon).items():
        nulls = display.levels[np.isnan(display.curves[name])].tolist()
        here = "null" if np.isnan(price) else f"{price:.1f}"
        print(f"  {name}: {here} at epsilon = {args.epsilon:g}; null at {nulls}")
    display.figure_.savefig(args.output / "cascade.svg")

    # the draws are there: answers cost nothing more
    sampler.set_params(policy=AnswerPolicy(args.alpha)).calibrate(data)
    print(sampler.calibration_.claim.sentence())
    sets = sampler.predict(prompts[-N_NEW:])
    truth = dict(zip(prompts, references))
    frame = hand_over(sets, lambda prompt: truth[prompt][0])  # a person
    answered = sets[sets.answered]
    wrong = set_loss([truth[one.prompt] for one in answered], answered, average=False).sum()
    print(
        f"Of {N_NEW} new questions {len(answered)} are answered, {wrong} of them wrongly, and "
        f"{len(sets.escalated)} go to a person."
    )
    return {"display": display, "frame": frame, "wrong": wrong}


# %% Options
def parse(argv: list[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, default=0.35, help="sets without a right answer")
    parser.add_argument("--alpha", type=float, default=0.1, help="wrong answers")
    parser.add_argument("--questions", type=int, default=2500, help="how many to use at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return parser.parse_args(argv)


# %% Questions
def load_data(args: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
    """Questions about names of one word, and their right answers."""
    task = open_domain_qa.parse(["--shots", "0", "--questions", "4000", "--seed", str(args.seed)])
    _, prompts, references = open_domain_qa.load_data(task)
    chosen = [i for i, one in enumerate(prompts) if re.match(r"Q: What is \S+ called", one)]
    chosen = chosen[: args.questions]
    return [prompts[i] for i in chosen], [references[i] for i in chosen]


# %% Two models as one generator
def build_sampler(args: argparse.Namespace) -> ConformalSampler:
    """The estimator; draws of both models are kept in the output folder."""
    task = open_domain_qa.parse(["--output", str(args.output)])
    models = []
    for folder in MODELS:
        task.model = str(folder)
        models.append(cached_generator(task, "cascade", stop=task.stop, top_k=task.top_k))
    return ConformalSampler(
        CascadeGenerator(models, n_draws=(2, 8), prices=PRICES),
        k_max=10,
        epsilon=args.epsilon,
        policy=ExitPolicy(),
        similarity="exact_match",
        random_state=args.seed,
    )


if __name__ == "__main__":
    main()
