"""Reactors that tell where they ran, and one that a test can hold in the middle of a step."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from django_reactor import Reactor, Retry, async_step, step
from django_reactor.queues import processes

__all__ = ["Held", "Locking", "Refused", "RefusedForLong", "Simple", "occupy"]

LIMIT = 60.0
"""Seconds after which a step gives up what it waits for: the test has failed by then."""


class Simple(Reactor[Any]):
    """Two steps, a unit, and a reader of the unit."""

    number: int

    class Meta:
        app_label = "worked"

    @step
    def doubled(self, number: int) -> int:
        return number * 2

    @async_step
    def told(self, number: int) -> int:
        return os.getpid()

    @step
    def pid(self, doubled: int, told: int) -> int:
        return os.getpid()


class Refused(Reactor[Any]):
    """Fails once, and is tried again after a delay."""

    class Meta:
        app_label = "worked"

    @step(retry=Retry(max_attempts=2, backoff="fixed", delay=1.2, jitter=0))
    def attempt(self) -> int:
        if self.context.attempt == 1:
            raise ConnectionError("not yet")
        return int(self.context.attempt)


class RefusedForLong(Reactor[Any]):
    """Fails, and is tried again long after any test has ended; another execution waits for that."""

    class Meta:
        app_label = "worked"

    @async_step(retry=Retry(max_attempts=2, backoff="fixed", delay=3600, max_delay=3600, jitter=0))
    def attempt(self) -> None:
        raise ConnectionError("not yet")

    @step
    def reader(self, attempt: None) -> None: ...


OCCUPIED = threading.Lock()


def occupy() -> None:
    """As the sweeper may at any instant: a thread beside the deliveries holds a lock."""
    threading.Thread(target=_hold, daemon=True).start()


def _hold() -> None:
    with OCCUPIED:
        threading.Event().wait()


class Locking(Reactor[Any]):
    """Needs the lock that a thread beside the deliveries holds, in a process that has no such thread."""

    class Meta:
        app_label = "worked"

    @step
    def locked(self) -> bool:
        return OCCUPIED.acquire(timeout=5)


class Held(Reactor[Any]):
    """Its first step lasts until the worker is asked to stop. Whatever takes it back leaves a trace in the folder."""

    folder: str

    class Meta:
        app_label = "worked"

    @step
    def first(self, folder: str) -> int:
        Path(folder, "begun").touch()
        deadline = time.monotonic() + LIMIT
        while not processes.is_stopping():
            assert time.monotonic() < deadline, "nobody stopped the worker"
            time.sleep(0.01)
        return os.getpid()

    @first.undo
    @first.compensate
    def back(self, folder: str) -> None:
        Path(folder, "taken back").touch()

    @step
    def second(self, first: int) -> int:
        return os.getpid()
