"""Each recipe runs word for word, against a server of the protocol that clients speak.

A package that is not installed has a stand-in of the few names that its recipe uses.
"""

import json
import random
import re
import sys
import threading
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sklearn_clm import ConformalSampler, generators, policies
from sklearn_clm.caching import VerdictsWanted
from tests.examples.loading import EXAMPLES, needs
from tests.generators.fault_server import PatientServer

needs("openai")

PAGE = (EXAMPLES / "recipes.md").read_text("utf-8")
RECIPES = {
    part.partition("\n")[0]: re.findall(r"^```python\n(.*?)^```", part, re.M | re.S)
    for part in PAGE.split("\n## ")
}
QUESTIONS = [f"{n // 100} + {n % 100}" for n in random.Random(0).sample(range(10_000), 130)]
SLIPS = [0, 0, 0, 0, 0, 0, 0, 1, 2, 3]
ANSWERS = [str(sum(map(int, question.split("+")))) for question in QUESTIONS]


class Model(BaseHTTPRequestHandler):
    """A chat "model" that adds, slips at times, and judges whether two numbers agree."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = str(request["messages"][-1]["content"])
        if "yes or no" in text:
            *_, reference, response = re.findall(r"\d+", text)
            reply = "yes" if reference == response else "no"
        else:
            a, b = re.findall(r"(\d+) \+ (\d+)", text)[-1]
            with self.server.lock:
                self.server.asked[text] += 1
                rng = random.Random(f"{text} {self.server.asked[text]}")
            reply = str(int(a) + int(b) + rng.choice(SLIPS))
        if "[[ ##" in text:  # the format in which DSPy asks
            reply = f"[[ ## answer ## ]]\n{reply}\n\n[[ ## completed ## ]]"

        token = {"token": reply, "logprob": -0.1, "bytes": None, "top_logprobs": []}
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": reply},
            "finish_reason": "stop",
            "logprobs": {"content": [token]} if request.get("logprobs") else None,
        }
        usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
        head = {"id": "1", "object": "chat.completion", "created": 1, "model": request["model"]}
        answer = {**head, "choices": [choice], "usage": usage}
        settings = request
        if self.path == "/api/chat":  # Ollama's own protocol
            settings = request["options"]
            assert 0 <= settings["seed"] < 2**31
            answer = {"model": request["model"], "message": choice["message"], "done": True}
        body = json.dumps(answer).encode()
        self.server.models.add(request["model"])
        self.server.temperatures.add(settings.get("temperature"))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing of each request."""


@pytest.fixture
def server(monkeypatch):
    """A server that clients find by the variables of their environment."""
    with PatientServer(("127.0.0.1", 0), Model) as server:
        server.lock = threading.Lock()
        server.asked = Counter()
        server.models = set()
        server.temperatures = set()
        server.url = f"http://127.0.0.1:{server.server_port}/v1"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
            monkeypatch.setenv(name, server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        monkeypatch.setenv("OLLAMA_HOST", f"http://127.0.0.1:{server.server_port}")
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def stand_ins(server, monkeypatch):
    """What stands for packages that are not installed."""

    def completion(model, messages, temperature, **_):
        body = {"model": model.partition("/")[2], "messages": messages, "temperature": temperature}
        head = {"Content-Type": "application/json"}
        address = f"{server.url}/chat/completions"
        request = urllib.request.Request(address, json.dumps(body).encode(), head)
        with urllib.request.urlopen(request, timeout=60) as reply:
            content = json.load(reply)["choices"][0]["message"]["content"]
        return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content=content))])

    def text_of(model, prompt, temperature):
        messages = [{"role": "user", "content": prompt}]
        return completion(model, messages, temperature).choices[0].message.content

    def init_chat_model(name, temperature):
        ask = lambda prompt: text_of(name.replace(":", "/"), prompt, temperature)  # noqa: E731
        return SimpleNamespace(invoke=lambda prompt: SimpleNamespace(content=ask(prompt)))

    class Client:
        def __init__(self, timeout):
            assert timeout > 0

        def chat(self, model, messages, options):
            reply = completion(f"ollama/{model}", messages, options["temperature"])
            return reply.choices[0]

    class LM:
        def __init__(self, model, temperature, cache):
            assert cache is False
            self.ask = lambda prompt: text_of(model, prompt, temperature)

    class Module:
        def __call__(self, **fields):
            return self.forward(**fields)

    class Predict(Module):
        def __init__(self, signature):
            assert signature == "question -> answer"

        def set_lm(self, lm):
            self.lm = lm

        def forward(self, question):
            return SimpleNamespace(answer=self.lm.ask(question))

    class LLM:
        def __init__(self, model):
            self.model = model

        def generate(self, prompt, options, use_tqdm):
            assert not use_tqdm
            rng = random.Random(options.seed)
            answer = str(sum(map(int, prompt.split("+"))) + rng.choice(SLIPS))
            output = SimpleNamespace(text=answer, cumulative_logprob=-0.3, token_ids=[1, 2])
            return [SimpleNamespace(outputs=[output])]

    class FastAPI(Starlette):
        def get(self, path):
            def handles(handler):
                async def answer(request):
                    return JSONResponse(await handler(**request.query_params))

                self.router.routes.append(Route(path, answer))
                return handler

            return handles

    record = SimpleNamespace
    contents = {
        "fastapi": {"FastAPI": FastAPI},
        "litellm": {"completion": completion},
        "ollama": {"Client": Client},
        "langchain": {},
        "langchain.chat_models": {"init_chat_model": init_chat_model},
        "dspy": {
            "LM": LM,
            "Module": Module,
            "Predict": Predict,
            "Example": record,
            "Prediction": record,
        },
        "vllm": {"LLM": LLM, "SamplingParams": record},
    }
    # checked before any stand-in is there
    missing = [name for name in contents if find_spec(name.partition(".")[0]) is None]
    for name in missing:
        module = ModuleType(name)
        vars(module).update(contents[name])
        monkeypatch.setitem(sys.modules, name, module)


