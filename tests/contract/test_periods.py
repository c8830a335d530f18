"""The contract of the port `Periods`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_reactor.coordination.database.periods import DatabasePeriods
from django_reactor.engine.coordination_ports import Periods
from django_reactor.engine.identifiers import uuid7
from django_reactor.models import PeriodMark
from tests.contract.committed import PATIENCE, another_session
from tests.contract.connections import default_connection_with
from tests.contract.coordination_stores import DatabaseStore

HOUR = timedelta(hours=1)


@pytest.fixture
def periods(coordination_of_executions: DatabaseStore) -> Periods:
    return coordination_of_executions.periods


def mark(periods: Periods, key: str = "report", bucket: str = "2026-05") -> None:
    periods.mark(key, bucket, uuid7(), periods.now() + HOUR)


def test_a_bucket_is_marked_from_the_first_success_on(periods: Periods) -> None:
    assert not periods.is_marked("report", "2026-05")
    mark(periods)
    assert periods.is_marked("report", "2026-05")
    assert not periods.is_marked("report", "2026-06")
    assert not periods.is_marked("Report", "2026-05")
    assert not periods.is_marked("report ", "2026-05")


def test_marking_twice_is_as_good_as_once(periods: Periods) -> None:
    execution_id = uuid7()
    for _ in range(2):
        periods.mark("report", "2026-05", execution_id, periods.now() + HOUR)
        mark(periods)
    assert periods.is_marked("report", "2026-05")


def test_the_clock_is_aware(periods: Periods) -> None:
    assert periods.now().tzinfo is not None
    assert periods.now().utcoffset() == timedelta()


def test_marks_are_forgotten_when_their_bucket_is_over_a_few_at_a_time(
    coordination_of_executions: DatabaseStore, periods: Periods
) -> None:
    for number in range(3):
        mark(periods, f"report:{number}")
    coordination_of_executions.after(3700)
    mark(periods, "new")
    assert [periods.purge(2) for _ in range(3)] == [2, 1, 0]
    assert periods.is_marked("new", "2026-05")
    assert not periods.is_marked("report:0", "2026-05")


# -- in the database ---------------------------------------------------------------------------------------------------


def test_a_mark_commits_and_rolls_back_with_its_transaction(transactional_db: None) -> None:
    periods = DatabasePeriods()
    with transaction.atomic():
        mark(periods)
        assert periods.is_marked("report", "2026-05")
        transaction.set_rollback(True)
    assert not periods.is_marked("report", "2026-05")


def test_nobody_waits_for_a_mark_that_is_not_committed(transactional_db: None, database: str) -> None:
    """It may be rolled back, so a second mark of the bucket is one that stands by itself."""
    if database == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    periods = DatabasePeriods()
    with another_session() as other, transaction.atomic():
        mark(periods)
        assert other(lambda: periods.is_marked("report", "2026-05")).result(PATIENCE) is False
        other(lambda: mark(periods)).result(PATIENCE)
        transaction.set_rollback(True)
    assert periods.is_marked("report", "2026-05")


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_mark_is_seen_that_was_committed_after_the_snapshot(
    transactional_db: None, database: str, isolation: str
) -> None:
    if database != "mysql" and isolation != "read committed":
        pytest.skip("an option of MySQL; PostgreSQL's snapshots have no way past them")
    if database == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    periods = DatabasePeriods()
    options = {"isolation_level": isolation} if database == "mysql" else {}
    with default_connection_with(**options), another_session() as other, transaction.atomic():
        assert not PeriodMark.objects.exists()
        other(lambda: mark(periods)).result(PATIENCE)
        assert periods.is_marked("report", "2026-05")
    assert connection is not None
