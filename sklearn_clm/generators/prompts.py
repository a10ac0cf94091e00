"""Prompts of any container in one plain form; their text."""

import hashlib
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils.validation import _get_feature_names

from sklearn_clm.generators.draws import Prompt, is_chat, prompt_bytes

Template = str | Callable[[Any], object] | None

_WIDTH = 200  # characters of a prompt that a message or a card shows
_NUMBERS = 4  # of a row of numbers


@dataclass(frozen=True)
class CheckedPrompts:
    """Prompts in plain form, with features of their container."""

    prompts: Any  # a list of objects, or an array of shape (n, d) of numbers
    numeric: bool
    n_features: int | None = None
    feature_names: np.ndarray | None = None
    index: Any = None  # of a data frame or a Series of pandas

    def __len__(self) -> int:
        return len(self.prompts)

    def __iter__(self) -> Iterator[Prompt]:
        return iter(self.prompts)

    def take(self, indices: Sequence[int] | np.ndarray) -> "CheckedPrompts":
        """The prompts at these positions."""
        rows = np.asarray(indices, dtype=np.intp)
        prompts: Any
        if isinstance(self.prompts, list):  # the rule takes some for each of its draws
            prompts = [self.prompts[row] for row in rows.tolist()]
        else:
            prompts = _safe_indexing(self.prompts, rows)
        index = None if self.index is None else self.index.take(rows)
        return replace(self, prompts=prompts, index=index)

    @property
    def digests(self) -> np.ndarray:
        """Numbers that tell prompts from each other."""
        # no cached_property: under Python 3.11 it has one lock for all requests, and for forks
        digests: np.ndarray | None = self.__dict__.get("_digests")
        if digests is None:
            # 64 bits: of a million prompts two have one digest with a chance of 3 in 100 million
            prompt_digests = (
                hashlib.blake2b(prompt_bytes(prompt), digest_size=8).digest() for prompt in self
            )
            numbers = [int.from_bytes(digest, "big") for digest in prompt_digests]
            digests = self.__dict__["_digests"] = np.array(numbers, dtype=np.uint64)
        return digests


def check_prompts(X: Any) -> CheckedPrompts:
    """Prompts as a list, or an array of numbers."""
    if isinstance(X, CheckedPrompts):
        return X
    if hasattr(X, "columns") and hasattr(X, "shape"):  # a data frame, of pandas or another library
        checked = _check_table(X)
    elif sparse.issparse(X) or (type(X) is np.ndarray and X.ndim == 2 and X.dtype.kind in "biufc"):
        checked = _check_numbers(X)
    else:
        items = _items(X)
        # a list of numbers, or of rows of them, is what scikit-learn would take for X
        if items and (all(map(is_number, items)) or all(map(_is_numeric_row, items))):
            checked = _check_numbers(items)
        else:
            checked = _check_items(items, of_frame=hasattr(X, "iloc"))
    return replace(checked, index=X.index) if hasattr(X, "iloc") else checked


def _check_numbers(X: Any) -> CheckedPrompts:
    array = check_array(X, input_name="X")
    return CheckedPrompts(array, True, array.shape[1], _get_feature_names(X))


def _check_items(items: Sequence[Prompt], *, of_frame: bool) -> CheckedPrompts:
    if not items:
        raise ValueError("prompts (X) is empty: found 0 sample(s), wanted at least 1 prompt.")
    items = [as_python(item) for item in items]
    for i, item in enumerate(items):
        if is_missing(item) or is_number(item):
            raise ValueError(
                f"prompts (X) must be of one kind, none missing, got {item!r} at position {i} "
                "instead." + " A single row of a data frame is X.iloc[[i]]." * of_frame
            )
    return CheckedPrompts(items, False)


def _check_table(X: Any) -> CheckedPrompts:
    """Prompts of a data frame: numbers, or one column."""
    if np.asarray(X).dtype.kind in "biufc":
        return _check_numbers(X)
    columns = [listed(X[name]) for name in X.columns]
    texts = [
        name
        for name, column in zip(X.columns, columns)
        if not all(is_number(item) or is_missing(item) for item in column)
    ]
    if not texts:
        return _check_numbers(X)
    # which of them is the prompt is not guessed
    if len(columns) > 1:
        raise _not_one_column(f"a data frame with the columns {texts!r:.200} that hold no numbers")
    names = _get_feature_names(X)
    return replace(_check_items(columns[0], of_frame=False), n_features=1, feature_names=names)


