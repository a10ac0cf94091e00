"""The paper's evaluation of response sets (sections 5 and 6) on draws that are there already."""

from pathlib import Path

import numpy as np

__all__ = ["METHODS", "evaluate_sets"]

METHODS = ("first_k", "first_k_reject", "max", "sum")


def evaluate_sets(sampler, data, folder: Path, name: str, *, n_trials: int, seed: int) -> dict:
    """Repeat random splits, print the tables and write figures and numbers.

    Parameters
    ----------
    sampler : ConformalSampler
        The figure of the frontier shows its calibration, halfway between the error of one draw
        and that of all draws.
    data : CalibrationData
        What it has collected; this is split again and again.
    folder : Path
        Where figures and tables go.
    name : str
        Start of their names.
    n_trials, seed : int
        How many splits, and their seed.

    Returns
    -------
    dict
        `results` of all trials, and `worst_loss_above_epsilon`, the largest mean loss less its
        epsilon over methods and epsilons (valid methods stay near or under zero).
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from sklearn_clm.evaluation import run_trials
    from sklearn_clm.inspection import (
        AchievableBandDisplay,
        FrontierDisplay,
        RiskCurveDisplay,
    )

    results = run_trials(
        data,
        METHODS,
        np.linspace(0, 1, 101),
        delta=sampler.delta,
        n_trials=n_trials,
        random_state=seed,
        n_jobs=-1,
        verbose=1,
    )
    one, all_draws = 1 - data.admissible[:, 0].mean(), 1 - data.admissible.any(axis=1).mean()
    sampler.set_params(epsilon=(one + all_draws) / 2).calibrate(data)
    folder.mkdir(parents=True, exist_ok=True)
    results.save(folder / f"{name}_trials.npz")
    results.to_frame().to_csv(folder / f"{name}_trials.csv", index=False)
    for kind, display in {
        "risk": RiskCurveDisplay.from_trials(results),
        "frontier": FrontierDisplay.from_estimator(sampler),
        "band": AchievableBandDisplay.from_data(data),
    }.items():
        display.figure_.savefig(folder / f"{name}_{kind}.png", dpi=120, bbox_inches="tight")

    measures = ("loss", "excess", "relative_size", "relative_draws")
    with np.errstate(invalid="ignore"):
        above = np.nanmax(results.mean("loss") - results.levels)
    print(f"\nNormalised area under the curve, mean ± deviation over {n_trials} random splits")
    print(results.auc_table(measures))
    print("Paired differences to SUM, and the range that holds 95 % of the splits")
    print(results.comparison_table(measures, reference="sum"))
    print(f"Largest mean loss less epsilon, over all methods and epsilons: {above:+.4f}")
    return {"results": results, "worst_loss_above_epsilon": float(above)}


def evaluate_components(
    sampler, prompts, references, scores, folder: Path, name: str, *, n_trials: int, seed: int
):
    """Repeat random splits of component selection, print the table and write figure and numbers.

    Parameters
    ----------
    sampler : ConformalSampler
        Fitted on the very prompts, so that none of the draws is made again.
    prompts, references : sequences of length n
        What to select sentences for, and what to judge them by.
    scores : dict of str to component score
        What to compare.
    folder, name, n_trials, seed
        As in :func:`evaluate_sets`.

    Returns
    -------
    ComponentTrialResults
        The results of all trials.
    """
    from sklearn_clm import ComponentSelector
    from sklearn_clm.evaluation import run_component_trials
    from sklearn_clm.inspection import ComponentCurveDisplay

    data = {}
    for label, score in scores.items():
        selector = ComponentSelector(sampler, component_score=score, random_state=seed)
        data[label] = selector.collect(prompts, references)
    results = run_component_trials(
        data, np.linspace(0, 1, 101), n_trials=n_trials, random_state=seed, verbose=1
    )
    folder.mkdir(parents=True, exist_ok=True)
    results.save(folder / f"{name}_component_trials.npz")
    results.to_frame().to_csv(folder / f"{name}_component_trials.csv", index=False)
    display = ComponentCurveDisplay.from_trials(results)
    display.figure_.savefig(folder / f"{name}_components.png", dpi=120, bbox_inches="tight")

    one = next(iter(data.values()))
    print(
        f"\n{one.n_components / one.n_prompts:.1f} distinct sentences for each text, "
        f"{one.admissible.mean():.1%} of them right"
    )
    print(f"Normalised area under the curve, mean ± deviation over {n_trials} random splits")
    print(results.auc_table())
    print("Paired differences to random, and the range that holds 95 % of the splits")
    print(results.comparison_table(reference="random"))
    return results
