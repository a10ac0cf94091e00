"""Batch files: what is written, and what is made of answers in any order and state."""

import http.client
import json
import random
import urllib.error
import urllib.request

import pytest
from generators.fault_server import FAULTS, FaultServer

from sklearn_clm.__main__ import main
from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import OpenAIGenerator

PROMPTS = [f"question {i}" for i in range(7)]


def generator_for(server, **params):
    params = {"timeout": 5.0, "max_retries": 20, **params}
    return OpenAIGenerator("tiny", base_url=server.url, api_key="sk-test", **params)


def requests_in(paths):
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def line_of(record, response=None, error=None):
    """A line of an output or error file, in the form of OpenAI's documentation."""
    custom_id = record["custom_id"]
    return {"id": "batch_req_123", "custom_id": custom_id, "response": response, "error": error}


def answered(record, body, status=200):
    return line_of(record, {"status_code": status, "request_id": "req_123", "body": body})


def expired(record):
    message = "This request could not be executed before the completion window expired."
    return line_of(record, error={"code": "batch_expired", "message": message})


def completion(text, tokens=("Hel", "lo.")):
    """A chat completion in the form of OpenAI's documentation."""
    content = [
        {"token": token, "logprob": -0.25, "bytes": list(token.encode()), "top_logprobs": []}
        for token in tokens
    ]
    message = {"role": "assistant", "content": text, "refusal": None}
    logprobs = {"content": content, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop"}
    usage = {"prompt_tokens": 22, "completion_tokens": 2, "total_tokens": 24}
    return {"choices": [choice], "usage": usage, "system_fingerprint": "fp_123"}


def run_batch(paths, url, output, seed=0):
    """Answer batch files as a program of one's own would: in random order, some of them twice."""
    records = requests_in(paths)
    records += random.Random(seed).sample(records, len(records) // 5)
    random.Random(seed).shuffle(records)
    with open(output, "w") as file:
        for record in records:
            request = urllib.request.Request(
                url.removesuffix("/v1") + record["url"],
                json.dumps(record["body"]).encode(),
                {"Content-Type": "application/json"},
                method=record["method"],
            )
            try:
                with urllib.request.urlopen(request, timeout=0.5) as response:
                    line = answered(record, json.load(response))
            except urllib.error.HTTPError as error:
                line = answered(record, json.load(error), error.code)
            except (OSError, ValueError, http.client.HTTPException):
                line = expired(record)
            file.write(json.dumps(line) + "\n")
    return output


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_requests_are_those_of_sampling(server, tmp_path, endpoint):
    generator = generator_for(
        server, endpoint=endpoint, extra_body={"top_k": 3}, prompt_template="Q: {prompt}"
    )
    paths = generator.write_batch(PROMPTS, 3, tmp_path / "requests.jsonl", start=2, seed=5)
    assert paths == [tmp_path / "requests.jsonl"]
    records = requests_in(paths)
    generator.sample(PROMPTS, 3, start=2, seed=5)

    def in_order(requests):
        return sorted(requests, key=json.dumps)

    assert in_order(record["body"] for record in records) == in_order(
        dict(sorted(body.items(), key=lambda item: list(records[0]["body"]).index(item[0])))
        for body in server.requests[1:]
    )
    url = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}[endpoint]
    assert {(record["method"], record["url"]) for record in records} == {("POST", url)}
    ids = [record["custom_id"] for record in records]
    assert len(set(ids)) == len(ids) == 21
    assert max(map(len, ids)) <= 64


@pytest.mark.parametrize("n_per_request", [1, 3])
def test_answers_through_faults_are_the_draws_of_sampling(server, tmp_path, n_per_request):
    generator = generator_for(server, n_per_request=n_per_request)
    reference = generator.sample(PROMPTS, 6, seed=1)
    known, n_files = {}, 0
    faults = [one for one in FAULTS if one not in ("nested", "bomb") and "dripping" not in one]
    with FaultServer(0.4, faults, seed=3, hang=0.6) as faulty:
        while paths := generator.write_batch(
            PROMPTS, 6, tmp_path / f"{n_files}.jsonl", seed=1, known=known.keys()
        ):
            assert len(requests_in(paths)) <= 42
            output = run_batch(paths, faulty.url, tmp_path / f"{n_files}-out.jsonl", n_files)
            for digest, draw, generation in generator.read_batch(output, seed=1):
                assert (digest, draw) not in known
                known[digest, draw] = generation
            n_files += 1
    assert n_files > 1
    digests = list(dict.fromkeys(digest for digest, _ in known))
    rows = {tuple(known[digest, j].response for j in range(6)) for digest in digests}
    if n_per_request == 1:
        assert rows == {tuple(draw.response for draw in row) for row in reference}
        draws = {known[digest, j] for digest in digests for j in range(6)}
        assert draws == {draw for row in reference for draw in row}
    assert len(digests) == len(PROMPTS)


def test_recorded_answers(tmp_path):
    """Lines as OpenAI and the versions of vLLM write them."""
    generator = OpenAIGenerator("gpt-4o-mini")
    paths = generator.write_batch(["a", "b", "a"], 3, tmp_path / "requests.jsonl")
    records = requests_in(paths)
    assert len(records) == 6
    limit = {"error": {"message": "Rate limit reached", "type": "rate_limit", "code": None}}
    without = completion("Hello.")
    without["choices"][0]["logprobs"] = None
    refused = {"status_code": 400, "request_id": "vllm-batch-1", "body": None}
    invalid = {"message": "max_tokens must be at least 1", "type": "BadRequestError", "code": 400}
    lines = [
        answered(records[1], completion("Hello.")),
        expired(records[0]),
        answered(records[4], without),
        answered(records[2], limit, 429),
        line_of(records[3], completion("Hello.")),
        line_of(records[0], refused, {"object": "error", **invalid}),
        line_of(records[2], refused, "Only chat completions are supported."),
        answered(records[1], completion("Another", ["Another"])),
    ]
    output = write_lines(tmp_path / "output.jsonl", lines)
    drawn = list(generator.read_batch(output))
    assert [(draw, generation.response) for _, draw, generation in drawn] == [
        (1, "Hello."),
        (0, "Hello."),
    ]
    assert {generation.logprob for *_, generation in drawn} == {-0.5}
    assert drawn[0][0] != drawn[1][0]
    again = generator.write_batch(
        ["a", "b"], 3, tmp_path / "next.jsonl", known={key[:2] for key in drawn}
    )
    missing = {record["custom_id"] for record in requests_in(again)}
    assert missing == {records[k]["custom_id"] for k in (0, 2, 4, 5)}
    assert generator.write_batch(["a"], 0, tmp_path / "none.jsonl") == []


def test_a_store_of_answers_needs_no_request(server, tmp_path):
    cached = CachedGenerator(generator_for(server), tmp_path / "draws.sqlite")
    paths = cached.generator.write_batch(PROMPTS, 3, tmp_path / "requests.jsonl", seed=2)
    output = run_batch(paths, server.url, tmp_path / "output.jsonl")
    assert cached.import_draws(cached.generator.read_batch(output, seed=2), seed=2) == 21
    n_requests = len(server.requests)
    rows = cached.sample(PROMPTS, 3, seed=2)
    assert len(server.requests) == n_requests
    assert rows == cached.generator.sample(PROMPTS, 3, seed=2)


def test_files_are_split_at_the_limits(tmp_path, monkeypatch):
    generator = OpenAIGenerator("m")
    whole = requests_in(generator.write_batch(PROMPTS, 4, tmp_path / "whole.jsonl"))
    line = len((tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)[0])
    monkeypatch.setattr("sklearn_clm.generators.openai._batch._MOST_REQUESTS", 10)
    paths = generator.write_batch(PROMPTS, 4, tmp_path / "count.jsonl")
    assert [path.name for path in paths] == ["count.jsonl", "count-2.jsonl", "count-3.jsonl"]
    assert [len(requests_in([path])) for path in paths] == [10, 10, 8]
    assert requests_in(paths) == whole
    monkeypatch.setattr("sklearn_clm.generators.openai._batch._MOST_BYTES", 3 * line)
    paths = generator.write_batch(PROMPTS, 4, tmp_path / "bytes.jsonl")
    assert requests_in(paths) == whole
    assert all(path.stat().st_size <= 3 * line for path in paths)


def test_answers_of_others_are_refused(tmp_path):
    generator = OpenAIGenerator("m")
    (path,) = generator.write_batch(["a"], 1, tmp_path / "requests.jsonl", seed=3)
    line = answered(requests_in([path])[0], completion("Hello."))
    output = write_lines(tmp_path / "output.jsonl", [line])
    assert len(list(generator.read_batch(output, seed=3))) == 1
    for other, seed in ((generator, 4), (OpenAIGenerator("n"), 3)):
        with pytest.raises(ValueError, match=r"custom_id must be one .*line 1 of "):
            list(other.read_batch(output, seed=seed))
    stem = line["custom_id"][:-4]
    numbers = ("0-" + "9" * 13, "9" * 5000 + "-1", "-1-1", "\u0660-1", "00-1", "0-1-1")
    ids = [f"{stem}-{number}" for number in numbers]
    ids += ["request-1", None, [["x"]], "x" * 54 + "-1-1", "\u00e9" * 54 + "-0-1"]
    for custom_id in ids:
        write_lines(output, [line | {"custom_id": custom_id}])
        with pytest.raises(ValueError, match="custom_id must be one"):
            list(generator.read_batch(output, seed=3))
    for text in ("{\n", "[]\n"):
        output.write_text(text)
        with pytest.raises(ValueError, match="line 1 of "):
            list(generator.read_batch(output))


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A working folder with prompts, and the parameters of a generator to draw from a server."""
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "prompts.jsonl", [{"question": prompt} for prompt in PROMPTS])

    def command(server, action, *arguments):
        params = {"model": "tiny", "base_url": server.url, "max_retries": 0}
        (tmp_path / "generator.json").write_text(json.dumps(params))
        files = ["--generator", "generator.json", "--prompts", "prompts.jsonl"]
        fields = ["--field", "question", "--draws", "3", "--seed", "4"]
        return ["batch", action, "--store", "draws.sqlite", *files, *fields, *arguments]

    return command


def test_command_line_with_the_key_of_a_cached_generator(server, work, tmp_path, capsys):
    assert main(work(server, "write", "--key", "mine")) == 0
    run_batch([tmp_path / "requests.jsonl"], server.url, tmp_path / "answers.jsonl")
    assert main(work(server, "read", "answers.jsonl", "--key", "mine")) == 0
    assert capsys.readouterr().out.endswith("Nothing is missing.\n")
    n_requests = len(server.requests)
    cached = CachedGenerator(generator_for(server), "draws.sqlite", key="mine")
    cached.sample(PROMPTS, 3, seed=4)
    assert server.requests[n_requests:] == []
    # and what a CachedGenerator has drawn under its key is not asked for
    cached.sample(PROMPTS, 4, seed=4)
    assert main(work(server, "write", "--draws", "4", "--key", "mine")) == 0
    assert capsys.readouterr().out.endswith("Nothing is missing.\n")
    with pytest.raises(SystemExit):
        main(["batch", "--help"])
    assert "--key must be the same" in " ".join(capsys.readouterr().out.split())


def test_command_line_refuses_what_does_not_fit(server, work, tmp_path, capsys):
    assert main(work(server, "write")) == 0
    (line, *_) = requests_in([tmp_path / "requests.jsonl"])
    good = answered(line, completion("Hello."))
    write_lines(tmp_path / "answers.jsonl", [good, good | {"custom_id": "request-1"}])
    capsys.readouterr()
    for changed, message in (
        ([], "custom_id must be one that write_batch gave"),
        (["--seed", "5"], "custom_id must be one that write_batch gave"),
        (["--seed", "-1"], "seed"),
        (["--field", "prompt"], "line 1 of prompts.jsonl: no field 'prompt'; it has ['question']."),
        (["--prompts", "none.jsonl"], "none.jsonl"),
        (["--generator", "prompts.jsonl"], "prompts.jsonl does not hold the parameters of an"),
    ):
        assert main(work(server, "read", "answers.jsonl", *changed)) == 2
        assert message in capsys.readouterr().err
    # of a file that was refused nothing was kept
    write_lines(tmp_path / "answers.jsonl", [expired(line)])
    assert main(work(server, "read", "answers.jsonl")) == 0
    assert "0 new draws kept in draws.sqlite." in capsys.readouterr().out


def test_requests_of_an_earlier_round_go(tmp_path):
    generator = OpenAIGenerator("m")
    first, second, other = (tmp_path / f"requests{k}.jsonl" for k in ("", "-2", "-3"))
    for path in (first, second):
        generator.write_batch(PROMPTS, 2, path)
    other.write_text("something else\n")
    assert generator.write_batch(PROMPTS[:1], 1, first) == [first]
    assert not second.exists()
    assert generator.write_batch(PROMPTS, 0, first) == []
    assert not first.exists()
    assert other.exists()


def test_what_is_paid_for_is_never_replaced(server, work, tmp_path, capsys):
    assert main(work(server, "write")) == 0
    answers = run_batch([tmp_path / "requests.jsonl"], server.url, tmp_path / "answers.jsonl")
    inputs = ["prompts.jsonl", "generator.json", "draws.sqlite", "answers.jsonl"]
    contents = [(tmp_path / name).read_bytes() for name in inputs]
    for name in inputs:
        assert main(work(server, "read", "answers.jsonl", "--output", name)) == 2
        assert "--output" in capsys.readouterr().err
    assert [(tmp_path / name).read_bytes() for name in inputs] == contents
    # answers that no argument names
    with pytest.raises(ValueError, match="path must be new"):
        generator_for(server).write_batch(PROMPTS, 3, answers)
    assert main(work(server, "write", "--output", "answers.jsonl")) == 2
    assert answers.read_bytes() == contents[-1]
    assert main(work(server, "write", "--store", "new.sqlite", "--output", "new.sqlite")) == 2
    assert main(work(server, "read", "answers.jsonl")) == 0
    assert "Nothing is missing." in capsys.readouterr().out
