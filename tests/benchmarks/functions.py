"""``fit`` on a function with latency, beside the time in which its calls could be made."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from sklearn_clm import ConformalSampler
from sklearn_clm.generators import FunctionGenerator

from . import Row

__all__ = ["rows"]

SECONDS, N_AT_A_TIME, N_PROMPTS, K = 0.05, 16, 100, 10


def rows(quick: bool = False) -> Iterator[Row]:
    """Time ``fit`` with a plain and an ``async`` function."""
    n_prompts = N_PROMPTS // 2 if quick else N_PROMPTS
    for kind, ask in (("a function", _ask), ("an async function", _ask_async)):
        _fit(ask, n_prompts, 0.0)  # imports, and what else happens once
        seconds = _fit(ask, n_prompts, SECONDS)
        ideal = n_prompts * K * SECONDS / N_AT_A_TIME
        yield Row(
            f"functions: fit with {kind}, {n_prompts} prompts, K = {K}, {N_AT_A_TIME} calls at a "
            "time (at most 1.15)",
            f"calls / {N_AT_A_TIME} x {1e3 * SECONDS:.0f} ms: {ideal:.2f} s",
            f"{seconds:.2f} s",
            seconds / ideal,
        )


def _fit(ask: Callable[..., Any], n_prompts: int, latency: float) -> float:
    sampler = ConformalSampler(
        FunctionGenerator(partial(ask, latency=latency), max_concurrency=N_AT_A_TIME),
        k_max=K,
        epsilon=0.3,
        quality="self_consistency",
        random_state=0,
    )
    prompts = [f"question {i}" for i in range(n_prompts)]
    start = time.perf_counter()
    sampler.fit(prompts, ["yes"] * n_prompts)
    return time.perf_counter() - start


def _answer(prompt: str, seed: int) -> str:
    return random.Random(f"{prompt} {seed}").choice(["yes", "yes", "no", "perhaps", "never"])


def _ask(prompt: str, seed: int, latency: float) -> str:
    time.sleep(latency)
    return _answer(prompt, seed)


async def _ask_async(prompt: str, seed: int, latency: float) -> str:
    await asyncio.sleep(latency)
    return _answer(prompt, seed)
