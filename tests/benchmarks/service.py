"""Prediction on a service with latency, beside the time in which its requests could be made."""

import asyncio
import hashlib
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from time import perf_counter, process_time, sleep

from sklearn_clm import ConformalSampler
from sklearn_clm.generators import DrawQueue, FunctionGenerator, Generation, OpenAIGenerator
from sklearn_clm.policies import ExitPolicy

from . import Row

__all__ = ["rows"]

LONGEST, N_AT_A_TIME, N_PROMPTS, K = 0.1, 8, 200, 20  # uniform latency: 50 ms +- 50 ms
N_CALLS = 16  # of a function


def rows(quick: bool = False) -> Iterator[Row]:
    """Time a queue and rounds over the same prompts, with a rule that stops at a random draw."""
    for what, draw, draw_ahead in (
        ("a queue", _queue, 0.0),
        ("a queue, draw_ahead=1.0", _queue, 1.0),
        ("rounds of one draw for each open prompt", _rounds, 0.0),
    ):
        n_prompts = N_PROMPTS // 4 if quick else N_PROMPTS
        prompts = [f"question {i}" for i in range(n_prompts)]
        with _server() as url:
            options = {"max_concurrency": N_AT_A_TIME, "draw_ahead": draw_ahead, "logprobs": False}
            generator = OpenAIGenerator("m", base_url=url, api_key="x", **options)
            generator.sample(["warm up"], N_AT_A_TIME)
            before = generator.usage_
            start, cpu = perf_counter(), process_time()
            n_needed = draw(generator, prompts)
            seconds, cpu = perf_counter() - start, process_time() - cpu
            used = {name: count - before[name] for name, count in generator.usage_.items()}
        latency = used["completion_tokens"] / 1e6 / used["draws"]  # what the server reports there
        ideal = n_needed * latency / N_AT_A_TIME
        yield Row(
            f"service: {what}, {n_prompts} prompts, {n_needed} draws needed, {used['draws']} paid "
            f"for, {N_AT_A_TIME} requests at a time (a queue: at most 1.15)",
            f"draws needed / {N_AT_A_TIME} x mean latency {1e3 * latency:.0f} ms: {ideal:.1f} s",
            f"{seconds:.1f} s, {1e3 * cpu / used['draws']:.1f} ms of CPU time for each request",
            seconds / ideal,
        )
    yield from _function_rows(30 if quick else 100)


def _function_rows(n_alone: int) -> Iterator[Row]:
    """A function with latency in a sampler: `fit`, and prompts that are served one by one."""
    numbers = random.Random(0).sample(range(10_000), 300 + n_alone)
    questions = [f"{n // 100} + {n % 100}" for n in numbers]
    answers = [str(sum(map(int, question.split("+")))) for question in questions]
    for policy, draw_ahead in product((None, ExitPolicy()), (0.0, 0.1, 0.3, 1.0)):
        model = _SlowSums(seconds=LONGEST / 2 if policy is None and not draw_ahead else 0.0)
        generator = FunctionGenerator(model.ask, max_concurrency=N_CALLS, draw_ahead=draw_ahead)
        sampler = ConformalSampler(
            generator, k_max=K // 2, epsilon=0.15, quality="self_consistency", policy=policy
        )
        start = perf_counter()
        sampler.fit(questions[:300], answers[:300])
        seconds = perf_counter() - start
        if model.seconds:
            ideal = model.n_calls * model.seconds / N_CALLS
            yield Row(
                f"function: fit, {model.n_calls} draws, {N_CALLS} at a time (at most 1.15)",
                f"draws x {1e3 * model.seconds:.0f} ms / {N_CALLS}: {ideal:.1f} s",
                f"{seconds:.1f} s",
                seconds / ideal,
            )
        model.seconds, model.n_calls, n_needed, seconds = LONGEST / 2, 0, 0, 0.0
        for question in questions[300:]:
            start = perf_counter()
            n_needed += sampler.predict([question])[0].n_samples
            seconds += perf_counter() - start
            sleep(model.seconds)  # draws in vain end before the next prompt
        ideal = n_needed * model.seconds
        yield Row(
            f"function: one prompt after the other, {policy or 'thresholds'}, draw_ahead="
            f"{draw_ahead}, {model.n_calls / n_needed:.2f} draws for one that is needed",
            f"{n_needed / n_alone:.1f} draws needed x 50 ms: {ideal / n_alone:.3f} s a prompt",
            f"{seconds / n_alone:.3f} s a prompt",
            seconds / ideal,
        )


class _SlowSums:
    """A model that adds two numbers, and slips now and then."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.n_calls = seconds, 0
        self._lock = threading.Lock()

    def fingerprint(self) -> str:
        return "sums"

    def ask(self, question: str, seed: int) -> str:
        with self._lock:
            self.n_calls += 1
        sleep(self.seconds)
        slip = random.Random(seed).choice([0, 0, 0, 1, 10])
        return str(sum(map(int, question.split("+"))) + slip)


def _is_last(generation: Generation) -> bool:
    return hashlib.blake2b(generation.response.encode()).digest()[0] < 40


def _queue(generator: OpenAIGenerator, prompts: list[str]) -> int:
    """Draws that the rule looked at; those made ahead of it are paid for, too."""
    counts, done = [0] * len(prompts), [False] * len(prompts)

    def decide(arrived: list[tuple[int, list[Generation]]]) -> Iterator[int]:
        for i, draws in arrived:
            for draw in draws:
                counts[i] += not done[i]
                done[i] = done[i] or _is_last(draw)
            yield 0 if done[i] else counts[i] + 1

    generator.serve(DrawQueue(prompts, K, decide=decide))
    return sum(counts)


def _rounds(generator: OpenAIGenerator, prompts: list[str]) -> int:
    n_needed = 0
    for start in range(K):
        n_needed += len(prompts)
        rows = generator.sample(prompts, 1, start=start)
        last = {i for i, (generation,) in enumerate(rows) if _is_last(generation)}
        prompts = [prompt for i, prompt in enumerate(prompts) if i not in last]
    return n_needed


@contextmanager
def _server() -> Iterator[str]:
    """Address of a server in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.service"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection, each after a time that depends on it alone."""
    while not reader.at_eof():
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        except asyncio.IncompleteReadError:  # the client is done
            break
        length = head.partition("content-length:")[2].partition("\r\n")[0]
        request = await reader.readexactly(int(length))
        digest = hashlib.blake2b(request, digest_size=8).digest()
        seconds = LONGEST * int.from_bytes(digest, "big") / 2**64
        await asyncio.sleep(seconds)
        message = {"role": "assistant", "content": digest.hex()}
        usage = {"prompt_tokens": 1, "completion_tokens": round(1e6 * seconds)}
        body = {"choices": [{"index": 0, "message": message}], "usage": usage}
        content = json.dumps(body).encode()
        header = (
            f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
        )
        writer.write(header.encode() + b"\r\n\r\n" + content)


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
