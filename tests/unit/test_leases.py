"""The thread that keeps the leases of a process alive looks in time, and seldom."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from django_reactor.engine.coordination_ports import Hold, HoldKind, Holds, Wanted
from django_reactor.engine.execution_ports import Executions
from django_reactor.engine.hold_keeper import HoldKeeper, Pledge
from django_reactor.engine.holdings import Holding
from django_reactor.engine.leases import LeaseKeeper, boottime
from django_reactor.engine.records import Lease
from tests.contract.committed import eventually
from tests.interrupting import is_interrupted

KEEPER = "django-reactor-leases"
PATIENCE = 5.0


class Renewals:
    """Of the port `Executions`, what a keeper asks."""

    def __init__(self) -> None:
        self.renewed = threading.Event()

    def renew(self, tokens: Mapping[UUID, UUID]) -> tuple[set[UUID], set[UUID]]:
        self.renewed.set()
        return set(tokens), set()


def test_a_lease_wakes_the_thread_only_if_that_would_look_too_late() -> None:
    ttl, looks, renewals = 3600.0, 0, Renewals()

    def now() -> float:
        nonlocal looks
        looks += threading.current_thread().name == KEEPER
        return boottime()

    keeper = LeaseKeeper(cast(Executions, cast(Any, renewals)), ttl=lambda: ttl, now=now)
    lease = Lease(uuid4(), uuid4())
    keeper.hold(lease)
    eventually(lambda: looks and keeper._looks_at, "the sleep of the thread")
    looks_before = looks
    for _ in range(50):
        keeper.let_go(lease)
        keeper.hold(lease)
    assert looks == looks_before
    keeper.let_go(lease)
    ttl = 0.3
    keeper.hold(lease)
    assert renewals.renewed.wait(20), "it was woken, or it would have slept for twenty minutes"
    keeper.let_go(lease)


# -- what must not stop it ---------------------------------------------------------------------------------------------


class Nothing:
    """Of the port `Holds`, what a keeper asks."""

    def extend(self, holds: Sequence[Hold]) -> set[Hold]:
        return set(holds)

    def release(self, holds: Sequence[Hold]) -> set[Hold]:
        return set(holds)


def keeper_with(renewals: Renewals, ttl: float = 3600.0) -> tuple[LeaseKeeper, HoldKeeper]:
    holds = HoldKeeper(cast(Holds, Nothing()), boottime)
    return LeaseKeeper(cast(Executions, cast(Any, renewals)), ttl=lambda: ttl, holds=holds), holds


def in_time(what: Callable[[], object]) -> None:
    """In a thread that may be left behind, waiting for ever."""
    thread = threading.Thread(target=what, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it waits for a lock that nobody gives back"


def test_an_interruption_wherever_it_strikes_leaves_no_lock_to_its_thread() -> None:
    lease, other = Lease(uuid4(), uuid4()), Lease(uuid4(), uuid4())
    keeper, holds = keeper_with(Renewals())
    holding = holding_of("key")

    def hold_and_let_go() -> None:
        try:
            keeper.hold(lease)
            holds.keep(holding)
        finally:
            holds.drop(holding)
            keeper.let_go(lease)

    def others() -> None:
        keeper.hold(other)
        holds.due_in()
        keeper.let_go(other)

    number = 1
    while is_interrupted(hold_and_let_go, number):
        in_time(others)
        number += 1
    assert number > 20, "it was interrupted at many points"


def test_a_thread_that_could_not_be_started_is_started_by_the_next_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    renewals = Renewals()
    keeper, _ = keeper_with(renewals, ttl=0.3)
    lease = Lease(uuid4(), uuid4())
    with monkeypatch.context() as out_of_threads, pytest.raises(RuntimeError):
        out_of_threads.setattr(threading.Thread, "start", cannot_start)
        keeper.hold(lease)
    keeper.hold(lease)
    assert renewals.renewed.wait(20)
    keeper.let_go(lease)


def cannot_start(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_finalizer_that_strikes_whoever_looks_what_is_due_waits_for_nobody() -> None:
    """What a rolled back transaction pledged may be found by the garbage collector, in any thread, anywhere."""
    _, holds = keeper_with(Renewals())

    def look() -> None:
        usual = gc.get_threshold()
        for allocations in range(20):
            lost: list[object] = [Pledge(holds, holding_of(f"key {allocations}"))]
            lost.append(lost)
            del lost
            try:
                gc.set_threshold(gc.get_count()[0] + allocations)  # until it is found
                holds.due_in()
            finally:
                gc.set_threshold(*usual)

    in_time(look)


def test_what_no_run_holds_any_more_is_not_kept_alive() -> None:
    _, holds = keeper_with(Renewals())
    holding = holding_of("key")
    holds.keep(holding)
    assert holds.due_in() is not None
    del holding
    gc.collect()
    assert holds.due_in() is None


def holding_of(key: str) -> Holding:
    hold = Hold(wanted=Wanted(kind=HoldKind.LOCK, key=key, ttl=60), owner=uuid4(), epoch=1, slot=0)
    return Holding(hold=hold, auto_extend=True, good_until=boottime() + 50, due_at=boottime() + 20)
