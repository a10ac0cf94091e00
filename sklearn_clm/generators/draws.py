"""Draws, and the keys that make them repeatable.

A draw must not depend on the batch it was made in, on the order of the prompts, on how many
draws were asked for or on what was drawn before. So no generator here keeps a random state:
each draw owns a counter-based stream, keyed by a hash of the prompt, the seed and the index
of the draw.
"""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard, cast

import numpy as np
from numpy.random.bit_generator import ISeedSequence

# whatever a generator takes and gives: text, chat messages, images, rows of numbers, labels
Prompt: TypeAlias = Any
Response: TypeAlias = Any

_LARGEST_EXACT = 2**53  # beyond it some integers are no float


@dataclass(frozen=True, slots=True)
class Generation:
    """One response drawn for a prompt, with what is known.

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

    response: Response
    logprob: float | None = None
    n_tokens: int | None = None
    token_logprobs: tuple[float, ...] | None = None
    token_spans: tuple[tuple[int, int], ...] | None = None
    finish_reason: str | None = None


def prompt_bytes(prompt: object) -> bytes:
    """Serialise a prompt: equal bytes mean equal prompts.

    A prompt is text, a number, an array, an image of Pillow, or a list or a mapping of these. Each
    part carries its type and its length. A NumPy scalar or string equals its Python counterpart, a
    list equals the tuple of its items, and the order of a mapping's keys does not matter.
    """
    parts: list[bytes] = []
    try:
        _serialise(prompt, parts)
    except UnicodeEncodeError:
        check_text(prompt, "the prompt")
        raise
    return b"".join(parts)


def check_text(value: object, name: str) -> None:
    """Refuse text, at any depth, with half a surrogate pair.

    Such a half is what is left of a character that was cut in two: no tokenizer, service or file
    takes it.
    """
    if isinstance(value, str):
        # most texts end here: looking for surrogates takes longer
        if value.isascii():
            return
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{name} holds {value[error.start]!a} at position {error.start}, half of a "
                "character; wanted text that UTF-8 can write."
            ) from None
    elif isinstance(value, dict):
        for key, item in value.items():
            check_text(key, name)
            check_text(item, name)
    elif isinstance(value, (list, tuple)):
        for item in value:
            check_text(item, name)


def is_chat(prompt: object) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    """Whether a prompt is a list of chat messages."""
    return (
        isinstance(prompt, Sequence)
        and len(prompt) > 0
        and all(isinstance(message, Mapping) and "role" in message for message in prompt)
    )


def _serialise(value: Any, out: list[bytes]) -> None:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        _emit(b"n", b"", out)
    elif isinstance(value, str):
        _emit(b"s", value.encode(), out)
    elif isinstance(value, bytes):
        _emit(b"b", value, out)
    elif isinstance(value, bool):
        _emit(b"t", b"1" if value else b"0", out)
    elif isinstance(value, (int, float)):
        _emit(b"f", repr(_one_form(value)).encode(), out)
    elif isinstance(value, np.ndarray):
        _serialise_array(value, out)
    elif isinstance(value, dict):
        # sorted by the bytes of the keys, since keys of several types cannot be compared
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


def _one_form(value: int | float) -> int | float:
    """One form for all equal numbers, larger integers included."""
    # 1 and 1.0 are one prompt
    if abs(value) < _LARGEST_EXACT:
        return float(value)
    return int(value) if value == value and abs(value) != np.inf else value


def _serialise_array(value: np.ndarray, out: list[bytes]) -> None:
    large = (value > _LARGEST_EXACT) | (value < -_LARGEST_EXACT) if value.dtype.kind in "iu" else ()
    if value.dtype.kind in "OUS" or np.any(large):  # no float tells such integers apart
        _serialise(value.tolist(), out)
        return
    if value.dtype.kind in "biuf":
        # float32 data and its float64 copy are the same prompt
        value = value.astype(np.float64) + 0.0  # -0.0 and 0.0 are the same number
        value = np.where(np.isnan(value), np.nan, value)  # one of the many forms of NaN
    _emit(b"a", f"{value.dtype.str} {value.shape}".encode(), out)
    _emit(b"b", np.ascontiguousarray(value).tobytes(), out)


def _emit(tag: bytes, payload: bytes, out: list[bytes]) -> None:
    # with its length, so that no two values run into the same bytes
    out.append(tag + str(len(payload)).encode() + b":")
    out.append(payload)


def draw_stream(prompt: object, seed: int, draw: int, *, salt: bytes = b"") -> np.random.Generator:
    """Random stream of one draw, determined by its key alone.

    Parameters
    ----------
    prompt : object
        The prompt.
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
    key = _Key(hashlib.blake2b(header + salt + serialised, digest_size=16).digest())
    # the stubs ask for the whole of a SeedSequence, of which Philox uses the interface
    return np.random.Generator(np.random.Philox(cast(np.random.SeedSequence, key)))


class _Key(ISeedSequence):
    """The key of a Philox stream.

    ``Philox(key=...)`` would first ask the system for random bytes, and then not use them.
    """

    def __init__(self, digest: bytes):
        self.words = np.frombuffer(digest, dtype="<u8").astype(np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> np.ndarray:
        return self.words


def draw_seed(prompt: object, seed: int, draw: int) -> int:
    """Seed of one draw, in 31 bits for every server."""
    # under a salt: a generator may draw from the stream of the same key, too
    return int(draw_stream(prompt, seed, draw, salt=b"service").integers(2**31))


def text_key(response: object) -> object:
    """A hashable key that equal responses share."""
    try:
        hash(response)
    except TypeError:
        # repr shows the whole array
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
            return repr(response)
    return type(response), response
