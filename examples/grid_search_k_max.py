"""How many draws are worth a budget? Search over k_max, and what the search costs the guarantee.

    python examples/grid_search_k_max.py

A poor classifier of smudged handwritten digits stands in for a language model: it samples labels,
about half of them right, and the sampler returns sets of them. No model is downloaded. Three
questions are answered, on three disjoint parts of the data:

1. On a development part: GridSearchCV over k_max for several epsilons. All draws are cached, so the
   whole search makes each of them once.
2. On a calibration part, which the search has never seen: calibration with the k_max that won, and,
   as the other honest way, with the whole list of candidates as ``k_max=[...]``.
3. On a test part: what the guarantee promised, and what came of it.

Do not search on the prompts that then calibrate. The budget that looks best on them has been chosen
by their noise, and the certificate that it gets from the same noise is too good. The strict
guarantee then no longer holds, even though nothing fails visibly.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split

from sklearn_clm import ConformalSampler, NullCalibrationWarning
from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import EstimatorGenerator
from sklearn_clm.metrics import set_coverage

BUDGETS = [2, 3, 4, 5, 7, 10, 14, 20, 30]
EPSILONS = [0.05, 0.1, 0.2]
N_FOLDS = 4
WINNER = {"marker": "D", "markersize": 9, "markerfacecolor": "none", "linestyle": "none"}
LIST = {"marker": "x", "markersize": 9, "markeredgewidth": 2, "linestyle": "none"}


# %% The three questions from beginning to end
def main(argv: list[str] | None = None) -> dict[float, dict[str, float]]:
    """Run the whole script and return the test results by epsilon."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--figure",
        type=Path,
        default=Path(__file__).parent / "output" / "grid_search_k_max.png",
        help="where the figure goes (.png, .svg or .pdf)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the parts and the draws")
    args = parser.parse_args(argv)
    start = time.monotonic()

    classifier, development, calibration, test = load_parts(args.seed)
    generator = CachedGenerator(EstimatorGenerator(FrozenEstimator(classifier)))
    print(
        f"{len(development[1])} prompts to search on, {len(calibration[1])} to calibrate on, "
        f"{len(test[1])} to test on"
    )

    search = search_budgets(generator, development, args.seed)
    curves = objective_curves(search)
    n_fits = len(search.cv_results_["params"]) * N_FOLDS
    print(
        f"\n{n_fits} fits and {n_fits} scores made {search.best_estimator_.generator_.n_misses_:,} "
        f"draws and found {search.best_estimator_.generator_.n_hits_:,} in the cache"
    )

    results = {}
    for epsilon, curve in curves.items():
        results[epsilon] = calibrate_and_test(
            generator, epsilon, curve, calibration, test, args.seed
        )
    args.figure.parent.mkdir(parents=True, exist_ok=True)
    draw_figure(curves, results, args.figure)
    print(f"\nFigure: {args.figure}\n{time.monotonic() - start:.0f} s in all")
    return results


# %% A poor classifier, and three parts of the data
def load_parts(seed: int) -> tuple[LogisticRegression, tuple, tuple, tuple]:
    """A classifier trained on a part of its own, and three more parts."""
    X, y = load_digits(return_X_y=True)
    smudged = X + np.random.default_rng(seed).normal(scale=4.0, size=X.shape)
    X_rest, X_train, y_rest, y_train = train_test_split(
        smudged, y, test_size=0.15, stratify=y, random_state=seed
    )
    classifier = LogisticRegression(C=5e-4, max_iter=1000).fit(X_train, y_train)
    X_rest, X_dev, y_rest, y_dev = train_test_split(
        X_rest, y_rest, test_size=0.4, random_state=seed
    )
    X_cal, X_test, y_cal, y_test = train_test_split(
        X_rest, y_rest, test_size=0.5, random_state=seed
    )
    return classifier, (X_dev, y_dev), (X_cal, y_cal), (X_test, y_test)


# %% The search, on the development part
def search_budgets(generator: CachedGenerator, development: tuple, seed: int) -> GridSearchCV:
    """Objective of every budget and epsilon, by cross-validation on the development part."""
    search = GridSearchCV(
        ConformalSampler(generator, random_state=seed),
        {"epsilon": EPSILONS, "k_max": BUDGETS},
        cv=N_FOLDS,
    )
    with warnings.catch_warnings():
        # small budgets cannot reach small epsilons; their score is then -inf
        warnings.simplefilter("ignore", NullCalibrationWarning)
        warnings.filterwarnings("ignore", "One or more of the test scores", UserWarning)
        warnings.filterwarnings("ignore", "invalid value encountered", RuntimeWarning)
        return search.fit(*development)


