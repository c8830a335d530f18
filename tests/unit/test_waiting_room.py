"""Threads that wait for a key are woken by whoever frees it here, one each time, in the order in which they came."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from django_reactor.engine.coordination_ports import HoldKind, Key
from django_reactor.engine.waiting_room import WaitingRoom
from django_reactor.runtime import SystemClock

LONG = 60.0
A: Key = (HoldKind.LOCK, "a")
B: Key = (HoldKind.LOCK, "b")
A_SEMAPHORE: Key = (HoldKind.SEMAPHORE, "a")


class Waiting:
    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.room, self._pool, self.woken = WaitingRoom(), pool, list[str]()

    def enter(self, name: str, key: Key, seconds: float = LONG) -> Future[None]:
        """And wait."""
        before = self.room.number_waiting(key)
        entered = self._pool.submit(self._wait, name, key, seconds)
        while self.room.number_waiting(key) == before and not entered.done():
            time.sleep(0.001)
        return entered

    def _wait(self, name: str, key: Key, seconds: float) -> None:
        self.room.wait(SystemClock(), key, seconds)
        self.woken.append(name)


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    with ThreadPoolExecutor(3) as pool:
        found = Waiting(pool)
        yield found
        for key in (A, B, A_SEMAPHORE):
            while found.room.number_waiting(key):
                found.room.freed(key)


def test_what_is_freed_wakes_one_and_whoever_came_first(waiting: Waiting) -> None:
    first, second = waiting.enter("first", A), waiting.enter("second", A)
    waiting.room.freed(A)
    first.result(LONG / 2)
    assert (waiting.woken, waiting.room.number_waiting(A)) == (["first"], 1)
    waiting.room.freed(A)
    second.result(LONG / 2)
    assert waiting.woken == ["first", "second"]


def test_who_waits_for_something_else_goes_on_waiting(waiting: Waiting) -> None:
    waiting.enter("another key", B)
    waiting.enter("another kind", A_SEMAPHORE)
    waiting.room.freed(A)
    waited = waiting.enter("this", A)
    waiting.room.freed(A)
    waited.result(LONG / 2)
    assert waiting.woken == ["this"]


def test_whoever_has_waited_long_enough_goes_and_keeps_nobody_else_from_being_woken(waiting: Waiting) -> None:
    waiting.enter("impatient", A, 0.001).result(LONG / 2)
    patient = waiting.enter("patient", A)
    assert waiting.room.number_waiting(A) == 1
    waiting.room.freed(A)
    patient.result(LONG / 2)
    assert waiting.woken == ["impatient", "patient"]
