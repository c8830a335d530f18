"""Deliveries in the thread that enqueues them, for tests.

1. A message without a delay is delivered before `enqueue` returns. One that is enqueued while another is delivered
   waits for its end, and they follow in the order of enqueueing: a chain of any length needs no deeper stack.
2. A message with a delay waits for `drain()`. The database decides whether the execution is due by then.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Sequence

from django.core.checks import CheckMessage

from django_reactor.queues import entry

__all__ = ["ImmediateBackend", "discard", "drain", "waiting"]


class ImmediateBackend:
    """The adapter `immediate`."""

    is_immediate = True
    supports_delay = True
    max_delay = float("inf")
    supports_priority = False

    def prepare(self) -> None:
        """Nothing is needed."""

    def enqueue(self, execution_id: str, *, queue_name: str, delay: float, priority: int | None) -> None:
        if delay > 0:
            with _lock:
                heapq.heappush(_delayed, (time.monotonic() + delay, next(_numbers), execution_id))
        else:
            _in_turn(execution_id)

    def check(self) -> Sequence[CheckMessage]:
        return []


def drain(timeout: float | None = None) -> int:
    """Deliver what waits for its time, the earliest first; how many there were.

    Without a timeout: at once, and what they enqueue with a delay stays. With one: each when its delay is over, and
    what follows from them too, until nothing waits or so many seconds are over."""
    if timeout is None:
        with _lock:
            present = [heapq.heappop(_delayed) for _ in range(len(_delayed))]
        for _, _, execution_id in present:
            _in_turn(execution_id)
        return len(present)
    end, count = time.monotonic() + timeout, 0
    while (due := _next_before(end)) is not None:
        _in_turn(due)
        count += 1
    return count


def waiting() -> list[str]:
    """The ids in the messages that wait for their time, the earliest first."""
    with _lock:
        return [execution_id for _, _, execution_id in sorted(_delayed)]


def discard() -> None:
    """Forget what waits for its time, as after a test."""
    with _lock:
        _delayed.clear()


_delayed: list[tuple[float, int, str]] = []
_numbers = itertools.count()
_lock = threading.Lock()
_thread = threading.local()


def _in_turn(execution_id: str) -> None:
    """Deliver it, and all that is enqueued meanwhile in this thread; or leave it to the one that already does so."""
    queue: deque[str] | None = getattr(_thread, "queue", None)
    if queue is not None:
        queue.append(execution_id)
        return
    queue = _thread.queue = deque([execution_id])
    try:
        while queue:
            entry.deliver(queue.popleft())
    finally:
        _thread.queue = None


def _next_before(end: float) -> str | None:
    """Take the earliest one, at its time; None if that is after the end, or there is none."""
    with _lock:
        if not _delayed or _delayed[0][0] > end:
            return None
        due, _, execution_id = heapq.heappop(_delayed)
    time.sleep(max(0.0, due - time.monotonic()))
    return execution_id
