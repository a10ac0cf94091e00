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
from sklearn_clm.generators._tables import input_tags, is_table, refuse_missing, table_of

_WIDTH = 200
_WIDTH_BEFORE = 60
_MESSAGES_BEFORE = 2
_NUMBERS = 4
_COLUMNS = 8


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


_LISTING = ("to_pylist", "to_list")


@dataclass(frozen=True)
class CheckedPrompts:
    """Prompts in plain form, with what is remembered of their container."""

    prompts: Any  # a list of objects, or an array of shape (n, d) of numbers
    numeric: bool
    n_features: int | None = None
    feature_names: np.ndarray | None = None
    # of prompts that are the rows of a pandas data frame, one of no rows
    columns: Any = None
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
        """The prompts, those that are rows of a pandas data frame as one."""
        return self.prompts if self.columns is None else table_of(self.prompts, self.columns)

    def digests(self) -> np.ndarray:
        """Numbers that tell prompts from each other."""
        digests = (hashlib.blake2b(prompt_bytes(one), digest_size=8).digest() for one in self)
        return np.array([int.from_bytes(digest, "big") for digest in digests], dtype=np.uint64)


class _Taker(NamedTuple):
    """Who takes prompts, and which."""

    estimator: object
    tags: InputTags


def check_prompts(
    X: Any, *, estimator: object = None, tags: InputTags | None = None
) -> CheckedPrompts:
    """Prompts of any container as a list, or as a 2-D array where they are rows of numbers.

    The tags, which are those of the estimator unless given, say whether prompts may be rows of
    columns of any kind (``dict``), each of which becomes a dict, and have missing values.
    """
    if isinstance(X, CheckedPrompts):
        return X
    checked = _checked(X, _Taker(estimator, tags or input_tags(estimator)))
    return replace(checked, index=X.index) if hasattr(X, "iloc") else checked


def _checked(X: Any, taker: _Taker) -> CheckedPrompts:
    if X is None or isinstance(X, (str, bytes, dict, numbers.Number)) or callable(X):
        raise TypeError(
            f"prompts (X) must be a sequence of prompts, got {type(X).__name__}"
            f"{'' if X is None else f' {X!r:.60}'}."
        )
    if sparse.issparse(X):
        raise TypeError(
            f"prompts (X) must be dense, got a sparse matrix of shape {X.shape} instead. A "
            "vectoriser belongs to the generator, which is then trained on its own part of the "
            "data: EstimatorGenerator(make_pipeline(TfidfVectorizer(), classifier))."
        )
    if is_table(X):
        return _from_frame(X, taker)
    if hasattr(X, "__array__"):
        array = np.asarray(X)
        if array.dtype.kind == "O" and lists_itself(X):
            return _from_items(listed(X, array), taker)
        return _from_array(array, taker)
    if not hasattr(X, "__len__") or not hasattr(X, "__getitem__"):
        raise TypeError(
            f"prompts (X) must be a sequence of prompts, got {type(X).__name__}, which has no "
            "length or cannot be indexed; wanted a list, an array or a column of a table."
        )
    return _from_items(list(X), taker)


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


def _from_frame(X: Any, taker: _Taker) -> CheckedPrompts:
    values = np.asarray(X)
    if values.dtype.kind in "biufc" or values.ndim != 2 or values.shape[1] == 0:
        return _numeric(X, taker)
    if values.shape[1] == 1:
        items = listed(X[X.columns[0]], values[:, 0])
        if not all(is_number(item) for item in items):
            checked = _from_items(items, taker)
            return replace(checked, n_features=1, feature_names=_get_feature_names(X))
    kinds = [getattr(type_, "kind", "O") for type_ in X.dtypes]  # in polars, types have none
    others = [
        name
        for name, kind, column in zip(X.columns, kinds, values.T)
        if kind not in "biufc" and not all(is_number(item) or is_missing(item) for item in column)
    ]
    if not others:
        return _numeric(X, taker)
    if taker.tags.dict and hasattr(X, "iloc"):
        return _from_columns(X, values, taker)
    more = " and others" if len(others) > _COLUMNS else ""
    raise ValueError(
        "prompts (X) must be one column of prompts or several of numbers, got a data frame of "
        f"{values.shape[1]} columns, where the columns {others[:_COLUMNS]!r}{more} hold no "
        f"numbers. Pass one of them, such as X[{others[0]!r}], or one text made of them all; a "
        "classifier in an EstimatorGenerator, or in a DensityRatio, takes pandas data frames as "
        "they are."
    )


