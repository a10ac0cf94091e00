"""TransformersGenerator: draws, log-probabilities, stop strings, kinds of prompts."""

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
    generator = TransformersGenerator(path)
    checkpoint = generator._load()
    return checkpoint.model, checkpoint.tokenizer


def forward_logprobs(path, prompt, draw, tokens, image_processor=None):
    """Log-probabilities of `tokens` after `prompt` from one pass over both."""
    model, tokenizer = parts(path)
    with torch.no_grad():
        if not model.config.is_encoder_decoder:
            ids = tokenizer(prompt)["input_ids"]
            logits = model(input_ids=torch.tensor([[*ids, *tokens]])).logits[0, len(ids) - 1 : -1]
        else:
            start = model.generation_config.decoder_start_token_id
            decoder = torch.tensor([[start, *tokens[:-1]]])
            if isinstance(prompt, str):
                ids = torch.tensor([tokenizer(prompt)["input_ids"]])
                logits = model(input_ids=ids, decoder_input_ids=decoder).logits[0]
            else:
                checkpoint = TransformersGenerator(path)._load()
                pixels = checkpoint.pixel_values([prompt])
                logits = model(pixel_values=pixels, decoder_input_ids=decoder).logits[0]
    steps = logits.double().log_softmax(-1)
    return steps[torch.arange(len(tokens)), torch.tensor(tokens)].numpy()


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
    generator = TransformersGenerator(path, batch_size=16, **options)
    backwards = generator.sample(prompts[::-1], 8)[::-1]
    assert responses(backwards) == reference
    # k_max of 3, then the other 5
    first, rest = generator.sample(prompts, 3), generator.sample(prompts, 5, start=3)
    assert [a + b for a, b in zip(responses(first), responses(rest))] == reference
    # one by one, in single rows, without the prefix that the batch shares
    generator = TransformersGenerator(path, batch_size=1, **options)
    generator._load().prefix = None
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
            expected = forward_logprobs(path, prompt, draw, tokens)
            np.testing.assert_allclose(draw.token_logprobs, expected, atol=1e-4)
            assert draw.logprob == pytest.approx(expected.sum(), abs=2e-4)
            assert draw.logprob == pytest.approx(sum(draw.token_logprobs), abs=1e-12)
            assert draw.n_tokens == len(tokens) == len(draw.token_spans) <= 12
            n_eos += draw.finish_reason == "stop"
            assert (draw.finish_reason == "length") == (len(tokens) == 12) or tokens[-1] in (0, 1)
    assert n_eos < 48


def test_end_of_sequence_counts_as_a_token(llama_path):
    model, tokenizer = parts(llama_path)
    generator = TransformersGenerator(model, tokenizer=tokenizer, max_new_tokens=200, top_k=None)
    for draw, tokens in recorded_tokens(generator, ["one two three"], 20)[0]:
        if draw.finish_reason == "stop":
            assert tokens[-1] == tokenizer.eos_token_id
            assert draw.n_tokens == len(tokens)
            assert draw.token_spans[-1] == (len(draw.response),) * 2
            assert "</s>" not in draw.response
            break
    else:
        pytest.fail("no draw ended by itself")


def test_next_tokens_have_the_distribution_of_generate(kind, path):
    from scipy.stats import chi2_contingency

    n_draws = 1000
    prompt = prompts_for(kind, 1)[0]
    options = {"temperature": 1.3, "top_k": 12, "top_p": 0.9}
    generator = TransformersGenerator(path, max_new_tokens=1, batch_size=500, **options)
    ours = [tokens[0] for _, tokens in recorded_tokens(generator, [prompt], n_draws)[0]]
    model, tokenizer = parts(path)
    if kind == "vit_gpt2":
        inputs = {"pixel_values": generator._load().pixel_values([prompt])}
    else:
        inputs = tokenizer([prompt], return_tensors="pt")
        inputs = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
    torch.manual_seed(0)
    theirs = model.generate(
        **inputs,
        do_sample=True,
        max_new_tokens=1,
        num_return_sequences=n_draws,
        pad_token_id=0,
        **options,
    )[:, -1].tolist()
    tokens = sorted(set(ours) | set(theirs))
    table = np.array([[row.count(token) for token in tokens] for row in (ours, theirs)])
    table = np.column_stack([table[:, table.sum(0) >= 10], table[:, table.sum(0) < 10].sum(1)])
    assert chi2_contingency(table[:, table.sum(0) > 0]).pvalue > 1e-3


