"""Servers of the page for tests: processes that can be killed, and one in a thread."""

import http.client
import json
import multiprocessing
import threading
from urllib.parse import urlsplit

from sklearn_clm.caching import JudgedPrompt, WantedVerdict
from sklearn_clm.judging import JudgingSession, judging_app

PAIRS = [
    WantedVerdict(JudgedPrompt(f"Is {i} even?", ("yes" if i % 2 == 0 else "no",)), "yes")
    for i in range(40)
]

# one process has imported everything, and each server is a fork of it
_METHODS = multiprocessing.get_all_start_methods()
_PROCESSES = multiprocessing.get_context("forkserver" if "forkserver" in _METHODS else "spawn")
if "forkserver" in _METHODS:
    _PROCESSES.set_forkserver_preload(
        ["sklearn_clm.__main__", "sqlite3", "uvicorn.protocols.http.auto", "starlette.middleware"]
    )
_MAIN = """
import sys
sys.stdout = open(pipe.fileno(), "w", closefd=False)
from sklearn_clm.__main__ import main
main(arguments)
"""


class Server:
    """``sklearn-clm judge`` in a process of its own."""

    def __init__(self, store, *options, name="Ada"):
        arguments = ["judge", str(store), "--name", name, *options]
        receiving, sending = _PROCESSES.Pipe(duplex=False)
        context = {"pipe": sending, "arguments": arguments}
        self.process = _PROCESSES.Process(target=exec, args=(_MAIN, context), daemon=True)
        self.process.start()
        sending.close()
        with open(receiving.fileno(), closefd=False) as file:
            self.url = file.readline().split()[2]
        receiving.close()

    def ask(self, message=None):
        return ask(self.url, message)

    def kill(self):
        self.process.kill()
        self.process.join()


class ServerInThread:
    """One server in this process that shows the session of the test that runs."""

    token = "token-of-these-tests"

    def __init__(self):
        import uvicorn  # tests that need it are skipped where it is missing

        options = {"log_level": "error", "lifespan": "off", "ws": "none", "interface": "asgi3"}
        self._app = None
        self._server = uvicorn.Server(uvicorn.Config(self._serve, port=0, **options))
        self._socket = self._server.config.bind_socket()
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/{self.token}/"
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )
        self._thread.start()

    async def _serve(self, scope, receive, send):
        await self._app(scope, receive, send)

    def show(self, judge, wanted, **options):
        session = JudgingSession(judge, wanted, **options)
        self._app = judging_app(session, token=self.token, port=self.port)
        return self.url

    def stop(self):
        self._server.should_exit = True
        self._thread.join(30)


def ask(address, message=None):
    """The next turn, or what a verdict is answered with."""
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    headers = {"Origin": f"http://{url.netloc}", "Content-Type": "application/json"}
    if message is None:
        connection.request("GET", f"{url.path}turn", headers=headers)
    else:
        connection.request("POST", f"{url.path}verdict", json.dumps(message), headers)
    answer = connection.getresponse()
    assert answer.status == 200
    found = json.loads(answer.read())
    connection.close()
    return found
