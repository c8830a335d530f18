"""Where the time of a run goes, by looking at the stack a thousand times a second.

Unlike a tracing profiler this slows nothing down, so that shares are true; what takes less than a hundredth of the time
needs many samples. The timer counts real time, waiting included, and interrupts the main thread: not for threads.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

__all__ = ["Samples", "sampled"]

INTERVAL = 0.001
"""Seconds."""

DRIVER = ("psycopg", "sqlite3")
"""Packages whose frames are time in the database. SQLite works inside C functions, without frames: its time is the own
time of the function that calls it."""


class Samples:
    def __init__(self) -> None:
        self._layers: Counter[str] = Counter()
        self._functions: Counter[str] = Counter()

    def add(self, frame: FrameType | None) -> None:
        """The innermost function counts, and the layer that called for the work: the first of ours on the way out."""
        if frame is None:
            return
        self._functions[_named(frame)] += 1
        in_driver = False
        while frame is not None:
            module = str(frame.f_globals.get("__name__", ""))
            in_driver = in_driver or module.startswith(DRIVER)
            if module.startswith("django_reactor."):
                layer = ".".join(module.split(".")[:3])
                self._layers[f"{layer} → database" if in_driver else layer] += 1
                return
            frame = frame.f_back
        self._layers["elsewhere"] += 1

    def layers(self) -> Mapping[str, float]:
        return _shares(self._layers)

    def functions(self) -> Mapping[str, float]:
        return _shares(self._functions)


def _named(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"


def _shares(counts: Counter[str]) -> Mapping[str, float]:
    total = counts.total() or 1
    return {name: count / total for name, count in counts.most_common()}


@contextmanager
def sampled() -> Iterator[Samples]:
    """Sample the main thread until the end of the block."""
    samples = Samples()
    before = signal.signal(signal.SIGALRM, lambda _, frame: samples.add(frame))
    signal.setitimer(signal.ITIMER_REAL, INTERVAL, INTERVAL)
    try:
        yield samples
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