def run_recipe(title, server, k=0, **names):
    """What a block of a section leaves, the address of a local server exchanged."""
    block = re.sub(r"http://localhost:\d+/v1", server.url, RECIPES[title][k])
    exec(compile(block, f"recipes.md: {title}", "exec"), names)
    return names


MAKES_A_GENERATOR = [
    (title, k)
    for title, blocks in RECIPES.items()
    for k, block in enumerate(blocks)
    if re.search(r"^generator = ", block, re.M)
    and "prompts" not in block
    and "sampler" not in block
]


def test_the_page_has_a_recipe_for_each_name_of_its_title():
    names = PAGE.partition("\n")[0].partition(": ")[2].split(", ")
    titles = " ".join(title for title, _ in MAKES_A_GENERATOR).lower()
    assert [name for name in names if name.lower().rstrip("s") not in titles] == []


@pytest.mark.parametrize(("title", "k"), MAKES_A_GENERATOR)
def test_a_generator_of_the_page_draws_and_calibrates(title, k, server):
    generator = run_recipe(title, server, k)["generator"]
    draws = generator.sample(QUESTIONS[:2], 4)
    responses = [[draw.response for draw in row] for row in draws]
    assert all(response.isdigit() for row in responses for response in row)
    assert [right in row for right, row in zip(ANSWERS, responses)] == [True, True]
    if server.models:
        assert server.temperatures == {1.0}

    names = {"generator": generator, "prompts": QUESTIONS[:30], "references": ANSWERS[:30]}
    recipe = run_recipe(next(iter(RECIPES)), server, **names, new_prompts=QUESTIONS[-2:])
    assert recipe["sampler"].calibration_.claim.sentence().startswith("With confidence 95 %")
    assert len(recipe["sets"]) == 2


@pytest.fixture
def served(server, tmp_path, monkeypatch):
    """Names of the section on serving, whose sampler has loaded its thresholds."""
    monkeypatch.chdir(tmp_path)

    def ask(question, seed):
        return str(sum(map(int, question.split("+"))) + random.Random(seed).choice(SLIPS))

    parts = {"k_max": 5, "epsilon": 0.2, "quality": "self_consistency"}
    drawn = generators.FunctionGenerator(ask)
    sampler = ConformalSampler(drawn, policy=policies.ExitPolicy(), **parts)
    sampler.fit(QUESTIONS[:100], ANSWERS[:100])
    names = {"sampler": sampler, "ask": ask, "generators": generators, "policies": policies}
    return run_recipe("Serve it", server, **names, ConformalSampler=ConformalSampler)


@pytest.mark.parametrize("k", [0, 1])
def test_an_endpoint_answers_with_a_set(k, served, server):
    app = run_recipe("Behind FastAPI or Starlette", server, k, **served)["app"]
    reply = TestClient(app).get("/answer", params={"question": QUESTIONS[-1]})
    assert reply.json() == served["sampler"].predict(QUESTIONS[-1:])[0].to_dict()


