"""Servers in processes of their own: killed between verdicts, and two at once."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import threading
from urllib.parse import urlsplit

import pytest

from sklearn_clm.caching import HumanJudge

from .serving import PAIRS, Server, ask

pytest.importorskip("uvicorn", reason="needs the extra judge: uvicorn and starlette")


@pytest.fixture
def store(tmp_path):
    judge = HumanJudge(tmp_path / "verdicts.sqlite", judge="Ada")
    judge.want(PAIRS)
    return judge.path


def test_a_server_that_is_killed_while_it_writes_keeps_all_or_nothing(store):
    server, judge = Server(store), HumanJudge(store)
    acknowledged = []

    def work():
        pair = server.ask()["pair"]
        with contextlib.suppress(OSError, http.client.HTTPException):
            while pair is not None:
                turn = server.ask({"id": pair["id"], "key": "y"})
                acknowledged.append(pair["id"])
                pair = turn["pair"]
                if len(acknowledged) == 10:
                    killing.set()

    killing = threading.Event()
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    assert killing.wait(120)
    server.kill()
    worker.join(60)
    kept = [row.id for row in judge.history()]
    assert kept[: len(acknowledged)] == acknowledged
    assert len(kept) - len(acknowledged) in (0, 1)  # the last may have lost its answer
    server = Server(store)
    assert server.ask()["n_more"] == len(PAIRS) - len(kept)
    server.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
def test_an_interrupt_ends_the_server_and_prints_what_was_done(store):
    command = [sys.executable, "-m", "sklearn_clm", "judge", str(store)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    url = process.stdout.readline().split()[2]
    assert url.startswith("http://127.0.0.1:")
    assert len(urlsplit(url).path) > 40
    ask(url, {"id": ask(url)["pair"]["id"], "key": "y"})
    process.send_signal(signal.SIGINT)
    assert process.stdout.read() == "1 judged.\n"
    assert process.wait() == 0
    process.stdout.close()
