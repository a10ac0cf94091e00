"""The endpoint of the examples, asked by the real client of its protocol."""

import asyncio
import json
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from urllib.error import HTTPError

import pytest

from sklearn_clm import ConformalSampler
from sklearn_clm.generators import FunctionGenerator
from sklearn_clm.policies import ThresholdPolicy
from tests.examples.loading import EXAMPLES, load, needs

needs("openai", "starlette", "uvicorn")

from openai import APIStatusError, AsyncOpenAI, OpenAI  # noqa: E402

# a model that never answers questions about 13, and counts its calls in a file
HANGING = """
import random, sys, threading
from pathlib import Path
sys.path.insert(0, {examples!r})
import endpoint
from sklearn_clm import ConformalSampler
from sklearn_clm.generators import FunctionGenerator
from sklearn_clm.policies import ExitPolicy

CALLS = Path(__file__).with_suffix(".calls")
NEVER = threading.Event()

def ask(question, seed):
    with CALLS.open("a") as file:
        file.write(question + "\\n")
    if question.startswith("13 "):
        NEVER.wait(120)
    return str(sum(map(int, question.split("+"))) + random.Random(seed).choice([0, 0, 0, 1]))

def sampler():
    numbers = random.Random(0).sample(range(2000), 200)
    questions = [f"{{n // 50 + 20}} + {{n % 50}}" for n in numbers]
    answers = [str(sum(map(int, one.split("+")))) for one in questions]
    generator = FunctionGenerator(ask, max_concurrency=16, max_retries=0)
    made = ConformalSampler(generator, k_max=6, quality="self_consistency", policy=ExitPolicy())
    return made.fit(questions, answers)
"""


