"""Where samples come from."""

from typing import TYPE_CHECKING

from sklearn_clm._lazy import lazy_names
from sklearn_clm.generators._base import BaseGenerator, Generator
from sklearn_clm.generators._estimator import EstimatorGenerator
from sklearn_clm.generators._generation import Generation
from sklearn_clm.generators._keys import draw_stream, prompt_bytes
from sklearn_clm.generators._resampling import ResamplingGenerator

if TYPE_CHECKING:
    from sklearn_clm.generators._cached import CachedGenerator
    from sklearn_clm.generators._openai import OpenAIGenerator
    from sklearn_clm.generators._precomputed import PrecomputedGenerator
    from sklearn_clm.generators._service import ServiceError
    from sklearn_clm.generators._transformers import TransformersGenerator
    from sklearn_clm.generators._usage import BudgetExceededError
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "_cached": ["CachedGenerator"],
            "_openai": ["OpenAIGenerator"],
            "_precomputed": ["PrecomputedGenerator"],
            "_service": ["ServiceError"],
            "_transformers": ["TransformersGenerator"],
            "_usage": ["BudgetExceededError"],
        },
    )

__all__ = [
    "BaseGenerator",
    "BudgetExceededError",
    "CachedGenerator",
    "EstimatorGenerator",
    "Generation",
    "Generator",
    "OpenAIGenerator",
    "PrecomputedGenerator",
    "ResamplingGenerator",
    "ServiceError",
    "TransformersGenerator",
    "draw_stream",
    "prompt_bytes",
]
