"""Servers in processes of their own: killed between verdicts, and two at once."""

import os
import random
import signal
import subprocess
import sys
import threading
from urllib.parse import urlsplit

import pytest

from sklearn_clm.caching import HumanJudge

from .serving import PAIRS, Server, ask, is_even, until_it_ends

pytest.importorskip("uvicorn", reason="needs the extra judge: uvicorn and starlette")


@pytest.fixture
def store(tmp_path):
    judge = HumanJudge(tmp_path / "verdicts.sqlite", judge="Ada")
    judge.want(PAIRS)
    return judge.path


@pytest.mark.slow
def test_a_killed_server_loses_no_verdict_and_counts_none_twice(store):
    chance = random.Random(0)
    acknowledged, judge = {}, HumanJudge(store)
    for start in range(3):
        server = Server(store)
        turn = server.ask()
        assert turn["n_more"] == len(PAIRS) - len(judge.history())
        if start == 2:
            break
        for k in range(chance.randint(3, 12)):
            pair = turn["pair"]
            message = {"id": pair["id"], "key": "y" if is_even(pair) else "n"}
            turn = server.ask(message)
            acknowledged[pair["id"]] = is_even(pair)
            if k == 2:
                turn = server.ask(message)  # as a page does that got no answer
        server.kill()
    while turn["pair"] is not None:
        pair = turn["pair"]
        turn = server.ask({"id": pair["id"], "key": "y" if is_even(pair) else "n"})
        acknowledged[pair["id"]] = is_even(pair)
    server.kill()
    history = judge.history()
    assert {row.id: row.verdict for row in history} == acknowledged
    assert len(history) == len(PAIRS)
    assert judge.verdicts(PAIRS) == [i % 2 == 0 for i in range(40)]


def test_a_server_that_is_killed_while_it_writes_keeps_all_or_nothing(store):
    server, judge = Server(store), HumanJudge(store)
    acknowledged = []

    def work():
        turn = server.ask()
        while turn["pair"] is not None:
            pair = turn["pair"]
            turn = server.ask({"id": pair["id"], "key": "y"})
            acknowledged.append(pair["id"])
            if len(acknowledged) == 10:
                killing.set()

    killing = threading.Event()
    worker = threading.Thread(target=until_it_ends, args=(work,), daemon=True)
    worker.start()
    assert killing.wait(30)
    server.kill()
    worker.join(30)
    kept = [row.id for row in judge.history()]
    assert kept[: len(acknowledged)] == acknowledged
    assert len(kept) - len(acknowledged) in (0, 1)  # the last may have lost its answer


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
