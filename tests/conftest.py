"""Settings shared by all tests."""

import contextlib
import importlib.util
import os
import signal
import sys

# Many small models and several test processes: one thread each is faster than all at once.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
from hypothesis import HealthCheck, Phase, settings

# The same examples in every run, and no verdict on speed: a machine may be busy.
# `--hypothesis-profile=explore` draws other examples each time.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
REPEATABLE = {"derandomize": True, "database": None, **UNTIMED}
settings.register_profile("repeatable", **REPEATABLE)
settings.register_profile("explore", print_blob=True, **UNTIMED)
# for mutation tests: no time is spent on making a failure small
settings.register_profile("mutation", phases=[Phase.explicit, Phase.generate], **REPEATABLE)
settings.load_profile("repeatable")

from sklearn_clm.caching import HumanJudge  # noqa: E402

# Fixtures that give the directories of tiny checkpoints, made when first asked for.
from tests.tiny_models import gpt2_path, llama_path, t5_path, vit_gpt2_path  # noqa: E402, F401


def pytest_collection_modifyitems(items):
    """Skip the doctests of local models where transformers is missing."""
    if importlib.util.find_spec("transformers") is None:
        for item in items:
            if "generators/transformers/" in item.nodeid:
                item.add_marker(pytest.mark.skip(reason="needs transformers"))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """A test file that cannot be imported fails; doctests of optional packages are skipped."""
    report = yield
    if report.skipped and report.nodeid.startswith("tests/") and "unable to" in report.longrepr[2]:
        report.outcome, report.longrepr = "failed", report.longrepr[2]
    return report


@pytest.fixture
def judge(tmp_path):
    """Verdicts of people, none given yet."""
    return HumanJudge(tmp_path / "verdicts.sqlite", judge="Ada")


@pytest.fixture
def log(tmp_path):
    """Where a model of tests/toy.py notes its draws."""
    return tmp_path / "draws"


@pytest.fixture
def interrupted_after():
    """``with interrupted_after(seconds):`` is left by a KeyboardInterrupt then, if not before."""
    if not hasattr(signal, "setitimer"):
        pytest.skip("needs timers")
    coverage = sys.modules.get("coverage")
    if coverage is not None and coverage.Coverage.current() is not None:
        pytest.skip("coverage may be interrupted while it holds its own lock, for good")

    @contextlib.contextmanager
    def interrupted(seconds):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        yield interrupted
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def keyboard_interrupts():
    """Interrupts raise KeyboardInterrupt, also where the tests were started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
