"""TransformersGenerator.serve: draws that are asked for as others arrive, and what may change."""

import copy
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

from tests import tiny_models
from tests.generators.test_transformers import (
    HEADER,
    KINDS,
    parts,
    prompts_for,
    recorded_tokens,
    responses,
)

DATA = Path(__file__).parent / "data" / "keyed_draws.json"


def served(generator, prompts, counts, n_draws, seed=0):
    """Draws of a queue whose rule stops each prompt after a number of draws."""
    seen, draws = Counter(), {}

    def decide(arrived):
        for i, new in arrived:
            seen[i] += len(new)
        return [min(seen[i] + 1, counts[i]) for i, _ in arrived]

    queue = DrawQueue(
        prompts,
        n_draws,
        seed=seed,
        decide=decide,
        on_draw=lambda i, j, draw: draws.setdefault((i, j), draw),
    )
    generator.serve(queue)
    assert queue.n_under_way == 0
    assert all((i, j) in draws for i in range(len(prompts)) for j in range(counts[i]))
    assert len(draws) == queue.n_put
    return draws


@pytest.mark.parametrize("kind", KINDS)
def test_served_draws_are_those_that_are_sampled(kind, request):
    path = request.getfixturevalue(f"{kind}_path")
    prompts = prompts_for(kind, 8)
    counts = np.random.default_rng(1).integers(1, 6, 8).tolist()
    options = {"max_new_tokens": 6, "stop": ["e"]}
    expected = responses(TransformersGenerator(path, **options).sample(prompts, 5))
    assert isinstance(TransformersGenerator(path), QueueGenerator)
    for settings in (
        {"batch_size": 4},
        {"batch_size": 5, "max_state_bytes": 0},
        {"batch_size": 3, "max_state_bytes": 20_000},
        {"batch_size": 64},
    ):
        draws = served(TransformersGenerator(path, **options, **settings), prompts, counts, 5)
        assert {key: draw.response for key, draw in draws.items()} == {
            (i, j): expected[i][j] for i, j in draws
        }
    order = np.random.default_rng(2).permutation(8)
    generator = TransformersGenerator(path, batch_size=4, **options)
    mixed = served(generator, [prompts[i] for i in order], [counts[i] for i in order], 5)
    assert all(draw.response == expected[order[i]][j] for (i, j), draw in mixed.items())
    for i in (0, 5):
        alone = served(generator, [prompts[i]], [counts[i]], 5)
        assert all(draw.response == expected[i][j] for (_, j), draw in alone.items())


def test_a_prompt_is_prefilled_once_while_it_is_open(llama_path):
    prompts = prompts_for("llama", 20)
    counts = np.random.default_rng(0).integers(1, 7, 20).tolist()
    once, often, little = (
        TransformersGenerator(llama_path, max_new_tokens=4, batch_size=8, max_state_bytes=size)
        for size in (None, None, 0)
    )
    n_prefilled = []
    for generator in (once, often, little):
        generator._load().prefix = None
        if generator is once:
            generator.sample(prompts, 6)
        else:
            served(generator, prompts, counts, 6)
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

    draws = {}
    queue = DrawQueue(
        prompts, 6, decide=decide, on_draw=lambda i, j, draw: draws.update({(i, j): draw})
    )
    generator.serve(queue)
    assert queue.n_under_way == 0
    assert all(draw.response == expected[i][j] for (i, j), draw in draws.items())
    assert {i for i, _ in draws} == set(range(5))


def test_draws_of_earlier_versions():
    data = json.loads(DATA.read_text())
    for kind in KINDS:
        assert _tokens_with_written_weights(kind) == data[kind], kind


def _tokens_with_written_weights(kind):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = getattr(tiny_models, kind)(Path(folder))
        checkpoint = TransformersGenerator(path)._load()
    rng = np.random.default_rng(0)  # so that the weights are the same with any torch
    with torch.no_grad():
        for name, parameter in sorted(checkpoint.model.named_parameters()):
            is_scale = ("norm" in name.lower() or "ln_" in name) and name.endswith("weight")
            values = rng.normal(0, 0.35, parameter.shape) + float(is_scale and parameter.ndim == 1)
            parameter.copy_(torch.tensor(values))
    generator = TransformersGenerator(
        checkpoint.model,
        tokenizer=checkpoint.tokenizer,
        processor=checkpoint.processor,
        max_new_tokens=8,
        temperature=0.9,
        top_p=0.95,
        stop=["."],
        batch_size=16,
    )
    draws = recorded_tokens(generator, prompts_for(kind, 6), 8)
    return [[tokens for _, tokens in row] for row in draws]


def loaded(path):
    """A model of its own, and a generator of it."""
    model, tokenizer = parts(path)
    model = copy.deepcopy(model)
    return model, TransformersGenerator(model, tokenizer=tokenizer, max_new_tokens=5)


def few_shot(n):
    return [f"{HEADER}{word}" for word in ("one two", "three", "four five six")[:n]]


