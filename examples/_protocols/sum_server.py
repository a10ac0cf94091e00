"""An OpenAI-compatible server on this machine whose "model" adds numbers, often wrongly."""

import hashlib
import json
import random
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

__all__ = ["SumServer"]


def add(prompt: str, seed: int | None) -> str:
    """Answer such as "27" to "19 + 8 ="; large last digits are harder. Other texts get a zero."""
    try:
        numbers = [int(part) for part in prompt.rstrip("= ").split("+")]
    except ValueError:
        return "0"
    digest = hashlib.blake2b(f"{prompt}\0{seed}".encode(), digest_size=8).digest()
    rng = random.Random(digest)
    carried = sum(number % 10 for number in numbers) >= 10
    slip = rng.choice([-10, 10, 1]) if rng.random() < (0.45 if carried else 0.1) else 0
    return str(sum(numbers) + slip)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = request["messages"][-1]["content"]
        message = {"role": "assistant", "content": add(prompt, request.get("seed"))}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        usage = {"prompt_tokens": len(prompt) // 2, "completion_tokens": 2}
        body = json.dumps(
            {"id": "sum", "object": "chat.completion", "choices": [choice], "usage": usage}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing of each request."""


class SumServer(ThreadingHTTPServer):
    """Serves from a thread of its own, which a program that ends does not wait for."""

    # of more clients at once than wait in this queue, one may hang until its time is up
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        Thread(target=self.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Free the port."""
        self.shutdown()
        self.server_close()
