"""TransformersGenerator as an estimator: parameters, errors, clones, pickles, identity, memory."""

import copy
import gc
import itertools
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_clm.generators import TransformersGenerator

pytest.importorskip("transformers")
import torch

from tests import tiny_models


def loaded(path):
    """A model of its own, with its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(path), AutoTokenizer.from_pretrained(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", value) for value in (-1.0, float("nan"))),
        *(("stop", value) for value in (3, ["\n", ""], [1])),
        *(("prompt_template", value) for value in ("Q: A:", 3)),
        *(("tokenizer", value) for value in (3, "/nowhere/at/all")),
        *(("device", value) for value in ("cuda:99", "gpu")),
        ("top_k", 2.5),
        ("preprocess", "resize"),
        ("model", 3),
    ],
)
def test_bad_parameters_are_named(llama_path, name, value):
    generator = TransformersGenerator(**{"model": llama_path, name: value})
    with pytest.raises(ValueError, match=name):
        generator.sample(["one"], 1)


@pytest.mark.parametrize("argument", ["model", "tokenizer", "processor"])
@pytest.mark.parametrize("path", ["./nowhere", "../nowhere", "~/nowhere", "a/b/c", "here/nowhere"])
def test_a_folder_that_does_not_exist_is_named(llama_path, tmp_path, monkeypatch, argument, path):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    missing = Path(path).expanduser().resolve()
    generator = TransformersGenerator(**{"model": llama_path, argument: path})
    with pytest.raises(ValueError, match=f"^{argument}.*") as error:
        generator.sample(["one"], 1)
    assert f"there is no folder {str(missing)!r}" in str(error.value)
    assert error.value.__cause__ is not None


def test_the_home_directory_is_expanded(llama_path, monkeypatch):
    monkeypatch.setenv("HOME", str(Path(llama_path).parent))
    home = f"~/{Path(llama_path).name}"
    generator = TransformersGenerator(home, tokenizer=home, max_new_tokens=3)
    named = TransformersGenerator(llama_path, max_new_tokens=3)
    assert generator.sample(["one"], 2) == named.sample(["one"], 2)


def test_a_loaded_model_needs_its_tokenizer(llama_path):
    model, tokenizer = loaded(llama_path)
    with pytest.raises(ValueError, match="tokenizer must be given"):
        TransformersGenerator(model).sample(["one"], 1)
    with pytest.raises(ValueError, match="dtype"):
        TransformersGenerator(model, tokenizer=tokenizer, dtype="float64").sample(["one"], 1)


def test_a_model_without_a_head_is_refused(llama_path):
    model, tokenizer = loaded(llama_path)
    body = model.model
    body.generate = lambda: None  # looks like a language model at first sight
    with pytest.raises(ValueError, match="LlamaModel"):
        TransformersGenerator(body, tokenizer=tokenizer).sample(["one"], 1)


def test_a_checkpoint_of_another_kind_is_refused(tmp_path):
    from transformers import ViTConfig, ViTModel

    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    ViTModel(ViTConfig(**small, intermediate_size=8, image_size=8, patch_size=4)).save_pretrained(
        tmp_path
    )
    with pytest.raises(ValueError, match=r"model=.* could not be loaded"):
        TransformersGenerator(str(tmp_path)).sample(["one"], 1)


def test_a_checkpoint_without_tokenizer_says_so(tmp_path, llama_path):
    model, tokenizer = loaded(llama_path)
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="tokenizer"):
        TransformersGenerator(str(tmp_path)).sample(["one"], 1)
    generator = TransformersGenerator(str(tmp_path), tokenizer=tokenizer, max_new_tokens=3)
    named = TransformersGenerator(llama_path, max_new_tokens=3)
    assert generator.sample(["one"], 2) == named.sample(["one"], 2)


def test_the_tokenizer_of_another_model_is_refused(tmp_path, llama_path):
    small = tiny_models.llama(tmp_path, vocab_size=50, bos_token_id=0, eos_token_id=1)
    with pytest.raises(ValueError, match=r"tokenizer: gave token id \d+.* 50 tokens"):
        TransformersGenerator(small).sample(["one"], 1)


def test_a_decoder_begins_with_what_the_configuration_names(t5_path):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model, tokenizer = (
        kind.from_pretrained(t5_path) for kind in (AutoModelForSeq2SeqLM, AutoTokenizer)
    )
    generator = TransformersGenerator(model, tokenizer=tokenizer, max_new_tokens=4)
    usual, start = generator.sample(["one"], 3), model.config.decoder_start_token_id
    configs = (model.config, model.generation_config)
    for config in configs:
        config.decoder_start_token_id, config.bos_token_id = None, start
    assert generator.sample(["one"], 3) == usual
    for config in configs:
        config.bos_token_id = None
    with pytest.raises(
        ValueError, match="T5ForConditionalGeneration names no decoder_start_token_id"
    ):
        generator.sample(["one"], 1)


def test_weights_that_are_no_safetensors_are_refused(tmp_path, llama_path):
    model, tokenizer = loaded(llama_path)
    model.config.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="safetensors"):
        TransformersGenerator(str(tmp_path)).sample(["one"], 1)


def test_remote_code_is_not_run(tmp_path, llama_path):
    model, tokenizer = loaded(llama_path)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    marker = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\nclass C: pass\nclass M: pass\n")
    config = (tmp_path / "config.json").read_text().rstrip().removesuffix("}")
    config = config.replace('"llama"', '"evil"') + (
        ', "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}}'
    )
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ValueError, match=r"(?s)could not be loaded.*trust_remote_code"):
        TransformersGenerator(str(tmp_path)).sample(["one"], 1)
    assert not marker.exists()


@pytest.mark.parametrize("prompt", [3, None, {"role": "user"}, b"one", ["one"], "half \ud83d"])
def test_prompts_that_are_no_text_are_named(llama_path, prompt):
    with pytest.raises((TypeError, ValueError), match=r"prompts\[1\]"):
        TransformersGenerator(llama_path).sample(["one", prompt], 1)
    if not isinstance(prompt, str):
        with pytest.raises(TypeError, match=r"prompts\[0\].*prompt_template"):
            TransformersGenerator(llama_path, prompt_template="{prompt}").sample([prompt], 1)


@pytest.mark.parametrize(
    ("kind", "prompt", "options", "name"),
    [
        ("llama", "one", {"prompt_template": lambda prompt: None}, "prompt_template"),
        ("llama", np.zeros((4, 4)), {}, r"prompts\[0\] is a ndarray"),
        ("vit_gpt2", "one", {}, r"prompts\[0\] is text"),
        ("t5", [{"role": "user", "content": "x"}], {}, "chat_template"),
        ("gpt2", "two " * 400, {}, r"prompts\[0\] has \d+ tokens.*128"),
    ],
)
def test_prompts_that_a_model_cannot_take(request, kind, prompt, options, name):
    generator = TransformersGenerator(request.getfixturevalue(f"{kind}_path"), **options)
    with pytest.raises((TypeError, ValueError), match=name):
        generator.sample([prompt], 1)


def test_a_model_of_images_without_processor_wants_pixel_values(vit_gpt2_path):
    checkpoint = TransformersGenerator(vit_gpt2_path)._load()
    generator = TransformersGenerator(
        checkpoint.model, tokenizer=checkpoint.tokenizer, preprocess=lambda prompt: "pixels"
    )
    with pytest.raises(TypeError, match="takes images"):
        generator.sample([np.zeros((4, 4))], 1)
    generator.set_params(preprocess=lambda prompt: object())
    with pytest.raises(TypeError, match=r"processor=None.*\(channels, height, width\)"):
        generator.sample([np.zeros((4, 4))], 1)


def test_clones_share_the_model(llama_path):
    model, tokenizer = loaded(llama_path)
    generator = TransformersGenerator(model, tokenizer=tokenizer, stop=["\n"], max_new_tokens=4)
    draws = generator.sample(["one"], 2)
    for copied in (clone(generator), copy.deepcopy(generator), clone(clone(generator))):
        assert copied.model is model
        assert copied.tokenizer is tokenizer
        assert copied.get_params(deep=False) == generator.get_params(deep=False)
        assert copied.stop is not generator.stop
        assert not hasattr(copied, "n_decoded_tokens_")
        assert copied.sample(["one"], 2) == draws
        assert copied._checkpoint is generator._checkpoint


def test_generators_of_one_name_share_one_model(llama_path):
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


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_pickle_refers_to_a_model_by_where_it_came_from(llama_path, is_loaded):
    model = loaded(llama_path)[0] if is_loaded else llama_path
    generator = TransformersGenerator(model, tokenizer=llama_path, max_new_tokens=4)
    draws, fingerprint = generator.sample(["one"], 2), generator.fingerprint()
    stored = pickle.dumps(generator)
    assert len(stored) < 2000
    restored = pickle.loads(stored)
    assert restored.model == llama_path
    assert restored.sample(["one"], 2) == clone(restored).sample(["one"], 2) == draws
    assert restored.fingerprint() == fingerprint


def test_a_model_changed_since_it_was_loaded_is_not_mistaken(llama_path):
    model, _ = loaded(llama_path)
    generator = TransformersGenerator(model, tokenizer=llama_path, max_new_tokens=4)
    before = generator.fingerprint()
    with torch.no_grad():
        model.lm_head.weight.mul_(2.0)
    assert generator.fingerprint() != before
    model.lm_head.weight.data /= 2.0
    assert generator.fingerprint() == before
    model.lm_head.weight.data *= 2.0
    assert generator.fingerprint() != before
    restored = pickle.loads(pickle.dumps(generator))
    with pytest.raises(ValueError, match="other weights than the model"):
        restored.sample(["one"], 1)


def test_a_model_from_no_file_is_pickled_when_asked(llama_path):
    from transformers import LlamaForCausalLM

    named, tokenizer = loaded(llama_path)
    model = LlamaForCausalLM(named.config)
    model.name_or_path = ""
    generator = TransformersGenerator(model, tokenizer=tokenizer, max_new_tokens=4)
    with pytest.raises(pickle.PicklingError, match="pickle_model=True"):
        pickle.dumps(generator)
    generator.set_params(pickle_model=True)
    restored = pickle.loads(pickle.dumps(generator))
    assert restored.model is not model
    assert restored.sample(["one"], 3) == generator.sample(["one"], 3)
    assert restored.fingerprint() == generator.fingerprint()


def test_fingerprints_tell_what_shapes_a_draw(llama_path):
    base = {"model": llama_path, "max_new_tokens": 8}
    reference = TransformersGenerator(**base).fingerprint()
    same = [
        {"batch_size": 3},
        {"model": loaded(llama_path)[0], "tokenizer": llama_path},
        {"device": "cpu"},
        {"top_k": 50},
        {"pickle_model": True},
    ]
    other = [
        {"max_new_tokens": 9},
        {"temperature": 0.5},
        {"top_k": None},
        {"top_p": 0.9},
        {"stop": ["\n"]},
        {"dtype": "float64"},
        {"prompt_template": "Q: {prompt}"},
        {"prompt_template": lambda prompt: prompt + "!"},
        {"prompt_template": lambda prompt: prompt + "?"},
        {"tokenizer": tiny_models.byte_level_tokenizer(vocab_size=300)},
    ]
    for change in same:
        assert TransformersGenerator(**{**base, **change}).fingerprint() == reference
    digests = [TransformersGenerator(**{**base, **change}).fingerprint() for change in other]
    assert len({reference, *digests}) == 1 + len(other)


def test_logits_of_past_steps_are_not_kept(tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    vocabulary, n_steps = 32_000, 128
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=256,
        eos_token_id=None,
        bos_token_id=0,
    )
    torch.manual_seed(0)
    tokenizer = tiny_models.byte_level_tokenizer()
    tokenizer.eos_token = None
    generator = TransformersGenerator(
        LlamaForCausalLM(config), tokenizer=tokenizer, max_new_tokens=n_steps, batch_size=4
    )
    generator.sample(["one"], 1)
    sizes = []
    calls = itertools.count()
    forward = type(generator._checkpoint._forward)
    step = forward.step

    def watch(self, batch, rows):
        if next(calls) % 16 == 15:
            tensors = [obj for obj in gc.get_objects() if type(obj) is torch.Tensor]
            sizes.append(sum(t.numel() for t in tensors if t.shape[-1:] == (vocabulary,)))
        return step(self, batch, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward, "step", watch)
        draws = generator.sample(["two"], 2)[0]
    assert [draw.n_tokens for draw in draws] == [n_steps] * 2
    # logits of a few steps, of 128
    assert len(sizes) > 5
    assert max(sizes) <= 8 * 2 * vocabulary


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_other_precisions(llama_path, dtype):
    prompts = ["one", "two three four five", "The heart is enlarged."]
    generator = TransformersGenerator(llama_path, dtype=dtype, max_new_tokens=6, batch_size=7)
    together = generator.sample(prompts, 4)
    assert together == generator.sample(prompts, 4)
    assert all(draw.logprob < 0 for row in together for draw in row)
    if dtype == "float64":  # the same log-probabilities in any batch
        assert together == [generator.sample([prompt], 4)[0] for prompt in prompts]


def test_what_responses_are_made_to_begin_with_is_part_of_a_generator(t5_path):
    from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(t5_path).eval()
    generator = TransformersGenerator(model, tokenizer=t5_path, max_new_tokens=6)
    seen = []
    for language in (7, 9, 7):
        model.generation_config.forced_bos_token_id = language
        seen.append((generator.fingerprint(), generator.sample(["one"], 4)))
    assert seen[0] == seen[2]
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]
