"""Among 100,000 elements every question about a map is answered through an index, and reads a few rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, connections, transaction
from pytest_django import DjangoDbBlocker

from django_reactor.core.statuses import HELD, MapState, Status
from django_reactor.engine.identifiers import uuid7
from django_reactor.engine.map_ports import MapKey
from django_reactor.engine.records import Lease, Move
from django_reactor.engine.recovery import Pace
from django_reactor.journal.element_rows import let_go
from django_reactor.journal.elements import OrmElements
from django_reactor.journal.executions import OrmExecutions
from django_reactor.journal.slots import OrmSlots
from django_reactor.journal.sweeps import OrmSweeps
from django_reactor.models import Execution, MapRun
from tests.contract.stores import entry, new_execution
from tests.plans import passed, plans_of

pytestmark = pytest.mark.django_db

ELEMENTS = 100_000
DONE = 60_000
"""The first ones have ended; then come eight that run, then those that are held."""
AT_WORK = 8
FEW = 500
"""Rows, or entries of an index, that one question may pass."""

FILL = """
INSERT INTO django_reactor_execution (id, reactor, fingerprint, relation, parent_id, root_id, owner_id, parent_step,
    element_index, parent_generation, status, inputs, output, rollback_failures, tags, carried, queue_name, generation,
    waiting_for, snoozes, contentions, snooze_reason, epoch, stop, stop_reason, recoveries, progress, sends,
    created_at, started_at,
    updated_at, lease_token, lease_expires_at)
SELECT element, 'contract.Row', '0123456789abcdef', 'element', %(parent)s, %(parent)s, element, 'imported',
    n, 0, CASE WHEN n < %(done)s THEN 'completed' WHEN n < %(started)s THEN 'running' ELSE 'pending' END, '{}',
    CASE WHEN n < %(done)s THEN '1' END, 0, '[]', '{}', 'default', 0,
    '', 0, 0, '', 1, '', '', 0, 0, 0, now(), CASE WHEN n < %(started)s THEN now() END,
    now(), CASE WHEN n >= %(done)s AND n < %(started)s THEN gen_random_uuid() END,
    CASE WHEN n >= %(done)s AND n < %(started)s THEN now() + interval '1 hour' END
FROM (SELECT n, gen_random_uuid() AS element FROM generate_series(0, %(last)s) AS n) AS numbered
"""


@pytest.fixture(scope="module")
def key(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[MapKey]:
    """Of the map that has them all."""
    if connection.vendor != "postgresql":
        pytest.skip("the plans of PostgreSQL are under test")
    new = new_execution()
    values: dict[str, Any] = {"parent": new.id, "done": DONE, "started": DONE + AT_WORK, "last": ELEMENTS - 1}
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        try:
            assert OrmExecutions().start(new)
            cursor.execute(FILL, values)
            MapRun.objects.create(
                pk=uuid7(),
                execution_id=new.id,
                step="imported",
                state=MapState.RUNNING,
                fan_out=AT_WORK,
                total=ELEMENTS,
            )
            cursor.execute("ANALYZE django_reactor_execution")
            cursor.execute("ANALYZE django_reactor_maprun")
            yield MapKey(new.id, "imported", 0)
        finally:
            cursor.execute("DELETE FROM django_reactor_maprun")
            cursor.execute("DELETE FROM django_reactor_execution")


def running(key: MapKey) -> tuple[Lease, int]:
    row = Execution.objects.filter(parent=key.execution_id, status=Status.RUNNING).order_by("element_index")[0]
    assert row.lease_token is not None
    return Lease(row.pk, row.lease_token), row.element_index


def finish(key: MapKey, take: UUID | None) -> None:
    elements = OrmElements()
    of = elements.map_of(key)
    assert of is not None
    lease, index = running(key)
    move = Move(to=Status.COMPLETED, expected=HELD, output="1")
    assert elements.finish(lease, of, index, move, entry(1), take) is not None


@pytest.mark.parametrize(
    "question",
    [
        lambda key: finish(key, uuid4()),
        lambda key: finish(key, None),
        lambda key: OrmElements().is_settled(MapRun.objects.get().pk),
        lambda key: OrmElements().map_of(key),
        lambda key: let_go(connections["default"], key, Status.PENDING, 1),
        lambda key: OrmSlots().slots(key, limit=200),
        lambda key: OrmSlots().slots(key, after=50_000, limit=200),
        lambda key: OrmSlots().slots(key, after=99_999, limit=200),
        lambda key: OrmSlots().slots(key, statuses=(Status.FAILED,), limit=25),
        lambda key: OrmSlots().slots(key, statuses=(Status.ROLLING_BACK,), limit=1, backwards=True),
        lambda key: OrmSweeps().moving(Pace(interval=15, limit=100)),
    ],
    ids=[
        "an end that takes the next",
        "an end that lets the next go",
        "settled",
        "which map",
        "let go",
        "first page",
        "page",
        "beyond the last page",
        "failures",
        "next to be undone",
        "moving",
    ],
)
def test_a_question_reads_a_few_rows(key: MapKey, question: Callable[[MapKey], object]) -> None:
    for plan in plans_of(lambda: question(key)):
        assert passed(plan) <= FEW, plan


def test_a_map_that_was_given_up_looks_at_none_of_those_that_never_begin(key: MapKey) -> None:
    """With none in flight, so that every look is carried out, and most elements held."""
    ended = {"status": Status.FAILED, "lease_token": None, "lease_expires_at": None}
    Execution.objects.filter(status=Status.RUNNING).update(**ended)
    MapRun.objects.update(state=MapState.FAILING)
    map_id = MapRun.objects.get().pk
    for plan in plans_of(lambda: OrmElements().is_settled(map_id)):
        assert passed(plan) <= FEW, plan
    assert OrmElements().is_settled(map_id)


def test_counting_a_map_reads_its_own_rows_through_an_index_and_no_others(key: MapKey) -> None:
    """Of another map, with as many elements as that of this test."""
    other = new_execution()
    with transaction.atomic():
        assert OrmExecutions().start(other)
        with connection.cursor() as cursor:
            cursor.execute(FILL, {"parent": other.id, "done": 100, "started": 150, "last": FEW - 1})
        for plan in plans_of(lambda: OrmSlots().counts(MapKey(other.id, "imported", 0))):
            assert passed(plan) == FEW
        transaction.set_rollback(True)
