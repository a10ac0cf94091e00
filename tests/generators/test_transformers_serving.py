"""TransformersGenerator.serve: draws that are asked for as others arrive, memory, kept draws."""

import gc
import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from sklearn_clm.generators import DrawQueue, QueueGenerator, TransformersGenerator

pytest.importorskip("transformers")
import torch

from sklearn_clm.generators.transformers import _engine
from tests import tiny_models
from tests.generators.test_transformers import (
    KINDS,
    parts,
    prompts_for,
    recorded_tokens,
    responses,
    unused,
)

DATA = Path(__file__).parent / "data" / "keyed_draws.json"


def served(generator, prompts, decide, n_draws):
    """Draws of a queue, by prompt and draw."""
    draws = {}
    queue = DrawQueue(
        prompts, n_draws, decide=decide, on_draw=lambda i, j, draw: draws.update({(i, j): draw})
    )
    generator.serve(queue)
    assert queue.n_under_way == 0
    assert len(draws) == queue.n_put
    return draws


def until(counts):
    """A rule that stops each prompt after a number of draws."""
    seen = Counter()

    def decide(arrived):
        for i, new in arrived:
            seen[i] += len(new)
        return [min(seen[i] + 1, counts[i]) for i, _ in arrived]

    return decide


@pytest.fixture
def free_memory(monkeypatch):
    """Sets how many bytes of states are kept."""
    return lambda size: monkeypatch.setattr(_engine, "free_bytes", lambda device: 4 * size)


@pytest.mark.parametrize("kind", KINDS)
def test_served_draws_are_those_that_are_sampled(kind, request, free_memory):
    path = request.getfixturevalue(f"{kind}_path")
    prompts = prompts_for(kind, 8)
    counts = np.random.default_rng(1).integers(1, 6, 8).tolist()
    options = {"max_new_tokens": 6, "stop": ["e"]}
    expected = responses(TransformersGenerator(path, **options).sample(prompts, 5))
    assert isinstance(TransformersGenerator(path), QueueGenerator)
    for batch_size, n_bytes in ((4, 10**9), (5, 0), (3, 20_000), (64, 10**9)):
        free_memory(n_bytes)
        generator = TransformersGenerator(path, batch_size=batch_size, **options)
        draws = served(generator, prompts, until(counts), 5)
        assert all((i, j) in draws for i, count in enumerate(counts) for j in range(count))
        assert all(draw.response == expected[i][j] for (i, j), draw in draws.items())
    alone = served(generator, prompts[5:6], until(counts[5:6]), 5)
    assert all(draw.response == expected[5][j] for (_, j), draw in alone.items())


def test_a_prompt_is_prefilled_once_while_it_is_open(llama_path, free_memory):
    prompts = prompts_for("llama", 20)
    counts = np.random.default_rng(0).integers(1, 7, 20).tolist()
    n_prefilled = []
    for is_served, n_bytes in ((False, 10**9), (True, 10**9), (True, 0)):
        free_memory(n_bytes)
        generator = unused(llama_path, max_new_tokens=4, batch_size=8)
        if is_served:
            served(generator, prompts, until(counts), 6)
        else:
            generator.sample(prompts, 6)
        n_prefilled.append(generator.n_prefilled_tokens_)
    assert n_prefilled[1] <= 1.02 * n_prefilled[0]
    assert n_prefilled[2] > 1.5 * n_prefilled[0]


def test_a_rule_may_stop_before_draws_that_it_wanted(llama_path):
    prompts = prompts_for("llama", 5)
    generator = TransformersGenerator(llama_path, max_new_tokens=4, batch_size=3)
    expected = responses(generator.sample(prompts, 6))
    calls = Counter()

    def decide(arrived):
        calls.update(i for i, _ in arrived)
        return [6 if calls[i] == 1 else 0 for i, _ in arrived]

    draws = served(generator, prompts, decide, 6)
    assert all(draw.response == expected[i][j] for (i, j), draw in draws.items())
    assert {i for i, _ in draws} == set(range(5))


@pytest.mark.parametrize("kind", KINDS)
def test_draws_of_earlier_versions(kind, tmp_path):
    path = getattr(tiny_models, kind)(tmp_path)
    checkpoint = TransformersGenerator(path)._load()
    rng = np.random.default_rng(0)  # so that the weights are the same with any torch
    with torch.no_grad():
        for name, parameter in sorted(checkpoint.model.named_parameters()):
            is_scale = ("norm" in name.lower() or "ln_" in name) and name.endswith("weight")
            values = rng.normal(0, 0.35, parameter.shape) + float(is_scale and parameter.ndim == 1)
            parameter.copy_(torch.tensor(values))
    parts = {"tokenizer": checkpoint.tokenizer, "processor": checkpoint.processor}
    options = {"max_new_tokens": 8, "temperature": 0.9, "top_p": 0.95, "stop": ["."]}
    generator = TransformersGenerator(checkpoint.model, batch_size=16, **parts, **options)
    draws = recorded_tokens(generator, prompts_for(kind, 6), 8)
    tokens = [[tokens for _, tokens in row] for row in draws]
    assert tokens == json.loads(DATA.read_text())[kind]


def sizes_of_tensors(is_counted, model, run, every):
    """Sizes that tensors have in some of the passes of a model while it draws."""
    sizes, calls = [], itertools.count()

    def watch(module, args):
        if next(calls) % every == 0:  # to look for tensors takes longer than to compute with them
            tensors = [obj for obj in gc.get_objects() if type(obj) is torch.Tensor]
            sizes.append([is_counted(tensor) for tensor in tensors])

    handle = model.register_forward_pre_hook(watch)
    try:
        return sizes, run()
    finally:
        handle.remove()


def test_memory_grows_with_what_was_generated(llama_path):
    model, tokenizer = parts(llama_path)
    generator = TransformersGenerator(
        model, tokenizer=tokenizer, max_new_tokens=900, stop=list("eoiast"), batch_size=4
    )
    slots, draws = sizes_of_tensors(
        lambda t: t.shape[-2] if t.ndim > 3 else 0, model, lambda: generator.sample(["one"], 8), 4
    )
    longest = max(draw.n_tokens for draw in draws[0])
    assert max(map(max, slots)) <= max(100, 3 * longest) < 900


def test_logits_of_past_steps_are_not_kept():
    from transformers import GPT2Config, GPT2LMHeadModel

    vocabulary, n_steps = 32_000, 128
    config = GPT2Config(
        vocab_size=vocabulary, n_embd=8, n_layer=1, n_head=2, eos_token_id=None, bos_token_id=0
    )
    tokenizer = tiny_models.byte_level_tokenizer()
    tokenizer.eos_token = None
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config)
    generator = TransformersGenerator(model, tokenizer=tokenizer, max_new_tokens=n_steps)
    sizes, draws = sizes_of_tensors(
        lambda t: t.numel() if t.shape[-1:] == (vocabulary,) else 0,
        model,
        lambda: generator.sample(["two"], 2),
        16,
    )
    assert [draw.n_tokens for draw in draws[0]] == [n_steps] * 2
    assert max(map(sum, sizes[1:])) <= 8 * 2 * vocabulary  # of a few steps
