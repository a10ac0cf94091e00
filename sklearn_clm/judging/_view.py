"""How a pair is shown: pieces of plain text, each with what it means, and images.

Prompts and responses are data of unknown origin. They leave this module as text alone, in which
characters that steer a display (controls, and those that turn the direction of writing) are
replaced by their visible names, and as images that were decoded and encoded anew.
"""

import base64
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np
from rapidfuzz.distance import LCSseq

from sklearn_clm.caching import WantedVerdict
from sklearn_clm.generators._prompts import prompt_text

Piece: TypeAlias = tuple[str, bool]
"""Text, and whether it is a difference."""

_LARGEST_SIDE = 1600  # of an image that is shown, in pixels
_LARGEST_IMAGE = 50_000_000  # of one that is decoded, in pixels
_LARGEST_TABLE = 100_000_000  # of bits, in comparing words
_LEAST_SHARED = 0.5  # of the words of the longer text, for marks to be of use
# words, but each sign of a script that sets no spaces
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|\s+|[^\w\s]")
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff]"
)


@runtime_checkable
class Image(Protocol):
    """What Pillow's images do."""

    @property
    def size(self) -> tuple[int, int]: ...

    def convert(self, mode: str) -> "Image": ...

    def save(self, fp: io.BytesIO, format: str) -> None: ...

    def resize(self, size: tuple[int, int]) -> "Image": ...


class Block(NamedTuple):
    """A part of a prompt: text, or the number of an image."""

    role: str
    text: str
    image: int | None = None


class Differing(NamedTuple):
    """A response and its references as pieces, and which reference it was compared with.

    `context` is the response around a component, which is marked in it; empty otherwise.
    """

    response: list[Piece]
    references: list[list[Piece]]
    compared: int | None
    context: list[Piece]


def pair_view(pair: WantedVerdict) -> dict[str, object]:
    """A pair as JSON values, all texts of it made visible."""
    response = visible(_as_text(pair.response))
    references = [visible(_as_text(reference)) for reference in pair.asked.references]
    if pair.asked.context is None:
        differing = _differences(response, references)
    else:  # most of a reference is not about one component of it
        text, start, stop = pair.asked.context
        around = [(text[:start], False), (text[start:stop], True), (text[stop:], False)]
        differing = Differing(
            [(response, False)],
            [[(one, False)] for one in references],
            None,
            [(visible(part), marked) for part, marked in around if part],
        )
    blocks = [Block(role, *_shown(part)) for role, part in _numbered(pair.asked.prompt)]
    return {
        "id": pair.id,
        "prompt": [block._asdict() for block in blocks if block.text or block.image is not None],
        **differing._asdict(),
    }


def visible(text: str) -> str:
    """Text whose steering characters are replaced by their names."""
    return _STEERING.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text.replace("\r\n", "\n"))


def images(pair: WantedVerdict) -> list[Image]:
    """The images in a prompt, in the order of their numbers."""
    return [part for _, part in _parts(pair.asked.prompt) if isinstance(part, Image)]


def png(image: Image) -> bytes:
    """An image as PNG of bounded size, without what else its file held."""
    width, height = image.size
    scale = _LARGEST_SIDE / max(width, height, 1)
    image = image.convert("RGB")
    if scale < 1:
        image = image.resize((max(1, round(width * scale)), max(1, round(height * scale))))
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


def _shown(part: "str | int") -> tuple[str, int | None]:
    return (visible(part), None) if isinstance(part, str) else ("", part)


def _numbered(prompt: object) -> Iterator[tuple[str, str | int]]:
    """Parts of a prompt with their roles, the images as numbers."""
    n_images = 0
    for role, part in _parts(prompt):
        if isinstance(part, Image):
            yield role, n_images
            n_images += 1
        else:
            yield role, _as_text(part)


def _parts(prompt: object) -> Iterator[tuple[str, object]]:
    """The texts and images of a prompt, each with the role that speaks."""
    if prompt is None:
        return
    if not _is_chat(prompt):
        yield "", prompt
        return
    for message in prompt:
        role, content = visible(str(message["role"])), message.get("content")
        for part in content if isinstance(content, (list, tuple)) else [content]:
            yield role, _part(part)


def _is_chat(prompt: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    return (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, (str, bytes))
        and len(prompt) > 0
        and all(isinstance(message, Mapping) and "role" in message for message in prompt)
    )


def _part(part: object) -> object:
    """Text or image of a part of a message; an address is text, and is never loaded."""
    if not isinstance(part, Mapping):
        return "" if part is None else part
    if isinstance(part.get("text"), str):
        return part["text"]
    source = part.get("image", part.get("image_url"))
    if isinstance(source, Mapping):
        source = source.get("url")
    if isinstance(source, Image):
        return source
    if isinstance(source, str):
        return _decoded(source) or source[:200]
    return f"[{part.get('type', 'part')}]"


def _decoded(address: str) -> Image | None:
    """The image in a ``data:`` address."""
    head, _, data = address.partition(";base64,")
    if not head.startswith("data:image/"):
        return None
    try:
        from PIL import Image as pillow

        image = pillow.open(io.BytesIO(base64.b64decode(data, validate=True)))
        if image.size[0] * image.size[1] > _LARGEST_IMAGE:
            return None
        image.load()
    except Exception:  # a broken file makes Pillow raise errors of many types
        return None
    return image


def _as_text(value: object) -> str:
    if isinstance(value, np.ndarray):
        return prompt_text(value)
    return value if isinstance(value, str) else str(value)


def _differences(response: str, references: Sequence[str]) -> Differing:
    """What the response and the most similar reference do not share, by words.

    Nothing is marked where they share less than half: it would be nearly everything.
    """
    words = _words(response)
    plain: list[list[Piece]] = [[(one, False)] for one in references]
    others = [_words(one) for one in references]
    close = [
        (LCSseq.normalized_similarity(words, other), -number)
        for number, other in enumerate(others)
        if len(words) * len(other) <= _LARGEST_TABLE
    ]
    similarity, last = max(close, default=(0.0, 0))
    if similarity < _LEAST_SHARED:
        return Differing([(response, False)], plain, None, [])
    compared = -last
    other = others[compared]
    mine, theirs = [False] * len(words), [False] * len(other)
    for step in LCSseq.opcodes(words, other):
        if step.tag != "equal":
            mine[step.src_start : step.src_end] = [True] * (step.src_end - step.src_start)
            theirs[step.dest_start : step.dest_end] = [True] * (step.dest_end - step.dest_start)
    plain[compared] = _pieces(other, theirs)
    return Differing(_pieces(words, mine), plain, compared, [])


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _pieces(words: Iterable[str], differs: Iterable[bool]) -> list[Piece]:
    """Neighbouring words that are alike in this as one piece; space is no difference."""
    pieces: list[Piece] = []
    for word, different in zip(words, differs):
        different = different and not word.isspace()
        if pieces and pieces[-1][1] == different:
            pieces[-1] = pieces[-1][0] + word, different
        else:
            pieces.append((word, different))
    return pieces
