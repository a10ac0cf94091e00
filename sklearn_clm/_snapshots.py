"""Scores as they were: copies that later changes of parameters do not reach."""

from typing import Any

__all__ = ["snapshot"]


def snapshot(value: Any) -> Any:
    """A copy of an estimator, and of the estimators among its parameters; anything else as it is.

    What it has learnt, or holds open, is shared: ``set_params`` gives an estimator other
    attributes, and does not change the old ones.
    """
    wanted = ("get_params", "set_params", "__dict__")
    if isinstance(value, type) or not all(hasattr(value, name) for name in wanted):
        return value
    # not by `copy`, which would leave behind what a pickle leaves behind, such as a loaded model
    copied = object.__new__(type(value))
    copied.__dict__.update(vars(value))
    for name, param in value.get_params(deep=False).items():
        if name in vars(value):
            setattr(copied, name, snapshot(param))
    return copied
