"""What coordination no longer needs is forgotten by the sweeper of one process, and by `manage.py reactor_sweep`."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from io import StringIO
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.db.models import F
from django.test import override_settings

from django_reactor.coordination.database.holds import DatabaseHolds
from django_reactor.coordination.database.periods import DatabasePeriods
from django_reactor.coordination.database.rates import DatabaseRateLimits
from django_reactor.coordination.database.turns import DatabaseTurns
from django_reactor.engine.coordination_ports import Window
from django_reactor.engine.recovery import Swept
from django_reactor.journal.sweeps import OrmSweeps
from django_reactor.models import Holder, Leader, PeriodMark, RateCount, Ticket, TicketSequence
from django_reactor.sweeper import Sweeper, forgetting
from tests.contract.committed import PATIENCE, transactional_db
from tests.contract.coordination_stores import lock, take

__all__ = ["transactional_db"]

pytestmark = pytest.mark.usefixtures("transactional_db")

TABLES = (Holder, RateCount, PeriodMark, Ticket, TicketSequence)
KINDS = 4
"""Of what is forgotten: tickets and their keys are one."""
LONG_AGO = timedelta(days=3)


@pytest.fixture(autouse=True)
def nobody_leads(transactional_db: None) -> None:
    Leader.objects.all().delete()


def coordinated(of: str) -> None:
    """One row of each kind."""
    holds, turns = DatabaseHolds(), DatabaseTurns()
    holds.release([take(holds, lock(of))])
    DatabaseRateLimits().charge(of, [Window(name="day", seconds=86400, limit=3)])
    now = DatabasePeriods().now()
    DatabasePeriods().mark(of, "2024", uuid4(), now + timedelta(days=1))
    ticket = turns.draw(of, uuid4())
    turns.finish(ticket.execution_id, failed=False)


def aged() -> None:
    Holder.objects.update(expires_at=F("expires_at") - LONG_AGO)
    RateCount.objects.update(bucket=F("bucket") - 3, ends_at=F("ends_at") - LONG_AGO)
    PeriodMark.objects.update(until=F("until") - LONG_AGO)
    Ticket.objects.update(ended_at=F("ended_at") - LONG_AGO)
    TicketSequence.objects.update(drawn_at=F("drawn_at") - LONG_AGO)


def rows() -> list[int]:
    return [table.objects.count() for table in TABLES]


def test_all_that_is_old_is_forgotten_chunk_by_chunk_and_nothing_else() -> None:
    for number in range(5):
        coordinated(f"old:{number}")
    aged()
    coordinated("new")
    with override_settings(DJANGO_REACTOR={"SWEEP_LIMIT": 2}):
        assert forgetting().forget() == 5 * len(TABLES)
    assert rows() == [1] * len(TABLES)


def test_of_the_fleet_one_process_forgets_once_in_a_while() -> None:
    coordinated("old")
    aged()
    assert forgetting().forget_if_due(uuid4()) == len(TABLES)
    coordinated("old")
    aged()
    assert forgetting().forget_if_due(uuid4()) is None
    Leader.objects.update(until=F("until") - timedelta(minutes=9))
    assert forgetting().forget_if_due(uuid4()) is None
    Leader.objects.update(until=F("until") - timedelta(minutes=1))
    assert forgetting().forget_if_due(uuid4()) == len(TABLES)


def test_whoever_leads_the_sweeps_keeps_nobody_from_forgetting() -> None:
    assert OrmSweeps().lead(uuid4(), 600)
    coordinated("old")
    aged()
    assert forgetting().forget_if_due(uuid4()) == len(TABLES)


def test_of_very_much_a_part_is_left_to_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_reactor.engine.forgetting.MOST_CHUNKS", 2)
    for number in range(3):
        coordinated(f"old:{number}")
    aged()
    with override_settings(DJANGO_REACTOR={"SWEEP_LIMIT": 1}):
        assert forgetting().forget() == 2 * KINDS
        assert rows() == [1, 1, 1, 1, 3], "a key goes after its tickets"


def test_the_command_forgets_at_once_and_says_how_much() -> None:
    coordinated("old")
    aged()
    assert forgetting().forget_if_due(uuid4()) == len(TABLES)
    coordinated("old")
    aged()
    out = StringIO()
    call_command("reactor_sweep", stdout=out)
    assert out.getvalue().strip().endswith(f"rows forgotten: {len(TABLES)}")
    assert rows() == [0] * len(TABLES)


def test_the_sweeper_of_a_process_forgets_in_its_first_turn_and_then_seldom() -> None:
    turns: list[str] = []
    third = threading.Event()

    def sweep(holder: UUID) -> Swept | None:
        turns.append("sweep")
        if turns.count("sweep") == 3:
            third.set()
        return None

    sweeper = Sweeper(sweep, lambda: 0.001, forget=lambda holder: turns.append("forget"))
    sweeper.start()
    try:
        assert third.wait(PATIENCE)
    finally:
        sweeper.stop(PATIENCE)
    assert turns[:3] == ["sweep", "forget", "sweep"]
    assert turns.count("forget") == 1


def test_what_a_sweep_has_done_is_logged_count_by_count(caplog: pytest.LogCaptureFixture) -> None:
    done, swept = threading.Event(), iter([Swept(delivered=2, timed_out=1)])

    def sweep(holder: UUID) -> Swept:
        found = next(swept, None)
        if found is None:
            done.set()
        return found or Swept()

    sweeper = Sweeper(sweep, lambda: 0.001)
    with caplog.at_level(logging.INFO, "django_reactor"):
        sweeper.start()
        try:
            assert done.wait(PATIENCE)
        finally:
            sweeper.stop(PATIENCE)
    (line,) = [record.getMessage() for record in caplog.records if "event=django_reactor.swept" in record.getMessage()]
    assert line == "event=django_reactor.swept delivered=2 woken=0 let_go=0 timed_out=1 failed=0"
