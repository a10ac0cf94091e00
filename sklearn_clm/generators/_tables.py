"""Data frames as rows, and rows as the data frames that they came from."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils import InputTags, get_tags


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


def table_of(rows: np.ndarray | Sequence[Mapping[Any, object]], empty: Any) -> Any:
    """Rows as a pandas data frame with the columns of `empty`.

    Columns of numbers hold floats and categories are those of `empty`, whatever rows stand
    together; an unknown category is a missing value.
    """
    import pandas as pd

    if isinstance(rows, np.ndarray):
        values: Any = rows.T
    else:
        other = next((row for row in rows if not isinstance(row, Mapping)), None)
        if other is not None:
            raise TypeError(
                "prompts (X) must be a data frame with the columns of fit, or dicts by column, got "
                f"{type(other).__name__} {other!r:.60} instead; a single row is X.iloc[[i]]."
            )
        values = [[row[name] for row in rows] for name in empty.columns]
    made = pd.DataFrame({j: _column(one, empty.dtypes.iloc[j]) for j, one in enumerate(values)})
    made.columns = empty.columns
    return made


def _column(values: Sequence[object], type_: Any) -> Any:
    import pandas as pd

    column = pd.Series(values)
    if isinstance(type_, pd.CategoricalDtype):
        return column.where(column.isin(type_.categories)).astype(type_)
    return column.astype(float if type_.kind in "biuf" else type_)


def named_table(rows: np.ndarray | Sequence[Any], names: np.ndarray) -> Any:
    """Rows as a data frame with the columns that an estimator has learnt from."""
    try:
        import pandas as pd
    except ImportError:  # learnt from a data frame of another library
        return rows
    if isinstance(rows, np.ndarray):
        return pd.DataFrame(rows, columns=names)
    if all(isinstance(row, Mapping) for row in rows):
        return pd.DataFrame(rows)[names.tolist()]
    return rows
