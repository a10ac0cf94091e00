"""The same worlds as a user meets them: generators, scores, files and the command line.

Draw j for prompt i is the text "i:j"; quality, similarity and label are looked up in the world.
What is calibrated must then have the risk that the arrays say.
"""

import tempfile
import warnings
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import numpy as np

from sklearn_clm import ComponentSelector, ConformalSampler
from sklearn_clm.__main__ import main
from sklearn_clm.calibration import CalibrationData, ComponentCalibrationData
from sklearn_clm.calibration.surface import evaluate_configurations
from sklearn_clm.generators import BaseGenerator, Generation
from sklearn_clm.policies import ThresholdPolicy

from .procedures import N_LAMBDAS, Setting, component_risk, components_of
from .worlds import World, make_world


def place(text: str) -> tuple[int, int]:
    """Prompt and draw that a text names."""
    prompt, draw = text.split(" ")[0].split(":")
    return int(prompt), int(draw)


class WorldGenerator(BaseGenerator):
    """Draws of a world, told by its name."""

    def __init__(self, world: str) -> None:
        self.world = world

    def fingerprint(self) -> str:
        return f"{type(self).__name__} {self.world}"

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        draws = range(start, start + n_samples)
        return [[Generation(f"{prompt}:{j}") for j in draws] for prompt in prompts]


class WorldLookup:
    """What is known of texts in a world: its name, and what to look up."""

    def __init__(self, world: str, kind: str) -> None:
        self.world = world
        self.kind = kind

    def fingerprint(self) -> str:
        return f"{type(self).__name__} {self.world} {self.kind}"


class WorldScore(WorldLookup):
    """Quality or admissibility of draws."""

    def __call__(self, first, second):
        text = second if isinstance(second, str) else second.response
        value = table_of(self.world, self.kind)[place(text)]
        return bool(value) if self.kind == "admissible" else float(value)


class WorldSimilarity(WorldLookup):
    """Similarity of draws of one prompt."""

    def pairwise(self, a, b=None):
        (rows, draws), (_, others) = (
            np.array([place(text) for text in texts]).T for texts in (a, a if b is None else b)
        )
        first, second = np.meshgrid(draws, others, indexing="ij")
        table = table_of(self.world, self.kind)[rows[0]]
        return table[np.maximum(first, second), np.minimum(first, second)]

    def __call__(self, one, other):
        return float(self.pairwise([one], [other])[0, 0])


@cache
def table_of(world: str, kind: str) -> np.ndarray:
    """An array of a world, which is no part of any estimator."""
    made = make_world(world)
    return getattr(made if kind.startswith("component") else made.population, kind)


def sampler_for(world: World, set_score, setting: Setting, seed: int) -> ConformalSampler:
    """An estimator that is not fitted yet."""
    return ConformalSampler(
        WorldGenerator(world.name),
        k_max=world.population.k_max,
        epsilon=setting.epsilon,
        delta=setting.delta,
        quality=WorldScore(world.name, "quality"),
        similarity=WorldSimilarity(world.name, "similarity"),
        admission=WorldScore(world.name, "admissible"),
        policy=ThresholdPolicy(set_score=set_score, n_lambdas=N_LAMBDAS),
        random_state=seed,
    )


def _failed(world: World, sampler: ConformalSampler, set_score) -> bool | None:
    """Whether the promise of the sampler is broken on the whole population."""
    if sampler.lambda_hat_ is None:
        return None
    risk = evaluate_configurations(world.population, [sampler.lambda_hat_], set_score=set_score)
    return bool(risk.n_errors[0] / world.population.n_prompts > sampler.epsilon)


def sample_of(world: World, setting: Setting, rng) -> tuple[list[str], list[str], int]:
    """Prompts, references and a seed."""
    prompts = [str(i) for i in world.draw(setting.n, rng)]
    return prompts, prompts, int(rng.integers(2**31))


def estimators(world: World, set_score, setting: Setting, rng) -> bool | None:
    """``fit`` and what it promises."""
    prompts, references, seed = sample_of(world, setting, rng)
    sampler = sampler_for(world, set_score, setting, seed)
    with warnings.catch_warnings(action="ignore"):
        sampler.fit(prompts, references)
    return _failed(world, sampler, set_score)


def files(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Collected data and the calibration go through files into a new sampler."""
    prompts, references, seed = sample_of(world, setting, rng)
    sampler = sampler_for(world, set_score, setting, seed)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        data, calibration = Path(folder, "data.npz"), Path(folder, "calibration.json")
        sampler.collect(prompts, references).save(data)
        sampler.calibrate(CalibrationData.load(data)).save_calibration(calibration)
        loaded = sampler_for(world, set_score, setting, seed).load_calibration(calibration)
    return _failed(world, loaded, set_score)


def command_line(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Bare arrays go through ``sklearn-clm calibrate`` into a sampler."""
    part = world.population.take(world.draw(setting.n, rng))
    seed = int(rng.integers(2**31))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        data = Path(folder, "data.npz")
        CalibrationData(part.quality, part.similarity, part.admissible).save(data)
        command = ["calibrate", "--data", str(data), "--set-score", set_score]
        command += ["--random-state", str(seed)]
        command += ["--epsilon", str(setting.epsilon), "--delta", str(setting.delta)]
        calibration = Path(folder, "calibration.json")
        command += ["--n-lambdas", str(N_LAMBDAS), "--output", str(calibration)]
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            if main(command):
                return None
        sampler = sampler_for(world, set_score, setting, 0).load_calibration(calibration)
    return _failed(world, sampler, set_score)


def component_files(world: World, set_score, setting: Setting, rng) -> bool | None:
    """Component scores go through a file into a selector; sets hold all draws."""
    data = components_of(world, world.draw(setting.n, rng))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        path = Path(folder, "components.npz")
        data.save(path)
        selector = ComponentSelector(
            alpha=setting.epsilon, delta=setting.delta, component_score="support"
        ).calibrate(ComponentCalibrationData.load(path))
    if selector.gamma_hat_ == np.inf:
        return None
    everything = np.ones(world.population.admissible.shape, dtype=bool)
    return component_risk(world, selector.gamma_hat_, everything) > setting.epsilon
