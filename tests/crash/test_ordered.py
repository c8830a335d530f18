"""A process killed at any instant in a line: nobody overtakes, nobody is stuck, and a number that was drawn for nothing
was never drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import pytest
from django.test import override_settings

from django_reactor import actions, coordination
from django_reactor.core.statuses import Status
from django_reactor.engine.coordination_ports import TicketState
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.journal.fields import DbNow
from django_reactor.models import Execution, JournalEntry, Ticket
from django_reactor.sweeper import recovery
from tests.crash.processes import LONG, Processes
from tests.crash.reactors import Queued, effects
from tests.integration.test_delivery_costs import Outbox

P = CrashPoint
IN_A_LINE = [
    (P.CLAIMED, 1),  # the third, which waits
    (P.PARKED_IN_LINE, 1),
    (P.BEFORE_NEXT_TURN, 1),  # it has parked, and looks again
    (P.RELEASED, 1),
    (P.CLAIMED, 2),  # the first, which it finds at the head
    (P.BODY_DONE, 1),
    (P.RECORDED, 1),
    (P.DRAWN, 1),  # for the step
    (P.BODY_DONE, 2),
    (P.BEFORE_END, 1),
    (P.BEFORE_NEXT_TURN, 2),  # it has ended
]


@pytest.fixture(autouse=True)
def outbox() -> Iterator[None]:
    Outbox.sent.clear()
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.integration.test_delivery_costs.Outbox"}):
        yield


def queued(count: int) -> list[UUID]:
    ids = [result.execution_id for result in (Queued.enqueue() for _ in range(count))]
    Outbox.sent.clear()
    return [execution_id for execution_id in ids if execution_id is not None]


def recover() -> None:
    """What a fleet does about what lies there, once leases and patience are over: sweep, and deliver."""
    while Execution.objects.filter(finished_at=None).exists():
        Execution.objects.filter(lease_token__isnull=False).update(lease_expires_at=DbNow() - LONG)
        Execution.objects.update(sent_at=DbNow() - LONG)
        recovery().sweep()
        assert Outbox.sent, "nobody would ever go on"
        while Outbox.sent:
            actions.deliver(UUID(Outbox.sent.pop(0)))


def ran_in_order() -> list[UUID]:
    entries = JournalEntry.objects.filter(step="reserve", action="run").order_by("started_at")
    return list(entries.values_list("execution", flat=True))


@pytest.mark.parametrize("point", IN_A_LINE, ids=lambda point: f"{point[0]}:{point[1]}")
def test_a_worker_that_is_killed_in_a_line_costs_neither_order_nor_a_turn(
    processes: Processes, point: tuple[CrashPoint, int]
) -> None:
    ids = queued(3)
    assert processes.act("deliver", ids[2], crash_at=point).was_killed
    recover()
    assert ran_in_order() == ids
    again = Counter(effects()) - Counter(f"{step} {each}" for step in ("reserve", "charge") for each in ids)
    assert sum(again.values()) == (point[0] in (P.BODY_DONE, P.BEFORE_END)), "only the body that was cut off"
    assert set(Execution.objects.values_list("status", flat=True)) == {Status.COMPLETED}
    assert set(Ticket.objects.values_list("state", flat=True)) == {TicketState.DONE}


def test_a_start_that_is_killed_after_its_draw_has_drawn_nothing(processes: Processes) -> None:
    assert processes.run(Queued, crash_at=(P.DRAWN, 1)).was_killed
    assert not Execution.objects.exists()
    assert Queued.run().is_success
    line = coordination.peek("queued")
    assert line is not None
    assert (line.last, line.live) == (1, 0)


@pytest.mark.parametrize("point", [(P.STARTED, 1), (P.BODY_DONE, 1), (P.RECORDED, 1), (P.DRAWN, 2), (P.BEFORE_END, 1)])
def test_a_caller_that_is_killed_keeps_its_turn_until_a_worker_goes_on(
    processes: Processes, point: tuple[CrashPoint, int]
) -> None:
    assert processes.run(Queued, crash_at=point).was_killed
    first = Execution.objects.get().pk
    (second,) = queued(1)
    actions.deliver(second)
    assert Execution.objects.get(pk=second).waiting_for
    recover()
    assert ran_in_order() == [first, second]
    assert set(Ticket.objects.values_list("state", flat=True)) == {TicketState.DONE}
