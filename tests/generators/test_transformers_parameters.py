"""TransformersGenerator as an estimator: parameters, errors, clones, pickles, identity."""

import copy
import gc
import os
import pickle
import sys
import types
import weakref
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_clm import ConformalSampler
from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import TransformersGenerator

pytest.importorskip("transformers")
import torch
from tokenizers import normalizers

from sklearn_clm.generators.transformers._checkpoint import Checkpoint
from tests import tiny_models
from tests.generators.llama_server import write_gguf
from tests.generators.test_transformers import HEADER, WORDS, parts, recorded_tokens, responses


@pytest.fixture
def model(llama_path):
    """A model of its own."""
    return copy.deepcopy(parts(llama_path)[0])


@pytest.fixture
def generator(model, llama_path):
    return TransformersGenerator(model, tokenizer=llama_path, max_new_tokens=5)


def test_a_template_needs_a_place_for_the_prompt(llama_path):
    with pytest.raises(ValueError, match="prompt_template"):
        TransformersGenerator(llama_path, prompt_template="Q: A:").sample(["one"], 1)


def test_a_loaded_model_needs_a_head_and_a_tokenizer(model, llama_path):
    with pytest.raises(ValueError, match="tokenizer"):
        TransformersGenerator(model).sample(["one"], 1)
    with pytest.raises(ValueError, match="model"):
        TransformersGenerator(model.model, tokenizer=llama_path).sample(["one"], 1)


def test_a_checkpoint_may_lack_its_tokenizer(tmp_path, model, llama_path):
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="tokenizer"):
        TransformersGenerator(tmp_path).sample(["one"], 1)
    generator = TransformersGenerator(tmp_path, tokenizer=Path(llama_path), max_new_tokens=3)
    named = TransformersGenerator(llama_path, max_new_tokens=3)
    assert generator.sample(["one"], 2) == named.sample(["one"], 2)


def test_a_decoder_begins_with_what_the_configuration_names(t5_path):
    model, tokenizer = parts(t5_path)
    model = copy.deepcopy(model)
    generator = TransformersGenerator(model, tokenizer=tokenizer, max_new_tokens=6)
    config = model.generation_config
    usual, start = generator.sample(["one"], 4), config.decoder_start_token_id
    seen = []
    for language in (7, 9, 7):
        config.forced_bos_token_id = language
        seen.append((generator.fingerprint(), generator.sample(["one"], 4)))
    assert seen[0] == seen[2]
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]
    config.forced_bos_token_id = config.decoder_start_token_id = None
    config.bos_token_id = start
    assert generator.sample(["one"], 4) == usual
    config.bos_token_id = None
    with pytest.raises(ValueError, match="decoder_start_token_id"):
        generator.sample(["one"], 1)


def test_a_model_that_sees_what_follows_is_refused():
    from transformers import XLNetConfig, XLNetLMHeadModel

    tokenizer = tiny_models.byte_level_tokenizer()
    size = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 16, "initializer_range": 0.5}
    model = XLNetLMHeadModel(XLNetConfig(vocab_size=len(tokenizer), **size)).eval()
    with pytest.raises(ValueError, match="must be causal, got a XLNetLMHeadModel"):
        TransformersGenerator(model, tokenizer=tokenizer).sample(["one"], 1)


def test_weights_that_are_no_safetensors_are_refused(tmp_path, model):
    model.config.save_pretrained(tmp_path)
    tiny_models.byte_level_tokenizer().save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    unsafe = {"use_safetensors": False}
    with pytest.raises(OSError, match="safetensors"):
        TransformersGenerator(tmp_path, model_kwargs=unsafe).sample(["one"], 1)


@pytest.mark.parametrize(
    ("kind", "prompt", "template"),
    [
        *(("llama", prompt, None) for prompt in (3, None, {"role": "user"}, b"one", ["one"])),
        *(("llama", prompt, "{prompt}") for prompt in (3, None, ["one"])),
        ("llama", "one", lambda prompt: None),
        ("llama", np.zeros((4, 4)), None),
        ("llama", "half \ud83d", None),
        ("gpt2", "two " * 400, None),
    ],
)
def test_prompts_that_a_model_cannot_take_are_named(request, kind, prompt, template):
    path = request.getfixturevalue(f"{kind}_path")
    with pytest.raises((TypeError, ValueError), match=r"prompts\[0\]"):
        TransformersGenerator(path, prompt_template=template).sample([prompt], 1)


