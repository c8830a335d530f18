"""Ordered locks on the database: places are drawn and given up with the transactions of executions, and workers that
meet in a line neither overtake nor oversleep."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, transaction
from django.db.models import F
from django.test import override_settings

from django_reactor import (
    Dispatched,
    Failure,
    Halt,
    OrderedLock,
    Reactor,
    Success,
    async_reactor,
    compose,
    coordination,
    fail,
    map_step,
    runtime,
    step,
)
from django_reactor.actions import deliver
from django_reactor.coordination.database.turns import DatabaseTurns
from django_reactor.core.statuses import Status
from django_reactor.engine import map_loading
from django_reactor.engine.coordination_ports import TicketState
from django_reactor.exceptions import OutOfTurn
from django_reactor.journal.fields import DbNow
from django_reactor.models import Execution, Ticket
from django_reactor.sweeper import recovery
from tests.contract.committed import PATIENCE, another_session, together, transactional_db
from tests.contract.locks import session_id, until_blocked
from tests.integration.test_delivery_costs import Outbox

__all__ = ["transactional_db"]

pytestmark = pytest.mark.usefixtures("transactional_db")

KEY = "account:1"
Body = Callable[[Any], Any]
during: Body = lambda run: None  # noqa: E731
log: list[str] = []
inside: list[str] = []


@pytest.fixture(autouse=True)
def outbox() -> Iterator[None]:
    global during
    log.clear()
    Outbox.sent.clear()
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.integration.test_delivery_costs.Outbox"}):
        yield
    during = lambda run: None  # noqa: E731


class Booking(Reactor[Any]):
    name: str
    account: int = 1

    class Meta:
        ordered_lock = OrderedLock("account:{account}")

    @step
    def post(self) -> str:
        inside.append(self.name)
        try:
            log.append(self.name)
            during(self)
            assert inside == [self.name], "never two at once"
            return self.name
        finally:
            inside.remove(self.name)


class Lenient(Booking):
    class Meta:
        ordered_lock = OrderedLock("account:{account}", strict=False)


class Both(Reactor[Any]):
    name: str
    first: int
    second: int

    class Meta:
        ordered_lock = [
            OrderedLock("account:{first}", strict=False),
            OrderedLock("account:{second}", strict=False),
        ]

    @step
    def move(self) -> None:
        log.append(self.name)


class Statement(Reactor[Any]):
    @async_reactor(Booking)
    def booked(self) -> Any:
        return {"name": "unit"}

    @map_step(Booking, fan_out=2, after=["booked"])
    def elements(self) -> Any:
        return [{"name": str(number)} for number in range(4)]


def queued(*names: str, reactor: type[Reactor[Any]] = Booking, **inputs: Any) -> list[UUID]:
    results = [reactor.enqueue(name=name, **inputs) for name in names]
    return [result.execution_id for result in results if result.execution_id is not None]


def work() -> None:
    """Deliver what was sent, until nothing more is."""
    while Outbox.sent:
        with suppress(IndexError):
            deliver(UUID(Outbox.sent.pop(0)))


def waits(execution_id: UUID) -> bool:
    row = Execution.objects.get(pk=execution_id)
    return row.lease_token is None and row.wake_at is None and row.waiting_for.startswith("turn:")


def status(execution_id: UUID) -> str:
    return Execution.objects.get(pk=execution_id).status


def states() -> list[str]:
    return list(Ticket.objects.order_by("sequence", "number").values_list("state", flat=True))


def long_ago(hours: int = 1) -> None:
    """Everything that has happened."""
    span = timedelta(hours=hours)
    Execution.objects.update(updated_at=F("updated_at") - span, sent_at=F("sent_at") - span)
    Execution.objects.filter(lease_token__isnull=False).update(lease_expires_at=DbNow() - span)
    Ticket.objects.update(head_since=F("head_since") - span)


# -- order -------------------------------------------------------------------------------------------------------------


def test_a_backlog_is_worked_off_in_the_order_of_its_starts() -> None:
    queued(*"abcdef")
    Outbox.sent.reverse()
    work()
    assert log == list("abcdef")
    assert states() == [TicketState.DONE] * 6


def test_the_one_before_is_carried_on_as_what_it_is() -> None:
    first, second = *queued("a"), *queued("b", reactor=Both, first=1, second=2)
    deliver(second)
    work()
    steps = [
        [entry.step for entry in Execution.objects.get(pk=each).trace() if entry.action == "run"]
        for each in (first, second)
    ]
    assert steps == [["post"], ["move"]]
    assert log == ["a", "b"]


def test_a_caller_out_of_turn_leaves_nothing_and_uses_no_number() -> None:
    queued("a")
    with pytest.raises(OutOfTurn):
        Booking.run(name="b")
    assert Execution.objects.count() == Ticket.objects.count() == 1
    work()
    assert Booking.run(name="b").is_success
    line = coordination.peek(KEY)
    assert line is not None
    assert (line.last, line.live) == (2, 0)


def test_a_failure_halts_the_rest_of_its_batch() -> None:
    global during
    during = lambda run: fail("no") if run.name == "a" else None  # noqa: E731
    first, second, third = queued("a", "b", "c")
    results = [deliver(execution_id) for execution_id in (first, second, third)]
    assert isinstance(results[0], Failure)
    assert isinstance(results[1], Halt)
    assert isinstance(results[2], Halt)
    assert "number 1 failed" in results[2].reason
    assert log == ["a"]


def test_units_and_elements_draw_when_they_are_dispatched() -> None:
    result = Statement.run()
    assert isinstance(result, Dispatched)
    Outbox.sent.reverse()
    work()
    assert log == ["unit", "0", "1", "2", "3"]
    assert states() == [TicketState.DONE] * 5


# -- what is cancelled before it began ---------------------------------------------------------------------------------


class Starting(Reactor[Any]):
    @async_reactor(Booking)
    def booked(self) -> Any:
        return {"name": "unit"}

    @step(after=["booked"])
    def end(self) -> None:
        during(self)


class Around(Reactor[Any]):
    starting = compose(Starting)


class Several(Reactor[Any]):
    @map_step(Booking, fan_out=1)
    def booked(self) -> Any:
        yield {"name": "first", "account": 2}
        yield {"name": "held back"}
        during(self)


def behind() -> UUID:
    """One that waits for whoever is in the line, none of whom is delivered."""
    Execution.objects.filter(status=Status.PENDING, wake_at__isnull=False).update(wake_at=DbNow() + timedelta(days=1))
    (waiting,) = queued("behind")
    deliver(waiting)
    assert waits(waiting)
    Outbox.sent.clear()
    return waiting


@pytest.mark.parametrize("reactor", [Starting, Around], ids=["its own", "of a part"])
@pytest.mark.parametrize("how", ["rolled back", "cancelled", "undone", "undone in a transaction"])
def test_who_waits_for_a_unit_that_is_cancelled_goes_on_at_once(how: str, reactor: type[Reactor[Any]]) -> None:
    global during
    waiting: list[UUID] = []

    def end(run: Any) -> None:
        if not how.startswith("undone"):
            waiting.append(behind())
        if how == "rolled back":
            fail("no")
        if how == "cancelled":
            Execution.objects.get(pk=run.context.root_id).cancel()

    during = end
    reactor.run()
    if how.startswith("undone"):
        waiting.append(behind())
        with transaction.atomic() if how.endswith("transaction") else nullcontext():
            reactor.executions.get().undo()
            assert waits(waiting[0]) is how.endswith("transaction")
    during = lambda run: None  # noqa: E731
    assert Outbox.sent == [str(waiting[0])]
    work()
    assert log == ["behind"]
    assert set(states()) == {TicketState.DONE}


def test_who_waits_for_an_element_that_is_held_back_goes_on_at_once_when_that_is_cancelled() -> None:
    global during
    Several.run()
    first = Execution.objects.get(element_index=0)
    behind()
    Execution.objects.filter(pk=first.pk).update(wake_at=DbNow())
    during = lambda run: fail("no") if run.name == "first" else None  # noqa: E731
    deliver(first.pk)
    work()
    assert log == ["first", "behind"]


def test_who_waits_for_an_element_of_a_map_that_is_never_opened_goes_on_at_once(
    monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    global during
    if database == "sqlite":
        pytest.skip("there a source is read to its end before anything is stored")
    monkeypatch.setattr(map_loading, "CHUNK", 2)
    waiting: list[UUID] = []

    def breaks(run: Any) -> None:
        waiting.append(behind())
        fail("no such line")

    during = breaks
    assert Several.run().is_failure
    during = lambda run: None  # noqa: E731
    assert Outbox.sent == [str(waiting[0])]
    work()
    assert log == ["behind"]


# -- transactions ------------------------------------------------------------------------------------------------------


def test_in_a_callers_transaction_the_place_is_a_part_of_it() -> None:
    with transaction.atomic():
        assert Booking.run(name="a").is_success
        assert Booking.run(name="b").is_success
        with pytest.raises(OutOfTurn), transaction.atomic():
            Booking.enqueue(name="c")
            Booking.run(name="d")
        transaction.set_rollback(True)
    assert not Ticket.objects.exists()
    assert Booking.run(name="e").is_success
    line = coordination.peek(KEY)
    assert line is not None
    assert line.last == 1


def test_a_start_whose_number_cannot_be_drawn_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise OperationalError("gone away")

    monkeypatch.setattr(DatabaseTurns, "draw", refuse)
    for start in (Booking.enqueue, Booking.run):
        with pytest.raises(OperationalError):
            start(name="a")
    with pytest.raises(OperationalError):
        Statement.run()
    assert {row.reactor.rpartition(".")[2] for row in Execution.objects.all()} == {"Statement"}, "and no unit"


def test_whoever_waits_is_woken_after_the_callers_commit() -> None:
    with transaction.atomic():
        assert Booking.run(name="a").is_success
        second = Booking.enqueue(name="b").execution_id
    assert second is not None
    assert isinstance(deliver(second), Success)


def test_who_parks_behind_a_callers_open_transaction_is_woken_by_its_commit(database: str) -> None:
    if database == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    first, second = queued("a", "b")
    with another_session() as other, transaction.atomic():
        Execution.objects.get(pk=first).cancel()
        other(lambda: deliver(second)).result(PATIENCE)
        assert other(lambda: waits(second)).result(PATIENCE)
        Outbox.sent.clear()
    assert Outbox.sent == [str(second)]
    work()
    assert log == ["b"]


@pytest.mark.parametrize("rolled_back", [False, True])
def test_who_starts_with_a_key_that_a_callers_transaction_has_drawn_waits_for_its_end(
    database: str, rolled_back: bool
) -> None:
    if database == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    with another_session() as other:
        other_id = other(session_id).result(PATIENCE)
        with transaction.atomic():
            own = Booking.enqueue(name="a").execution_id
            later = other(lambda: Booking.enqueue(name="b").execution_id)
            until_blocked(other_id)
            transaction.set_rollback(rolled_back)
        second = later.result(PATIENCE)
    numbers = list(Ticket.objects.order_by("number").values_list("execution_id", "number"))
    assert numbers == ([(second, 1)] if rolled_back else [(own, 1), (second, 2)])


# -- workers at once ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True])
def test_starters_and_workers_at_once_keep_the_order_of_the_numbers(fails: bool) -> None:
    global during
    during = lambda run: fail("no") if fails and run.name.endswith("2") else None  # noqa: E731
    started = threading.Barrier(2)

    def one(number: int) -> None:
        if number < 2:
            for each in range(5):
                queued(f"{number}{each}", reactor=Lenient)
                if each == 2:
                    started.wait(PATIENCE)
        else:
            work()

    together(4, one)
    together(2, lambda _: work())
    assert sorted(log) == sorted(f"{number}{each}" for number in range(2) for each in range(5))
    by_number = Ticket.objects.order_by("number").values_list("execution_id", flat=True)
    rows = {row.pk: row for row in Execution.objects.all()}
    assert [rows[execution_id].trace()[0].execution_id for execution_id in by_number] == list(by_number)
    names = [runtime.services().new_codec().decode_arguments(rows[pk].inputs)["name"] for pk in by_number]
    assert log == names
    assert not Execution.objects.filter(finished_at=None).exists()


@pytest.mark.parametrize("round_", range(6))
def test_two_that_meet_at_the_end_of_a_turn_oversleep_nothing(round_: int) -> None:
    """One ends, and the other parks, at the same instant."""
    names = [str(number) for number in range(4)]
    first, *others = queued(*names)
    Outbox.sent.clear()
    together(2, lambda number: deliver([first, others[0]][number]))
    for execution_id in others:
        row = Execution.objects.get(pk=execution_id)
        assert row.finished_at or row.wake_at, "nobody would ever wake it"
        deliver(execution_id)
    assert log == names


def test_transfers_between_accounts_at_once_never_wait_for_each_other() -> None:
    def one(number: int) -> None:
        for each in range(4):
            first, second = (1, 2) if (number + each) % 2 else (2, 1)
            queued(f"{number}{each}", reactor=Both, first=first, second=second)
        work()

    together(3, one)
    work()
    assert not Execution.objects.filter(finished_at=None).exists()
    assert len(log) == 12
    assert set(states()) == {TicketState.DONE}


# -- what a crash leaves -----------------------------------------------------------------------------------------------


def parked(*names: str) -> list[UUID]:
    """The first is about to run in a process that stands still, the others wait for it."""
    first, *others = queued(*names)
    claim = runtime.services().executions.claim(first, UUID(int=1))
    assert claim is not None
    for execution_id in others:
        deliver(execution_id)
        assert waits(execution_id)
    Outbox.sent.clear()
    return [first, *others]


def sweep() -> list[UUID]:
    """Whom it sends messages."""
    Outbox.sent.clear()
    recovery().sweep()
    return [UUID(execution_id) for execution_id in Outbox.sent]


def test_a_sweep_wakes_whose_turn_has_come() -> None:
    first, second, third = parked("a", "b", "c")
    assert sweep() == [], "the first runs"
    runtime.services().coordination.turns.finish(first, failed=False)
    Execution.objects.filter(pk=first).update(lease_token=None, lease_expires_at=None, status=Status.COMPLETED)
    assert recovery().sweeps.is_called_for(UUID(int=1), recovery().pace())
    assert second in sweep()
    work()
    assert log == ["b", "c"]
    assert status(third) == Status.COMPLETED


def test_a_sweep_wakes_the_next_after_a_head_that_does_not_run_and_that_one_lets_it_go_first() -> None:
    first, second, _ = parked("a", "b", "c")
    Execution.objects.filter(pk=first).update(lease_expires_at=DbNow() - timedelta(seconds=1))
    assert set(sweep()) >= {second}
    assert isinstance(deliver(second), Dispatched)
    work()
    assert log == ["a", "b", "c"]


def test_a_dead_head_is_passed_over_and_still_runs_when_it_is_delivered() -> None:
    first, second, third = parked("a", "b", "c")
    Execution.objects.filter(pk=first).update(lease_token=None, lease_expires_at=None, status=Status.SCHEDULED)
    sweep()
    deliver(second)
    assert waits(second), "it has just been seen"
    long_ago()
    assert second in sweep()
    deliver(second)
    assert status(second) == Status.COMPLETED
    assert states()[0] == TicketState.PASSED
    Execution.objects.filter(pk=first).update(wake_at=DbNow())
    assert isinstance(deliver(first), Success)
    work()
    assert log[:2] == ["b", "a"]
    assert status(third) == Status.COMPLETED
    assert set(states()) == {TicketState.DONE}


def test_who_was_passed_over_by_hand_while_it_waited_is_woken_by_a_sweep() -> None:
    first, second, third = parked("a", "b", "c")
    assert coordination.skip(KEY, 2)
    assert sweep() == [second]
    work()
    assert log == ["b"]
    assert waits(third)
    Execution.objects.filter(pk=first).update(lease_expires_at=DbNow() - timedelta(seconds=1))
    deliver(first)
    work()
    assert log == ["b", "a", "c"]


def test_an_execution_that_was_deleted_stops_nobody() -> None:
    first, second = parked("a", "b")
    Execution.objects.get(pk=first).delete()
    assert sweep() == [second]
    work()
    assert log == ["b"]
    assert Booking.run(name="c").is_success


def test_however_many_that_are_gone_stand_before_it_a_sweep_wakes_who_waits() -> None:
    *gone, last = parked("a", "b", "c", "d")
    Execution.objects.filter(pk__in=gone).delete()
    assert sweep() == [last]
    work()
    assert log == ["d"]


def test_who_waits_behind_several_that_do_not_run_passes_each_when_its_time_is_up() -> None:
    tomorrow = DbNow() + timedelta(days=1)
    first, second, third = queued("a", "b", "c")
    Execution.objects.filter(pk__in=(first, second)).update(wake_at=tomorrow)
    deliver(third)
    for passed in (0, 1, 2):
        assert sweep() == [third]
        deliver(third)
        assert states().count(TicketState.PASSED) == passed
        long_ago()
    assert log == ["c"]


def test_a_cancel_lets_the_next_go() -> None:
    first, second, third = queued("a", "b", "c")
    Execution.objects.get(pk=first).cancel()
    deliver(third)
    assert (status(second), status(third)) == (Status.COMPLETED, Status.SCHEDULED), "the second was delivered first"
    work()
    assert log == ["b", "c"]


@pytest.mark.parametrize("inside", [False, True], ids=["at once", "in a transaction"])
def test_who_waits_in_a_line_is_sent_for_when_the_one_before_is_passed_by_hand(inside: bool) -> None:
    _, second = parked("a", "b")
    Outbox.sent.clear()
    if inside:
        with transaction.atomic():
            assert coordination.skip(KEY, 1)
            assert Outbox.sent == []
    else:
        assert coordination.skip(KEY, 1)
    assert Outbox.sent == [str(second)]
    work()
    assert log == ["b"]
