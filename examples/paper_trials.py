"""The paper's evaluation (section 5, Appendix F) of scores, labels and similarities in files.

    python examples/paper_trials.py --scores scores.npy --labels labels.npy --similarity div.npy

Repeated random splits into a part that finds the Pareto frontier, a part that tests it and a part
that measures. It writes the curves, the areas under them and figures, and needs pandas and
matplotlib. Shapes: scores and labels (n, K), similarity (n, K, K).
"""

import argparse
from pathlib import Path

import matplotlib as mpl

from sklearn_clm.calibration import CalibrationData
from sklearn_clm.evaluation import TrialResults, run_trials
from sklearn_clm.inspection import AchievableBandDisplay, RiskCurveDisplay

AREAS = """\
Averages over epsilon (normalised areas under the curves), over those epsilon that can be used in
every trial: mean and standard deviation over trials. curves.csv has the values at each epsilon."""


def arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    for name, text in (
        ("--scores", "quality of each draw"),
        ("--labels", "1 where a draw is admissible, else 0"),
        ("--similarity", "of draws j and l < j at [i, j, l]; larger must mean more alike"),
    ):
        add(name, required=True, metavar="FILE", help=text)
    add("--output", type=Path, default=Path("clm-trials"), metavar="DIR", help="where to write")
    methods = ["first_k", "first_k_reject", "max", "sum"]
    add("--methods", nargs="+", default=methods, metavar="NAME", help="set scores to compare")
    text = "tolerated risks (default: 0.01 to 0.99)"
    add("--epsilons", type=float, nargs="+", metavar="E", help=text)
    add("--n-trials", type=int, default=100, help="random splits")
    add("--frontier-fraction", type=float, default=0.2, help="share for the frontier")
    add("--testing-fraction", type=float, default=0.4, help="share for the tests")
    add("--n-lambdas", type=int, default=25, help="quantiles tried for each threshold")
    add("--n-jobs", type=int, help="trials in parallel, -1 for all cores")
    return parser.parse_args(argv)


def areas(results: TrialResults) -> str:
    """Areas under the curves, and how those of other methods differ from the first's."""
    text = f"{AREAS}\n\n{results.summary().T.round(4).to_string()}\n"
    first, *others = results.methods
    if others:
        compared = results.summary(first).loc[others].T.round(4).to_string()
        text += f"\nDifferences to {first}, from low to high in 95 % of the trials:\n\n{compared}\n"
    reason = results.why_no_area()
    return text if reason is None else f"{text}\n{reason}\n"


def curves(results: TrialResults):
    """Means and standard deviations over the trials that did not abstain, at each epsilon."""
    trials = results.to_frame().groupby(["method", "epsilon"], sort=False)
    values = trials[[*results.measures]]
    of_values = values.mean().add_suffix("_mean").join(values.std(ddof=0).add_suffix("_std"))
    return trials[["null", "trivial"]].mean().join(of_values)


def main(argv=None):
    mpl.use("Agg")
    given = vars(arguments(argv))
    arrays = given.pop("scores"), given.pop("similarity"), given.pop("labels")
    data, output = CalibrationData.from_arrays(*arrays), given.pop("output")
    output.mkdir(parents=True, exist_ok=True)
    results = run_trials(data, **given, random_state=0, verbose=1)
    results.to_frame().to_csv(output / "trials.csv", index=False)
    curves(results).to_csv(output / "curves.csv")
    (output / "areas.txt").write_text(areas(results), encoding="utf-8")
    print(areas(results))
    share = given["frontier_fraction"] / (given["frontier_fraction"] + given["testing_fraction"])
    band = AchievableBandDisplay.from_data(data, optimization_fraction=share)
    for name, display in (("curves", RiskCurveDisplay.from_trials(results)), ("band", band)):
        display.figure_.savefig(output / f"{name}.png", dpi=200)
    print(f"Wrote {output}.")


if __name__ == "__main__":
    main()
