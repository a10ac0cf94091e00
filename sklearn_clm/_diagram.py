"""The HTML diagram of an estimator that holds parts without a fit method."""

from typing import Any

__all__ = ["visual_block"]


def visual_block(parts: list[tuple[str, Any]]) -> Any:
    """Diagram block with the given named parts inside; parts that are None are left out."""
    try:
        from sklearn.utils._repr_html.estimator import _VisualBlock
    except ImportError:  # before scikit-learn 1.7
        from sklearn.utils._estimator_html_repr import _VisualBlock
    shown = [(name, part) for name, part in parts if part is not None]
    if not shown:
        # the caller of this hook falls back to a single block
        raise ValueError("no part to show")
    return _VisualBlock(
        "parallel",
        [part for _, part in shown],
        names=[f"{name}: {type(part).__name__}" for name, part in shown],
        name_details=[str(part) for _, part in shown],
    )