def _from_columns(X: Any, values: np.ndarray, taker: _Taker) -> CheckedPrompts:
    """Rows of a pandas data frame that holds more than numbers, as dicts."""
    names = X.columns.tolist()
    if len(set(names)) < len(names):
        raise ValueError(f"prompts (X) must have columns of different names, got {names!r:.200}.")
    columns = [listed(X.iloc[:, j], values[:, j]) for j in range(len(names))]
    missing = np.array([list(map(is_missing, column)) for column in columns]).T
    if not taker.tags.allow_nan:
        refuse_missing(missing, names)
    for name, column in zip(names, columns):
        for i, item in enumerate(column):
            if is_missing(item):
                column[i] = item if isinstance(item, float) else None
            elif not isinstance(item, str) and not is_number(item):
                raise TypeError(
                    "prompts (X) must have columns of numbers, texts or categories, got "
                    f"{type(item).__name__} in the column {name!r} instead."
                )
    rows = [dict(zip(names, row)) for row in zip(*columns)]
    return CheckedPrompts(rows, False, len(names), _get_feature_names(X), X.iloc[:0].copy())


def listed(column: object, array: np.ndarray) -> list[Prompt]:
    """The items of a column as Python objects: as an array, chats of some libraries lose keys."""
    for method in _LISTING:
        if hasattr(column, method):
            return list(getattr(column, method)())
    return array.tolist()


def lists_itself(column: object) -> bool:
    """Whether a column knows its items as Python objects."""
    return any(hasattr(column, method) for method in _LISTING)


def _from_array(array: np.ndarray, taker: "_Taker") -> CheckedPrompts:
    if array.shape == (0,):
        return _from_items([], taker)
    if array.dtype.kind in "biufc":
        if array.ndim <= 2:
            return _numeric(array, taker)
        # a stack of images: each is one prompt
        return _from_items(list(array), taker)
    if array.ndim == 1:
        return _from_items(array.tolist(), taker)
    if array.ndim == 2:
        rows = array.tolist()
        if array.shape[1] == 1 and not all(is_number(row[0]) for row in rows):
            return _from_items([row[0] for row in rows], taker)
        if array.size and all(isinstance(part, dict) for row in rows for part in row):
            return _from_items(rows, taker)  # chats of one length
        if any(isinstance(part, str) for row in rows for part in row):
            table = " or a pandas data frame of these columns" if taker.tags.dict else ""
            raise ValueError(
                "prompts (X) must be one column of prompts or several numeric ones, got text of "
                f"shape {array.shape} instead. Pass one column{table}; of predicted sets, their "
                "prompts."
            )
        return _numeric(array, taker)
    raise ValueError(
        f"prompts (X) is an array of shape {array.shape} and dtype {array.dtype}; wanted one "
        "dimension of prompts, or two dimensions of numbers."
    )


def _from_items(items: list[Prompt], taker: "_Taker") -> CheckedPrompts:
    if not items:
        raise ValueError("prompts (X) is empty: found 0 sample(s), wanted at least 1 prompt.")
    items = [plain_prompt(item) for item in items]
    if all(is_number(item) for item in items):
        return _numeric(np.asarray(items), taker)
    if all(_is_numeric_row(item) for item in items):
        return _numeric(items, taker)
    for i, item in enumerate(items):
        if is_missing(item):
            raise ValueError(
                f"prompts (X) holds {item!r} at position {i}; every prompt must be there. Drop "
                "the missing ones first."
            )
        if is_number(item):
            other = next(one for one in items if not is_number(one))
            row = "; a row of a data frame is X.iloc[[i]]" if taker.tags.dict else ""
            raise TypeError(
                f"prompts (X) holds the number {item!r} at position {i} among prompts that are "
                f"{type(other).__name__}; wanted prompts of one kind{row}."
            )
    return CheckedPrompts(items, False)


def _numeric(X: Any, taker: "_Taker") -> CheckedPrompts:
    if np.ndim(X) == 1:
        raise ValueError(
            f"prompts (X) must be texts or other objects, or rows of numbers in an array of shape "
            f"(n, d), got {len(X)} single numbers instead. Reshape your data with "
            "array.reshape(-1, 1) where each prompt is a number, or array.reshape(1, -1) where "
            "they are one prompt."
        )
    array = check_array(X, estimator=taker.estimator, input_name="X", ensure_all_finite="allow-nan")
    if array.dtype.kind == "f" and not taker.tags.allow_nan:
        refuse_missing(np.isnan(array), X.columns if is_table(X) else None)
    columns = X.iloc[:0].copy() if is_table(X) and hasattr(X, "iloc") else None
    return CheckedPrompts(array, True, array.shape[1], _get_feature_names(X), columns)


def is_number(item: object) -> bool:
    """Whether an item is a number, of Python or of NumPy."""
    return isinstance(item, (numbers.Number, np.number, np.bool_))


def _is_numeric_row(item: object) -> bool:
    if isinstance(item, np.ndarray):
        return item.ndim == 1 and item.dtype.kind in "biufc"
    return isinstance(item, (list, tuple)) and all(is_number(part) for part in item)


def plain_prompt(item: Prompt) -> Prompt:
    """A prompt as Python objects, whatever table it comes from."""
    if isinstance(item, np.generic):
        return item.item()
    # a chat, as a Parquet file gives it to pandas
    if isinstance(item, np.ndarray) and item.dtype.kind == "O" and item.ndim == 1:
        return item.tolist()
    return item
