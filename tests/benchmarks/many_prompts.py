"""What `predict` itself costs, in time and memory, with a generator that is free."""

import gc
import time
import tracemalloc
from collections.abc import Iterator, Sequence

import numpy as np

from sklearn_clm import ConformalSampler
from sklearn_clm.calibration import CalibrationData
from sklearn_clm.generators import BaseGenerator, Generation, draw_stream

from . import Row, measured_apart

__all__ = ["rows"]

K = 4


def rows(quick: bool = False) -> Iterator[Row]:
    """Time per draw, and the peak of the memory above what is held afterwards.

    That is the sets, and the draws in `memory_`.
    """
    smallest = 0.0
    for n_prompts in (5_000, 20_000) if quick else (5_000, 20_000, 100_000):
        found = measured_apart(__name__, n_prompts)
        working = found["peak"] - found["held"]
        smallest = smallest or working
        yield Row(
            f"predict on {n_prompts:,} prompts, {found['draws']:,.0f} draws, result "
            f"{found['held'] / 1e6:.0f} MB (of which memory_ {found['memory'] / 1e6:.0f} MB): "
            "memory besides it",
            f"{smallest / 1e6:.1f} MB for 5,000 prompts",
            f"{working / 1e6:.1f} MB",
            working / smallest,
        )
        yield Row(
            f"predict on {n_prompts:,} prompts, {found['draws']:,.0f} draws: CPU time of a draw",
            f"{1e6 * found['sample']:.0f} us (sample alone)",
            f"{1e6 * found['predict']:.0f} us, {found['predict'] * found['draws']:.0f} s in all",
            found["predict"] / found["sample"],
        )


class Free(BaseGenerator):
    """Short texts at no cost."""

    def sample(
        self, prompts: Sequence[str], n_samples: int, *, start: int = 0, seed: int = 0
    ) -> list[list[Generation]]:
        return [
            [self._draw(prompt, seed, j) for j in range(start, start + n_samples)]
            for prompt in prompts
        ]

    def _draw(self, prompt: str, seed: int, j: int) -> Generation:
        u = draw_stream(prompt, seed, j).random()
        return Generation(f"answer {100 * u:.0f}", float(np.log(u)), 1, (float(np.log(u)),))


def measure(n_prompts: int) -> dict[str, float]:
    """Time and memory of one call."""
    quality = np.random.default_rng(0).random((400, K))
    data = CalibrationData(quality, np.zeros((400, K, K)), quality > 0.4)
    sampler = ConformalSampler(
        Free(), k_max=K, epsilon=0.2, similarity="exact_match", random_state=0
    ).calibrate(data)
    prompts = [f"prompt {i}" for i in range(n_prompts)]
    sampler.predict(prompts[:100])
    start = time.process_time()
    sampler.generator.sample(prompts[:1_000], K)
    seconds_of_sample = time.process_time() - start
    start = time.process_time()
    n_draws = float(sampler.predict(prompts).n_samples.sum())
    seconds = time.process_time() - start
    sampler.memory_.clear()
    tracemalloc.start()
    sets = sampler.predict(prompts)
    assert sets.n_samples.sum() == n_draws
    gc.collect()
    held, peak = tracemalloc.get_traced_memory()
    return {
        "draws": n_draws,
        "sample": seconds_of_sample / (1_000 * K),
        "predict": seconds / n_draws,
        "peak": float(peak),
        "held": float(held),
        "memory": float(sampler.memory_.n_bytes),
    }
