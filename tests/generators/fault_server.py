"""An OpenAI-compatible server on this machine that fails in all the ways that servers fail.

What it answers is a function of the prompt, the seed and the index of the choice alone, so draws
that arrive through any number of faults can be compared with those that arrived through none.
"""

import contextlib
import gzip
import hashlib
import json
import random
import socket
import threading
import zlib
from collections import Counter
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = ["ja", "nein", "Zürich", "北京", "vielleicht", "🦊", "blue", "42", "maybe", "never"]
FAULTS = (
    *("429", "500", "503", "hang", "truncated", "malformed", "error_body"),
    *("too_few", "too_many", "duplicated", "no_text", "dropped", "dropped_midway", "dripping"),
    *("nested", "bomb", "half_character", "half_answer", "no_bytes"),
)
SLOW = ("hang", "dripping")  # those that a client sees by its timeout alone


def words(prompt, seed, index, n_words=4):
    """The words of a response; by far not all different."""
    digest = hashlib.blake2b(f"{prompt}\0{seed}\0{index}".encode(), digest_size=16).digest()
    return [WORDS[byte % len(WORDS)] for byte in digest[: 1 + digest[15] % n_words]]


def tokens(prompt, seed, index):
    """Tokens of a response, as bytes, with log-probabilities; some split a character."""
    text = " ".join(words(prompt, seed, index)).encode()
    pieces = [text[k : k + 3] for k in range(0, len(text), 3)]
    return [(piece, -0.25 * (1 + sum(piece) % 7)) for piece in pieces]


