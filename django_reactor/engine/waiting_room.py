"""Threads of one process that wait for the same lock or semaphore: whoever frees it here wakes the next.

Nothing rests on it. The store alone decides who gets what is free, and it may have been freed by another process: so
whoever waits asks again after a while in any case.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque

from django_reactor.engine.coordination_ports import Key
from django_reactor.engine.ports import Clock

__all__ = ["WaitingRoom"]


class WaitingRoom:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines = defaultdict[Key, deque[threading.Event]](deque)

    def wait(self, clock: Clock, key: Key, seconds: float) -> None:
        """So long, or until its turn comes after this was freed here."""
        place = threading.Event()
        with self._lock:
            self._lines[key].append(place)
        try:
            clock.wait(place, seconds)
        finally:
            self._leave(key, place)

    def _leave(self, key: Key, place: threading.Event) -> None:
        with self._lock:
            line = self._lines[key]
            if place in line:
                line.remove(place)
            if not line:
                del self._lines[key]

    def freed(self, key: Key) -> None:
        """Wake who has waited longest. For one that could go on, no more: the others would only ask in vain."""
        with self._lock:
            if key in self._lines and (line := self._lines[key]):
                line.popleft().set()

    def number_waiting(self, key: Key) -> int:
        with self._lock:
            return len(self._lines[key]) if key in self._lines else 0
