"""Randomness that depends on (prompt, seed, draw) alone.

A draw must not depend on the batch it was made in, on the order of the prompts, on how many
draws were asked for or on what was drawn before. So no generator here keeps a random state:
each draw owns a counter-based stream, keyed by a hash of the prompt, the seed and the index
of the draw.

What one draw from a generator is."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Generation", "draw_stream", "prompt_bytes"]


@dataclass(frozen=True, slots=True)
class Generation:
    """One response drawn for a prompt, with what the generator knows about it.

    Parameters
    ----------
    response : str or object
        The response. Text for language models; a label or a number for generators over numeric
        data.
    logprob : float or None
        Natural logarithm of the *base* model's probability of the response given the prompt,
        log p(y | x), before temperature, top-k or top-p reshape it. None where unknown.
    n_tokens : int or None
        Number of generated tokens |y|, the end-of-sequence token included where the model
        emitted it.
    token_logprobs : tuple of float or None
        Natural log-probability of each generated token in its context; they sum to `logprob`.
    token_spans : tuple of (int, int) or None
        For each generated token, the characters ``response[start:stop]`` it produced. Tokens that
        produced no character of the response (end of sequence, text cut at a stop string) have
        an empty span at its end.
    finish_reason : str or None
        ``"stop"`` (end of sequence or a stop string), ``"length"`` (budget of tokens used up) or
        None (unknown).

    Examples
    --------
    >>> from sklearn_clm.generators import Generation
    >>> Generation("Paris", logprob=-0.7, n_tokens=2).response
    'Paris'
    """

    response: Any
    logprob: float | None = None
    n_tokens: int | None = None
    token_logprobs: tuple[float, ...] | None = None
    token_spans: tuple[tuple[int, int], ...] | None = None
    finish_reason: str | None = None


def prompt_bytes(prompt: Any) -> bytes:
    """Serialise a prompt so that equal prompts, and only those, give equal bytes.

    Parameters
    ----------
    prompt : str, number, array, image, mapping, or sequence of these
        A prompt as the generators take it: text, a row of features, chat messages, a PIL image.

    Returns
    -------
    bytes
        An unambiguous serialisation: every part carries its type and its length. A NumPy scalar
        or string equals its Python counterpart, a list equals the tuple of its items, and the
        order of a mapping's keys does not matter.

    Raises
    ------
    TypeError
        If some part of the prompt is of a type that has no stable serialisation.

    Examples
    --------
    >>> from sklearn_clm.generators import prompt_bytes
    >>> prompt_bytes("Q: ?") == prompt_bytes("Q: ?")
    True
    >>> prompt_bytes("1") == prompt_bytes(1)
    False
    """
    digest: list[bytes] = []
    _serialise(prompt, digest)
    return b"".join(digest)


def _serialise(value: Any, out: list[bytes]) -> None:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        _emit(b"n", b"", out)
    elif isinstance(value, str):
        _emit(b"s", value.encode("utf-8", "surrogatepass"), out)
    elif isinstance(value, bytes):
        _emit(b"b", value, out)
    elif isinstance(value, bool):
        _emit(b"t", b"1" if value else b"0", out)
    elif isinstance(value, (int, float)):
        _emit(b"f", json.dumps(float(value) if abs(value) < 2**53 else value).encode(), out)
    elif isinstance(value, np.ndarray):
        _serialise_array(value, out)
    elif isinstance(value, dict):
        items = sorted((prompt_bytes(key), item) for key, item in value.items())
        _emit(b"d", str(len(items)).encode(), out)
        for key, item in items:
            out.append(key)
            _serialise(item, out)
    elif isinstance(value, (list, tuple)):
        _emit(b"l", str(len(value)).encode(), out)
        for item in value:
            _serialise(item, out)
    elif hasattr(value, "tobytes") and hasattr(value, "mode") and hasattr(value, "size"):
        _emit(b"i", f"{value.mode} {value.size}".encode(), out)
        _emit(b"b", value.tobytes(), out)
        if palette := getattr(value, "getpalette", lambda: None)():
            # the pixels are mere positions in it
            _serialise([palette, value.info.get("transparency")], out)
    else:
        raise TypeError(
            f"prompts holds a {type(value).__module__}.{type(value).__qualname__}, which has no "
            "stable serialisation to key its draws by; wanted str, number, array, PIL image, or "
            "a list or dict of these."
        )


def _serialise_array(value: np.ndarray, out: list[bytes]) -> None:
    if value.dtype.kind in "OUS":
        _serialise(value.tolist(), out)
        return
    if value.dtype.kind in "biuf":
        # float32 data and its float64 copy are the same prompt
        value = value.astype(np.float64) + 0.0  # -0.0 and 0.0 are the same number
    _emit(b"a", f"{value.dtype.str} {value.shape}".encode(), out)
    _emit(b"b", np.ascontiguousarray(value).tobytes(), out)


def _emit(tag: bytes, payload: bytes, out: list[bytes]) -> None:
    out.append(tag + str(len(payload)).encode() + b":")
    out.append(payload)


def draw_stream(prompt: Any, seed: int, draw: int, *, salt: bytes = b"") -> np.random.Generator:
    """Random stream of one draw, a function of its key alone.

    Parameters
    ----------
    prompt : object
        The prompt, as :func:`prompt_bytes` takes it, or the bytes that it gave.
    seed : int
        The seed of the run, >= 0.
    draw : int
        Index of the draw for this prompt, >= 0.
    salt : bytes, default=b""
        Separates streams of different purposes under the same key.

    Returns
    -------
    numpy.random.Generator
        A Philox stream, keyed by 128 bits of BLAKE2b over (salt, seed, draw, prompt).

    Examples
    --------
    >>> from sklearn_clm.generators import draw_stream
    >>> a = draw_stream("Q: ?", seed=0, draw=3).random()
    >>> a == draw_stream("Q: ?", seed=0, draw=3).random()
    True
    """
    serialised = prompt if isinstance(prompt, bytes) else prompt_bytes(prompt)
    header = f"{len(salt)} {int(seed)} {int(draw)} ".encode()
    key = hashlib.blake2b(header + salt + serialised, digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