def test_stop_strings_cut_the_response(gpt2_path):
    prompts = prompts_for("gpt2", 10)
    options = {"max_new_tokens": 24, "batch_size": 16}
    free = recorded_tokens(TransformersGenerator(gpt2_path, **options), prompts, 10)
    generator = TransformersGenerator(gpt2_path, stop=["e", "日本", "1"], **options)
    n_cut = 0
    for free_row, row in zip(free, recorded_tokens(generator, prompts, 10)):
        for (whole, all_tokens), (draw, tokens) in zip(free_row, row):
            assert not any(string in draw.response for string in ("e", "日本", "1"))
            assert all_tokens[: len(tokens)] == tokens  # the same draw, ended earlier
            assert draw.token_logprobs == pytest.approx(
                whole.token_logprobs[: len(tokens)], abs=1e-4
            )
            cuts = [at for at in map(whole.response.find, ("e", "日本", "1")) if at >= 0]
            if cuts:
                n_cut += 1
                assert draw.response == whole.response[: min(cuts)]
                assert draw.finish_reason == "stop"
                assert all(0 <= a <= b <= len(draw.response) for a, b in draw.token_spans)
            else:
                assert draw.response == whole.response
    assert n_cut > 20


def test_a_stop_string_may_span_tokens(llama_path):
    model, tokenizer = parts(llama_path)
    free = TransformersGenerator(model, tokenizer=tokenizer, max_new_tokens=20)
    draw = free.sample(["one"], 1)[0][0]
    # the end of one token and the start of the next, in printable text
    ends = [
        stop
        for (_, stop), (start, _) in zip(draw.token_spans, draw.token_spans[1:])
        if (stop == start and 0 < stop < len(draw.response) and "\ufffd" not in draw.response)
        or "\ufffd" not in draw.response[max(stop - 1, 0) : stop + 1]
    ]
    at = next(stop for stop in ends if 0 < stop < len(draw.response))
    string = draw.response[at - 1 : at + 1]
    first = draw.response.find(string)
    cut = TransformersGenerator(model, tokenizer=tokenizer, max_new_tokens=20, stop=string)
    stopped = cut.sample(["one"], 1)[0][0]
    assert stopped.response == draw.response[:first]
    assert stopped.finish_reason == "stop"
    completed = next(i for i, (_, b) in enumerate(draw.token_spans) if b >= first + 2)
    assert stopped.n_tokens == completed + 1


def test_prompts_of_very_different_length_share_a_batch(llama_path):
    model, tokenizer = parts(llama_path)
    prompts = ["a", "two " * 150, "", "one two three", "x" * 60]
    generator = TransformersGenerator(model, tokenizer=tokenizer, max_new_tokens=6, batch_size=64)
    together = generator.sample(prompts, 3)
    for prompt, row in zip(prompts, together):
        alone = generator.sample([prompt], 3)[0]
        assert [draw.response for draw in alone] == [draw.response for draw in row]
        for a, b in zip(alone, row):
            assert a.token_logprobs == pytest.approx(b.token_logprobs, abs=1e-4)


def test_a_draw_ends_where_the_positions_of_the_model_end(gpt2_path):
    prompt = "two " * 24  # 120 letters and more tokens than 100, of 128 positions
    generator = TransformersGenerator(gpt2_path, max_new_tokens=500, top_k=None)
    tokenizer = parts(gpt2_path)[1]
    room = 128 - len(tokenizer(prompt)["input_ids"])
    draws = generator.sample([prompt], 8)[0]
    assert max(draw.n_tokens for draw in draws) <= room
    assert {draw.n_tokens for draw in draws if draw.finish_reason == "length"} <= {room}


def test_repeated_prompts_run_once(llama_path):
    generator = TransformersGenerator(llama_path, max_new_tokens=4)
    once = generator.sample(["one"], 3)[0]
    n_decoded = generator.n_decoded_tokens_
    first, _, again = generator.sample(["one", "two", "one"], 3)
    assert first == again
    assert [draw.response for draw in first] == [draw.response for draw in once]
    assert generator.n_decoded_tokens_ - n_decoded <= 2 * n_decoded + 3 * 4


def test_stream_yields_each_draw_once_and_stops_when_dropped(llama_path):
    generator = TransformersGenerator(llama_path, max_new_tokens=4, batch_size=4)
    prompts = ["one", "two", "three"]
    seen = [(i, j) for i, j, _ in generator.stream(prompts, 2, start=3)]
    assert sorted(seen) == [(i, j) for i in range(3) for j in (3, 4)]
    stream = generator.stream(prompts, 2)
    next(stream)
    stream.close()
    assert generator.sample(prompts, 0) == [[], [], []]
    assert generator.sample([], 2) == []


