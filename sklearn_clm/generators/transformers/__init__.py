"""Draws from checkpoints that the transformers library loads."""

from sklearn_clm.generators.transformers._generator import TransformersGenerator

__all__ = ["TransformersGenerator"]
