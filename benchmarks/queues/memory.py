"""The most memory that processes had at a time, as Linux counts it (`VmHWM`)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["forget_peaks", "peak"]

PROC = Path("/proc")
KIB = 1024


def forget_peaks(pids: Iterable[int]) -> None:
    """Count from what they have now on."""
    for pid in pids:
        with suppress(OSError):  # it has ended
            (PROC / str(pid) / "clear_refs").write_text("5")


def peak(pids: Iterable[int]) -> int:
    """Bytes, of the one that had most; 0 where there is no /proc."""
    return max(map(_peak, pids), default=0)


def _peak(pid: int) -> int:
    with suppress(OSError):
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * KIB
    return 0
