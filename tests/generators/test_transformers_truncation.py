"""Truncated distributions and their inversion, against the processors of transformers."""

import numpy as np
import pytest

pytest.importorskip("transformers")
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.generators.transformers._tokens import choose, truncate


def processed(logits, temperature, top_k, top_p):
    """Probabilities after the processors of transformers, in its order."""
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    scores = logits
    if temperature != 1.0:
        scores = TemperatureLogitsWarper(temperature)(None, scores)
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1.0:
        scores = TopPLogitsWarper(top_p)(None, scores)
    return scores.double().softmax(-1)


def ours(logits, temperature, top_k, top_p):
    truncated = truncate(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    shares = truncated.weights / truncated.weights.sum(-1, keepdim=True)
    if truncated.ids is None:
        return shares
    full = torch.zeros(logits.shape, dtype=torch.float64)
    return full.scatter(1, truncated.ids, shares)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(2, 300),
    scale=st.sampled_from([0.1, 1.0, 5.0]),
    decimals=st.sampled_from([None, 1]),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 5, 50]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.95, 1.0]),
)
def test_probabilities_equal_those_of_transformers(
    seed, size, scale, decimals, temperature, top_k, top_p
):
    values = np.random.default_rng(seed).normal(0, scale, (3, size))
    if decimals is not None:
        # many ties: top-k keeps every token tied with the k-th one; top-p cuts among tied tokens
        # at an order that sorting leaves open, so the two are compared without it
        values, top_p = values.round(decimals), 1.0
    logits = torch.tensor(values, dtype=torch.float32)
    got, expected = (
        ours(logits, temperature, top_k, top_p),
        processed(logits, temperature, top_k, top_p),
    )
    assert torch.equal(got > 0, expected > 0)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-12)


def test_inversion_gives_each_token_its_share():
    logits = torch.tensor(np.random.default_rng(0).normal(0, 2, (1, 40)), dtype=torch.float32)
    grid = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    choice = choose(
        logits.expand(len(grid), -1), grid, temperature=0.8, top_k=12, top_p=0.9, guard=False
    )
    shares = torch.bincount(choice.tokens, minlength=40) / len(grid)
    expected = processed(logits, 0.8, 12, 0.9)[0]
    torch.testing.assert_close(shares.double(), expected, rtol=0, atol=1e-4)
    base = logits.double().log_softmax(-1)[0]
    torch.testing.assert_close(choice.logprobs, base[choice.tokens], rtol=0, atol=1e-6)


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2.0**-53])
def test_the_ends_of_the_unit_interval_give_possible_tokens(uniform):
    logits = torch.full((1, 30), -torch.inf)
    logits[0, 7], logits[0, 20] = 0.0, -200.0
    uniforms = torch.tensor([uniform], dtype=torch.float64)
    for top_k in (0, 5):
        choice = choose(logits, uniforms, temperature=1.0, top_k=top_k, top_p=1.0, guard=False)
        assert choice.tokens.tolist() in ([7], [20])
        assert torch.isfinite(choice.logprobs).all()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    top_k=st.sampled_from([0, 10]),
    top_p=st.sampled_from([0.8, 1.0]),
)
def test_a_token_that_rounding_changes_is_doubtful(seed, top_k, top_p):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (500, 60)).astype(np.float32)
    uniforms = torch.tensor(rng.random(500))
    # a few units in the last place, and uniform numbers that sit on a boundary
    noise = rng.uniform(-8, 8, logits.shape) * np.finfo(np.float32).eps * 5
    options = {"temperature": 1.0, "top_k": top_k, "top_p": top_p}
    exact = truncate(torch.tensor(logits), **options)
    cumulative = exact.weights.cumsum(-1) / exact.weights.sum(-1, keepdim=True)
    boundary = cumulative[torch.arange(500), torch.tensor(rng.integers(0, 10, 500))]
    uniforms[:250] = boundary[:250].clamp(max=1 - 2**-53)
    first = choose(torch.tensor(logits), uniforms, guard=True, **options)
    moved = torch.tensor((logits + noise).astype(np.float32))
    second = choose(moved, uniforms, guard=True, **options)
    changed = first.tokens != second.tokens
    assert bool((first.doubtful & second.doubtful)[changed].all())
    assert first.doubtful[250:].float().mean() < 0.1


@pytest.mark.parametrize("mask", [-torch.inf, -1e9, -10_000.0])
@pytest.mark.parametrize("top_k", [0, 10])
def test_masked_tokens_make_no_token_doubtful(mask, top_k):
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(0, 2, (400, 60)), dtype=torch.float32)
    logits[:, 7] = mask
    choice = choose(
        logits, torch.tensor(rng.random(400)), temperature=1.0, top_k=top_k, top_p=0.9, guard=True
    )
    assert choice.doubtful.float().mean() < 0.05
    assert not (choice.tokens == 7).any()


def test_logits_that_give_no_distribution_are_named():
    uniforms = torch.tensor([0.5], dtype=torch.float64)
    options = {"top_k": 0, "top_p": 1.0, "guard": True}
    for value, temperature in ((torch.nan, 1.0), (torch.inf, 1.0), (0.5, 1e-42)):
        with pytest.raises(ValueError, match="logits"):
            choose(torch.tensor([[0.0, value, 1.0]]), uniforms, temperature=temperature, **options)
