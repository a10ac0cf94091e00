"""A small text model for the tests: keyed, with a known distribution, and able to count."""

import bisect
import functools
import math
import os

import numpy as np

from sklearn_clm.generators import BaseGenerator, Generation, draw_stream

N_WRONG = 6


class ToyModel(BaseGenerator):
    """Answers "item i" with "answer i" as often as the item is easy, else with a wrong answer.

    Every draw is noted in the file `log`, so that all processes count together.
    """

    def __init__(self, temperature=1.0, skill=1.0, log=None):
        self.temperature = temperature
        self.skill = skill
        self.log = log

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        draws = range(start, start + n_samples)
        if self.log is not None:
            lines = [f"{seed}\t{j}\t{prompt}\n" for prompt in prompts for j in draws]
            with open(self.log, "a", encoding="utf-8") as file:
                file.write("".join(lines))
        return [[self._draw(prompt, seed, j) for j in draws] for prompt in prompts]

    def _draw(self, prompt, seed, draw):
        logprobs, below = chances(prompt, self.temperature, self.skill)
        k = bisect.bisect_right(below, draw_stream(prompt, seed, draw).random())
        number = prompt.split()[-1]
        text = f"answer {number}" if k == 0 else f"wrong guess {k} about {number}"
        return Generation(text, logprob=logprobs[k], n_tokens=len(text.split()))


@functools.cache
def chances(prompt, temperature, skill):
    """Log-probability of each answer, and the chance of it or an earlier one once warmed."""
    ease = draw_stream(prompt, 0, 0, salt=b"ease").random()
    right = skill * (0.15 + 0.8 * ease)
    base = np.array([right, *[(1 - right) / N_WRONG] * N_WRONG])
    below = np.cumsum(base ** (1 / temperature))
    return [math.log(chance) for chance in base.tolist()], (below / below[-1]).tolist()


class Unscored(ToyModel):
    """The same without log-probabilities."""

    gives_logprobs = False

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        rows = super().sample(prompts, n_samples, start=start, seed=seed)
        return [[Generation(draw.response) for draw in row] for row in rows]


class Trained(ToyModel):
    """The same once it is fitted, and better, the more references it has seen."""

    def fit(self, prompts, references):
        self.seen_ = list(prompts)
        self.skill_ = self.skill * len(prompts) / (len(prompts) + 15)
        return self

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        taught = ToyModel(self.temperature, self.skill_, self.log)
        return taught.sample(prompts, n_samples, start=start, seed=seed)


def questions(n, first=0):
    """Prompts and references."""
    numbers = range(first, first + n)
    return [f"item {i}" for i in numbers], [f"answer {i}" for i in numbers]


def drawn(log):
    """What was drawn: a list of (seed, draw, prompt)."""
    if not os.path.exists(log):
        return []
    with open(log, encoding="utf-8") as file:
        return [tuple(line.rstrip("\n").split("\t")) for line in file]
