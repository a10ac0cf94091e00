"""What is said where an optional package is missing."""

import sys

import pytest

from sklearn_clm.caching import HumanJudge
from sklearn_clm.evaluation import RiskMonitor
from sklearn_clm.generators import OpenAIGenerator, TransformersGenerator
from sklearn_clm.generators._logs import read_records
from sklearn_clm.inspection import RiskMonitorDisplay
from sklearn_clm.judging import serve
from sklearn_clm.scoring import EntailmentScore


def _draw_from_a_model():
    TransformersGenerator("some/model").sample(["one"], 1)


def _draw_from_a_service():
    OpenAIGenerator("tiny", base_url="http://localhost:1/v1", api_key="none").sample(["one"], 1)


def _judge_entailment():
    EntailmentScore("some/model").score_pairs(["one"], ["two"])


def _judge_in_the_browser():
    serve(HumanJudge("never-made.sqlite"))


def _read_parquet():
    list(read_records("samples.parquet"))


def _draw_a_figure():
    RiskMonitorDisplay.from_monitor(RiskMonitor(0.3).update([1, 0]))


@pytest.mark.parametrize(
    ("package", "use", "extra"),
    [
        ("torch", _draw_from_a_model, "transformers"),
        ("transformers", _draw_from_a_model, "transformers"),
        ("openai", _draw_from_a_service, "openai"),
        ("transformers", _judge_entailment, "transformers"),
        ("matplotlib.pyplot", _draw_a_figure, "plot"),
        ("uvicorn", _judge_in_the_browser, "judge"),
        ("pyarrow.parquet", _read_parquet, "parquet"),
    ],
)
def test_the_message_says_how_to_get_it(monkeypatch, package, use, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install 'sklearn-clm\[{extra}\]'"):
        use()
