"""Where samples come from."""

from sklearn_clm.generators._base import (
    BaseGenerator,
    Generator,
    StreamingGenerator,
    TrainableGenerator,
    check_keyed,
)
from sklearn_clm.generators._classifiers import EstimatorGenerator, ResamplingGenerator
from sklearn_clm.generators._draws import Generation, check_text, draw_stream, prompt_bytes
from sklearn_clm.generators._parallel import ParallelGenerator
from sklearn_clm.generators._precomputed import PrecomputedGenerator
from sklearn_clm.generators._queue import DrawQueue, DrawRequest, QueueGenerator
from sklearn_clm.generators.openai import BudgetExceededError, OpenAIGenerator, ServiceError
from sklearn_clm.generators.transformers import TransformersGenerator

__all__ = [
    "BaseGenerator",
    "BudgetExceededError",
    "DrawQueue",
    "DrawRequest",
    "EstimatorGenerator",
    "Generation",
    "Generator",
    "OpenAIGenerator",
    "ParallelGenerator",
    "PrecomputedGenerator",
    "QueueGenerator",
    "ResamplingGenerator",
    "ServiceError",
    "StreamingGenerator",
    "TrainableGenerator",
    "TransformersGenerator",
    "check_keyed",
    "check_text",
    "draw_stream",
    "prompt_bytes",
]
