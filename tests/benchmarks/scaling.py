"""What a large calibration costs, and what a second process is worth."""

import hashlib
import math
import time
from collections.abc import Iterator
from pathlib import Path

from sklearn_clm import ConformalSampler
from sklearn_clm.generators import BaseGenerator, Generation, ParallelGenerator

from . import Row, measured_apart
from ._memory import forget_peak, peak_gib

__all__ = ["rows"]

_K = 20
_WORDS = ["the", "heart", "lungs", "is", "clear", "normal", "of", "size", "no", "left", "effusion"]
_N_WORDS = 12
_CHECKPOINT = Path(__file__).resolve().parents[2] / "examples/checkpoints/territory_names"


class Reports(BaseGenerator):
    """Texts of a dozen words, a dozen different ones for each prompt, with all their tokens."""

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        draws = range(start, start + n_samples)
        return [[self._draw(prompt, seed, draw) for draw in draws] for prompt in prompts]

    def _draw(self, prompt: str, seed: int, draw: int) -> Generation:
        numbers = hashlib.blake2b(f"{prompt} {seed} {draw}".encode()).digest()
        answer = numbers[0] * numbers[1] * _N_WORDS >> 16  # the first ones are the likely ones
        text_of = hashlib.blake2b(f"{prompt} {answer}".encode()).digest()
        words = [_WORDS[number % len(_WORDS)] for number in text_of[:_N_WORDS]]
        spans, end = [], 0
        for word in words:
            spans.append((end, end + len(word)))
            end += len(word) + 1
        each = -(answer + 1) * (1 + numbers[2] / 256) / 4 / _N_WORDS
        logprobs = (each,) * _N_WORDS
        return Generation(
            " ".join(words), math.fsum(logprobs), _N_WORDS, logprobs, tuple(spans), "stop"
        )


def rows(quick: bool = False) -> Iterator[Row]:
    """Collect and calibrate at growing n; then one process beside two."""
    sizes = [1_000, 3_000, 10_000] if quick else [1_000, 10_000, 100_000]
    first = None
    for n in sizes:
        measured = measured_apart(__name__, n)
        first = first or (n, measured)
        expected = {name: value / first[0] * n for name, value in first[1].items()}
        what = f"collect and calibrate, n = {n:,}, K = {_K}"
        seconds = measured["collect"] + measured["calibrate"]
        linear = expected["collect"] + expected["calibrate"]
        yield Row(
            f"{what}: CPU time over that of n = {first[0]:,}, scaled up",
            f"{linear:.1f} s",
            f"{measured['collect']:.1f} s + {measured['calibrate']:.2f} s",
            seconds / linear,
        )
        yield Row(
            f"{what}: memory beyond that of the imports",
            f"limit: 4 GiB; in all {measured['peak']:.2f} GiB",
            f"{measured['grown']:.2f} GiB",
            4.0 / measured["peak"],
        )
    yield _two_processes(quick)


def measure(n: int) -> dict[str, float]:
    """Time and memory of one calibration."""
    prompts = [f"question {i}" for i in range(n)]
    options = {"admission": lambda reference, response: hash_of(response) % 5 == 0}
    sampler = ConformalSampler(Reports(), k_max=_K, epsilon=0.4, random_state=0, **options)
    sampler.fit(prompts[:100], prompts[:100])  # imports what is imported when first used
    sampler.memory_.clear()
    forget_peak()
    before = peak_gib()
    start = time.process_time()
    data = sampler.collect(prompts, prompts)
    collected = time.process_time()
    sampler.calibrate(data)
    calibrated = time.process_time()
    peak = peak_gib()
    return {
        "collect": collected - start,
        "calibrate": calibrated - collected,
        "peak": peak,
        "grown": peak - before,
    }


def hash_of(text: str) -> int:
    """A number that is the same in every process."""
    return hashlib.blake2b(text.encode(), digest_size=1).digest()[0]


def _two_processes(quick: bool) -> Row:
    """Draws of names of territories by two loky processes, each with one thread, beside one."""
    import joblib
    import torch

    from examples.checkpoints.territory_names.questions import load_questions
    from sklearn_clm.generators import TransformersGenerator

    questions = load_questions("held_out")[: 60 if quick else 150]
    prompts = [question.prompt for question in questions]
    inner = TransformersGenerator(str(_CHECKPOINT), max_new_tokens=40, temperature=0.8, stop=["\n"])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    one = ParallelGenerator(inner, n_jobs=1)
    two = ParallelGenerator(inner, n_jobs=2)
    seconds = []
    try:
        with joblib.parallel_config("loky", inner_max_num_threads=1):
            for generator in (one, two):
                generator.sample(prompts[:32], 2)  # loads the model in each process
                runs = []
                for _ in range(2):  # a process that was late to load it took no part in the first
                    start = time.perf_counter()
                    generator.sample(prompts, _K)
                    runs.append(time.perf_counter() - start)
                seconds.append(min(runs))
    finally:
        torch.set_num_threads(threads)
    return Row(
        f"{_K} draws for {len(prompts)} questions about names by 2 processes of one thread",
        f"one process of one thread: {seconds[0]:.1f} s",
        f"{seconds[1]:.1f} s",
        seconds[0] / seconds[1],
    )
