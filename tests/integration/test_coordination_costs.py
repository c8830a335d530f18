"""What coordination costs, in writes and commits (DESIGN 8): of a key that has been used before, as almost all have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test import override_settings

from django_reactor import Lock, Period, RateLimit, Reactor, Semaphore, runtime, step
from django_reactor.engine import admission, demands, gates, step_gates
from django_reactor.engine.coordination_ports import HoldKind, Wanted
from django_reactor.models import Holder
from django_reactor.worker import deliver
from tests.contract.committed import transactional_db
from tests.integration.test_delivery_costs import Outbox, kept_connection
from tests.integration.test_statements import Cost, cost_of

__all__ = ["kept_connection", "transactional_db"]

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture(autouse=True)
def outbox() -> Iterator[None]:
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.integration.test_delivery_costs.Outbox"}):
        Outbox.sent.clear()
        yield


class Two(Reactor[Any]):
    key: int = 0

    @step
    def first(self) -> None: ...

    @step
    def second(self, first: None) -> None: ...


class Locked(Two):
    class Meta:
        lock = Lock("two")


class WithSlot(Two):
    class Meta:
        semaphore = Semaphore("two", limit=3)


class Limited(Two):
    class Meta:
        rate_limit = RateLimit("two", limits={"day": 100})


class Once(Two):
    class Meta:
        period = Period("two:{key}", every="day")


class LockedStep(Two):
    @step(lock=Lock("step"))
    def first(self) -> None: ...


class LockedLastStep(Two):
    @step(lock=Lock("last step"))
    def second(self, first: None) -> None: ...


def cost_of_run(reactor: Any) -> Cost:
    reactor.run(key=1).unwrap()
    return cost_of(lambda: reactor.run(key=2).unwrap())


def cost_of_delivery(reactor: Any) -> Cost:
    reactor.run(key=1).unwrap()
    execution_id = reactor.enqueue(key=2).execution_id
    return cost_of(lambda: deliver(execution_id))


def more(cost: Cost, than: Cost) -> tuple[int, int]:
    """Writes, and commits. What SQLite is told of its patience is neither."""
    told = cost.others.count("PRAGMA") - than.others.count("PRAGMA")
    return cost.writes - than.writes, cost.commits - than.commits - told


@pytest.mark.parametrize(
    ("reactor", "writes", "commits"),
    [
        (Locked, 2, 0),
        (WithSlot, 2, 0),
        (Limited, 2, 0),  # the charge, and an entry
        (Once, 2, 0),  # an entry, and the mark
    ],
)
def test_in_a_caller_a_reactor_that_coordinates_commits_no_more_often(reactor: Any, writes: int, commits: int) -> None:
    cost = more(cost_of_run(reactor), cost_of_run(Two))
    assert cost == (writes, commits)


def test_in_a_worker_a_lock_costs_one_commit() -> None:
    assert more(cost_of_delivery(Locked), cost_of_delivery(Two)) == (2, 1)


def test_the_lock_of_a_step_costs_two_commits_and_that_of_the_last_one_one() -> None:
    """It is free with the end."""
    assert more(cost_of_run(LockedStep), cost_of_run(Two)) == (2, 2)
    assert more(cost_of_run(LockedLastStep), cost_of_run(Two)) == (2, 1)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL counts the rows that it changes in place")
def test_no_index_has_to_follow_when_a_lock_changes_hands() -> None:
    holds = runtime.services().coordination.holds
    held = holds.take(uuid4(), 1, Wanted(kind=HoldKind.LOCK, key="two", ttl=60))
    assert held
    with transaction.atomic(), connection.cursor() as cursor:
        for owner in (uuid4(), uuid4()):
            assert holds.release([held])
            held = holds.take(owner, 1, held.wanted)
            assert held
        cursor.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = %s", [Holder._meta.db_table]
        )
        assert cursor.fetchone() == (4, 4)


def test_without_coordination_nothing_of_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("coordination was asked")

    stores = runtime.services().coordination
    for store in (stores.holds, stores.rate_limits, stores.periods):
        for name in ("take", "release", "extend", "held_by", "holders", "charge", "now", "is_marked", "mark"):
            if hasattr(store, name):
                monkeypatch.setattr(type(store), name, never)
    monkeypatch.setattr(demands, "demands_of", never)
    monkeypatch.setattr(admission, "enter", never)
    monkeypatch.setattr(step_gates, "enter_step", never)
    monkeypatch.setattr(gates.Gate, "take", never)
    assert Two.run().is_success
    deliver(Two.enqueue().execution_id)  # type: ignore[arg-type]
