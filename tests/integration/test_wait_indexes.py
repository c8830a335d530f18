"""Among 100,000 waits every question about interrupts is answered through an index, and reads a few rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker

from django_reactor.engine.recovery import Pace
from django_reactor.engine.waits import Address, WaitKey
from django_reactor.journal.sweeps import OrmSweeps
from django_reactor.journal.waits import OrmAnswers, OrmWaits
from django_reactor.models import Execution, Leader, Wait
from tests.plans import passed, plans_of

pytestmark = pytest.mark.django_db

WAITS = 100_000
ANSWERED = 50_000
"""The first ones have their answers, and had a time that is over; their executions are done. All others are open."""
OVERDUE = 30
"""Of those that are open, the last ones. Of the others half have a time that is to come, and half have none."""
LIMIT = 20
FEW = 100
"""Rows that one question may pass."""

FILL = """
WITH numbered AS (SELECT n, gen_random_uuid() AS id FROM generate_series(1, %(waits)s) AS n),
     executions AS (
INSERT INTO django_reactor_execution (id, reactor, fingerprint, relation, root_id, owner_id, parent_step,
    element_index, parent_generation, status, inputs, rollback_failures, tags, carried, queue_name, generation,
    waiting_for, snoozes, contentions, snooze_reason, epoch, stop, stop_reason, recoveries, progress, sends,
    created_at, started_at,
    updated_at)
SELECT id, 'contract.Asks', '0123456789abcdef', 'root', id, id, '', -1, 0,
    CASE WHEN n <= %(answered)s THEN 'completed' ELSE 'paused' END, '{}', 0, '[]', '{}', 'default', 0,
    '', 0, 0, '', 1, '', '', 0, 0, 0, now(), now(), now()
FROM numbered)
INSERT INTO django_reactor_wait (execution_id, owner_id, step, generation, correlation_id, attempts, state, timeout_at,
    created_at)
SELECT id, id, 'ask', 0, 'case-' || n, 0,
    CASE WHEN n <= %(answered)s THEN 'applied' ELSE 'open' END,
    CASE WHEN n <= %(answered)s OR n > %(waits)s - %(overdue)s THEN now() - interval '1 hour'
         WHEN n %% 2 = 0 THEN now() + interval '1 hour' END,
    now()
FROM numbered
"""


@pytest.fixture(scope="module")
def asked(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[UUID]:
    """One of the executions that wait."""
    if connection.vendor != "postgresql":
        pytest.skip("the plans of PostgreSQL are under test")
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        try:
            cursor.execute(FILL, {"waits": WAITS, "answered": ANSWERED, "overdue": OVERDUE})
            cursor.execute("ANALYZE django_reactor_execution")
            cursor.execute("ANALYZE django_reactor_wait")
            assert OrmSweeps().lead(uuid4(), 0)
            yield Wait.objects.get(correlation_id=f"case-{ANSWERED + 2}").execution_id
        finally:
            Leader.objects.all().delete()
            cursor.execute("DELETE FROM django_reactor_wait")
            cursor.execute("DELETE FROM django_reactor_execution")


def test_a_sweep_reads_no_more_of_the_overdue_than_it_takes(asked: UUID) -> None:
    answers = OrmAnswers()
    found = answers.overdue(LIMIT)
    assert len(found) == LIMIT
    for plan in plans_of(lambda: answers.overdue(LIMIT)):
        assert passed(plan) <= 2 * LIMIT, plan


def test_a_sweep_finds_out_through_an_index_that_nothing_is_overdue(asked: UUID) -> None:
    Wait.objects.filter(state="open", correlation_id__gte="case-99900").update(timeout_at=None)
    Wait.objects.filter(correlation_id="case-100000").update(timeout_at=None)
    answers = OrmAnswers()
    assert answers.overdue(LIMIT) == []
    for plan in plans_of(lambda: answers.overdue(LIMIT)):
        assert passed(plan) <= 2 * LIMIT, plan


def address(asked: UUID) -> Address:
    return Address(key=WaitKey(execution_id=asked, step="ask", generation=0), owner_id=asked)


@pytest.mark.parametrize(
    "question",
    [
        lambda asked: OrmAnswers().of_owner(asked),
        lambda asked: OrmAnswers().correlated("contract.Asks", f"case-{ANSWERED + 2}"),
        lambda asked: OrmAnswers().accept(address(asked), "1", None),
        lambda asked: OrmAnswers().reject(address(asked), {}, 1, None),
        lambda asked: OrmAnswers().time_out(address(Wait.objects.get(correlation_id=f"case-{WAITS}").execution_id)),
        lambda asked: OrmWaits().of(asked, 0),
        lambda asked: OrmSweeps().is_called_for(uuid4(), Pace(interval=15, limit=LIMIT)),
        lambda asked: OrmSweeps().unwoken(Pace(interval=15, limit=LIMIT)),
    ],
    ids=["of an owner", "correlated", "accept", "reject", "time out", "of a runner", "called for", "unwoken"],
)
def test_a_question_reads_a_few_rows(asked: UUID, question: Callable[[UUID], object]) -> None:
    assert Execution.objects.get(pk=asked).status == "paused"
    for plan in plans_of(lambda: question(asked)):
        assert passed(plan) <= FEW, plan
