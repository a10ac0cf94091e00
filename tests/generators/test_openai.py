"""Draws from a service: what is sent, what is understood, faults, budget."""

import logging
import multiprocessing
import os
import pickle
import random
import re
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from itertools import chain

import numpy as np
import pytest
from generators.fault_server import FAULTS, SLOW, FaultServer, tokens, words
from sklearn.base import clone

from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import DrawQueue, OpenAIGenerator, ServiceError
from sklearn_clm.generators.draws import draw_seed
from sklearn_clm.scoring import LLMJudge
from tests.toy import n_stored, toy_sampler

PROMPTS = [f"question {i}" for i in range(6)]
ENDPOINTS = ("chat", "completions")
THE_OTHER_SLOWLY = (ENDPOINTS[0], pytest.param(ENDPOINTS[1], marks=pytest.mark.slow))
pytestmark = pytest.mark.usefixtures("short_waits")


def generator_for(server, **params):
    params = {"timeout": 60.0, **params}
    return OpenAIGenerator("tiny", base_url=server.url, api_key="sk-test", **params)


def patience_with(fault):
    """Seconds for an answer: long, as a machine may be busy, but where one waits in vain."""
    return 0.5 if fault in SLOW else 60.0


def expected(prompt, seed, draw):
    """The draw that the server gives for the seed that the generator must send."""
    return tokens(prompt, draw_seed(prompt, seed, draw), 0)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_draws_are_keyed_and_complete(server, endpoint):
    server.compresses = endpoint == "chat"
    rows = generator_for(server, endpoint=endpoint).sample(PROMPTS, 3, start=2, seed=5)
    for prompt, row in zip(PROMPTS, rows):
        for draw, generation in enumerate(row, start=2):
            parts = expected(prompt, 5, draw)
            assert generation.response.encode() == b"".join(piece for piece, _ in parts)
            assert generation.token_logprobs == tuple(value for _, value in parts)
            assert generation.logprob == pytest.approx(sum(generation.token_logprobs))
            assert (generation.n_tokens, generation.finish_reason) == (len(parts), "stop")
            for (piece, _), (first, last) in zip(parts, generation.token_spans):
                assert piece in generation.response[first:last].encode()


OF_CHAT = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 5}
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Q: Who? {x}"}]


@pytest.mark.parametrize(
    ("params", "other_params", "request_"),
    [
        (
            {**OF_CHAT, "stop": ("\n",), "extra_body": {"top_k": 40}},
            {"prompt_template": "Q: {prompt} {x}", "system_prompt": "Be brief."},
            {**OF_CHAT, "stop": ["\n"], "top_k": 40, "messages": MESSAGES}
            | {"logprobs": True, "top_logprobs": 1},
        ),
        (
            {"endpoint": "completions", "temperature": None},
            {"prompt_template": str.upper},
            {"logprobs": 1, "prompt": "WHO?"},
        ),
    ],
)
def test_what_a_request_holds(server, params, other_params, request_):
    generator_for(server, **params, **other_params).sample(["Who?"], 1, seed=3)
    (sent,) = server.requests
    assert sent == {"model": "tiny", "seed": draw_seed("Who?", 3, 0), **request_}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_several_draws_in_one_request(server, endpoint):
    generator = generator_for(server, endpoint=endpoint, n_per_request=4)
    rows = generator.sample(PROMPTS, 6)
    sizes = sorted(request.get("n", 1) for request in server.requests)
    assert sizes == [2] * 6 + [4] * 6
    seed = draw_seed(PROMPTS[0], 0, 0)
    assert [g.response for g in rows[0][:4]] == [
        " ".join(words(PROMPTS[0], seed, index)) for index in range(4)
    ]


def test_equal_draws_are_kept_and_repeated_indices_are_not(server):
    server.answer = lambda prompt: "yes"
    server.planned = ["duplicated"]
    rows = generator_for(server, n_per_request=3).sample(["a"], 3)
    assert [g.response for g in rows[0]] == ["yes"] * 3
    assert len(server.requests) == 1
    server.planned = ["too_few"]
    assert len(generator_for(server, n_per_request=3).sample(["a"], 3)[0]) == 3


@pytest.mark.parametrize("endpoint", THE_OTHER_SLOWLY)
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_survived(server, endpoint, fault):
    reference = generator_for(server, endpoint=endpoint).sample(["a"], 1)
    generator = generator_for(server, endpoint=endpoint, timeout=patience_with(fault))
    server.planned = [fault, fault]
    assert generator.sample(["a"], 1) == reference
    # what was asked for can be found in an answer with too much in it
    assert len(server.planned) == (1 if fault in ("too_many", "duplicated") else 0)


