"""A key is in nothing that is shown, written or sent to anybody but the service."""

import copy
import io
import logging
import pickle
import traceback

import joblib
import pytest
from generators.fault_server import SLOW, FaultServer
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils import estimator_html_repr

from sklearn_clm.caching import CachedGenerator
from sklearn_clm.generators import OpenAIGenerator, ServiceError
from sklearn_clm.generators.openai._service import redacted

KEY = "sk-proj-T0pS3cret"
PROMPTS = ["a", "b"]
pytestmark = pytest.mark.usefixtures("short_waits")


@pytest.fixture(params=["argument", "environment"])
def origin(request, monkeypatch):
    if request.param == "environment":
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return request.param


def generator_for(server, origin, **params):
    key = KEY if origin == "argument" else None
    params = {"timeout": 60.0, "max_retries": 1, **params}
    return OpenAIGenerator("m", base_url=server.url, api_key=key, **params)


def sent_keys(server):
    return {headers.get("Authorization") or headers["authorization"] for headers in server.headers}


def test_the_service_gets_the_key(server, origin):
    generator = generator_for(server, origin)
    clone(CachedGenerator(generator)).sample(PROMPTS, 2)
    for twin in (copy.copy(generator), copy.deepcopy(CachedGenerator(generator))):
        twin.sample(PROMPTS, 2)
    assert sent_keys(server) == {f"Bearer {KEY}"}


def test_no_repr_pickle_or_copy_of_parameters_holds_it(tmp_path, origin):
    with FaultServer() as server:
        generator = generator_for(server, origin)
        generator.sample(PROMPTS, 1)
        cached = CachedGenerator(generator, tmp_path / "draws.sqlite")
        search = GridSearchCV(cached, {"generator__api_key": [generator.api_key]})
        search.set_params(estimator__generator__api_key=KEY)
        for thing in (generator, cached, search):
            shown = [repr(thing), str(thing), f"{thing}", estimator_html_repr(thing)]
            shown += [repr(thing.get_params()), repr(vars(thing))]
            stored = io.BytesIO()
            joblib.dump(thing, stored)
            shown += [repr(pickle.dumps(thing)), repr(stored.getvalue())]
            assert not [text for text in shown if KEY in text]


def test_unpickled_generators_take_the_key_of_their_environment(server, monkeypatch):
    generator = pickle.loads(pickle.dumps(generator_for(server, "argument")))
    assert generator.api_key is None
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-process")
    generator.sample(PROMPTS, 1)
    assert sent_keys(server) == {"Bearer sk-of-this-process"}


@pytest.mark.parametrize("fault", ["400", "401", "429", "500", "hang", "dropped", "malformed"])
def test_no_error_or_log_holds_it(origin, fault, caplog):
    caplog.set_level(logging.DEBUG)
    with FaultServer() as server:
        generator = generator_for(server, origin, timeout=0.3 if fault in SLOW else 60.0)
        server.fault_rate, server.faults = 1.0, [fault]
        with pytest.raises(ServiceError) as caught:
            generator.sample(PROMPTS, 1)
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + repr(pickle.dumps(error))
    while error is not None:
        shown += f"{error!r}{error.args}{vars(error)}"
        assert not hasattr(error, "request")
        assert not hasattr(error, "response")
        error = error.__cause__ or error.__context__
    assert KEY not in shown
    assert KEY not in caplog.text
    if fault in ("400", "401", "500"):
        assert "<secret>" in shown


@pytest.mark.parametrize(
    "fault",
    ["400", *(pytest.param(f, marks=pytest.mark.slow) for f in ("error_body", "malformed"))],
)
def test_no_error_holds_a_part_of_it(fault):
    with FaultServer() as server:
        generator = generator_for(server, "argument", max_retries=0)
        shown = ""
        for length in range(0, 560, 7):
            server.padding, server.planned = "x" * length, [fault]
            with pytest.raises(ServiceError) as caught:
                generator.sample(["a"], 1)
            shown += str(caught.value)
    # every message is cut, some of them where the key was
    assert not [part for part in (KEY[k : k + 6] for k in range(len(KEY) - 5)) if part in shown]


@pytest.mark.parametrize(
    ("address", "key", "name"),
    [("127.0.0.1:9", f"{KEY}\u2028", "api_key must"), (f"me:{KEY}@127.0.0.1:9", "k", "base_url")],
)
def test_no_error_about_a_parameter_holds_it(address, key, name):
    generator = OpenAIGenerator("m", base_url=f"http://{address}/v1", api_key=key)
    with pytest.raises(ValueError, match=name) as caught:
        generator.sample(PROMPTS, 1)
    error = caught.value
    while error is not None:
        assert KEY not in repr(error.args)
        error = error.__cause__ or error.__context__


def test_a_key_may_be_set_after_a_first_try(server, monkeypatch):
    for key in ("wrong", "right"):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        OpenAIGenerator("m", base_url=server.url).sample(PROMPTS, 1)
    assert sent_keys(server) == {"Bearer wrong", "Bearer right"}


def test_a_missing_key_is_named():
    with pytest.raises(ValueError, match="api_key"):
        OpenAIGenerator("m").sample(PROMPTS, 1)


def test_secrets():
    secret = OpenAIGenerator("m", api_key=KEY).api_key
    assert KEY not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == KEY
    assert copy.deepcopy(secret) is secret
    assert pickle.loads(pickle.dumps(secret)) is None
    assert redacted(f"x{KEY}y Bearer abc, d", KEY) == "x<secret>y Bearer <secret>, d"