def test_clones_and_generators_of_one_name_share_the_model(model, generator, llama_path):
    draws = generator.sample(["one"], 2)
    for copied in (clone(generator), clone(clone(generator))):
        assert copied.model is model
        assert copied.n_decoded_tokens_ == 0 < generator.n_decoded_tokens_
        assert copied.sample(["one"], 2) == draws
        assert copied._checkpoint is generator._checkpoint
    first, second = (TransformersGenerator(llama_path, temperature=t) for t in (0.5, 1.0))
    assert first._load() is second._load() is clone(first)._load()
    assert TransformersGenerator(llama_path, dtype="float64")._load() is not first._load()


def test_a_checkpoint_written_anew_is_loaded_anew(tmp_path):
    path = tiny_models.llama(tmp_path, seed=0)
    generator = TransformersGenerator(path, max_new_tokens=6)
    first, digest = generator.sample(["one"], 3), generator.fingerprint()
    tiny_models.llama(tmp_path, seed=1)
    os.utime(tmp_path / "model.safetensors", (1, 1))
    assert generator.sample(["one"], 3) != first
    assert generator.fingerprint() != digest


def test_one_argument_loads_weights_config_and_tokenizer_of_a_gguf_file(tmp_path, llama_path):
    file = tmp_path / "tiny.gguf"
    write_gguf(llama_path, str(file))
    settings = {"max_new_tokens": 8, "prompt_template": "Q: {prompt} A:"}
    generator = TransformersGenerator(tmp_path, model_kwargs={"gguf_file": file.name}, **settings)
    prompts = ["What is Germany called in French?", "Das Herz ist groß."]
    rows = TransformersGenerator(llama_path, **settings).sample(prompts, 6)
    # the file holds the same numbers, in another order
    assert generator.sample(prompts, 6) == rows
    digest = generator.fingerprint()
    write_gguf(tiny_models.llama(tmp_path / "another", seed=1), str(file))
    os.utime(file, (1, 1))
    assert generator.sample(prompts, 6) != rows
    assert generator.fingerprint() != digest


def test_a_processor_that_is_gone_is_not_mistaken_for_another(vit_gpt2_path):
    from transformers import AutoImageProcessor

    class Processor:
        def __init__(self):
            self.image_processor = AutoImageProcessor.from_pretrained(vit_gpt2_path)

        def __call__(self):
            raise NotImplementedError

    generator = TransformersGenerator(vit_gpt2_path, processor=Processor(), max_new_tokens=1)
    generator.sample(np.zeros((1, 16, 16, 3), dtype=np.uint8), 1)
    kept, checkpoint = weakref.ref(generator.processor), generator._checkpoint
    del generator
    gc.collect()
    assert checkpoint is not None
    assert kept() is not None  # so that no other processor gets its address


@pytest.mark.parametrize("is_loaded", [False, True])
def test_pickles_draw_the_same(generator, llama_path, is_loaded):
    if not is_loaded:
        generator.set_params(model=llama_path)
    draws, fingerprint = generator.sample(["one"], 2), generator.fingerprint()
    stored = pickle.dumps(generator)
    assert is_loaded or len(stored) < 2000
    restored = pickle.loads(stored)
    assert restored.sample(["one"], 2) == draws
    assert restored.fingerprint() == fingerprint


@pytest.fixture(params=["bare", "cached"])
def sampler(request, generator):
    """One that has predicted before."""
    generator.set_params(tokenizer=copy.deepcopy(parts(generator.tokenizer)[1]))
    if request.param == "cached":
        generator = CachedGenerator(generator)
    sampler = ConformalSampler(
        generator, k_max=2, delta=0.2, epsilon=0.5, admission=lambda reference, response: True
    )
    prompts = [f"{a} {b}" for a in WORDS for b in WORDS]
    sampler.fit(prompts, ["anything"] * len(prompts)).predict(["one"])
    return sampler


def test_a_request_does_not_describe_the_model(sampler, monkeypatch):
    monkeypatch.setattr(Checkpoint, "description", None)
    for word in WORDS:
        sampler.predict([word])


def grown(model, tokenizer):
    with torch.no_grad():
        model.lm_head.weight.mul_(2.0)


