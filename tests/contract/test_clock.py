"""The database's clock decides leases and due times: UTC, finer than a second, whatever the session's time zone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models import QuerySet

from django_reactor.core.statuses import Stop
from django_reactor.engine.records import NewExecution
from django_reactor.journal.fields import DbNow
from django_reactor.models import Execution
from tests.contract.stores import HOUR, Orm, new_execution, token_of

ZONES = {"postgresql": "SET TIME ZONE '{}'", "mysql": "SET time_zone = '{}'"}
TTL = timedelta(seconds=60)
AT_ONCE = timedelta(seconds=20)


@pytest.fixture(params=["+00:00", "+09:00", "-11:00"])
def session_zone(request: pytest.FixtureRequest, orm: Orm, database: str) -> Iterator[None]:
    """A session whose time zone is none of Django's choosing."""
    if database not in ZONES:
        yield  # SQLite has none
        return
    with connection.cursor() as cursor:
        cursor.execute(ZONES[database].format(request.param))
    yield
    connection.close()


@pytest.fixture
def new(orm: Orm) -> NewExecution:
    new = new_execution()
    assert orm.executions.start(new)
    return new


def now_of(rows: QuerySet[Execution, Execution]) -> datetime:
    found: datetime = rows.annotate(now=DbNow()).values_list("now", flat=True)[0]
    return found


def test_now_is_utc_in_any_time_zone_of_the_session(orm: Orm, new: NewExecution, session_zone: None) -> None:
    assert abs(now_of(Execution.objects.all()) - datetime.now(UTC)) < AT_ONCE


def test_now_is_stored_and_compared_as_utc_in_any_time_zone_of_the_session(
    orm: Orm, new: NewExecution, session_zone: None
) -> None:
    Execution.objects.update(wake_at=DbNow() + HOUR)
    stored = Execution.objects.get().wake_at
    assert stored is not None
    assert abs(stored - datetime.now(UTC) - HOUR) < AT_ONCE
    assert not Execution.objects.filter(wake_at__lte=DbNow()).exists()
    Execution.objects.update(wake_at=DbNow() - timedelta(milliseconds=1))
    assert Execution.objects.filter(wake_at__lte=DbNow()).exists()


def test_now_is_finer_than_a_second(orm: Orm, new: NewExecution) -> None:
    """Not all of ten instants are full seconds."""
    assert any(now_of(Execution.objects.all()).microsecond for _ in range(10))


def test_now_goes_on_inside_a_transaction(orm: Orm, new: NewExecution) -> None:
    with transaction.atomic():
        first = now_of(Execution.objects.all())
        while now_of(Execution.objects.all()) == first:
            assert abs(datetime.now(UTC) - first) < AT_ONCE


@pytest.mark.parametrize("way", ["start", "claim", "renew"])
def test_every_way_to_a_lease_ends_it_at_the_same_time(orm: Orm, session_zone: None, way: str) -> None:
    """The compiled statement and the ORM's expression mean one clock, and one length."""
    new = new_execution()
    assert orm.executions.start(new)
    if way == "claim":
        orm.change(new.id, lease_expires_at=datetime.now(UTC) - HOUR)
        assert orm.executions.claim(new.id, uuid4())
    if way == "renew":
        assert orm.executions.renew({new.id: token_of(new)}) == ({new.id}, set())
    row = Execution.objects.get()
    assert row.lease_expires_at is not None
    assert row.started_at is not None
    assert abs(row.lease_expires_at - datetime.now(UTC) - TTL) < AT_ONCE
    assert abs(row.started_at - datetime.now(UTC)) < AT_ONCE


def test_a_lease_is_live_or_expired_in_any_time_zone_of_the_session(
    orm: Orm, new: NewExecution, session_zone: None
) -> None:
    assert orm.executions.claim(new.id, uuid4()) is None
    orm.change(new.id, lease_expires_at=datetime.now(UTC) - timedelta(minutes=1))
    assert orm.executions.claim(new.id, uuid4()) is not None


def test_what_is_stopped_is_due_at_once_in_any_time_zone_of_the_session(
    orm: Orm, new: NewExecution, session_zone: None
) -> None:
    """Also: MySQL sets columns from left to right, so the wake-up comes before the status it depends on."""
    orm.change(new.id, status="paused", lease_token=None, lease_expires_at=None)
    assert orm.executions.request_stop(new.id, Stop.CANCEL, "enough")
    row = Execution.objects.get()
    assert row.status == "pending"
    assert row.wake_at is not None
    assert orm.executions.claim(new.id, uuid4()) is not None


def test_a_time_that_is_counted_from_now_has_come_when_nothing_was_added(orm: Orm, new: NewExecution) -> None:
    """Also in the millisecond in which it was stored. One statement has one `now`."""
    now_again = DbNow() + timedelta(0)
    assert Execution.objects.annotate(then=now_again).filter(then__lte=DbNow()).exists()
