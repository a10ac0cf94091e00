"""Packages, checkpoints on disk, devices, threads and memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def import_transformers(user: str) -> ModuleType:
    """The `transformers` package, or an error that says how to get it."""
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise ImportError(
            f"{user} needs torch and transformers: pip install 'sklearn-clm[transformers]'."
        ) from error
    return transformers


def load_pretrained(kind: Any, source: str, argument: str, **options: object) -> Any:
    """What the library loads from a name or path; an error names the `argument` that gave it."""
    try:
        return kind.from_pretrained(source, **options)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        folder = Path(source).resolve()
        missing = "" if folder.exists() else f"there is no folder {str(folder)!r}; "
        raise ValueError(
            f"{argument}={source!r} could not be loaded by {kind.__name__}: {missing}{error}"
        ) from error


def checked_device(device: str | torch.device) -> torch.device:
    """A device that torch can use here, or an error that names it."""
    import torch

    try:
        return torch.empty(1, device=device).device
    # a build of torch without support for a kind of device says so by an AssertionError
    except (AssertionError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"device must be one that torch has, got {device!r} instead: {error}"
        ) from error


@contextlib.contextmanager
def torch_threads(n_threads: int | None) -> Iterator[None]:
    """Let torch use a number of threads for a while; None leaves it as it is."""
    import torch

    before = torch.get_num_threads()
    if n_threads is not None:
        torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def free_bytes(device: torch.device) -> int:
    """Memory of a device that nobody uses."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not every system tells
        return 4 * 2**30
