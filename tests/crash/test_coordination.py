"""A process killed at any instant of coordination: what it held is held until the ttl is over and no longer, its own
execution takes it over, nothing is charged or marked twice, and nothing that was refused is left behind."""

from __future__ import annotations

from collections import Counter
from uuid import UUID, uuid4

import pytest
from django.test import override_settings

from django_reactor import Success, actions, runtime
from django_reactor.core.statuses import Status
from django_reactor.engine.coordination_ports import HoldKind, Wanted
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.journal.fields import DbNow
from django_reactor.models import Holder, PeriodMark, RateCount
from tests.crash.processes import LONG, Processes, expire, only_execution
from tests.crash.reactors import Guarded, effects
from tests.crash.test_crashes import is_at_rest

STARTED, ADMITTED, TAKEN = CrashPoint.STARTED, CrashPoint.ADMITTED, CrashPoint.TAKEN
BODY, RECORDED, FREEING, END = (
    CrashPoint.BODY_DONE,
    CrashPoint.RECORDED,
    CrashPoint.BEFORE_RELEASE,
    CrashPoint.BEFORE_END,
)
ALL = Counter(["reserve", "charge", "ship"])

Point = tuple[CrashPoint, int]

IN_A_CALLER: list[tuple[Point, Counter[str], set[str]]] = [
    ((TAKEN, 1), Counter(), {"guarded"}),
    ((STARTED, 1), Counter(), {"guarded"}),
    ((ADMITTED, 1), Counter(), {"guarded"}),  # of the step
    ((TAKEN, 2), Counter(), {"guarded", "charging"}),
    ((BODY, 2), Counter(["charge"]), {"guarded", "charging"}),
    ((RECORDED, 2), Counter(), {"guarded", "charging"}),
    ((FREEING, 1), Counter(), {"guarded", "charging"}),  # the step's, after its entry
    ((END, 1), Counter(["ship"]), {"guarded"}),
    ((FREEING, 2), Counter(["ship"]), {"guarded"}),  # inside the transaction of the end
]
IN_A_WORKER: list[tuple[Point, Counter[str], set[str]]] = [
    ((CrashPoint.CLAIMED, 1), Counter(), set()),
    ((ADMITTED, 1), Counter(), set()),
    ((TAKEN, 1), Counter(), {"guarded"}),
]


def point_of(value: object) -> str:
    return f"{value[0]}:{value[1]}" if isinstance(value, tuple) else ""


def can_be_had(key: str) -> bool:
    holds = runtime.services().coordination.holds
    hold = holds.take(uuid4(), 1, Wanted(kind=HoldKind.LOCK, key=key, ttl=60))
    if hold is not None:
        holds.release([hold])
    return hold is not None


def counted() -> dict[str, int]:
    return dict(RateCount.objects.values_list("key", "count"))


def completes(execution_id: UUID, ran_again: Counter[str]) -> None:
    expire(execution_id)
    assert isinstance(actions.deliver(execution_id), Success)
    execution = only_execution()
    assert is_at_rest(execution, Status.COMPLETED)
    assert effects() == ALL + ran_again
    assert counted() == {"guarded": 1, "charging": 1}
    assert PeriodMark.objects.count() == 1
    assert can_be_had("guarded")


@pytest.mark.parametrize(("point", "ran_again", "held"), IN_A_CALLER, ids=point_of)
def test_a_run_that_was_killed_keeps_what_it_held_and_completes(
    processes: Processes, point: Point, ran_again: Counter[str], held: set[str]
) -> None:
    assert processes.run(Guarded, crash_at=point).was_killed
    execution_id = only_execution().pk
    assert {key for key in ("guarded", "charging") if not can_be_had(key)} == held
    completes(execution_id, ran_again)


@pytest.mark.parametrize(("point", "ran_again", "held"), IN_A_WORKER, ids=point_of)
def test_so_does_a_delivery(processes: Processes, point: Point, ran_again: Counter[str], held: set[str]) -> None:
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.integration.test_delivery_costs.Outbox"}):
        execution_id = Guarded.enqueue().execution_id
    assert execution_id is not None
    assert processes.act("deliver", execution_id, crash_at=point).was_killed
    assert {key for key in ("guarded", "charging") if not can_be_had(key)} == held
    completes(execution_id, ran_again)


def test_no_longer_than_its_ttl(processes: Processes) -> None:
    assert processes.run(Guarded, crash_at=(TAKEN, 2)).was_killed
    assert not can_be_had("guarded")
    Holder.objects.update(expires_at=DbNow() - LONG)
    assert can_be_had("guarded")
    completes(only_execution().pk, Counter())


def test_what_is_refused_leaves_nothing_of_itself(processes: Processes) -> None:
    holds = runtime.services().coordination.holds
    assert holds.take(uuid4(), 1, Wanted(kind=HoldKind.LOCK, key="guarded", ttl=60)) is not None
    assert processes.run(Guarded).how == "exit 1"  # LockUnavailable
    assert counted() == {}
    assert not can_be_had("guarded")


def test_a_run_passes_no_other_point_of_coordination(processes: Processes) -> None:
    """Or the list above is not all of them."""
    for point in (TAKEN, ADMITTED, FREEING):
        last = max(count for (name, count), _, _ in IN_A_CALLER if name is point)
        assert processes.run(Guarded, crash_at=(point, last + 1)).how == "exit 0"
        PeriodMark.objects.all().delete()
