"""The paper's evaluation of response sets (sections 5 and 6) on draws that are there already."""

import zlib
from pathlib import Path

import numpy as np

__all__ = ["METHODS", "evaluate_components", "evaluate_sets"]

METHODS = ("first_k", "first_k_reject", "max", "sum")


def evaluate_sets(
    sampler, prompts, references, folder: Path, name: str, *, n_trials: int, seed: int
) -> dict:
    """Draw, judge, repeat random splits, print the tables and write figures and numbers.

    Parameters
    ----------
    sampler : ConformalSampler
        The figure of the frontier shows its calibration, halfway between the error of one draw
        and that of all draws.
    prompts, references : sequences of length n
        What it collects; these data are split again and again.
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
        epsilon over methods and the epsilons that they can reach and that are not trivial
        (valid methods stay under zero).
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from sklearn_clm.evaluation import run_trials
    from sklearn_clm.inspection import (
        AchievableBandDisplay,
        FrontierDisplay,
        RiskCurveDisplay,
    )

    print(f"Drawing; draws that are in {folder} already are used again", flush=True)
    data = sampler.collect(prompts, references)
    one, all_draws = 1 - data.admissible[:, 0].mean(), 1 - data.admissible.any(axis=1).mean()
    print(
        f"{data.n_prompts:,} x {data.k_max} draws made and judged: one is right for {1 - one:.1%} "
        f"of the prompts, any of {data.k_max} for {1 - all_draws:.1%}",
        flush=True,
    )
    results = run_trials(
        data,
        METHODS,
        delta=sampler.delta,
        n_trials=n_trials,
        random_state=seed,
        n_jobs=-1,
        verbose=1,
    )
    sampler.set_params(epsilon=(one + all_draws) / 2).calibrate(data)
    folder.mkdir(parents=True, exist_ok=True)
    results.to_frame().to_csv(folder / f"{name}_trials.csv", index=False)
    for kind, display in {
        "risk": RiskCurveDisplay.from_trials(results),
        "frontier": FrontierDisplay.from_estimator(sampler),
        "band": AchievableBandDisplay.from_data(data),
    }.items():
        _save(display, folder / f"{name}_{kind}.png")

    measures = ["loss", "excess", "relative_size", "relative_draws"]
    above = print_areas(results, measures, ["sum"])
    return {"results": results, "worst_loss_above_epsilon": above}


def print_areas(results, measures: list[str], references: list[str]) -> float:
    """Print areas and differences; the largest mean loss less its level, where one is of use."""
    print(f"\nNormalised areas under the curves, over {results.n_trials} random splits")
    print(results.summary()[measures].round(4).to_string())
    for one in references:
        print(f"Paired differences to {one}, and the range that holds 95 % of the splits")
        print(results.summary(one)[measures].round(4).to_string())
    above = np.where(results.usable, results.mean("loss") - results.levels, np.nan)
    worst = float("nan") if np.isnan(above).all() else float(np.nanmax(above))
    print(f"Largest mean loss less {results.level_name}: {worst:+.4f}")
    return worst


def _save(display, path: Path) -> None:
    """Write a figure, and let go of it."""
    import matplotlib.pyplot as plt

    display.figure_.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(display.figure_)


def evaluate_components(
    sampler,
    prompts,
    references,
    folder: Path,
    name: str,
    classifier,
    *,
    n_trials: int,
    seed: int,
    admission="rouge_l",
    match="rouge_l",
):
    """Repeat random splits of component selection, print the table and write figure and numbers.

    Parameters
    ----------
    sampler : ConformalSampler
        Fitted on the very prompts, so that none of the draws is made again.
    prompts, references : sequences of length n
        What to select sentences for, and what to judge them by. Of a list of references, the
        first counts for recall.
    folder, name, n_trials, seed
        As in :func:`evaluate_sets`.
    classifier : component score
        What to compare with the likelihood of a sentence, and with a random number.
    admission : str or callable (reference, sentence) -> bool
        When a sentence is right.
    match : str or callable (reference sentence, sentence) -> bool
        When a sentence of the reference is covered, for recall (Appendix G).

    Returns
    -------
    TrialResults
        The results of all trials.
    """
    from sklearn_clm import ComponentSelector
    from sklearn_clm.evaluation import reference_scores, run_component_trials
    from sklearn_clm.inspection import RiskCurveDisplay

    scores = {"span likelihood": "span_likelihood", "classifier": classifier, "random": at_random}
    data = {
        label: ComponentSelector(
            sampler, component_score=score, admission=admission, random_state=seed
        ).collect(prompts, references)
        for label, score in scores.items()
    }
    results = run_component_trials(
        data,
        reference_scores={
            label: reference_scores(
                [one if isinstance(one, str) else one[0] for one in references],
                distinct_sentences(sampler),
                np.split(one.scores, one.offsets[1:-1]),
                match=match,
            )
            for label, one in data.items()
        },
        delta=sampler.delta,
        n_trials=n_trials,
        random_state=seed,
    )
    folder.mkdir(parents=True, exist_ok=True)
    results.to_frame().to_csv(folder / f"{name}_component_trials.csv", index=False)
    display = RiskCurveDisplay.from_trials(results)
    _save(display, folder / f"{name}_components.png")

    one = next(iter(data.values()))
    print(
        f"\n{one.n_components / one.n_prompts:.1f} distinct sentences for each text, "
        f"{one.admissible.mean():.1%} of them right"
    )
    print_areas(results, ["loss", "number", "recall"], ["random", results.methods[0]])
    return results


def at_random(prompt, component: str) -> float:
    """The paper's baseline of component scores: a number that says nothing of the component."""
    return zlib.crc32(np.asarray(prompt).tobytes() + component.encode()) / 2**32


def distinct_sentences(sampler) -> list[list[str]]:
    """The sentences of all draws of each prompt, in the order that a selector scores them in."""
    from sklearn_clm.scoring import get_splitter

    split = get_splitter("sentence")
    return [
        list(
            dict.fromkeys(
                draw.response[start:stop].strip()
                for draw in draws
                for start, stop in split(draw.response)
            )
        )
        for draws in sampler.calibration_draws_
    ]
