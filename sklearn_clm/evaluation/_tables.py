"""Results of trials as plain tables, without pandas."""

import csv
from pathlib import Path

import numpy as np

from sklearn_clm.evaluation._curves import LevelResults

__all__ = ["write_curves_csv"]


def write_curves_csv(results: LevelResults, path: str | Path) -> None:
    """Write mean and standard deviation over trials, one row for each method and level.

    Means are over the trials that did not abstain; the column `null` tells their share.

    Parameters
    ----------
    results : TrialResults or ComponentTrialResults
        The results.
    path : str or Path
        The file to write.
    """
    any_share = 1.0 / results.n_trials
    mean = {name: results.mean(name, min_share=any_share) for name in results.measures}
    std = {name: results.std(name, min_share=any_share) for name in results.measures}
    null = results.null.mean(axis=1)
    trivial = np.broadcast_to(results.trivial, results.null.shape).mean(axis=1)
    statistics = [f"{name}_{of}" for name in results.measures for of in ("mean", "std")]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["method", results.level_name, "null", "trivial", *statistics])
        for m, method in enumerate(results.methods):
            for e, level in enumerate(results.levels):
                cells = [array[name][m, e] for name in results.measures for array in (mean, std)]
                numbers = (f"{float(cell):.6g}" for cell in (level, null[m, e], trivial[m, e]))
                writer.writerow(
                    [method, *numbers, *("" if np.isnan(c) else f"{float(c):.6g}" for c in cells)]
                )
