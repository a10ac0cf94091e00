"""Prompts of any container in one plain form, and prompts as short text."""

import hashlib
import numbers
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import InputTags, check_array
from sklearn.utils.validation import _get_feature_names, validate_data

from sklearn_clm.generators._draws import Prompt, is_chat, is_missing, prompt_bytes
from sklearn_clm.generators._tables import input_tags, is_table, table_of

_WIDTH = 200
_WIDTH_BEFORE = 60
_MESSAGES_BEFORE = 2
_NUMBERS = 4


def prompt_text(prompt: Prompt) -> str:
    """Few characters that tell a prompt from others, on one line for each message of a chat."""
    if isinstance(prompt, str):
        return _shortened(prompt, _WIDTH)
    if isinstance(prompt, np.ndarray) and prompt.dtype.kind in "biufc":
        return _numbers(prompt)
    if is_chat(prompt):
        return _chat(prompt)
    if is_image(prompt):
        return "image, {} x {} pixels".format(*prompt.size)
    return _shortened(str(prompt), _WIDTH)


def prompt_line(prompt: Prompt) -> str:
    """The same on a single line, text in quotation marks."""
    text = prompt_text(prompt)
    return text if isinstance(prompt, np.ndarray) or is_image(prompt) else repr(text)


def is_image(prompt: Any) -> bool:
    """Whether a prompt is an image of Pillow."""
    has_size = isinstance(size := getattr(prompt, "size", None), tuple) and len(size) == 2
    return has_size and hasattr(prompt, "save") and hasattr(prompt, "convert")


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _numbers(array: np.ndarray) -> str:
    if array.ndim != 1:
        return f"array of shape {array.shape}"
    shown = ", ".join(f"{number:.4g}" for number in array[:_NUMBERS].tolist())
    return f"[{shown}]" if len(array) <= _NUMBERS else f"[{shown}, … {len(array)} numbers]"


def _chat(messages: Sequence[Mapping[str, Any]]) -> str:
    # the last message holds the question; the instructions before it are the same for all prompts
    *before, last = messages
    lines = ["…"] if len(before) > _MESSAGES_BEFORE else []
    lines += [_message(message, _WIDTH_BEFORE) for message in before[-_MESSAGES_BEFORE:]]
    return "\n".join([*lines, _message(last, _WIDTH)])


def _message(message: Mapping[str, Any], width: int) -> str:
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = " ".join(map(_part, content))
    return f"{message['role']}: {_shortened('' if content is None else str(content), width)}"


def _part(part: object) -> str:
    if isinstance(part, Mapping):
        return str(part["text"]) if "text" in part else f"[{part.get('type', 'part')}]"
    return str(part)


@dataclass(frozen=True)
class CheckedPrompts:
    """Prompts in plain form, with what is remembered of their container."""

    prompts: Any  # a list of objects, or an array of shape (n, d) of numbers
    numeric: bool
    n_features: int | None = None
    feature_names: np.ndarray | None = None
    columns: Any = None  # a data frame without rows, where prompts are rows of a pandas data frame
    index: Any = None  # of a data frame or a Series of pandas
    positions: np.ndarray | None = None  # in what was given, where these are a part of it

    def __len__(self) -> int:
        return len(self.prompts)

    def __iter__(self) -> Iterator[Prompt]:
        return iter(self.prompts)

    def take(self, indices: Sequence[int] | np.ndarray) -> "CheckedPrompts":
        """The prompts at these positions."""
        rows = np.asarray(indices, dtype=np.intp)
        prompts = self.prompts[rows] if self.numeric else [self.prompts[i] for i in indices]
        index = None if self.index is None else self.index.take(rows)
        positions = rows if self.positions is None else self.positions[rows]
        return replace(self, prompts=prompts, index=index, positions=positions)

    def as_given(self) -> Any:
        """The prompts; a pandas data frame where they are rows of one."""
        return self.prompts if self.columns is None else table_of(self.prompts, self.columns)

    def digests(self) -> np.ndarray:
        """Numbers that tell prompts from each other."""
        digests = (hashlib.blake2b(prompt_bytes(one), digest_size=8).digest() for one in self)
        return np.array([int.from_bytes(digest, "big") for digest in digests], dtype=np.uint64)