@cache  # made once: it takes a second
def bomb(n_bytes=2**28):
    """Few bytes of gzip that are many once decompressed."""
    deflate = zlib.compressobj(9, wbits=31)
    blank = bytes(2**20)
    return b"".join(deflate.compress(blank) for _ in range(n_bytes // 2**20)) + deflate.flush()


class PatientServer(ThreadingHTTPServer):
    """Keeps clients that come at once: where the queue is full, one may hang until its timeout."""

    request_queue_size = 128
    daemon_threads = True


class FaultServer:
    """Serves both endpoints from a thread; use it as a context manager."""

    def __init__(self, fault_rate=0.0, faults=FAULTS, seed=0, answer=None):
        self.fault_rate = fault_rate
        self.faults = faults
        self.answer = answer  # callable (prompt) -> text, in place of words
        self.planned = []  # faults of the next requests, before the random ones
        self.gives_logprobs = True
        self.honours_n = True
        self.retry_after = "0.01"
        self.compresses = False
        self.padding = ""  # of messages about errors
        self.refuses = ""  # requests that hold this text get status 400
        self.delay = None  # callable (request) that returns when the answer may be sent
        self.requests = []
        self.headers = []
        self.n_answered = Counter()
        self.n_faults = Counter()
        self.n_at_a_time = self.most_at_a_time = 0
        self._closed = threading.Event()
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def __enter__(self):
        outer = self

        class Handler(_Handler):
            owner = outer

        self._server = PatientServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        return self

    def __exit__(self, *exception):
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()

    def next_fault(self):
        with self._lock:
            if self.planned:
                fault = self.planned.pop(0)
            elif self._random.random() < self.fault_rate:
                fault = self._random.choice(self.faults)
            else:
                fault = None
            if fault is not None:
                self.n_faults[fault] += 1
            return fault

    def body(self, request, chat):
        prompt = request["messages"][-1]["content"] if chat else request["prompt"]
        seed, n = request.get("seed"), request.get("n", 1) if self.honours_n else 1
        choices = [self.choice(request, prompt, seed, index, chat) for index in range(n)]
        usage = {"prompt_tokens": len(prompt), "completion_tokens": 3 * n, "total_tokens": 0}
        return {"id": "x", "object": "completion", "choices": choices, "usage": usage}

    def choice(self, request, prompt, seed, index, chat):
        if self.answer is not None:
            parts = [(self.answer(prompt).encode(), -0.5)]
        else:
            parts = tokens(prompt, seed, index)
        text = b"".join(piece for piece, _ in parts).decode()
        choice = {"index": index, "finish_reason": "stop"}
        wanted = request.get("logprobs") not in (None, False) and self.gives_logprobs
        if chat:
            content = [
                {"token": p.decode(errors="replace"), "bytes": list(p), "logprob": v}
                for p, v in parts
            ]
            choice["message"] = {"role": "assistant", "content": text}
            choice["logprobs"] = {"content": content} if wanted else None
        else:
            spelled = [_spelled(piece) for piece, _ in parts]
            values = [value for _, value in parts]
            choice["text"] = text
            choice["logprobs"] = {"tokens": spelled, "token_logprobs": values} if wanted else None
        return choice


def _spelled(piece):
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


class _Handler(BaseHTTPRequestHandler):
    owner: FaultServer
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        owner = self.owner
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with owner._lock:
            owner.n_at_a_time += 1
            owner.most_at_a_time = max(owner.most_at_a_time, owner.n_at_a_time)
            owner.requests.append(request)
            owner.headers.append(dict(self.headers))
        try:
            if owner.delay is not None:
                owner.delay(request)
            self.respond(request, owner.next_fault(), chat="chat" in self.path)
        finally:
            with owner._lock:
                owner.n_at_a_time -= 1

    def respond(self, request, fault, chat):
        owner = self.owner
        if fault == "429":
            self.send(429, {"error": {"message": "slow down"}}, {"Retry-After": owner.retry_after})
        elif owner.refuses and owner.refuses in json.dumps(request):
            self.send(400, {"error": {"message": "context_length_exceeded"}})
        elif fault in ("400", "401", "404", "500", "503"):
            self.send(int(fault), {"error": {"message": self.complaint()}})
        elif fault == "hang":
            owner._closed.wait(60)
            self.close_connection = True
        elif fault == "dropped":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        else:
            self.send_body(request, owner.body(request, chat), fault, chat)

    def complaint(self):
        return f"{self.owner.padding}failed for {self.headers.get('Authorization')}"

    def send_body(self, request, body, fault, chat):
        choices = body["choices"]
        if fault == "too_few":
            choices.pop()
        elif fault == "too_many":
            extra = self.owner.choice(request, "extra", 0, len(choices), chat)
            choices.append(extra)
        elif fault == "duplicated":
            body["choices"] = [choice for choice in choices for _ in range(2)]
        elif fault == "no_text":
            for choice in choices:
                choice.update({"message": {"content": None}} if chat else {"text": None})
        elif fault == "error_body":
            body = {"error": {"message": self.complaint()}}
        elif fault == "half_answer":  # what a gateway had before its provider failed
            body = {**body, "error": {"message": self.complaint()}, "choices": choices[:1]}
            choices[0].update({"message": {"content": "I"}} if chat else {"text": "I"})
        elif fault == "no_bytes":
            choices[0]["logprobs"] = {"content": [{"token": "I", "bytes": 10**12, "logprob": -1.0}]}
        elif fault == "half_character":
            for choice in choices:
                choice.update({"message": {"content": "\ud83e"}} if chat else {"text": "\ud83e"})
        text = json.dumps(body).encode()
        if fault == "truncated":
            text = text[: len(text) // 2]
        elif fault == "malformed":
            text = f"<html>Bad Gateway: {self.complaint()}</html>".encode()
        elif fault == "nested":
            text = b"[" * 100_000 + b"]" * 100_000
        elif fault == "bomb":
            self.send(200, bomb(), {"Content-Encoding": "gzip"})
            return
        elif self.owner.compresses and "gzip" in self.headers.get("Accept-Encoding", ""):
            self.send(200, gzip.compress(text), {"Content-Encoding": "gzip"})
            return
        if fault is None:
            with self.owner._lock:
                self.owner.n_answered[json.dumps(request, sort_keys=True)] += 1
        self.send(200, text, cut=fault == "dropped_midway", drip=fault == "dripping")

    def send(self, status, body, headers=None, *, cut=False, drip=False):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if drip:
            self.drip(content)
            return
        self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.close_connection = True

    def drip(self, content):
        for k in range(len(content)):
            self.wfile.write(content[k : k + 1])
            self.owner._closed.wait(0.1)

    def log_message(self, *arguments):
        pass

    def handle(self):
        with contextlib.suppress(OSError):  # the client went away, as it may
            super().handle()
