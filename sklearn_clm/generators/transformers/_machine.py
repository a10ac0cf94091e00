"""Packages, folders, devices, threads and memory of models, and the mode that they are in."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from types import ModuleType
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from sklearn_clm.generators.transformers._forward import Forward

# Above this many weights the threads of torch have enough to do.
SMALL_MODEL = 200_000_000
# Rows and tokens of the passes that are timed: about one step of decoding.
_N_ROWS, _N_TIMED = 32, 5
# More threads must save this share of the time to be worth the cores they keep busy.
_WORTH_IT = 0.85
# "name" or "owner/name"
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")

# of models in use: the number of users, and the modules that were in training mode
_modes: WeakKeyDictionary[PreTrainedModel, tuple[int, list[torch.nn.Module]]] = WeakKeyDictionary()
_modes_lock = threading.Lock()


def fastest_threads(forward: Forward) -> int:
    """Threads with which decoding is fastest, by timing: one, or what torch is set to."""
    import torch

    n_default = torch.get_num_threads()
    n_weights = sum(parameter.numel() for parameter in forward.model.parameters())
    if n_default == 1 or forward.device.type != "cpu" or n_weights > SMALL_MODEL:
        return n_default
    ids = torch.zeros((_N_ROWS, 1), dtype=torch.long)
    seconds = {}
    with torch.inference_mode():
        for n_threads in (n_default, 1):
            with torch_threads(n_threads):
                times = []
                for _ in range(1 + _N_TIMED):
                    start = perf_counter()
                    forward.all_logits(ids)
                    times.append(perf_counter() - start)
            seconds[n_threads] = median(times[1:])
    return n_default if seconds[n_default] < _WORTH_IT * seconds[1] else 1


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


def why_not_loaded(source: str, error: Exception) -> str:
    """Why nothing could be loaded from a name or path: no such folder, or what the error says."""
    path = Path(source)
    if path.exists():
        return str(error)
    missing = f"there is no folder {str(path.resolve())!r}"
    in_a_folder = "/" in source and path.parent.is_dir()
    if in_a_folder or not _HUB_NAME.fullmatch(source):
        return missing
    return f"{missing}, and as a name on the Hub: {error}"


def checked_device(device: str | torch.device) -> torch.device:
    """A device that torch can use here, or an error that says which ones it can."""
    import torch

    try:
        found = torch.device(device)
        torch.empty(1, device=found)
    # a build of torch without support for a kind of device says so by an AssertionError
    except (AssertionError, RuntimeError, TypeError) as error:
        there = ["'cpu'"]
        if torch.accelerator.is_available():
            kind = torch.accelerator.current_accelerator()
            there += [f"'{kind}:{i}'" for i in range(torch.accelerator.device_count())]
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"device must be one that torch {torch.__version__} has here, which is "
            f"{' or '.join(there)}, got {device!r} instead: {reason}"
        ) from error
    return found


@contextlib.contextmanager
def evaluation_mode(model: PreTrainedModel) -> Iterator[None]:
    """Turn off dropout while anybody uses a model, and then leave the model as it was."""
    with _modes_lock:
        n_users, training = _modes.get(model, (0, []))
        training = training + [module for module in model.modules() if module.training]
        _modes[model] = n_users + 1, training
        model.train(False)
    try:
        yield
    finally:
        with _modes_lock:
            n_users, training = _modes[model]
            if n_users > 1:
                _modes[model] = n_users - 1, training
            else:
                del _modes[model]
                for module in training:
                    module.training = True


@contextlib.contextmanager
def torch_threads(n_threads: int | None) -> Iterator[None]:
    """Let torch use a number of threads for a while; None leaves it as it is."""
    import torch

    before = torch.get_num_threads()
    if n_threads is None or n_threads == before:
        yield
        return
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