def objective_curves(search: GridSearchCV) -> dict[float, dict[str, np.ndarray]]:
    """Mean objective and its standard error against k_max, for each epsilon; inf for null."""
    results = search.cv_results_
    scores = -np.stack([results[f"split{fold}_test_score"] for fold in range(N_FOLDS)])
    epsilons = np.array([params["epsilon"] for params in results["params"]])
    curves = {}
    for epsilon in EPSILONS:
        folds = scores[:, epsilons == epsilon]
        known = np.isfinite(folds).all(axis=0)
        mean = np.where(known, np.where(known, folds, 0.0).mean(axis=0), np.inf)
        error = np.where(known, folds, 0.0).std(axis=0, ddof=1) / np.sqrt(N_FOLDS)
        curves[epsilon] = {"mean": mean, "error": error}
    return curves


# %% Calibration and test, on parts that the search has not seen
def calibrate_and_test(
    generator: CachedGenerator,
    epsilon: float,
    curve: dict[str, np.ndarray],
    calibration: tuple,
    test: tuple,
    seed: int,
) -> dict[str, float]:
    """Calibrate the winner, and the list of all budgets; measure both on the test part."""
    if not np.isfinite(curve["mean"]).any():
        print(f"\nepsilon={epsilon}: no budget is enough")
        return {}
    won = BUDGETS[int(np.argmin(curve["mean"]))]
    X_test, y_test = test
    print(f"\nepsilon={epsilon}: sets must hold the right digit for {1 - epsilon:.0%} of prompts")
    outcome = {"won": won}
    for name, k_max in (("searched", won), ("list", BUDGETS)):
        sampler = ConformalSampler(generator, k_max=k_max, epsilon=epsilon, random_state=seed)
        sets = sampler.fit(*calibration).predict(X_test)
        coverage, size = set_coverage(y_test, sets), sets.sizes.mean()
        samples = sets.n_samples.mean()
        label = f"k_max={k_max}" if name == "searched" else "k_max=[...]"
        print(
            f"  {label:12} budget {sampler.k_max_:2}   coverage {coverage:.1%}   "
            f"mean size {size:.2f}   mean draws {samples:.2f}"
            f"{'' if sets.guaranteed else '   (null: no guarantee)'}"
        )
        outcome |= {
            f"{name}_budget": sampler.k_max_,
            f"{name}_coverage": coverage,
            f"{name}_objective": -sampler.score(X_test, y_test),
        }
    return outcome


# %% The figure
def draw_figure(
    curves: dict[float, dict[str, np.ndarray]],
    results: dict[float, dict[str, float]],
    path: Path,
) -> None:
    """Objective against k_max on the development part, with what came of it on the test part."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (ax, strip) = plt.subplots(
        2, 1, figsize=(7.2, 5), height_ratios=[5, 1], sharex=True, layout="constrained"
    )
    budgets = np.array(BUDGETS)
    for number, (epsilon, curve) in enumerate(curves.items()):
        color = f"C{number}"
        known = np.isfinite(curve["mean"])
        ax.errorbar(
            budgets[known],
            curve["mean"][known],
            curve["error"][known],
            color=color,
            marker="o",
            markersize=4,
            capsize=2,
            label=f"$\\epsilon={epsilon}$",
        )
        strip.plot(budgets[~known], [number] * (~known).sum(), "s", markersize=4, color=color)
        for name, style in (("searched", WINNER), ("list", LIST)) if results[epsilon] else ():
            ax.plot(
                results[epsilon][f"{name}_budget"],
                results[epsilon][f"{name}_objective"],
                markeredgecolor=color,
                **style,
            )
    ax.plot([], [], markeredgecolor="0.3", **WINNER, label="winner, on the test part")
    ax.plot([], [], markeredgecolor="0.3", **LIST, label="list of budgets, on the test part")
    ax.set_ylabel("objective of Eq. 7\n(the smaller the better)")
    ax.set_title("The budget must be large enough for epsilon; beyond that it matters little")
    ax.legend(frameon=False, fontsize="small")
    strip.set_yticks(range(len(curves)), labels=[f"$\\epsilon={epsilon}$" for epsilon in curves])
    strip.set_ylim(len(curves) - 0.5, -0.5)
    strip.set_ylabel("null")
    strip.set_xscale("log")
    strip.set_xticks(budgets, labels=[str(budget) for budget in BUDGETS])
    strip.minorticks_off()
    strip.set_xlabel("budget of draws $k_{max}$")
    for axes in (ax, strip):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
