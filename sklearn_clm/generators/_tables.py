"""Data frames as rows, and rows as the data frames that they came from."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils import InputTags, get_tags

_PARTS = ("steps", "transformers", "transformer_list")
_SHOWN = 5


def is_table(prompts: object) -> bool:
    """Whether prompts come as a data frame, of pandas or of another library."""
    return hasattr(prompts, "columns") and hasattr(prompts, "shape")


def input_tags(estimator: object) -> InputTags:
    """What an estimator says of its input; nothing is said by what has no tags."""
    if isinstance(estimator, type) or not hasattr(estimator, "__sklearn_tags__"):
        return InputTags()
    return get_tags(estimator).input_tags


def take_over_tags(own: Any, inner: object) -> Any:
    """Tags of an estimator which hands its prompts on to another one."""
    tags = input_tags(inner)
    own.input_tags.allow_nan = tags.allow_nan
    own.input_tags.dict = tags.dict
    return own


def takes_nan(estimator: Any) -> bool:
    """Whether a scikit-learn estimator takes missing values, as far as tags tell.

    Pipelines and other estimators made of estimators hand most tags on, but not this one. What
    they do with missing values further inside is left to them.
    """
    if input_tags(estimator).allow_nan:
        return True
    if getattr(estimator, "estimator", None) is not None:
        return takes_nan(estimator.estimator)
    for name in _PARTS:
        if hasattr(estimator, name):
            parts = [part for _, part, *_ in getattr(estimator, name)]
            real = [one for one in parts if one is not None and not isinstance(one, str)]
            first = real[:1] if isinstance(estimator, Pipeline) else real
            return all(map(takes_nan, first))
    return False


def refuse_missing(missing: np.ndarray, columns: Sequence[object] | None) -> None:
    """Refuse missing values, for each prompt and column, and say where they are."""
    if not missing.any():
        return
    rows = np.flatnonzero(missing.any(axis=1)).tolist()
    found = np.flatnonzero(missing.any(axis=0)).tolist()
    names = found if columns is None else [columns[j] for j in found]
    more = "" if len(rows) <= _SHOWN else ", ..."
    raise ValueError(
        f"prompts (X) contains NaN, or another missing value, in {len(rows)} of {len(missing)} "
        f"rows, at positions {', '.join(map(str, rows[:_SHOWN]))}{more}, in the columns "
        f"{names[:_SHOWN]!r}{'' if len(names) <= _SHOWN else ' and others'}. Drop these rows, fill "
        "them in before, or give a classifier that takes missing values: "
        "EstimatorGenerator(make_pipeline(SimpleImputer(), classifier)), or "
        "HistGradientBoostingClassifier."
    )


def table_of(rows: np.ndarray | Sequence[Mapping[Any, object]], empty: Any) -> Any:
    """Rows as a pandas data frame with the columns and, as far as values allow, types of `empty`.

    An unknown category becomes a missing value, whatever rows stand beside it; numbers that a type
    cannot hold keep their own.
    """
    import pandas as pd

    if isinstance(rows, np.ndarray):
        made = pd.DataFrame(rows)
    else:
        other = next((row for row in rows if not isinstance(row, Mapping)), None)
        if other is not None:
            raise TypeError(
                "prompts (X) must be a data frame, or dicts by column, as those that the "
                f"classifier has learnt from, got {type(other).__name__} {other!r:.60} instead; a "
                "single row is X.iloc[[i]]."
            )
        values = [[row[name] for row in rows] for name in empty.columns]
        made = pd.DataFrame({j: pd.Series(one, dtype=object) for j, one in enumerate(values)})
    types = list(empty.dtypes)
    if list(made.dtypes) != types:
        columns = {j: _column_of(made[j], type_) for j, type_ in enumerate(types)}
        made = pd.DataFrame(columns)
    made.columns = empty.columns
    return made


def _column_of(column: Any, type_: Any) -> Any:
    import pandas as pd

    if column.dtype == type_:
        return column
    if isinstance(type_, pd.CategoricalDtype):
        return column.where(column.isin(type_.categories)).astype(type_)
    try:
        cast = column.astype(type_)
        kept = (cast == column).fillna(False) | (cast.isna() & column.isna())
    except (TypeError, ValueError):  # such as a missing value among integers
        return column.infer_objects()
    return cast if kept.all() else column.infer_objects()


def named_table(rows: np.ndarray | Sequence[Any], names: np.ndarray) -> Any:
    """Rows as a data frame with the columns that an estimator has learnt from; else as they are."""
    try:
        import pandas as pd
    except ImportError:  # learnt from a data frame of another library
        return rows
    if isinstance(rows, np.ndarray):
        fits = rows.shape[1:] == names.shape
        return pd.DataFrame(rows, columns=names) if fits else rows
    if all(isinstance(row, Mapping) for row in rows):
        return pd.DataFrame(rows)[names.tolist()]
    return rows