def check_prompts(
    X: Any, *, estimator: object = None, tags: InputTags | None = None
) -> CheckedPrompts:
    """Prompts of any container as a list, or as a 2-D array where they are rows of numbers.

    The tags, which are those of the estimator unless given, say whether a prompt may be a row of a
    pandas data frame with columns of any kind (``dict``), missing values among them, and whether
    numbers may be missing.
    """
    if isinstance(X, CheckedPrompts):
        return X
    checked = _Door(estimator, tags or input_tags(estimator)).checked(X)
    return replace(checked, index=X.index) if hasattr(X, "iloc") else checked


def check_fitted_prompts(estimator: object, X: Any) -> CheckedPrompts:
    """Prompts for a fitted estimator, of the kind it was fitted on."""
    if isinstance(X, CheckedPrompts):
        return X
    checked = check_prompts(X, estimator=estimator)
    fitted_numeric = getattr(estimator, "_numeric_prompts", None)
    if fitted_numeric is not None and checked.numeric != fitted_numeric:
        kinds = ("objects such as text", "rows of numbers")
        raise ValueError(
            f"prompts (X) holds {kinds[checked.numeric]}, but this {type(estimator).__name__} was "
            f"fitted on {kinds[fitted_numeric]}."
        )
    named = checked.feature_names is not None and hasattr(estimator, "feature_names_in_")
    if named or (checked.numeric and hasattr(estimator, "n_features_in_")):
        validate_data(estimator, X, reset=False, skip_check_array=True)
    return checked


