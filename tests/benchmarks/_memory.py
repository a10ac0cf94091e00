"""Most memory that this process and those it started have held."""

from contextlib import suppress
from pathlib import Path

__all__ = ["forget_peak", "peak_gib"]


def peak_gib() -> float:
    """Sum of the peaks of this process and of its living children, in GiB.

    An upper bound: pages that they share are counted for each of them, and the peaks may have been
    at different times. The peak that `getrusage` gives would include that of the parent process.
    """
    return sum(_peak_kib(process) for process in _with_children("self")) / 2**20


def forget_peak() -> None:
    """Begin anew with what this process holds now."""
    Path("/proc/self/clear_refs").write_text("5")


def _with_children(process: str) -> list[str]:
    children: list[str] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
            children += (task / "children").read_text().split()
    return [process, *(one for child in children for one in _with_children(child))]


def _peak_kib(process: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0  # has ended, and waits to be told so
