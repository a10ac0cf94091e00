"""The page on which people judge, with many pairs waiting: time of an answer, with the disk's."""

import http.client
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from time import perf_counter
from urllib.parse import urlsplit

from sklearn_clm.caching import HumanJudge, JudgedPrompt, WantedVerdict

from . import Row

__all__ = ["rows"]

_LIMIT = 0.05


def rows(quick: bool = False) -> Iterator[Row]:
    """Time the answers to verdicts, each on the disk before the answer, over a socket."""
    n_judged = 100 if quick else 1_000
    words = ["a", "word", "or", "two", "that", "a", "model", "said", "of", "the", "matter"]
    for n_pairs in (100, 10_000):
        pairs = [
            WantedVerdict(
                JudgedPrompt(f"prompt {i}: {' '.join(words * 20)}", (" ".join(words * 10),)),
                f"response {i}: {' '.join(words[::-1] * 10)}",
            )
            for i in range(n_pairs)
        ]
        seconds = sorted(_answers(pairs, min(n_judged, n_pairs)))
        for name, one in [("median", seconds[len(seconds) // 2]), ("slowest", seconds[-1])]:
            yield Row(
                f"answer to a verdict, {n_pairs:,} pairs wait, {name} of {len(seconds):,}",
                f"limit: {1e3 * _LIMIT:.0f} ms",
                f"{1e3 * one:.1f} ms",
                _LIMIT / one,
            )


def _answers(pairs: list[WantedVerdict], n_judged: int) -> Iterator[float]:
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/verdicts.sqlite"
        HumanJudge(store).want(pairs)
        command = [sys.executable, "-m", "sklearn_clm", "judge", store]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert server.stdout is not None
        url = urlsplit(server.stdout.readline().split()[2])
        connection = http.client.HTTPConnection(str(url.hostname), url.port)
        headers = {"Origin": f"http://{url.netloc}", "Content-Type": "application/json"}
        connection.request("GET", f"{url.path}turn", headers=headers)
        turn = json.loads(connection.getresponse().read())
        for k in range(n_judged):
            body = json.dumps({"id": turn["pair"]["id"], "key": "yn"[k % 2]})
            start = perf_counter()
            connection.request("POST", f"{url.path}verdict", body, headers)
            content = connection.getresponse().read()
            yield perf_counter() - start
            turn = json.loads(content)
        connection.close()
        server.terminate()
        server.communicate()