CHANGES = {
    "weights": grown,
    "settings": lambda model, tokenizer: setattr(model.config, "rms_norm_eps", 0.5),
    "end": lambda model, tokenizer: setattr(model.generation_config, "eos_token_id", [5, 6]),
    "template": lambda model, tokenizer: setattr(tokenizer, "chat_template", "{{ messages }}"),
    "vocabulary": lambda model, tokenizer: tokenizer.add_tokens(["entirely new"]),
    "special token": lambda model, tokenizer: setattr(tokenizer, "bos_token", "one"),
    "normalizer": lambda model, tokenizer: setattr(
        tokenizer.backend_tokenizer, "normalizer", normalizers.Lowercase()
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_request_refuses_a_model_that_was_changed_in_place(sampler, model, change):
    generator = getattr(sampler.generator_, "generator", sampler.generator_)
    sampler.predict(["two"])
    change(model, generator.tokenizer)
    for _ in range(2):
        with pytest.raises(ValueError, match="generator_ must be"):
            sampler.predict(["three"])


class Adapter(torch.nn.Linear):
    """What PEFT shows of a layer with adapters."""

    active_adapters = ("first",)
    disable_adapters = False


SWITCHES = {"active_adapters": ("second",), "disable_adapters": True, "scaling": {"first": 2.0}}


@pytest.mark.parametrize(("name", "value"), SWITCHES.items(), ids=SWITCHES)
def test_adapters_that_are_switched_are_another_model(model, llama_path, monkeypatch, name, value):
    """Their weights are the same: a model holds those of all its adapters."""
    kept = model.lm_head.weight
    model.lm_head = Adapter(*kept.shape[::-1], bias=False)
    model.lm_head.weight = kept
    model.lm_head.scaling = {"first": 1.0}
    generator = TransformersGenerator(model, tokenizer=llama_path)
    without = generator.fingerprint()
    tuners = types.SimpleNamespace(BaseTunerLayer=Adapter)
    monkeypatch.setitem(sys.modules, "peft.tuners.tuners_utils", tuners)
    fingerprint, version = generator.fingerprint(), generator.model_version
    assert without != fingerprint
    setattr(model.lm_head, name, value)
    assert generator.model_version is not version
    assert TransformersGenerator(model, tokenizer=llama_path).fingerprint() != fingerprint


def test_a_model_changed_since_it_was_loaded_is_not_mistaken(model, generator):
    few_shot = [f"{HEADER}{word}" for word in ("one two", "three", "four five six")]
    generator.sample(few_shot, 1)  # keeps the prefix
    before = generator.fingerprint()
    with torch.no_grad():
        model.lm_head.weight.mul_(2.0)
    assert generator.fingerprint() != before
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(-0.5)
    assert generator.fingerprint() != before
    fresh = clone(generator).set_params(model=copy.deepcopy(model))
    assert responses(generator.sample(few_shot[:1], 6)) == responses(fresh.sample(few_shot[:1], 6))
    generator.sample(few_shot, 1)
    model.to(torch.bfloat16)
    assert len(generator.sample(few_shot[:1], 2)[0]) == 2
    model.train()
    generator.sample(["one"], 1)
    assert not any(module.training for module in model.modules())


def test_a_generation_config_may_change_after_the_first_draw(model, generator):
    ending = recorded_tokens(generator, ["one"], 8)[0][0][1][0]
    model.generation_config.eos_token_id = [1, ending]
    draw, tokens = recorded_tokens(generator, ["one"], 8)[0][0]
    assert (tokens, draw.finish_reason) == ([ending], "stop")


def test_fingerprints_tell_what_shapes_a_draw(model, llama_path):
    base = {"model": llama_path, "max_new_tokens": 8}
    reference = TransformersGenerator(**base).fingerprint()
    same = [{"batch_size": 3}, {"device": "cpu"}, {"top_k": 50}]
    same += [{"model": model, "tokenizer": llama_path}]
    other = [{"max_new_tokens": 9}, {"temperature": 0.5}, {"top_k": None}, {"top_p": 0.9}]
    other += [{"stop": ["\n"]}, {"dtype": "float64"}, {"prompt_template": "Q: {prompt}"}]
    other += [{"prompt_template": lambda prompt: prompt + "!"}]
    other += [{"prompt_template": lambda prompt: prompt + "?"}]
    other += [{"tokenizer": tiny_models.byte_level_tokenizer(vocab_size=300)}]
    for change in same:
        assert TransformersGenerator(**{**base, **change}).fingerprint() == reference
    digests = [TransformersGenerator(**{**base, **change}).fingerprint() for change in other]
    assert len({reference, *digests}) == 1 + len(other)
