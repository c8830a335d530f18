"""Forgetting rows of the database that somebody may just be using: what is locked, or has changed, is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models import Model

from django_reactor.coordination.database.holds import DatabaseHolds
from django_reactor.coordination.database.periods import DatabasePeriods
from django_reactor.coordination.database.rates import DatabaseRateLimits
from django_reactor.coordination.database.turns import DatabaseTurns
from django_reactor.engine.coordination_ports import HoldKind, Window
from django_reactor.models import Holder, PeriodMark, RateCount, Ticket, TicketSequence
from tests.contract.committed import PATIENCE, Between, another_session
from tests.contract.coordination_stores import Database, lock, take

DAY_AND_MORE = 60 * 60 * 25
DAY = Window(name="day", seconds=86400, limit=3)

pytestmark = pytest.mark.usefixtures("transactional_db")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Rows of one table: how one comes to be there, and what forgets it."""

    model: type[Model]
    leave: Callable[[str], object]
    purge: Callable[[int], int]


def released(key: str) -> None:
    holds = DatabaseHolds()
    holds.release([take(holds, lock(key))])


def marked(key: str) -> None:
    periods = DatabasePeriods()
    periods.mark(key, "2026-05", uuid4(), periods.now() + timedelta(hours=1))


def finished(key: str) -> None:
    turns = DatabaseTurns()
    turns.finish(turns.draw(key, uuid4()).execution_id, failed=False)


def emptied(key: str) -> None:
    finished(key)
    Ticket.objects.all().delete()


KINDS = {
    "slots": Kind(model=Holder, leave=released, purge=DatabaseHolds().purge),
    "counts": Kind(
        model=RateCount, leave=lambda key: DatabaseRateLimits().charge(key, [DAY]), purge=DatabaseRateLimits().purge
    ),
    "marks": Kind(model=PeriodMark, leave=marked, purge=DatabasePeriods().purge),
    "tickets": Kind(model=Ticket, leave=finished, purge=DatabaseTurns().purge),
    "keys without tickets": Kind(model=TicketSequence, leave=emptied, purge=DatabaseTurns().purge),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_another_session_has_locked_keeps_nobody_waiting_and_is_left_to_the_next_time(
    kind: Kind, database: str
) -> None:
    if database == "sqlite":
        pytest.skip("SQLite has one writer at a time, and no locks on rows")
    for number in range(3):
        kind.leave(f"key:{number}")
    Database().after(DAY_AND_MORE)
    rows = kind.model._base_manager.order_by("pk").values_list("pk", flat=True)
    with another_session() as other:
        with transaction.atomic():
            locked = rows.select_for_update().get(pk=rows[1])
            other(lambda: kind.purge(10)).result(PATIENCE)
            assert list(rows.all()) == [locked]
        other(lambda: kind.purge(10)).result(PATIENCE)
    assert not rows.exists()


@pytest.mark.parametrize("number", range(1, 3))
def test_a_slot_that_is_taken_again_while_it_is_looked_at_is_kept(number: int) -> None:
    """Until it is locked."""
    holds = DatabaseHolds()
    released("old")
    released(lock().key)
    Database().after(DAY_AND_MORE)
    with connection.execute_wrapper(Between(number, lambda: take(holds, lock()))):
        holds.purge(10)
    assert [holder.key for holder in holds.holders(HoldKind.LOCK, "old", lock().key)] == [lock().key]
    assert Holder.objects.count() == 1


@pytest.mark.parametrize("number", range(1, 4))
def test_a_key_of_which_a_number_is_drawn_while_it_is_looked_at_keeps_all_that_was_drawn(number: int) -> None:
    """If it was forgotten before, the numbers begin again; no ticket is in another's line, or in none."""
    turns, drawn = DatabaseTurns(), uuid4()
    emptied("old")
    emptied("account:1")
    Database().after(DAY_AND_MORE)
    with connection.execute_wrapper(Between(number, lambda: turns.draw("account:1", drawn))):
        turns.purge(10)
    assert turns.line("old") is None
    line = turns.line("account:1")
    assert line is not None
    assert line.head is not None
    assert (line.last, line.live, line.head.execution_id) == (2, 1, drawn)


def test_a_key_of_which_a_number_was_drawn_within_a_day_is_kept_though_its_tickets_are_gone() -> None:
    turns = DatabaseTurns()
    emptied("account:1")
    Database().after(DAY_AND_MORE)
    emptied("account:1")
    assert turns.purge(10) == 0
    Database().after(DAY_AND_MORE)
    assert turns.purge(10) == 1