def test_a_stream_holds_each_response_and_the_set(served, server):
    app = run_recipe("Streaming", server, **served)["app"]
    reply = TestClient(app).get("/stream", params={"question": QUESTIONS[-1]})
    *shown, whole = [json.loads(event) for event in re.findall(r"data: (.*)\n\n", reply.text)]
    assert [event["response"] for event in shown] == whole["responses"]
    assert whole == served["sampler"].predict(QUESTIONS[-1:])[0].to_dict()


def test_a_batch_is_a_table_with_a_row_for_each_response(served, server):
    recipe = run_recipe("A batch of many prompts", server, **served, new_prompts=QUESTIONS[100:])
    rows = pd.read_csv("answers.csv", index_col=0, dtype={"responses": str})
    sets = served["sampler"].predict(QUESTIONS[100:])
    assert rows["prompt"].unique().tolist() == QUESTIONS[100:]  # an empty set is a row, too
    responses = rows.dropna(subset="responses")
    assert responses["responses"].tolist() == [one for a_set in sets for one in a_set]
    assert responses["agreement"].between(0, 1).all()
    assert recipe["sampler"].generator.path == "draws.sqlite"


def test_a_cascade_asks_both_models_and_says_its_price(server, capsys):
    names = {"prompts": QUESTIONS[:60], "references": ANSWERS[:60], "new_prompts": QUESTIONS[-20:]}
    recipe = run_recipe("A cascade: the cheap model first", server, **names)
    assert server.models == {"gpt-4o-mini", "gpt-4o"}
    assert all(one.guaranteed for one in recipe["sets"])
    price, most = re.findall(r"[\d.]+", capsys.readouterr().out)
    assert 1 <= float(price) < float(most) == recipe["cascade"].tiers.price_of(6)


def test_scores_of_ready_responses_are_a_quality(server):
    rng = np.random.default_rng(0)
    drawn = [[str(int(right) + (rng.random() < 0.3)) for _ in range(5)] for right in ANSWERS]
    scores = {
        (question, response): (response == right) + rng.normal()
        for question, right, row in zip(QUESTIONS, ANSWERS, drawn)
        for response in row
    }
    recipe = run_recipe(
        "Scores of your own, responses that you have",
        server,
        prompts=QUESTIONS[:100],
        references=ANSWERS[:100],
        new_prompts=QUESTIONS[100:],
        responses=drawn,
        scores=scores,
    )
    assert all(one.guaranteed for one in recipe["sets"])
    assert {float(q) for one in recipe["sets"] for q in one.quality} <= set(scores.values())
    assert server.models == set()


def test_people_audit_what_a_model_judges(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = run_recipe("An async client", server)["generator"]
    recipe = run_recipe(
        "A model as judge, and what people would say",
        server,
        generator=generator,
        prompts=QUESTIONS[:120],
        references=ANSWERS[:120],
    )
    truth = dict(zip(QUESTIONS, ANSWERS))
    n_verdicts = 0
    for _ in range(200):
        try:
            claim = recipe["sampler"].calibrate(recipe["data"]).calibration_.claim
            break
        except VerdictsWanted as wanted:
            for pair in wanted.wanted:
                right = truth[pair.asked.prompt] == pair.response
                recipe["people"].record(pair, right)
                n_verdicts += 1
    assert claim.null is None
    assert 0 < n_verdicts <= 100


def test_a_module_of_dspy_answers_or_escalates(server):
    names = {
        "prompts": QUESTIONS[:100],
        "references": ANSWERS[:100],
        "new_prompts": QUESTIONS[100:],
    }
    recipe = run_recipe("A module of DSPy that answers or escalates", server, **names)
    program = recipe["program"]
    assert program.sampler.calibration_.claim.about == "answers"
    replies = [program(question=question) for question in QUESTIONS[100:110]]
    assert any(not reply.escalated for reply in replies)
    assert all((reply.answer is None) == reply.escalated for reply in replies)


def test_a_gate_takes_scores_step_by_step(server, capsys):
    rng = np.random.default_rng(0)
    succeeded = rng.random(400) < 0.6
    runs = [rng.normal(good, 1.0, size=6) for good in succeeded]
    recipe = run_recipe("Agents", server, runs=runs, succeeded=succeeded)
    goes_on = json.loads(capsys.readouterr().out.lower())
    assert goes_on == sorted(goes_on, reverse=True)
    assert recipe["gate"].calibration_.claims[None].null is None
