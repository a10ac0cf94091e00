"""What is said where an optional package is missing."""

import asyncio
import sys

import pytest

from sklearn_clm import PredictionSets
from sklearn_clm.caching import HumanJudge
from sklearn_clm.evaluation import InspectStopping, RiskMonitor
from sklearn_clm.generators import OpenAIGenerator, TransformersGenerator
from sklearn_clm.generators.logs import read_records
from sklearn_clm.inspection import RiskMonitorDisplay
from sklearn_clm.judging import serve
from sklearn_clm.scoring import EntailmentScore


def draw_from_a_model():
    TransformersGenerator("some/model").sample(["one"], 1)


def draw_from_a_service():
    OpenAIGenerator("tiny", base_url="http://localhost:1/v1", api_key="none").sample(["one"], 1)


def evaluate_in_inspect():
    asyncio.run(InspectStopping().start_task(None, [], 1))


def draw_a_figure():
    RiskMonitorDisplay.from_monitor(RiskMonitor(0.3).update([1, 0]))


def make_a_data_frame():
    PredictionSets([], k_max=1).to_frame()


@pytest.mark.parametrize(
    ("package", "use", "extra"),
    [
        ("pandas", make_a_data_frame, "plot"),
        ("torch", draw_from_a_model, "transformers"),
        ("transformers", draw_from_a_model, "transformers"),
        ("openai", draw_from_a_service, "openai"),
        ("transformers", lambda: EntailmentScore("some/model")("one", "two"), "transformers"),
        ("matplotlib.pyplot", draw_a_figure, "plot"),
        ("uvicorn", lambda: serve(HumanJudge("never-made.sqlite")), "judge"),
        ("inspect_ai.util", evaluate_in_inspect, "inspect"),
        ("pyarrow.parquet", lambda: list(read_records("samples.parquet")), "parquet"),
    ],
)
def test_the_message_says_how_to_get_it(monkeypatch, package, use, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install 'sklearn-clm\[{extra}\]'"):
        use()
