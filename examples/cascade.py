"""A cheap model, a dear one, and a person as the last tier.

    python examples/cascade.py

Two classifiers of digits stand for language models: naive Bayes on a quarter of the pixels at a
price of 1 a draw, a forest at 25. They are one stream of draws, with one promise. It is compared
with each of them alone, then turned into answers: what is not sure enough is handed to a person.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from sklearn_clm import ConformalSampler
from sklearn_clm.generators import CascadeGenerator, EstimatorGenerator
from sklearn_clm.judging import hand_over
from sklearn_clm.policies import AnswerPolicy, ExitPolicy

PRICES = (1, 25)
HERE = Path(__file__).resolve().parent


# %% The experiment from beginning to end
def main(argv: list[str] | None = None) -> dict:
    """Calibrate sets and answers, print what they cost, draw the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from sklearn_clm.inspection import TradeOffDisplay

    args = parse(argv)
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(args.seed).permutation(len(y))
    known, new = order[:-300], order[-300:]
    sampler = build_sampler(args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # digits repeat, and draws of labels do
        sampler.fit(X[known], y[known])
    print(sampler.calibration_.claim.sentence())
    for name, value, use in sampler.calibration_.rule.costs_of_tiers():
        print(f"  {name}: {value} {use}")
    display = TradeOffDisplay.from_estimator(sampler)
    for name, price in display.at(args.epsilon).items():
        nulls = display.levels[np.isnan(display.curves[name])].tolist()
        print(f"  {name}: {price:.1f} at epsilon = {args.epsilon:g}; null at {nulls}")
    args.output.mkdir(parents=True, exist_ok=True)
    display.figure_.savefig(args.output / "cascade.svg")

    # the draws are there: answers cost nothing more
    sampler.set_params(policy=AnswerPolicy(args.alpha)).calibrate(sampler.calibration_data_)
    print(sampler.calibration_.claim.sentence())
    sets = sampler.predict(X[new])
    truth = {digit.tobytes(): label for digit, label in zip(X[new], y[new])}
    frame = hand_over(sets, lambda digit: truth[np.asarray(digit).tobytes()])  # a person
    by_model = (frame["by"] == "model").to_numpy()
    right = frame["response"].to_numpy() == y[new]
    print(
        f"Of {len(new)} new digits {by_model.sum()} are answered, {np.sum(by_model & ~right)} of "
        f"them wrongly, and {np.sum(~by_model)} go to a person."
    )
    return {"display": display, "frame": frame, "right": right}


# %% Options
def parse(argv: list[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, default=0.1, help="sets without the right digit")
    parser.add_argument("--alpha", type=float, default=0.1, help="wrong answers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=HERE / "output")
    return parser.parse_args(argv)


# %% Two generators as one
def build_sampler(args: argparse.Namespace) -> ConformalSampler:
    """The estimator; both classifiers are trained on a part that calibration never sees."""
    cheap = make_pipeline(SelectKBest(k=16), GaussianNB(var_smoothing=0.1))
    dear = RandomForestClassifier(50, max_depth=6, random_state=0)
    cascade = CascadeGenerator(
        [EstimatorGenerator(cheap), EstimatorGenerator(dear)], n_draws=(8, 4), prices=PRICES
    )
    return ConformalSampler(
        cascade,
        k_max=12,
        epsilon=args.epsilon,
        policy=ExitPolicy(),
        quality="self_consistency",
        similarity="exact_match",
        training_fraction=0.2,
        random_state=args.seed,
    )


if __name__ == "__main__":
    main()