def test_a_kept_prefix_does_not_outlive_the_weights(llama_path):
    model, generator = loaded(llama_path)
    generator.sample(few_shot(3), 1)
    assert generator._checkpoint.prefix is not None
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(-0.5)
    fresh = TransformersGenerator(
        copy.deepcopy(model), tokenizer=generator.tokenizer, max_new_tokens=5
    )
    assert responses(generator.sample(few_shot(1), 6)) == responses(fresh.sample(few_shot(1), 6))
    generator.sample(few_shot(3), 1)
    model.to(torch.bfloat16)
    assert len(generator.sample(few_shot(1), 2)[0]) == 2


class _Adapter(torch.nn.Module):
    """What PEFT puts in place of a layer, as far as it matters here."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self._active_adapter = ["first"]

    def forward(self, states):
        return self.layer(states) * (1.0 if self._active_adapter == ["first"] else -2.0)


def test_an_adapter_that_is_switched_is_another_model(llama_path):
    model, generator = loaded(llama_path)
    adapter = model.model.layers[0].mlp.down_proj = _Adapter(model.model.layers[0].mlp.down_proj)
    first = generator.fingerprint(), responses(generator.sample(few_shot(3), 6))
    adapter._active_adapter = ["second"]
    second = generator.fingerprint(), responses(generator.sample(few_shot(3), 6))
    assert first[0] != second[0]
    alone = responses(generator.sample(few_shot(1), 6))
    generator._checkpoint.prefix = None
    assert alone == responses(generator.sample(few_shot(1), 6)) == second[1][:1]


def test_a_generation_config_may_change_after_the_first_draw(llama_path):
    model, generator = loaded(llama_path)
    before = recorded_tokens(generator, ["one"], 8)[0]
    ending = before[0][1][0]
    model.generation_config.eos_token_id = [1, ending]
    draw, tokens = recorded_tokens(generator, ["one"], 8)[0][0]
    assert (tokens, draw.finish_reason) == ([ending], "stop")


def test_a_stop_string_may_be_a_special_token(llama_path):
    model, tokenizer = parts(llama_path)
    # hot, so that any token may come
    options = {"tokenizer": tokenizer, "max_new_tokens": 30, "top_k": None, "temperature": 5.0}
    whole = recorded_tokens(TransformersGenerator(model, **options), ["one"], 60)[0]
    cut = recorded_tokens(TransformersGenerator(model, stop="<s>", **options), ["one"], 60)[0]
    n_cut = 0
    for (_, tokens), (draw, shorter) in zip(whole, cut):
        if 0 in tokens:
            n_cut += 1
            assert shorter == tokens[: tokens.index(0) + 1]
            assert draw.finish_reason == "stop"
            assert draw.token_spans[-1] == (len(draw.response),) * 2
        else:
            assert shorter == tokens
    assert n_cut > 0


def test_a_text_that_a_template_began_is_not_begun_again(llama_path):
    from tokenizers import processors

    model, _ = parts(llama_path)
    tokenizer = tiny_models.byte_level_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    assert tokenizer("<s>one")["input_ids"][:2] == [0, 0]
    plain, rendered = (
        TransformersGenerator(
            model, tokenizer=tokenizer, max_new_tokens=6, prompt_template=template
        )
        for template in (lambda prompt: prompt, lambda prompt: "<s>" + prompt)
    )
    assert responses(plain.sample(["one"], 6)) == responses(rendered.sample(["one"], 6))


def test_memory_grows_with_what_was_generated(llama_path):
    model, tokenizer = parts(llama_path)
    generator = TransformersGenerator(
        model, tokenizer=tokenizer, max_new_tokens=900, stop=list("eoiast"), batch_size=4
    )
    slots, calls = [], itertools.count()

    def watch(module, args):
        if next(calls) % 4:  # to look for tensors takes longer than to compute with them
            return
        tensors = [obj for obj in gc.get_objects() if type(obj) is torch.Tensor]
        slots.append(max((t.shape[-2] for t in tensors if t.ndim > 3), default=0))

    handle = model.register_forward_pre_hook(watch)
    try:
        draws = generator.sample(["one", "two"], 4)
    finally:
        handle.remove()
    longest = max(draw.n_tokens for row in draws for draw in row)
    assert max(slots) <= max(100, 3 * longest) < 900


def test_a_model_that_sees_what_follows_is_refused():
    from transformers import XLNetConfig, XLNetLMHeadModel

    tokenizer = tiny_models.byte_level_tokenizer()
    config = XLNetConfig(
        vocab_size=len(tokenizer),
        d_model=16,
        n_layer=2,
        n_head=2,
        d_inner=16,
        initializer_range=0.5,
    )
    generator = TransformersGenerator(XLNetLMHeadModel(config).eval(), tokenizer=tokenizer)
    with pytest.raises(ValueError, match="must be causal, got a XLNetLMHeadModel"):
        generator.sample(["one"], 1)


def test_threads_are_as_asked_while_drawing_and_as_before_afterwards(llama_path):
    before = torch.get_num_threads()
    seen = []
    model, generator = loaded(llama_path)
    handle = model.register_forward_pre_hook(lambda *_: seen.append(torch.get_num_threads()))
    try:
        for n_threads, expected in ((3, 3), (None, before), ("auto", 1)):
            generator.set_params(n_threads=n_threads).sample(["one"], 1)
            assert seen[-1] == expected
    finally:
        handle.remove()
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="n_threads"):
        generator.set_params(n_threads=0).sample(["one"], 1)
