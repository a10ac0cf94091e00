"""Servers in processes of their own: killed between verdicts, and two at once."""

import contextlib
import http.client
import json
import random
import signal
import subprocess
import sys
import threading
from urllib.parse import urlsplit

import pytest

from sklearn_clm.caching import HumanJudge, JudgedPrompt, WantedVerdict

PAIRS = [
    WantedVerdict(JudgedPrompt(f"Is {i} even?", ("yes" if i % 2 == 0 else "no",)), "yes")
    for i in range(40)
]


def is_even(pair):
    return pair["references"][0][0][0] == "yes"


class Server:
    """``python -m sklearn_clm judge`` in a process of its own."""

    def __init__(self, store, wanted, *options):
        command = [sys.executable, "-m", "sklearn_clm", "judge", str(store)]
        command += ["--wanted", str(wanted), "--name", "Ada", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().split()[2]

    def ask(self, tab, message=None):
        url = urlsplit(self.url)
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
        headers = {"Origin": f"http://{url.netloc}", "Content-Type": "application/json"}
        if message is None:
            connection.request("GET", f"{url.path}turn?tab={tab}", headers=headers)
        else:
            body = json.dumps(message)
            connection.request("POST", f"{url.path}verdict?tab={tab}", body, headers)
        answer = connection.getresponse()
        assert answer.status == 200
        found = json.loads(answer.read())
        connection.close()
        return found

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def until_it_ends(work):
    with contextlib.suppress(OSError, http.client.HTTPException):
        work()


@pytest.fixture
def files(tmp_path):
    judge = HumanJudge(tmp_path / "verdicts.sqlite", judge="Ada")
    judge.export(tmp_path / "wanted.jsonl", PAIRS)
    return judge.path, tmp_path / "wanted.jsonl"


def test_a_killed_server_loses_no_verdict_and_counts_none_twice(files):
    store, _ = files
    chance = random.Random(0)
    acknowledged, judge = {}, HumanJudge(store)
    for start in range(3):
        server = Server(*files)
        turn = server.ask("a")
        assert turn["n_judged"] == len(judge.history()) == len(set(acknowledged))
        if start == 2:
            break
        for k in range(chance.randint(3, 12)):
            pair = turn["pair"]
            message = {"id": pair["id"], "key": "y" if is_even(pair) else "n"}
            turn = server.ask("a", message)
            acknowledged[pair["id"]] = is_even(pair)
            if k == 2:
                turn = server.ask("a", message)  # as a page does that got no answer
        server.kill()
    while turn["pair"] is not None:
        pair = turn["pair"]
        turn = server.ask("a", {"id": pair["id"], "key": "y" if is_even(pair) else "n"})
        acknowledged[pair["id"]] = is_even(pair)
    server.kill()
    history = judge.history()
    assert {row.id: row.verdict for row in history} == acknowledged
    assert len(history) == len(PAIRS)
    assert judge.verdicts(PAIRS) == [i % 2 == 0 for i in range(40)]


def test_a_server_that_is_killed_while_it_writes_keeps_all_or_nothing(files):
    server, judge = Server(*files), HumanJudge(files[0])
    acknowledged = []

    def work():
        turn = server.ask("a")
        while turn["pair"] is not None:
            pair = turn["pair"]
            turn = server.ask("a", {"id": pair["id"], "key": "y"})
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


def test_two_people_at_two_servers_share_the_work(files):
    servers = [Server(*files), Server(*files, "--name", "Grace")]
    failures = []

    def work(server):
        try:
            turn = server.ask("a")
            while turn["pair"] is not None:
                pair = turn["pair"]
                turn = server.ask("a", {"id": pair["id"], "key": "y" if is_even(pair) else "n"})
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for server in servers:
        server.kill()
    assert failures == []
    judge = HumanJudge(files[0])
    assert judge.verdicts(PAIRS) == [i % 2 == 0 for i in range(40)]


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
def test_an_interrupt_ends_the_server_and_prints_what_was_done(files):
    server = Server(*files)
    assert server.url.startswith("http://127.0.0.1:")
    assert len(urlsplit(server.url).path) > 40
    turn = server.ask("a")
    server.ask("a", {"id": turn["pair"]["id"], "key": "y"})
    server.process.send_signal(signal.SIGINT)
    assert server.process.stdout.read() == "1 judged.\n"
    assert server.process.wait() == 0
    server.process.stdout.close()