@pytest.mark.parametrize("endpoint", THE_OTHER_SLOWLY)
def test_random_faults_change_no_draw_and_each_is_stored_once(tmp_path, endpoint, caplog):
    with FaultServer() as server:
        reference = generator_for(server, endpoint=endpoint).sample(PROMPTS, 20, seed=1)
    with (
        FaultServer(0.3, seed=2) as server,
        caplog.at_level(logging.DEBUG, "openai._base_client"),
    ):
        options = {"max_retries": 30, "max_concurrency": 16, "timeout": 2.0}
        generator = generator_for(server, endpoint=endpoint, **options)
        cached = CachedGenerator(generator, tmp_path / "draws.sqlite")
        assert cached.sample(PROMPTS, 20, seed=1) == reference
        assert sum(server.n_faults.values()) > 30
        n_timeouts = len(re.findall(r"(?i)encountered .*timeout", caplog.text))
        # a draw is made more than once only where its first answer was spoilt on its way, or
        # came too late, as it may on a busy machine
        n_late = n_timeouts - sum(server.n_faults[fault] for fault in SLOW)
        n_again = sum(server.n_answered.values()) - len(server.n_answered)
        assert 0 <= n_again <= n_late
    # without a service
    assert cached.sample(PROMPTS, 20, seed=1) == reference
    assert n_stored(cached) == cached.n_misses_ == 120


def test_a_body_that_decompresses_to_much_takes_little_memory(server):
    generator = generator_for(server, max_retries=0)
    server.planned = ["bomb"]
    tracemalloc.start()
    try:
        with pytest.raises(ServiceError, match="a body of more than 33,554,432 bytes"):
            generator.sample(["a"], 1)
        assert tracemalloc.get_traced_memory()[1] < 2**27
    finally:
        tracemalloc.stop()


def test_a_refused_request_is_not_repeated_and_others_arrive(server):
    generator = generator_for(server, max_concurrency=2)
    server.planned = [None, None, None, "400"]
    arrived = []
    with pytest.raises(ServiceError, match="answered with status 400") as caught:
        generator.serve(DrawQueue(PROMPTS, 5, on_draw=lambda *draw: arrived.append(draw)))
    assert caught.value.status == 400
    assert len(server.requests) - 1 <= len(arrived) + 1
    assert len(arrived) >= 3
    assert any(f"(prompt: {prompt!r})" in str(caught.value) for prompt in PROMPTS)


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        ("one\ntwo POISON " + 100 * "x", "'one\\\\ntwo POISON x{65}'"),
        ([{"role": "user", "content": "POISON"}], "'user: POISON'"),
    ],
)
def test_the_error_names_the_prompt_that_is_refused(server, prompt, shown):
    server.refuses = "POISON"
    with pytest.raises(ServiceError, match=rf"status 400: .*\(prompt: {shown}\)$") as caught:
        generator_for(server).sample(["a", prompt, "b"], 2)
    caught.value.add_note("more")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.prompt, again.status, str(again)) == (prompt, 400, str(caught.value))
    assert again.__notes__ == ["more"]


def test_the_error_says_that_it_was_the_judge_that_asked(server):
    server.answer, server.refuses = (lambda prompt: "Yes"), "POISON"
    judge = LLMJudge(generator_for(server, logprobs=False, temperature=0))
    with pytest.raises(ServiceError, match="prompt: 'Judge whether"):
        dict(judge.judge_pairs(["a", "b", "c"], ["x", "y", "POISON"]))


def test_the_address_in_an_error_holds_no_secret():
    url = "http://127.0.0.1:9/sk-secret/v1?token=hidden"
    generator = OpenAIGenerator("m", base_url=url, api_key="sk-secret", max_retries=0)
    with pytest.raises(ServiceError, match=r"127\.0\.0\.1:9 cannot be reached") as one:
        generator.sample(["a"], 1)
    assert "sk-secret" not in str(one.value)
    assert "hidden" not in str(one.value)


@pytest.mark.parametrize("reasons", [False, True])
def test_missing_logprobs_are_found_at_the_first_draws(server, reasons):
    def body(request, chat):
        answer = FaultServer.body(server, request, chat)
        thought = {"token": "hm,", "bytes": None, "logprob": -0.1}
        answer["choices"][0]["logprobs"]["content"].insert(0, thought)
        return answer

    server.gives_logprobs = reasons
    if reasons:
        server.body = body
    generator = generator_for(server, max_concurrency=2)
    with pytest.raises(ValueError, match=r"tells no log-probabilities.*'self_consistency'"):
        generator.sample(PROMPTS, 5)
    assert len(server.requests) <= 3
    vars(server).pop("body", None)
    without = generator_for(server, logprobs=False)
    assert without.gives_logprobs is False
    drawn = without.sample(["a"], 1)[0][0]
    assert (drawn.logprob, drawn.token_logprobs, drawn.n_tokens) == (None, None, 3)


