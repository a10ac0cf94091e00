"""Where samples come from."""

from sklearn_clm.generators._base import BaseGenerator, Generator
from sklearn_clm.generators._cached import CachedGenerator
from sklearn_clm.generators._estimator import EstimatorGenerator
from sklearn_clm.generators._generation import Generation
from sklearn_clm.generators._keys import draw_stream, prompt_bytes
from sklearn_clm.generators._precomputed import PrecomputedGenerator
from sklearn_clm.generators._resampling import ResamplingGenerator
from sklearn_clm.generators._transformers import TransformersGenerator

__all__ = [
    "BaseGenerator",
    "CachedGenerator",
    "EstimatorGenerator",
    "Generation",
    "Generator",
    "PrecomputedGenerator",
    "ResamplingGenerator",
    "TransformersGenerator",
    "draw_stream",
    "prompt_bytes",
]
