"""A small model of reports for the tests: three sentences, each right or wrong, with known odds."""

import functools
import math

from sklearn_clm.generators import BaseGenerator, Generation, draw_stream

N_FINDINGS = 3


class ReportModel(BaseGenerator):
    """Reports three findings of "case i", each right as often as the case and finding are easy.

    Its reports are token by token: one token is one sentence. Draws are noted in the list `log`.
    """

    def __init__(self, log=None):
        self.log = log

    def __sklearn_clone__(self):
        return type(self)(self.log)

    def fingerprint(self):
        return type(self).__name__

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        draws = range(start, start + n_samples)
        if self.log is not None:
            self.log.extend((prompt, j) for prompt in prompts for j in draws)
        return [[self._draw(prompt, seed, j) for j in draws] for prompt in prompts]

    def _draw(self, prompt, seed, draw):
        rng = draw_stream(prompt, seed, draw)
        sentences, logprobs = [], []
        for finding in range(N_FINDINGS):
            right = ease(prompt, finding)
            says = rng.random() < right
            value = 0 if says else int(rng.integers(1, 4))
            sentences.append(sentence(prompt, finding, value))
            logprobs.append(math.log(right if says else (1 - right) / 3))
        spans, position = [], 0
        for text in sentences:
            spans.append((position, position + len(text)))
            position += len(text) + 1
        return Generation(
            " ".join(sentences), math.fsum(logprobs), N_FINDINGS, tuple(logprobs), tuple(spans)
        )


class TrainedReportModel(ReportModel):
    """The same, fitted on prompts and references first."""

    def fit(self, prompts, references):
        self.trained_on_ = list(prompts)
        return self


@functools.cache
def ease(prompt, finding):
    """Probability that a draw gets the finding right."""
    return 0.5 + 0.49 * draw_stream(prompt, 0, finding, salt=b"ease").random()


def sentence(prompt, finding, value):
    """How the finding is put; 0 is the truth."""
    return f"Finding {finding} of {prompt} is {value}."


def cases(n, first=0):
    """Prompts and references."""
    prompts = [f"case {i}" for i in range(first, first + n)]
    return prompts, [" ".join(sentence(p, f, 0) for f in range(N_FINDINGS)) for p in prompts]
