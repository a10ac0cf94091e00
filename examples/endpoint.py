"""An OpenAI-compatible chat endpoint with a saved calibration in front of any model.

    pip install ".[judge]" && python examples/endpoint.py        # with a toy model
    python examples/endpoint.py my_models:sampler --calibration thresholds.json

``my_models:sampler`` names a function of yours that returns the estimator as it was calibrated. A
reply is one response, or a refusal that says "escalated"; beside it, in the field ``sklearn_clm``,
stand the claim and the whole set. A model that fails or takes too long is a refusal, too; the log
has the error. Only with an AnswerPolicy is the promise about the single answer; with other policies
it is about the set, of which the response of highest quality is shown. With
``stream=True`` each draw that joins the set is sent at once in that field, and the reply at the
end. A share of the replies waits at ``/audits`` for people, who judge them in that order, an empty
set as an error; ``/risk`` says what they found.

What is not safe to expose: all of it, without a proxy in front that asks for keys, ends TLS, limits
the number and the length of requests (one costs up to K draws), and lets only those who judge reach
``/audits``, which shows what users asked. It listens on 127.0.0.1 alone. What a model wrote is
untrusted text: escape it where it is shown.
"""

import argparse
import asyncio
import importlib
import json
import logging
import random
import sys
import time
import uuid
from contextlib import nullcontext
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from sklearn_clm import ConformalSampler
from sklearn_clm.evaluation import RiskMonitor
from sklearn_clm.generators import FunctionGenerator
from sklearn_clm.policies import AnswerPolicy

try:
    from opentelemetry.trace import get_tracer
except ImportError:
    get_tracer = None

# what a request may hold: settings of the model are those that were calibrated
FIELDS = {"model", "messages", "stream", "user", "metadata", "store"}


def toy_sampler():
    """A "model" that adds and slips, calibrated here; yours takes its place."""

    def ask(question, seed):
        return str(sum(map(int, question.split("+"))) + random.Random(seed).choice([0, 0, 0, 1]))

    questions = [f"{n // 100} + {n % 100}" for n in random.Random(0).sample(range(10_000), 300)]
    answers = [str(sum(map(int, question.split("+")))) for question in questions]
    generator = FunctionGenerator(ask, max_concurrency=16, timeout=20)
    policy = AnswerPolicy(alpha=0.1)
    sampler = ConformalSampler(generator, k_max=6, quality="self_consistency", policy=policy)
    return sampler.fit(questions, answers)


class Endpoint:
    """The routes of a calibrated sampler; `folder` keeps what is audited."""

    def __init__(self, sampler, folder, time_limit=30.0, audit_share=0.05):
        self.sampler, self.time_limit = sampler, time_limit
        folder.mkdir(parents=True, exist_ok=True)
        self.monitor = RiskMonitor(sampler, share=audit_share, path=folder / "monitor.sqlite")
        self.audit_log = folder / "audits.jsonl"  # replies that are to be judged, and verdicts
        self.audit_log.touch()
        routes = [
            Route("/v1/chat/completions", self.complete, methods=["POST"]),
            Route("/audits", self.audits, methods=["GET", "POST"]),
            Route("/risk", self.risk),
        ]
        self.app = Starlette(routes=routes)

    async def complete(self, request):
        """Answer a chat, or say that it is escalated."""
        body = await value_of(request)
        try:
            prompt = prompt_of(body)
        except ValueError as wrong:
            return refused(str(wrong))
        name = f"chatcmpl-{uuid.uuid4().hex}"
        if body.get("stream"):
            return StreamingResponse(self.stream(name, prompt), media_type="text/event-stream")

        answering = asyncio.create_task(self.answer(name, prompt))
        leaving = asyncio.create_task(disconnection(request))
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if not answering.done():
            answering.cancel()  # no further draw is begun
            return Response(status_code=499)
        message, extra = answering.result()
        return JSONResponse(reply(name, "chat.completion", extra, message=message))

    async def answer(self, name, prompt, on_accept=None):
        """The message for a prompt, and the field with the claim and the set."""
        claim = self.sampler.calibration_.claim.sentence()
        tracer = get_tracer and get_tracer("sklearn_clm")
        with tracer.start_as_current_span("answer") if tracer else nullcontext() as span:
            try:
                async with asyncio.timeout(self.time_limit):
                    (one,) = await self.sampler.apredict([prompt], on_accept=on_accept)
            except TimeoutError:
                return without_set(f"no set within {self.time_limit:g} seconds", claim)
            except Exception:  # of the model, and its retries failed too
                logging.getLogger("sklearn_clm").exception("no set for %s", name)
                return without_set("the model failed", claim)
            if span:
                span.set_attributes({"sklearn_clm.draws": one.n_samples})

        about = None if one.claim is None else one.claim.about
        shown = one.answered if about == "answers" else one.guaranteed and len(one) > 0
        # an empty set is an error of the promise, unless that is about answers, or sets if any; its
        # turn is among those that people judge, as the monitor wants outcomes as they came
        counts = shown or (about == "responses" and one.guaranteed)
        message = message_of(None, "escalated")
        if shown:
            message = message_of(str(one.responses[int(one.quality.argmax())]))
        if counts and self.monitor.should_audit(name):
            self.write({"id": name, "prompt": prompt, "responses": list(map(str, one))})
        return message, {"escalated": not shown, "claim": claim, "set": one.to_dict()}

    async def stream(self, name, prompt):
        """Each accepted draw as soon as it is made, and the reply."""
        accepted = asyncio.Queue()
        on_accept = lambda _, draw: accepted.put_nowait(str(draw.response))  # noqa: E731
        answering = asyncio.create_task(self.answer(name, prompt, on_accept))
        answering.add_done_callback(lambda _: accepted.put_nowait(None))
        kind = "chat.completion.chunk"
        try:
            while (text := await accepted.get()) is not None:
                yield event(reply(name, kind, {"accepted": text}, None, delta={}))
            message, extra = answering.result()
        finally:
            answering.cancel()  # a client that leaves begins no further draw
        yield event(reply(name, kind, extra, None, delta=message))
        yield event(reply(name, kind, {}, delta={})) + "data: [DONE]\n\n"

    async def audits(self, request):
        """Replies that people are to judge; POST {"id": ..., "error": true or false}."""
        lines = list(map(json.loads, self.audit_log.read_text("utf-8").splitlines()))
        judged = {line["id"] for line in lines if "error" in line}
        waiting = [line for line in lines if line["id"] not in judged]
        if request.method == "GET":
            return JSONResponse(waiting)
        verdict = await value_of(request)
        if verdict.get("id") not in [line["id"] for line in waiting]:
            return refused("id must be that of a reply which waits for a verdict")
        if not isinstance(error := verdict.get("error"), bool):
            return refused("error must be true or false")
        self.monitor.update([error], [verdict["id"]])
        self.write({"id": verdict["id"], "error": error})
        return await self.risk(request)

    async def risk(self, request):
        """The state of the monitor."""
        numbers = {"alarm": self.monitor.alarm_, "audited": self.monitor.n_audited_}
        return JSONResponse({**numbers, "words": str(self.monitor)})

    def write(self, line):
        with self.audit_log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


