"""View of a pair: pieces of plain text, and images.

Prompts and responses are data of unknown origin. They leave this module as text alone, in which
characters that steer a display (controls, and those that turn the direction of writing) are
replaced by their visible names, and as images that were decoded and encoded anew.
"""

import base64
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from rapidfuzz.distance import LCSseq

from sklearn_clm.caching import WantedVerdict
from sklearn_clm.generators.draws import is_chat
from sklearn_clm.generators.prompts import is_image, prompt_text

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


def pair_view(pair: WantedVerdict) -> dict[str, object]:
    """A pair as JSON values of visible text.

    Texts are pieces; `compared` is the reference that the response was compared with, `context` the
    response around a component, which is marked in it (empty otherwise), and `passages` those that
    do not stand in the prompt.
    """
    response = visible(_shown_text(pair.response))
    references = [visible(_shown_text(reference)) for reference in pair.asked.references]
    view: dict[str, object] = {
        "id": pair.id,
        "prompt": _blocks(pair.asked.prompt),
        "response": [(response, False)],
        "references": [[(alias, False)] for alias in references],
        "compared": None,
        "context": [],
        "passages": [],
    }
    if pair.asked.context is None:
        return view | _differences(response, references)
    # most of a reference is not about one component of a response, so these are not compared
    text, start, stop, passages = pair.asked.context
    pieces = [(text[:start], False), (text[start:stop], True), (text[stop:], False)]
    return view | {
        "context": [(visible(part), is_marked) for part, is_marked in pieces if part],
        "passages": [[(visible(passage), False)] for passage in passages],
    }


def visible(text: str) -> str:
    """Text whose steering characters are replaced by their names."""
    return _STEERING.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text.replace("\r\n", "\n"))


def images(pair: WantedVerdict) -> list[Any]:
    """The images in a prompt, in order."""
    return [part for _, part in _parts(pair.asked.prompt) if is_image(part)]


def png(image: Any) -> bytes:
    """A PNG of bounded size, without a file's other content."""
    width, height = image.size
    scale = _LARGEST_SIDE / max(width, height, 1)
    # decoded and encoded anew: what else a file holds, such as a place, stays behind
    image = image.convert("RGB")
    if scale < 1:
        # a line of pixels stays one, however flat the image is
        new_width = max(1, round(width * scale))
        new_height = max(1, round(height * scale))
        image = image.resize((new_width, new_height))
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


def _blocks(prompt: object) -> list[dict[str, object]]:
    """Texts and numbered images of a prompt, with their roles."""
    blocks: list[dict[str, object]] = []
    n_images = 0
    for role, part in _parts(prompt):
        if is_image(part):
            blocks.append({"role": role, "text": "", "image": n_images})
            n_images += 1
        elif text := visible(_shown_text(part)):
            blocks.append({"role": role, "text": text, "image": None})
    return blocks


def _parts(prompt: object) -> Iterator[tuple[str, object]]:
    """Texts and images of a prompt, each with its role."""
    if prompt is None:
        return
    if not is_chat(prompt):
        yield "", prompt
        return
    for message in prompt:
        role = visible(str(message["role"]))
        content = message.get("content")
        for part in content if isinstance(content, (list, tuple)) else [content]:
            yield role, _text_or_image(part)


def _text_or_image(part: object) -> object:
    """Text or image of a message's part; nothing is loaded."""
    if not isinstance(part, Mapping):
        return "" if part is None else part
    if isinstance(part.get("text"), str):
        return part["text"]
    source = part.get("image", part.get("image_url"))
    if isinstance(source, Mapping):
        source = source.get("url")
    if is_image(source):
        return source
    if isinstance(source, str):
        # an address elsewhere is shown as text: loading it would tell its owner who judges
        return _decoded(source) or source[:200]
    return f"[{part.get('type', 'part')}]"


def _decoded(address: str) -> Any:
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


def _shown_text(value: object) -> str:
    return prompt_text(value) if isinstance(value, np.ndarray) else str(value)


def _differences(response: str, references: Sequence[str]) -> dict[str, object]:
    """Words that differ from those of the most similar reference.

    Nothing is marked where they share less than half: it would be nearly everything.
    """
    words = _WORD.findall(response)
    words_of_references = list(map(_WORD.findall, references))
    similarities = [
        LCSseq.normalized_similarity(words, other)
        if len(words) * len(other) <= _LARGEST_TABLE
        else 0.0
        for other in words_of_references
    ]
    if max(similarities, default=0.0) < _LEAST_SHARED:
        return {}
    # of several references the nearest: differences from another would mark nearly all
    compared = similarities.index(max(similarities))
    other = words_of_references[compared]
    mine = [False] * len(words)
    theirs = [False] * len(other)
    for step in LCSseq.opcodes(words, other):
        if step.tag != "equal":
            mine[step.src_start : step.src_end] = [True] * (step.src_end - step.src_start)
            theirs[step.dest_start : step.dest_end] = [True] * (step.dest_end - step.dest_start)
    marked = [[(reference, False)] for reference in references]
    marked[compared] = _pieces(other, theirs)
    return {"response": _pieces(words, mine), "references": marked, "compared": compared}


def _pieces(words: Iterable[str], differs: Iterable[bool]) -> list[Piece]:
    """Runs of alike words as one piece; space never differs."""
    pieces: list[Piece] = []
    for word, different in zip(words, differs):
        different = different and not word.isspace()
        if pieces and pieces[-1][1] == different:
            pieces[-1] = pieces[-1][0] + word, different
        else:
            pieces.append((word, different))
    return pieces
