"""A small world of claims for the tests: draws list claims that tell their own score and truth."""

import json

import numpy as np

from sklearn_clm.generators import BaseGenerator, Generation, draw_stream
from sklearn_clm.scoring import Claim


class ClaimModel(BaseGenerator):
    """Draws of some claims each, as JSON; a claim may rest on earlier ones of its draw."""

    def sample(self, prompts, n_samples, *, start=0, seed=0):
        draws = range(start, start + n_samples)
        return [[Generation(self._draw(prompt, seed, j)) for j in draws] for prompt in prompts]

    def _draw(self, prompt, seed, draw):
        rng = draw_stream(prompt, seed, draw)
        claims = []
        for k in range(rng.integers(1, 5)):
            name = int(rng.integers(6))
            of_claim = draw_stream(f"{prompt} {name}", 0, 0, salt=b"claim")
            score, chance = of_claim.random(2)
            verdict = "right" if chance < 0.4 + 0.6 * score else "wrong"
            parents = [int(rng.integers(k))] if k and rng.random() < 0.5 else []
            claims.append([f"{name} of {prompt}: {score:.6f} {verdict}", parents])
        return json.dumps(claims)


def claims_of(prompt, response):
    """A splitter."""
    return [Claim(text, parents=tuple(parents)) for text, parents in json.loads(response)]


def score_of(prompt, claim):
    """A component score."""
    return float(claim.split()[-2])


def is_right(reference, claim):
    """An admission."""
    return claim.endswith("right")


def walk(responses, *, with_parents=True):
    """Score of each claim of some draws, by a plain walk."""
    scores = {}
    for response in responses:
        least = []
        for text, parents in json.loads(response):
            above = [least[parent] for parent in parents] if with_parents else []
            least.append(min([score_of(None, text), *above]))
            scores[text] = max(scores.get(text, -np.inf), least[-1])
    return scores


def walked_threshold(all_scores, critical, max_wrong=0):
    """The largest score that must stay out; -inf where none must."""
    deciding = []
    for scores in all_scores:
        wrong = sorted((s for text, s in scores.items() if not is_right(None, text)), reverse=True)
        deciding.append(wrong[max_wrong] if len(wrong) > max_wrong else -np.inf)
    return sorted(deciding, reverse=True)[critical]
