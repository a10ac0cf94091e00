"""Where samples come from."""

from sklearn_clm.generators._base import BaseGenerator, Generator
from sklearn_clm.generators._classifiers import EstimatorGenerator, ResamplingGenerator
from sklearn_clm.generators._draws import Generation, draw_stream, prompt_bytes
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
    "PrecomputedGenerator",
    "QueueGenerator",
    "ResamplingGenerator",
    "ServiceError",
    "TransformersGenerator",
    "draw_stream",
    "prompt_bytes",
]
