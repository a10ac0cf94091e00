"""TransformersGenerator: draws, log-probabilities, stop strings, kinds of prompts."""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from sklearn_clm.generators import TransformersGenerator

pytest.importorskip("transformers")
import torch

KINDS = ["llama", "gpt2", "t5", "vit_gpt2"]
WORDS = ["Germany", "Japan", "日本", "called", "in", "the", "heart", "is", "große", "one"]
HEADER = "Q: What is Japan called in German? A: Japan\nQ: Is the heart enlarged? A: no.\n"


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def path(kind, request):
    return request.getfixturevalue(f"{kind}_path")


def prompts_for(kind: str, n: int) -> list:
    rng = np.random.default_rng(7)
    if kind == "vit_gpt2":
        return [rng.integers(0, 256, (16, 16, 3), dtype=np.uint8) for _ in range(n)]
    header = HEADER if kind == "llama" else ""
    sizes = rng.integers(1, 15, n)
    return [f"{header}{i} " + " ".join(rng.choice(WORDS, size)) for i, size in enumerate(sizes)]


def responses(draws):
    return [[draw.response for draw in row] for row in draws]


def parts(path):
    """A loaded model with its tokenizer."""
    checkpoint = TransformersGenerator(path)._load()
    return checkpoint.model, checkpoint.tokenizer


def unused(path, **options):
    """A generator whose model has run nothing yet."""
    checkpoint = TransformersGenerator(path)._load()
    return TransformersGenerator(
        copy.deepcopy(checkpoint.model),
        tokenizer=checkpoint.tokenizer,
        processor=checkpoint.processor,
        **options,
    )


def inputs_of(generator, prompt):
    """A prompt as the model itself takes it."""
    checkpoint = generator._load()
    if isinstance(prompt, np.ndarray):
        return {"pixel_values": checkpoint.pixel_values([prompt])}
    inputs = checkpoint.tokenizer([prompt], return_tensors="pt")
    return {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}


def teacher_forced(generator, prompt, tokens):
    """Log-probabilities of `tokens` after `prompt` from one pass over both."""
    model, inputs = generator._load().model, inputs_of(generator, prompt)
    with torch.no_grad():
        if generator._load().has_encoder:
            start = model.generation_config.decoder_start_token_id
            begun = torch.tensor([[start, *tokens[:-1]]])
            logits = model(**inputs, decoder_input_ids=begun).logits[0]
        else:
            ids = inputs["input_ids"]
            whole = torch.cat([ids, torch.tensor([tokens])], dim=1)
            logits = model(input_ids=whole, use_cache=False).logits[0, ids.shape[1] - 1 : -1]
    return logits.double().log_softmax(-1)[range(len(tokens)), tokens].tolist()


def recorded_tokens(generator, prompts, n_samples):
    """Draws with the tokens behind them."""
    from sklearn_clm.generators.transformers import _engine

    tokens = {}
    finished = _engine.Engine._finished

    def record(self, row):
        generation = finished(self, row)
        if generation is not None:
            tokens[id(generation)] = generation, list(row.tokens)
        return generation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_engine.Engine, "_finished", record)
        draws = generator.sample(prompts, n_samples)
    return [[(draw, tokens[id(draw)][1]) for draw in row] for row in draws]


def test_draws_do_not_depend_on_the_batch(kind, path):
    prompts = prompts_for(kind, 12)
    options = {"max_new_tokens": 6, "stop": ["\n"]}
    reference = responses(TransformersGenerator(path, batch_size=16, **options).sample(prompts, 8))
    for batch_size in (7, 150):
        generator = TransformersGenerator(path, batch_size=batch_size, **options)
        assert responses(generator.sample(prompts, 8)) == reference
    backwards = pd.Series([*prompts[::-1], prompts[0]], index=range(13, 0, -1))
    drawn = responses(generator.sample(backwards, 8))
    assert drawn == [*reference[::-1], reference[0]]
    # k_max of 3, then the other 5
    first, rest = generator.sample(prompts, 3), generator.sample(prompts, 5, start=3)
    assert [a + b for a, b in zip(responses(first), responses(rest))] == reference
    # one by one, in single rows, without the prefix that the batch shares
    generator = unused(path, batch_size=1, **options)
    for prompt, row in zip(prompts[:4], reference):
        assert responses(generator.sample([prompt], 3)) == [row[:3]]


def test_another_seed_or_draw_gives_other_responses(path, kind):
    prompt = prompts_for(kind, 1)
    generator = TransformersGenerator(path, max_new_tokens=8)
    first, second = (generator.sample(prompt, 6, seed=seed)[0] for seed in (0, 1))
    assert len({draw.response for draw in first}) > 3
    assert sum(a.response == b.response for a, b in zip(first, second)) < 3


