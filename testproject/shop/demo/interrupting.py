"""Ctrl-C, also where Python would drop it: an exception that is raised in a finalizer goes no further, and where many
objects come and go one is running often enough."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["noticing"]


@contextmanager
def noticing() -> Iterator[Callable[[], None]]:
    """Ctrl-C raises `KeyboardInterrupt` where the main thread is, and once more from what is given here, which is to be
    called now and then."""
    noticed = False

    def notice(number: int, frame: FrameType | None) -> None:
        nonlocal noticed
        noticed = True
        raise KeyboardInterrupt

    def look() -> None:
        if noticed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, notice)
    try:
        yield look
    finally:
        signal.signal(signal.SIGINT, before)
