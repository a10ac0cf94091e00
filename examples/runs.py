"""Stop runs of agents that are going wrong: RunGate beside e-valuator, in one run.

The traces are public: the tables ``data/*_w_scores_compressed.csv.gz`` of
https://github.com/shuvom-s/e-valuator (MIT licence; Sadhuka et al., arXiv:2512.03109),
runs of agents on mathematics (MATH), HotpotQA and MMLU-Pro with a verifier's score after each step.
Download them, and

    pip install ".[plot]" e-valuator
    python examples/runs.py math_w_scores_compressed.csv.gz hotpotqa_w_scores_compressed.csv.gz

prints, for several random splits, which share of the failing runs is stopped where at most a tenth
of the successful ones may be, in how many splits more of these were (with a 95 % interval of the
share of such splits, of which delta are allowed), and which share of all steps that saves. It is a
hand-over: few steps are saved. Where e-valuator is installed, its variants are calibrated on the
same runs: "split" with the same alpha and delta as here, and the anytime-valid one. They ask for
pandas.
"""

import argparse
import importlib.util

import numpy as np
import pandas as pd

from sklearn_clm.calibration import clopper_pearson
from sklearn_clm.runs import RunGate

ALPHA, DELTA = 0.1, 0.05
COLUMNS = ["uq_problem_idx", "num_steps"]


def read(path):
    """Runs and their outcomes, and the table with the scores so far in each row."""
    table = pd.read_csv(path).sort_values(COLUMNS, kind="stable").reset_index(drop=True)
    of_run = table.groupby("uq_problem_idx", sort=False)
    names = np.array([name for name, _ in of_run], dtype=object)
    runs = [part.to_numpy(float) for _, part in of_run["judge_probability"]]
    succeeded = of_run["solved"].first().to_numpy(bool)
    table["solved"] = table["solved"].astype(int)
    table["judge_probability_series"] = [
        list(run[:k]) for run in runs for k in range(1, len(run) + 1)
    ]
    return names, runs, succeeded, table


def gate(runs, succeeded, new):
    """Steps that new runs take, and which of them are stopped."""
    fitted = RunGate(alpha=ALPHA, delta=DELTA).fit(runs, succeeded)
    return fitted.predict(new), fitted.stopped(new)


def e_valuator(variant, table, names, new_names, new):
    """The same by e-valuator."""
    from evaluator import EValuator

    # its "PAC" splits a level into alpha and delta by weights
    level = ALPHA + DELTA if variant == "PAC" else ALPHA
    weights = (ALPHA / (ALPHA + DELTA), DELTA / (ALPHA + DELTA))
    fitted = EValuator(mt_variant=variant, alphas=[level], alpha_delta_weights=weights)
    of_name = table["uq_problem_idx"]
    fitted.fit(table[of_name.isin(names)].reset_index(drop=True))
    found = fitted.apply(table[of_name.isin(new_names)].reset_index(drop=True))
    rejected = found[found[f"reject_{variant}_alpha_{level}".replace(".", "_")]]
    first = rejected.groupby("uq_problem_idx")["num_steps"].min()
    steps = np.array([first.get(name, len(run)) for name, run in zip(new_names, new)])
    return steps, np.isin(new_names, first.index)


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("tables", nargs="+", help="*_w_scores_compressed.csv.gz")
    parser.add_argument("--n", type=int, nargs="+", default=[300, 1000], help="calibration runs")
    parser.add_argument("--splits", type=int, default=6)
    parser.add_argument("--new", type=int, default=1500, help="runs on which each split is tried")
    given = parser.parse_args(argv)

    print(
        "| table | n | method | failing runs stopped | successful ones | above 0.1 | steps saved |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for path in given.tables:
        names, runs, succeeded, table = read(path)
        for n in given.n:
            rows = {}
            for seed in range(given.splits):
                order = np.random.default_rng(seed).permutation(len(runs))
                old, new = order[:n], np.sort(order[n : n + given.new])
                new_runs = [runs[i] for i in new]
                found = {"RunGate": gate([runs[i] for i in old], succeeded[old], new_runs)}
                if importlib.util.find_spec("evaluator"):
                    for variant, name in (("PAC", "e-valuator split"), ("Ville", "anytime")):
                        found[name] = e_valuator(variant, table, names[old], names[new], new_runs)
                lengths = np.array([len(run) for run in new_runs])
                good = succeeded[new]
                for name, (steps, stopped) in found.items():
                    saved = 1 - steps.sum() / lengths.sum()
                    shares = stopped[~good].mean(), stopped[good].mean(), saved
                    rows.setdefault(name, []).append(shares)
            for name, shares in rows.items():
                failing, good, saved = np.mean(shares, axis=0)
                above = int(sum(share > ALPHA for _, share, _ in shares))
                low, high = clopper_pearson(above, given.splits)
                print(
                    f"| {path.split('/')[-1].split('_')[0]} | {n} | {name} | {failing:.3f} | "
                    f"{good:.3f} | {above} of {given.splits} ({low:.2f} to {high:.2f}) | "
                    f"{saved:.3f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