def test_logprobs_equal_a_separate_forward_pass(kind, path):
    prompts = prompts_for(kind, 12)
    generator = TransformersGenerator(
        path, max_new_tokens=12, temperature=0.7, top_k=20, top_p=0.9, batch_size=10
    )
    n_eos = 0
    for prompt, row in zip(prompts, recorded_tokens(generator, prompts, 4)):
        for draw, tokens in row:
            expected = teacher_forced(generator, prompt, tokens)
            np.testing.assert_allclose(draw.token_logprobs, expected, atol=1e-4)
            assert draw.logprob == pytest.approx(sum(draw.token_logprobs), abs=1e-12)
            assert draw.n_tokens == len(tokens) == len(draw.token_spans) <= 12
            n_eos += draw.finish_reason == "stop"
            assert (draw.finish_reason == "length") == (len(tokens) == 12) or tokens[-1] in (0, 1)
    assert n_eos < 48


def test_end_of_sequence_counts_as_a_token(llama_path):
    generator = TransformersGenerator(llama_path, max_new_tokens=200, top_k=None)
    draws = recorded_tokens(generator, ["one two three"], 20)[0]
    draw, tokens = next(pair for pair in draws if pair[0].finish_reason == "stop")
    assert tokens[-1] == parts(llama_path)[1].eos_token_id
    assert draw.n_tokens == len(tokens)
    assert draw.token_spans[-1] == (len(draw.response),) * 2
    assert "</s>" not in draw.response


def test_next_tokens_have_the_distribution_of_generate(kind, path):
    from scipy.stats import chi2_contingency

    n_draws = 1000
    prompt = prompts_for(kind, 1)[0]
    options = {"temperature": 1.3, "top_k": 12, "top_p": 0.9}
    generator = TransformersGenerator(path, max_new_tokens=1, batch_size=500, **options)
    ours = [tokens[0] for _, tokens in recorded_tokens(generator, [prompt], n_draws)[0]]
    torch.manual_seed(0)
    options |= {"do_sample": True, "max_new_tokens": 1, "num_return_sequences": n_draws}
    model, inputs = generator._load().model, inputs_of(generator, prompt)
    theirs = model.generate(**inputs, pad_token_id=0, **options)[:, -1].tolist()
    tokens = sorted(set(ours) | set(theirs))
    table = np.array([[row.count(token) for token in tokens] for row in (ours, theirs)])
    table = np.column_stack([table[:, table.sum(0) >= 10], table[:, table.sum(0) < 10].sum(1)])
    assert chi2_contingency(table[:, table.sum(0) > 0]).pvalue > 1e-3


@pytest.mark.parametrize(
    ("stop", "n_least"), [(["e", "日本", "1"], 21), (["en", "s ", "gr", "e G"], 2)]
)
def test_stop_strings_cut_the_response(gpt2_path, stop, n_least):
    prompts = prompts_for("gpt2", 10)
    options = {"max_new_tokens": 24, "batch_size": 16}
    free = recorded_tokens(TransformersGenerator(gpt2_path, **options), prompts, 10)
    generator = TransformersGenerator(gpt2_path, stop=stop, **options)
    n_cut = 0
    for free_row, row in zip(free, recorded_tokens(generator, prompts, 10)):
        for (whole, all_tokens), (draw, tokens) in zip(free_row, row):
            assert all_tokens[: len(tokens)] == tokens  # the same draw, ended earlier
            expected = whole.token_logprobs[: len(tokens)]
            assert draw.token_logprobs == pytest.approx(expected, abs=1e-4)
            cuts = [(at, len(s)) for s in stop if (at := whole.response.find(s)) >= 0]
            if not cuts:
                assert draw.response == whole.response
                continue
            n_cut += 1
            start, stops = min(cuts)[0], [at + size for at, size in cuts]
            assert draw.response == whole.response[:start]
            assert draw.finish_reason == "stop"
            assert all(0 <= a <= b <= start for a, b in draw.token_spans)
            # no token more than completes the first string to be complete
            ends = [i for i, (_, b) in enumerate(whole.token_spans, 1) if b >= min(stops)]
            assert draw.n_tokens <= ends[0] or "\ufffd" in whole.response
    assert n_cut >= n_least


def test_the_end_of_a_long_text_alone_is_read_for_stop_strings(gpt2_path, monkeypatch):
    from sklearn_clm.generators.transformers._text import Detokenizer

    read, text_of = [], Detokenizer.text
    monkeypatch.setattr(
        Detokenizer, "text", lambda self, ids: read.append(len(ids)) or text_of(self, ids)
    )
    TransformersGenerator(gpt2_path, stop="never", max_new_tokens=100).sample(["a"], 1)
    assert sum(read) < 20 * 100


def test_a_stop_string_may_be_a_special_token(llama_path):
    # hot, so that any token may come
    options = {"max_new_tokens": 30, "top_k": None, "temperature": 5.0}
    whole = recorded_tokens(TransformersGenerator(llama_path, **options), ["one"], 60)[0]
    cut = recorded_tokens(TransformersGenerator(llama_path, stop="<s>", **options), ["one"], 60)[0]
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