def test_a_training_model_is_sampled_in_evaluation_mode(llama_path):
    model, tokenizer = parts(llama_path)
    model.train()
    generator = TransformersGenerator(model, tokenizer=tokenizer, max_new_tokens=2)
    generator.sample(["one"], 1)
    assert not any(module.training for module in model.modules())


def test_chat_messages_go_through_the_chat_template(llama_path):
    messages = [{"role": "user", "content": "What is Japan called in German?"}]
    text = "<|user|>What is Japan called in German?\n<|assistant|>"
    generator = TransformersGenerator(llama_path, max_new_tokens=5)
    with_text = TransformersGenerator(
        llama_path, max_new_tokens=5, prompt_template=lambda prompt: text
    )
    assert generator.sample([messages], 3) == with_text.sample([messages], 3)


def test_prompt_templates(llama_path):
    written = TransformersGenerator(llama_path, max_new_tokens=5, prompt_template="Q: {prompt} A:")
    called = TransformersGenerator(
        llama_path, max_new_tokens=5, prompt_template=lambda prompt: f"Q: {prompt} A:"
    )
    plain = TransformersGenerator(llama_path, max_new_tokens=5)
    assert written.sample(["{x}"], 4) == called.sample(["{x}"], 4)
    # the key is the prompt, not the text made of it
    assert written.sample(["{x}"], 4) != plain.sample(["Q: {x} A:"], 4)


def test_image_prompts(vit_gpt2_path):
    from PIL import Image

    arrays = prompts_for("vit_gpt2", 3)
    images = [Image.fromarray(array) for array in arrays]
    generator = TransformersGenerator(vit_gpt2_path, max_new_tokens=6)
    assert all(len(row) == 2 for row in generator.sample(images, 2))
    flat = [array.reshape(-1) for array in arrays]
    shaped = TransformersGenerator(
        vit_gpt2_path, max_new_tokens=6, preprocess=lambda prompt: prompt.reshape(16, 16, 3)
    )
    assert shaped.sample(np.stack(flat), 2) == shaped.sample(flat, 2)


def test_pixel_values_straight_from_preprocess(vit_gpt2_path):
    model, tokenizer = parts(vit_gpt2_path)
    generator = TransformersGenerator(
        model,
        tokenizer=tokenizer,
        max_new_tokens=6,
        preprocess=lambda prompt: prompt.transpose(2, 0, 1) / 127.5 - 1.0,
    )
    named = TransformersGenerator(vit_gpt2_path, max_new_tokens=6)
    prompts = prompts_for("vit_gpt2", 3)
    assert responses(generator.sample(prompts, 3)) == responses(named.sample(prompts, 3))


def test_work_is_near_the_least_possible(llama_path):
    prompts = prompts_for("llama", 12)
    tokenizer = parts(llama_path)[1]
    lengths = [len(tokenizer(prompt)["input_ids"]) for prompt in prompts]
    n_shared = len(tokenizer(HEADER)["input_ids"])
    generator = TransformersGenerator(llama_path, max_new_tokens=8, batch_size=12)
    generator._load().prefix = None
    draws = generator.sample(prompts, 5)
    assert generator.n_decoded_tokens_ == sum(d.n_tokens - 1 for row in draws for d in row)
    widest = n_shared + 12 * (max(lengths) - n_shared)
    assert sum(lengths) - 11 * n_shared - 12 <= generator.n_prefilled_tokens_ <= widest + 12
    # the header stays in memory for the calls that follow
    before = generator.n_prefilled_tokens_
    generator.sample(prompts[:1], 1, start=5)
    assert generator.n_prefilled_tokens_ - before <= lengths[0] - n_shared + 1


def test_threads_may_sample_at_once(llama_path):
    from concurrent.futures import ThreadPoolExecutor

    prompts = prompts_for("llama", 12)
    generator = TransformersGenerator(llama_path, max_new_tokens=5)
    expected = responses(generator.sample(prompts, 3))
    with ThreadPoolExecutor(4) as pool:
        parts_ = pool.map(lambda i: generator.sample(prompts[i : i + 3], 3), range(0, 12, 3))
        assert responses([row for part in parts_ for row in part]) == expected


def test_prompts_of_a_series_count_by_position(gpt2_path):
    prompts = prompts_for("gpt2", 3)
    generator = TransformersGenerator(gpt2_path, max_new_tokens=3)
    assert generator.sample(pd.Series(prompts, index=[2, 0, 1]), 2) == generator.sample(prompts, 2)
