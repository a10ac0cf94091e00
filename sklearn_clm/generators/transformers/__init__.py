"""Draws from checkpoints that the transformers library loads.

Rows are decoded by a loop of our own. The library's continuous batching (transformers 5.23) took
68 s for 120 draws of 8 tokens after 520-token prompts (a Llama of 8 million weights, CPU), this
loop 3.7 s. Its draws depend on what is drawn beside them, since they share one random state, and
it takes neither recurrent models nor encoders nor images.

Each module imports only from those above it. Those from ``_tokens`` on need torch, which
:class:`TransformersGenerator` imports when a model is wanted:

- ``_text``: from prompts to tokens, and from tokens to text; the characters of each token.
- ``_tokens``: from logits and a uniform number to a token.
- ``_batch``: keys and values of rows that are decoded together, and of prompts that wait.
- ``_forward``: forward passes of each kind of model, and the probes that choose among them.
- ``_checkpoint``: a loaded model with its tokenizer, shared in a process; its identity.
- ``_engine``: the decoding loop, which answers a queue of draws.
- ``_generator``: :class:`TransformersGenerator`.
"""

from sklearn_clm.generators.transformers._generator import TransformersGenerator

__all__ = ["TransformersGenerator"]