def test_prompts_of_very_different_length_share_a_batch(llama_path):
    prompts = ["a", "two " * 150, "one two three", "x" * 60]
    generator = TransformersGenerator(llama_path, max_new_tokens=6)
    for prompt, row in zip(prompts, generator.sample(prompts, 3)):
        alone = generator.sample([prompt], 3)[0]
        assert [draw.response for draw in alone] == [draw.response for draw in row]
        for a, b in zip(alone, row):
            assert a.token_logprobs == pytest.approx(b.token_logprobs, abs=1e-4)


def test_a_draw_ends_where_the_positions_of_the_model_end(gpt2_path):
    prompt = "two " * 24  # 120 letters and more tokens than 100, of 128 positions
    generator = TransformersGenerator(gpt2_path, max_new_tokens=500, top_k=None)
    room = 128 - len(parts(gpt2_path)[1](prompt)["input_ids"])
    draws = generator.sample([prompt], 8)[0]
    assert max(draw.n_tokens for draw in draws) <= room
    assert {draw.n_tokens for draw in draws if draw.finish_reason == "length"} <= {room}


def test_nothing_is_drawn_where_nothing_is_wanted(llama_path):
    generator = TransformersGenerator(llama_path, max_new_tokens=4, batch_size=4)
    assert generator.sample(["one", "two", "three"], 0) == [[], [], []]
    assert generator.sample([], 2) == []


@pytest.mark.parametrize(
    ("prompt", "template", "text"),
    [
        (
            [{"role": "user", "content": "What is Japan called?"}],
            None,
            "<|user|>What is Japan called?\n<|assistant|>",
        ),
        ("{x}", "Q: {prompt} A:", "Q: {x} A:"),
        ("{x}", lambda prompt: f"Q: {prompt} A:", "Q: {x} A:"),
    ],
)
def test_prompts_are_written_as_templates_say(llama_path, prompt, template, text):
    from tests import tiny_models

    model, _ = parts(llama_path)
    tokenizer = tiny_models.byte_level_tokenizer()
    made, plain = (
        TransformersGenerator(model, tokenizer=tokenizer, max_new_tokens=5, prompt_template=each)
        for each in (template, lambda prompt: text)
    )
    assert made.sample([prompt], 4) == plain.sample([prompt], 4)
    # the key is the prompt, not the text made of it
    assert (made.sample([prompt], 4) == plain.sample([text], 4)) == (prompt == text)


def test_image_prompts(vit_gpt2_path):
    from PIL import Image

    arrays = prompts_for("vit_gpt2", 3)
    named = TransformersGenerator(vit_gpt2_path, max_new_tokens=6)
    expected = responses(named.sample(arrays, 3))
    images = [Image.fromarray(array) for array in arrays]
    assert all(len(row) == 2 for row in named.sample(images, 2))
    model, tokenizer = parts(vit_gpt2_path)
    options = {"preprocess": lambda prompt: prompt.transpose(2, 0, 1) / 127.5 - 1.0}
    without_processor = TransformersGenerator(
        model, tokenizer=tokenizer, max_new_tokens=6, **options
    )
    assert responses(without_processor.sample(arrays, 3)) == expected


def test_work_is_near_the_least_possible(llama_path):
    prompts = prompts_for("llama", 12)
    tokenizer = parts(llama_path)[1]
    lengths = [len(tokenizer(prompt)["input_ids"]) for prompt in prompts]
    n_shared = len(tokenizer(HEADER)["input_ids"])
    generator = unused(llama_path, max_new_tokens=8, batch_size=12)
    draws = generator.sample(prompts, 5)
    assert generator.n_decoded_tokens_ == sum(d.n_tokens - 1 for row in draws for d in row)
    widest = n_shared + 12 * (max(lengths) - n_shared)
    assert sum(lengths) - 11 * n_shared - 12 <= generator.n_prefilled_tokens_ <= widest + 12
    # the header stays in memory for the calls that follow
    before = generator.n_prefilled_tokens_
    generator.sample(prompts[:1], 1, start=5)
    assert generator.n_prefilled_tokens_ - before <= lengths[0] - n_shared + 1


def test_threads_may_sample_at_once(llama_path):
    prompts = prompts_for("llama", 12)
    generator = TransformersGenerator(llama_path, max_new_tokens=5)
    expected = responses(generator.sample(prompts, 3))
    with ThreadPoolExecutor(4) as pool:
        rows = pool.map(lambda i: generator.sample(prompts[i : i + 3], 3), range(0, 12, 3))
        assert responses([row for part in rows for row in part]) == expected


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_other_precisions(llama_path, dtype):
    prompts = ["one", "two three four five", "The heart is enlarged."]
    generator = TransformersGenerator(llama_path, dtype=dtype, max_new_tokens=6, batch_size=7)
    together = generator.sample(prompts, 4)
    assert together == generator.sample(prompts, 4)
    assert all(draw.logprob < 0 for row in together for draw in row)
    if dtype == "float64":  # the same draws in any batch
        for prompt, row in zip(prompts, together):
            for draw, alone in zip(row, generator.sample([prompt], 4)[0], strict=True):
                assert draw.response == alone.response
                assert draw.token_logprobs == pytest.approx(alone.token_logprobs, abs=1e-12)
