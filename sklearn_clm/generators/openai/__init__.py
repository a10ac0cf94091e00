"""Draws from services with an OpenAI-compatible interface."""

from sklearn_clm.generators.openai._generator import OpenAIGenerator
from sklearn_clm.generators.openai._service import ServiceError

__all__ = ["OpenAIGenerator", "ServiceError"]
