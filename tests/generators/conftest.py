"""A service on this machine, and a client that waits for it in vain for a short time only."""

import pytest
from generators.fault_server import FaultServer


@pytest.fixture
def server():
    with FaultServer() as server:
        yield server


@pytest.fixture
def short_waits(monkeypatch):
    monkeypatch.setattr("sklearn_clm.generators._concurrent._FIRST_PAUSE", 0.01)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