class _Door(NamedTuple):
    """The checks of prompts for an estimator."""

    estimator: object
    tags: InputTags

    def checked(self, X: Any) -> CheckedPrompts:
        """Prompts of any container."""
        if is_table(X):
            return self._table(X)
        if lists_itself(X):
            return self._items(listed(X))
        if hasattr(X, "__array__"):
            return self._array(np.asarray(X))
        if sparse.issparse(X):
            raise TypeError(
                f"prompts (X) must be dense, got a sparse matrix of shape {X.shape} instead. Put "
                "the vectoriser into the generator: "
                "EstimatorGenerator(make_pipeline(TfidfVectorizer(), classifier))."
            )
        if (
            isinstance(X, (str, bytes, dict))
            or callable(X)
            or not (hasattr(X, "__len__") and hasattr(X, "__getitem__"))
        ):
            raise TypeError(
                "prompts (X) must be a sequence of prompts, such as a list, got "
                f"{type(X).__name__} {X!r:.60} instead."
            )
        return self._items(list(X))

    def _table(self, X: Any) -> CheckedPrompts:
        values = np.asarray(X)
        if values.dtype.kind in "biufc":
            return self._numeric(X)
        columns = [listed(X[name], values[:, j]) for j, name in enumerate(X.columns)]
        others = [
            name
            for name, column in zip(X.columns, columns)
            if not all(is_number(item) or is_missing(item) for item in column)
        ]
        if not others:
            return self._numeric(X)
        if len(columns) == 1:
            names = _get_feature_names(X)
            return replace(self._items(columns[0]), n_features=1, feature_names=names)
        if not (self.tags.dict and hasattr(X, "iloc")):
            raise ValueError(
                "prompts (X) must be one column of prompts, or several of numbers, got a data "
                f"frame with the columns {others!r:.200} that hold no numbers instead. Pass one "
                f"column, such as X[{others[0]!r}]; a classifier, in an EstimatorGenerator or in a "
                "DensityRatio, takes pandas data frames as they are."
            )
        names = list(X.columns)
        if len(set(names)) < len(names):
            raise ValueError(f"prompts (X) must have columns of different names, got {names!r}.")
        rows = [dict(zip(names, map(_plain_cell, row))) for row in zip(*columns)]
        return CheckedPrompts(rows, False, len(names), _get_feature_names(X), X.iloc[:0].copy())

    def _array(self, array: np.ndarray) -> CheckedPrompts:
        if array.dtype.kind in "biufc":
            return self._numeric(array) if array.ndim == 2 else self._items(list(array))
        if array.ndim == 2 and not all(map(is_number, array.flat)):
            rows = array.tolist()
            if array.shape[1] == 1:
                return self._items([row[0] for row in rows])
            if all(isinstance(part, dict) for row in rows for part in row):
                return self._items(rows)  # chats of one length
        if array.ndim > 2 or (array.ndim == 2 and any(isinstance(one, str) for one in array.flat)):
            raise ValueError(
                "prompts (X) must be one column of prompts or several of numbers, got an array of "
                f"shape {array.shape} instead. Pass one column; a classifier, in an "
                "EstimatorGenerator or in a DensityRatio, takes pandas data frames as they are."
            )
        return self._numeric(array) if array.ndim == 2 else self._items(array.tolist())

    def _items(self, items: list[Prompt]) -> CheckedPrompts:
        if not items:
            raise ValueError("prompts (X) is empty: found 0 sample(s), wanted at least 1 prompt.")
        items = [plain_prompt(item) for item in items]
        if all(map(is_number, items)):
            raise ValueError(
                "prompts (X) must be texts, other objects or rows of numbers, got "
                f"{len(items)} single numbers instead. Reshape your data with "
                "array.reshape(-1, 1) where each is a prompt, or array.reshape(1, -1) where they "
                "are one prompt."
            )
        if all(map(_is_numeric_row, items)):
            return self._numeric(items)
        for i, item in enumerate(items):
            if is_missing(item) or is_number(item):
                kind = "" if is_missing(item) else "the number "
                raise ValueError(
                    f"prompts (X) must be of one kind, none missing, got {kind}{item!r} at "
                    f"position {i} instead. A single row of a data frame is X.iloc[[i]]."
                )
        return CheckedPrompts(items, False)

    def _numeric(self, X: Any) -> CheckedPrompts:
        # who takes data frames as they are sees to missing values as well
        finite = "allow-nan" if self.tags.dict or self.tags.allow_nan else True
        array = check_array(X, estimator=self.estimator, input_name="X", ensure_all_finite=finite)
        columns = X.iloc[:0].copy() if is_table(X) and hasattr(X, "iloc") else None
        return CheckedPrompts(array, True, array.shape[1], _get_feature_names(X), columns)


def lists_itself(column: object) -> bool:
    """Whether a column knows its items as Python objects."""
    return hasattr(column, "to_pylist") or hasattr(column, "to_list")


def listed(column: Any, array: np.ndarray | None = None) -> list[Prompt]:
    """The items of a column as Python objects: as an array, chats of some libraries lose keys."""
    if hasattr(column, "to_pylist"):
        return list(column.to_pylist())
    if hasattr(column, "to_list"):
        return list(column.to_list())
    return list(np.asarray(column).tolist() if array is None else array.tolist())


def is_number(item: object) -> bool:
    """Whether an item is a number, of Python or of NumPy."""
    return isinstance(item, (numbers.Number, np.number, np.bool_))


def _is_numeric_row(item: object) -> bool:
    if isinstance(item, np.ndarray):
        return item.ndim == 1 and item.dtype.kind in "biufc"
    return isinstance(item, (list, tuple)) and all(map(is_number, item))


def _plain_cell(item: object) -> object:
    return None if is_missing(item) and not isinstance(item, float) else item


def plain_prompt(item: Prompt) -> Prompt:
    """A prompt as Python objects, whatever table it comes from."""
    if isinstance(item, np.generic):
        return item.item()
    # a chat, as a Parquet file gives it to pandas
    if isinstance(item, np.ndarray) and item.dtype.kind == "O" and item.ndim == 1:
        return item.tolist()
    return item