@contextmanager
def serving(folder, *arguments):
    """The address of a server in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, EXAMPLES / "endpoint.py", *arguments]
    command += ["--folder", folder, "--port", str(port)]
    server = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, encoding="utf-8", cwd=folder
    )
    try:
        # calibration is printed before the port is open
        assert "With confidence" in server.stdout.readline()
        for _ in range(600):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)
        server.stdout.close()


def question(text):
    return {"model": "sklearn_clm", "messages": [{"role": "user", "content": text}]}


def get(address, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(address, data=data), timeout=60) as reply:
        return json.load(reply)


def test_answers_refusals_streams_audits_and_a_restart(tmp_path):
    arguments = ("--audit-share", "0.5", "--time-limit", "100")

    async def ask_at_once(address):
        async with AsyncOpenAI(base_url=f"{address}/v1", api_key="any", timeout=120) as client:
            asked = [client.chat.completions.create(**question(f"7 + {n}")) for n in range(50)]
            return await asyncio.gather(*asked)

    with serving(tmp_path, *arguments) as address:
        replies = asyncio.run(ask_at_once(address))
        answered = 0
        for n, reply in enumerate(replies):
            message = reply.choices[0].message
            extra = reply.model_extra["sklearn_clm"]
            assert extra["claim"].startswith("With confidence 95 %")
            assert extra["escalated"] == (message.content is None)
            assert (message.refusal == "escalated") == extra["escalated"]
            if message.content is not None:
                assert extra["set"]["responses"] == [message.content]
                answered += message.content == str(7 + n)
        assert answered >= 25  # of fifty; at most a tenth of the answers is wrong

        client = OpenAI(base_url=f"{address}/v1", api_key="any", timeout=120)
        *events, last = client.chat.completions.create(**question("7 + 8"), stream=True)
        assert last.choices[0].finish_reason == "stop"
        accepted = [one.model_extra["sklearn_clm"].get("accepted") for one in events]
        text = "".join(one.choices[0].delta.content or "" for one in events)
        reply = client.chat.completions.create(**question("7 + 8"))
        assert (text or None) == reply.choices[0].message.content
        assert [one for one in accepted if one] == reply.model_extra["sklearn_clm"]["set"][
            "responses"
        ]

        with pytest.raises(APIStatusError, match="temperature must not be given") as refused:
            client.chat.completions.create(**question("7 + 8"), temperature=0.1)
        assert refused.value.status_code == 400
        failed = client.chat.completions.create(**question("no sum"))
        assert failed.choices[0].message.refusal == "escalated: the model failed"
        assert failed.model_extra["sklearn_clm"]["set"] is None
        for messages in ("7 + 8", [], ["7 + 8"], [{"role": "user", "content": ["an image"]}]):
            with pytest.raises(APIStatusError, match="messages must") as refused:
                client.chat.completions.create(model="any", messages=messages)
            assert refused.value.status_code == 400
        waiting = get(f"{address}/audits")
        assert waiting
        named = {"id": waiting[0]["id"]}
        for verdict in ([], {"id": ["a"], "error": True}, {**named, "error": "no"}, named):
            with pytest.raises(HTTPError, match="400"):
                get(f"{address}/audits", verdict)
        assert get(f"{address}/audits", {**named, "error": False})["audited"] == 1

    with serving(tmp_path, *arguments) as address:
        assert get(f"{address}/risk")["audited"] == 1
        assert [one["id"] for one in get(f"{address}/audits")] == [one["id"] for one in waiting[1:]]


def test_a_model_that_hangs_and_clients_that_leave(tmp_path, capfd):
    (tmp_path / "hanging.py").write_text(HANGING.format(examples=str(EXAMPLES)))
    calls = tmp_path / "hanging.calls"

    async def leave_and_ask(address):
        async with AsyncOpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
            leaving = [
                asyncio.create_task(client.chat.completions.create(**question(f"13 + {n}")))
                for n in range(4)
            ]
            deadline = time.monotonic() + 60
            while not all(f"13 + {n}\n" in calls.read_text() for n in range(4)):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            for one in leaving:
                one.cancel()
            await asyncio.gather(*leaving, return_exceptions=True)
            before = calls.read_text().count("13 + 1\n")
            slow = await client.chat.completions.create(**question("13 + 99"), timeout=60)
            return before, slow, await in_time(client, "21 + 4"), await in_time(client, "21 + x")

    async def in_time(client, text):
        # a machine may be so busy that the limit ends what does not hang
        message = slow = "escalated: no set within 3 seconds"
        while message == slow:
            given = await client.chat.completions.create(**question(text), timeout=60)
            message = given.choices[0].message.refusal
        return given

    with serving(tmp_path, "hanging:sampler", "--time-limit", "3") as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:  # leaves within its body
            start = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n"
            client.sendall(f"{start}Content-Length: 100\r\n\r\n{{".encode())
        before, slow, well, failed = asyncio.run(leave_and_ask(address))
    assert failed.choices[0].message.refusal == "escalated: the model failed"
    log = capfd.readouterr().err
    assert f"no set for {failed.id}" in log
    assert "invalid literal for int" in log
    assert "ClientDisconnect" not in log
    message = slow.choices[0].message
    assert message.content is None
    assert message.refusal == "escalated: no set within 3 seconds"
    assert "25" in well.model_extra["sklearn_clm"]["set"]["responses"]
    # who left asked for no further draw
    assert calls.read_text().count("13 + 1\n") == before


@pytest.mark.filterwarnings("ignore:a single draw errs")
@pytest.mark.parametrize(("abstain", "epsilon"), [(False, 0.35), (True, 0.15)])
def test_an_empty_set_is_audited_where_it_breaks_the_promise(
    tmp_path, monkeypatch, abstain, epsilon
):
    """Were full sets judged alone, the monitor would see a lower risk than that of requests."""
    endpoint = load(EXAMPLES / "endpoint.py", monkeypatch)
    guesses = {"hard": "0.1 a", "easy": "0.9 right"}
    prompts = [f"{i} {'hard' if i % 5 == 0 else 'easy'}" for i in range(200)]
    sampler = ConformalSampler(
        FunctionGenerator(lambda prompt: guesses[prompt.split()[1]]),
        k_max=2,
        epsilon=epsilon,
        quality=lambda prompt, draw: float(draw.response.split()[0]),
        admission=lambda reference, response: response.endswith(reference),
        policy=ThresholdPolicy(abstain=abstain),
    ).fit(prompts, ["right"] * 200)
    made = endpoint.Endpoint(sampler, tmp_path, audit_share=1.0)
    message, extra = asyncio.run(made.answer("a request", "1000 hard"))
    assert message["refusal"] == "escalated"
    assert extra["set"]["responses"] == []
    waiting = list(map(json.loads, made.audit_log.read_text("utf-8").splitlines()))
    expected = {"id": "a request", "prompt": "1000 hard", "responses": []}
    assert waiting == ([] if abstain else [expected])
