"""Executions with parts, delivered by hand where messages are lost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.test import override_settings

from django_reactor import sweeper, worker
from django_reactor.core.statuses import ENDS
from django_reactor.engine import crash_points
from django_reactor.engine.recovery import Pace
from django_reactor.journal.fields import DbNow
from django_reactor.journal.sweeps import OrmSweeps
from django_reactor.models import Execution, MapRun, Wait

__all__ = ["DONE", "delivered", "messages_are_lost", "nothing_is_left"]

DONE: list[str] = []
"""What bodies did, in order."""


@pytest.fixture
def messages_are_lost() -> Iterator[None]:
    DONE.clear()
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages", "MAX_RECOVERIES": 2}):
        yield
    crash_points.watch(None)


def delivered() -> Execution:
    """All that is due, or was held by a process that died, until nothing is; the root then."""
    for _ in range(30):
        Execution.objects.filter(lease_token__isnull=False).update(lease_expires_at=DbNow() - timedelta(hours=1))
        due = Execution.objects.filter(wake_at__isnull=False) | Execution.objects.filter(lease_token__isnull=False)
        found = list(due.values_list("pk", flat=True))
        if not found:
            break
        for each in found:
            worker.deliver(each)
    else:
        raise AssertionError("it does not come to rest")
    return Execution.objects.get(relation="root")


def nothing_is_left() -> None:
    """That moves, is looked after, or waits for anything."""
    assert set(Execution.objects.values_list("status", flat=True)) <= ENDS
    assert set(MapRun.objects.values_list("state", flat=True)) <= {"done", "withdrawn", "undone"}
    assert not OrmSweeps().moving(Pace(interval=15, limit=100))
    assert not Wait.objects.filter(state="open").exists()
    assert sweeper.recovery().sweep().failed == 0