async def value_of(request):
    """The JSON object of a request; of anything else an empty one."""
    try:
        value = json.loads(await request.body())
    except (ValueError, RecursionError, ClientDisconnect):  # the last one within its body
        return {}
    return value if isinstance(value, dict) else {}


def prompt_of(body):
    """The prompt as it was calibrated: a text where a user says one thing, else messages."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a list of chat messages")
    if not all(isinstance(one, dict) and isinstance(one.get("content"), str) for one in messages):
        raise ValueError("messages must each have a role, and a text as content")
    if foreign := sorted(body.keys() - FIELDS):
        raise ValueError(f"{foreign[0]} must not be given: settings are those of calibration")
    if [one.get("role") for one in messages] == ["user"]:
        return messages[0]["content"]
    return [{"role": one.get("role"), "content": one["content"]} for one in messages]


async def disconnection(request):
    """Wait until the client has left."""
    while not await request.is_disconnected():
        await asyncio.sleep(0.1)


def without_set(why, claim):
    """An escalation, and the field beside it."""
    return message_of(None, f"escalated: {why}"), {"escalated": True, "claim": claim, "set": None}


def message_of(content, refusal=None):
    return {"role": "assistant", "content": content, "refusal": refusal}


def reply(name, kind, extra, finish_reason="stop", **message):
    """A body of the protocol, with a field of ours."""
    choice = {"index": 0, **message, "finish_reason": finish_reason, "logprobs": None}
    named = {"id": name, "object": kind, "created": int(time.time()), "model": "sklearn_clm"}
    return {**named, "choices": [choice], "sklearn_clm": extra}


def event(body):
    return f"data: {json.dumps(body)}\n\n"


def refused(why):
    error = {"message": why, "type": "invalid_request_error"}
    return JSONResponse({"error": error}, status_code=400)


if __name__ == "__main__":
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("sampler", nargs="?", help="module:function that returns a sampler")
    parser.add_argument("--calibration", type=Path, help="a file of save_calibration")
    parser.add_argument("--folder", type=Path, default=Path("examples/output/endpoint"))
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds for one set")
    parser.add_argument("--audit-share", type=float, default=0.05, help="share that people judge")
    parser.add_argument("--port", type=int, default=8080)
    given = parser.parse_args()
    logging.basicConfig()  # else what the package logs, with a model's errors, goes nowhere

    make_sampler = toy_sampler
    if given.sampler:
        sys.path.insert(0, "")  # modules of the folder where this program is started
        module, _, function = given.sampler.partition(":")
        make_sampler = getattr(importlib.import_module(module), function)
    sampler = make_sampler()
    if given.calibration:
        sampler.load_calibration(given.calibration)
    endpoint = Endpoint(sampler, given.folder, given.time_limit, given.audit_share)
    print(f"{sampler.calibration_.claim.sentence()}\nhttp://127.0.0.1:{given.port}/v1", flush=True)
    uvicorn.run(endpoint.app, host="127.0.0.1", port=given.port, log_level="warning")