def _items(X: Any) -> list[Prompt]:
    """Prompts of no data frame as a list."""
    if hasattr(X, "__array__") and not lists_itself(X):
        array = np.asarray(X)
        if array.ndim == 1:
            return array.tolist()
        if array.dtype.kind in "biufc":
            return list(array)  # of images, or of rows of another kind of array
        rows = array.tolist()
        if array.ndim == 2 and array.shape[1] == 1 and not all(map(is_number, array.flat)):
            return [row[0] for row in rows]
        if array.ndim > 2 or any(isinstance(item, str) for item in array.flat):
            raise _not_one_column(f"an array of shape {array.shape}")
        if array.ndim == 2 and not all(isinstance(item, dict) for item in array.flat):
            return list(array.astype(np.float64))
        return rows  # chats of one length
    if isinstance(X, (str, bytes, dict)) or not hasattr(X, "__getitem__"):
        raise TypeError(
            "prompts (X) must be a sequence of prompts, such as a list, got "
            f"{type(X).__name__} {X!r:.60} instead."
        )
    return listed(X)


def _not_one_column(got: str) -> ValueError:
    return ValueError(
        f"prompts (X) must be one column of prompts, or several of numbers, got {got} instead. "
        "Pass one column, such as X['question']."
    )


def lists_itself(column: object) -> bool:
    """Whether a column knows its items as Python objects."""
    return hasattr(column, "to_pylist") or hasattr(column, "to_list")


def listed(column: Any) -> list[Any]:
    """The items of a column as Python objects."""
    if hasattr(column, "to_pylist"):
        return list(column.to_pylist())
    return list(column.to_list() if hasattr(column, "to_list") else column)


def is_missing(item: object) -> bool:
    """Whether an item is None, NaN or a table's equivalent."""
    if item is None or type(item).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(item, (float, np.floating)) and bool(np.isnan(item))


def is_number(item: object) -> bool:
    """Whether an item is a number, NumPy's included."""
    return isinstance(item, (numbers.Number, np.number, np.bool_))


def _is_numeric_row(item: object) -> bool:
    if isinstance(item, np.ndarray):
        return item.ndim == 1 and item.dtype.kind in "biufc"
    return isinstance(item, (list, tuple)) and all(map(is_number, item))


def as_python(item: Any) -> Any:
    """A prompt or reference as Python objects, numeric arrays aside."""
    if isinstance(item, np.generic):
        return item.item()
    # such as a chat, as a Parquet file gives it to pandas
    if isinstance(item, np.ndarray) and item.dtype.kind not in "biufc":
        return item.tolist()
    return item


# --- text ---


def filled(template: Template, prompt: object, name: str = "a prompt") -> object:
    """A prompt in its template; errors call it `name`."""
    if template is None:
        return prompt
    if callable(template):
        return template(prompt)
    if not isinstance(prompt, str):
        raise TypeError(
            f"{name} is a {type(prompt).__name__}, which the text prompt_template cannot take; "
            "wanted a str, or a callable prompt_template."
        )
    if "{prompt}" not in template:
        raise ValueError(f"prompt_template must hold '{{prompt}}', got {template!r:.80} instead.")
    return template.replace("{prompt}", prompt)


def texts_of_chat(prompt: object) -> list[str]:
    """The texts of a chat's messages; none of another prompt."""
    texts: list[Any] = []
    for message in prompt if is_chat(prompt) else ():
        content = message.get("content")
        # a text, or parts of it, as where images stand beside it
        parts = content if isinstance(content, (list, tuple)) else [content]
        texts += [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return [text for text in texts if isinstance(text, str) and text.strip()]


def prompt_text(prompt: Prompt) -> str:
    """Short text of a prompt, or a chat's last message."""
    if isinstance(prompt, np.ndarray) and prompt.dtype.kind in "biufc":
        return _numbers_in_words(prompt)
    if is_chat(prompt):
        return _message(prompt[-1])
    if is_image(prompt):
        return "image, {} x {} pixels".format(*prompt.size)
    return _shortened(str(prompt))


def prompt_line(prompt: Prompt) -> str:
    """Short text of a prompt on one line, quoted."""
    text = prompt_text(prompt)
    return text if isinstance(prompt, np.ndarray) or is_image(prompt) else repr(text)


def is_image(prompt: Any) -> bool:
    """Whether a prompt is an image of Pillow."""
    has_size = isinstance(size := getattr(prompt, "size", None), tuple) and len(size) == 2
    return has_size and hasattr(prompt, "save") and hasattr(prompt, "convert")


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _numbers_in_words(array: np.ndarray) -> str:
    if array.ndim != 1:
        return f"array of shape {array.shape}"
    first_numbers = ", ".join(f"{number:.4g}" for number in array[:_NUMBERS].tolist())
    if len(array) <= _NUMBERS:
        return f"[{first_numbers}]"
    return f"[{first_numbers}, … {len(array)} numbers]"


def _message(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = " ".join(map(_part_text, content))
    return f"{message['role']}: {_shortened('' if content is None else str(content))}"


def _part_text(part: object) -> str:
    if isinstance(part, Mapping):
        return str(part["text"]) if "text" in part else f"[{part.get('type', 'part')}]"
    return str(part)
