"""The life of a worker process, as far as its library tells it: what runs beside the deliveries starts and stops here.

Callbacks are registered when the apps are loaded. An adapter says when the process is a worker, and when it was asked
to stop; between two steps a delivery looks at `is_stopping()` and leaves the rest to another worker.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

__all__ = ["begin", "booted", "is_stopping", "on_boot", "on_stop", "stopped", "stopping"]

_at_boot: list[Callable[[], None]] = []
_at_stop: list[Callable[[], None]] = []
_stopping = threading.Event()
_lock = threading.Lock()
_booted_in: int | None = None
"""The process that has called what runs at boot: a fork has no threads of its parent."""


def on_boot(callback: Callable[[], None]) -> None:
    """Call this once in each worker process. Registering it again changes nothing."""
    if callback not in _at_boot:
        _at_boot.append(callback)


def on_stop(callback: Callable[[], None]) -> None:
    """Call this when a worker process has ended its deliveries, or its time for them is over."""
    if callback not in _at_stop:
        _at_stop.append(callback)


def booted() -> None:
    """This process is a worker. Idempotent, also over forks."""
    global _booted_in
    with _lock:
        if os.getpid() == _booted_in:
            return
        _booted_in = os.getpid()
    for callback in _at_boot:
        callback()


def begin() -> None:
    """A worker begins to take messages."""
    _stopping.clear()


def stopping() -> None:
    """This worker was asked to stop: a delivery should end after the step that runs."""
    _stopping.set()


def stopped() -> None:
    """This worker takes no more messages. What else runs in this process is no worker's, and is not stopping."""
    global _booted_in
    _stopping.clear()
    with _lock:
        was_booted, _booted_in = _booted_in == os.getpid(), None
    if was_booted:
        for callback in _at_stop:
            callback()


def is_stopping() -> bool:
    """Whether this worker process was asked to stop. Never so in a process that is none."""
    return _stopping.is_set()


def _in_a_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _stopping.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_fork)
