"""Where samples come from."""

from sklearn_clm.generators._base import BaseGenerator, Generator
from sklearn_clm.generators._generation import Generation
from sklearn_clm.generators._keys import draw_stream, prompt_bytes

__all__ = ["BaseGenerator", "Generation", "Generator", "draw_stream", "prompt_bytes"]
