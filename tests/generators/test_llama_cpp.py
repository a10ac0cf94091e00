"""Against a real server: llama.cpp's, with a checkpoint that transformers reads, too."""

import numpy as np
import pytest
import tiny_models

from sklearn_clm.generators import OpenAIGenerator

pytest.importorskip("llama_cpp.server", reason="needs llama-cpp-python[server]")
pytest.importorskip("gguf", reason="needs gguf")
pytest.importorskip("transformers")
pytestmark = pytest.mark.llama_cpp

PROMPTS = ["Q: What is Germany called in French? A:", "one two three", "The heart is"]
# the whole distribution, not llama.cpp's default part of it
EVERYTHING = {"top_k": 0, "min_p": 0.0, "top_p": 1.0, "repeat_penalty": 1.0}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_models.llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def url(checkpoint, tmp_path_factory):
    from generators.llama_server import llama_server, write_gguf

    folder = tmp_path_factory.mktemp("gguf")
    write_gguf(checkpoint, folder / "tiny.gguf")
    with llama_server(folder / "tiny.gguf", folder / "server.log") as url:
        yield url


def generator_for(url, endpoint, **params):
    params = {"max_tokens": 4, "extra_body": EVERYTHING, "max_concurrency": 2, **params}
    return OpenAIGenerator("tiny", base_url=url, api_key="none", endpoint=endpoint, **params)


def log_probabilities(model, prompt_ids, response_ids):
    """Of each token of the response, by transformers."""
    import torch

    ids = torch.tensor([prompt_ids + response_ids])
    with torch.no_grad():
        logits = model(ids).logits[0, len(prompt_ids) - 1 : -1].double()
    known = torch.log_softmax(logits, dim=-1)
    return [float(row[token]) for row, token in zip(known, response_ids)]


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_log_probabilities_are_those_of_transformers(url, checkpoint, endpoint):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    rows = generator_for(url, endpoint).sample(PROMPTS, 40, seed=1)
    n_compared = 0
    for prompt, row in zip(PROMPTS, rows):
        if endpoint == "chat":
            messages = [{"role": "user", "content": prompt}]
            prompt = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        for draw in row:
            ids = token_ids(draw, tokenizer)
            if ids is None:
                continue  # the server does not say which incomplete character a token was
            n_compared += 1
            theirs = log_probabilities(model, prompt_ids, ids)
            np.testing.assert_allclose(draw.token_logprobs, theirs, atol=1e-3)
            assert draw.logprob == pytest.approx(sum(theirs), abs=4e-3)
    assert n_compared >= 10


def token_ids(draw, tokenizer):
    if not draw.n_tokens or draw.token_spans is None or not draw.response.isascii():
        return None
    pieces = [draw.response[first:last] for first, last in draw.token_spans]
    known = {tokenizer.decode([k]): k for k in range(2, len(tokenizer))}
    ids = [known.get(piece) for piece in pieces]
    return ids if all(ids) and "".join(pieces) == draw.response else None


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_draws_are_keyed_where_the_server_honours_seeds(url, endpoint):
    generator = generator_for(url, endpoint)
    together = generator.sample(PROMPTS, 6)
    apart = [generator.sample([prompt], 3, start=3)[0] for prompt in PROMPTS[::-1]]
    for row, other in zip(together[::-1], apart):
        assert [draw.response for draw in row[3:]] == [draw.response for draw in other]
        np.testing.assert_allclose(
            [draw.logprob for draw in row[3:]], [draw.logprob for draw in other], atol=1e-3
        )
    assert len({draw.response for row in together for draw in row}) > 6
