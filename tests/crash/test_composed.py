"""A process killed at any instant inside a composed child: whoever takes over goes on there, and nothing is lost."""

from __future__ import annotations

from collections import Counter

import pytest

from django_reactor import Failure, Reactor
from django_reactor.core.statuses import Relation, Status
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.models import Execution, JournalEntry
from tests.crash.processes import Processes
from tests.crash.reactors import Declines, Misses, Signs, effects
from tests.crash.test_crashes import compensations_as_one, recovered

POINTS = (
    CrashPoint.STARTED,
    CrashPoint.DISPATCHED,
    CrashPoint.BODY_DONE,
    CrashPoint.ATOMIC_BODY_DONE,
    CrashPoint.RECORDED,
    CrashPoint.ROLLBACK_BODY_DONE,
    CrashPoint.BEFORE_END,
)
ENDS: dict[type[Reactor], tuple[Status, Status]] = {
    Signs: (Status.COMPLETED, Status.COMPLETED),
    Declines: (Status.FAILED, Status.UNDONE),
    Misses: (Status.FAILED, Status.FAILED),
}
ATOMIC = ("book",)


def state() -> tuple[Status, Status]:
    of_child = Execution.objects.get(relation=Relation.COMPOSED)
    return Status(Execution.objects.get(relation=Relation.ROOT).status), Status(of_child.status)


def forget() -> None:
    JournalEntry.objects.all().delete()
    Execution.objects.all().delete()


def unharmed(processes: Processes, reactor: type[Reactor]) -> Counter[str]:
    """What its bodies do if nobody is killed."""
    assert processes.run(reactor).how == "exit 0"
    assert state() == ENDS[reactor]
    forget()
    return compensations_as_one(effects())


@pytest.mark.parametrize("reactor", ENDS, ids=lambda reactor: reactor.__name__)
@pytest.mark.parametrize("point", POINTS)
def test_a_composed_run_that_was_killed_is_carried_to_its_end(
    processes: Processes, reactor: type[Reactor], point: CrashPoint
) -> None:
    expected = unharmed(processes, reactor)
    before, count = expected, 1
    while processes.run(reactor, crash_at=(point, count)).was_killed:
        root = Execution.objects.get(relation=Relation.ROOT)
        recovered(root.pk)
        root.refresh_from_db()
        assert state() == ENDS[reactor], (point, count)
        assert isinstance(root.result(), Failure) == (reactor is not Signs)
        assert Execution.objects.filter(relation=Relation.COMPOSED).count() == 1
        after = compensations_as_one(effects())
        repeated = after - before - expected
        assert repeated.total() <= 1, (point, count, repeated)
        assert not any(repeated[name] for name in ATOMIC), (point, count)
        assert not expected - (after - before), (point, count)
        before, count = after, count + 1
        forget()
    assert count > 1 or point is CrashPoint.ROLLBACK_BODY_DONE or (point, reactor) == (CrashPoint.BEFORE_END, Signs)
