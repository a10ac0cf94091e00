"""What is said where an optional package is missing."""

import sys

import pytest

from sklearn_clm.caching import HumanJudge
from sklearn_clm.generators import OpenAIGenerator, TransformersGenerator
from sklearn_clm.judging import serve
from sklearn_clm.scoring import EntailmentScore


def _draw_from_a_model():
    TransformersGenerator("some/model").sample(["one"], 1)


def _draw_from_a_service():
    OpenAIGenerator("tiny", base_url="http://localhost:1/v1", api_key="none").sample(["one"], 1)


def _judge_entailment():
    EntailmentScore("some/model").score_pairs([("one", "two")])


def _judge_in_the_browser():
    serve(HumanJudge("never-made.sqlite"))


@pytest.mark.parametrize(
    ("package", "use", "message"),
    [
        (
            "torch",
            _draw_from_a_model,
            r"TransformersGenerator needs .*pip install 'sklearn-clm\[transformers\]'",
        ),
        (
            "transformers",
            _draw_from_a_model,
            r"TransformersGenerator needs .*pip install 'sklearn-clm\[transformers\]'",
        ),
        (
            "openai",
            _draw_from_a_service,
            r"OpenAIGenerator needs .*pip install 'sklearn-clm\[openai\]'",
        ),
        (
            "transformers",
            _judge_entailment,
            r"EntailmentScore needs .*pip install 'sklearn-clm\[transformers\]'",
        ),
        (
            "uvicorn",
            _judge_in_the_browser,
            r"needs starlette and uvicorn: pip install 'sklearn-clm\[judge\]'",
        ),
    ],
)
def test_the_message_says_how_to_get_it(monkeypatch, package, use, message):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=message):
        use()