def test_usage(server):
    generator = generator_for(server)
    generator.sample(["abcd"], 2)
    usage = {"requests": 2, "draws": 2, "prompt_tokens": 2 * len("abcd"), "completion_tokens": 6}
    assert generator.usage_ == clone(generator).usage_ == CachedGenerator(generator).usage_ == usage


@pytest.mark.parametrize(
    ("params", "prompt", "name"),
    [
        ({"prompt_template": "Q:"}, "a", "prompt_template"),
        ({"endpoint": "completions", "system_prompt": "x"}, "a", "system_prompt"),
        ({"endpoint": "completions"}, [{"role": "user", "content": "a"}], "prompt"),
        ({"prompt_template": "{prompt}"}, 3, "prompt_template"),
        ({"prompt_template": lambda prompt: f"{prompt} \ud83e"}, "a", "a prompt"),
        ({}, np.array([1.0]), "prompts"),
        ({}, None, "got a NoneType"),
        ({}, "half \ud83e", r"prompts\[1\]"),
        ({}, [{"role": "user", "content": b"x"}], "JSON"),
    ],
)
def test_bad_parameters_and_prompts_cost_nothing(server, params, prompt, name):
    with pytest.raises((ValueError, TypeError), match=name):
        generator_for(server, **params).sample(["fine", prompt], 1)
    assert server.requests == []


def test_fingerprints_follow_what_shapes_a_response():
    base = OpenAIGenerator("m", base_url="http://a/v1")
    same = [{"max_concurrency": 2}, {"timeout": 1.0}, {"api_key": "sk-2"}, {"n_per_request": 5}]
    other = [{"model": "n"}, {"base_url": "http://b/v1"}, {"endpoint": "completions"}]
    other += [{"temperature": 0.5}, {"stop": ["\n"]}, {"extra_body": {"top_k": 3}}]
    other += [{"prompt_template": "Q: {prompt}"}]
    for params in same:
        assert clone(base).set_params(**params).fingerprint() == base.fingerprint()
    prints = {clone(base).set_params(**params).fingerprint() for params in other}
    assert len(prints | {base.fingerprint()}) == len(other) + 1


def test_a_progress_bar_shows_what_it_costs(server, capsys):
    generator = generator_for(server, logprobs=False)
    parts = {"quality": "self_consistency", "verbose": 1}
    sampler = toy_sampler(CachedGenerator(generator), k_max=2, **parts)
    sampler.collect([f"question {i}" for i in range(5)], ["maybe"] * 5)
    shown = capsys.readouterr().err
    assert "draws=10" in shown
    assert f"prompt_tokens={5 * len('question 0') * 2}" in shown


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("503", r"status 503: .*\(prompt: 'a'\)"),
        ("malformed", "2 in a row"),
        ("nested", "2 in a row"),
        ("half_character", "half of a character"),
        ("hang", "timed out"),
        ("dripping", "timed out"),  # a timeout holds for the whole body
        ("dropped", "cannot be reached"),
    ],
)
def test_a_service_that_stays_broken_is_an_error(server, fault, message):
    generator = generator_for(server, max_retries=1, timeout=patience_with(fault))
    server.fault_rate, server.faults = 1.0, [fault]
    with pytest.raises(ServiceError, match=message):
        generator.sample(["a"], 1)


inherited = {}


def draw_in_child(prompts):
    return inherited["generator"].sample(prompts, 4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_processes_do_not_share_sockets(server):
    inherited["generator"] = generator_for(server)
    draw_in_child(PROMPTS)  # leaves open connections behind
    parts = [[f"process {k}, question {i}" for i in range(8)] for k in range(4)]
    server.delay = lambda request: time.sleep(random.uniform(0.0, 0.02))
    with ProcessPoolExecutor(4, multiprocessing.get_context("fork")) as pool:
        rows = list(pool.map(draw_in_child, parts))
    for prompt, row in zip(chain(*parts), chain(*rows)):
        for draw, generation in enumerate(row):
            spelled = b"".join(piece for piece, _ in expected(prompt, 0, draw))
            assert generation.response.encode() == spelled
    assert len(draw_in_child(["the parent"])) == 1
