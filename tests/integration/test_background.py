"""Hand-off, enqueue and units on a real database, delivered by the immediate queue."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.test import override_settings
from django.utils import timezone, translation
from opentelemetry import trace

from django_reactor import (
    Background,
    Dispatched,
    Failure,
    Reactor,
    Retry,
    Success,
    async_reactor,
    async_step,
    map_step,
    runtime,
    snooze,
    step,
    sweeper,
    worker,
)
from django_reactor.core.reactor import definition_of
from django_reactor.engine import delivering
from django_reactor.exceptions import InputError
from django_reactor.models import Execution
from django_reactor.queues import immediate
from tests.contract.committed import another_session
from tests.stored import execution_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("delivered_at_once")]


class Handed(Reactor[Any]):
    name: str

    class Meta:
        background = Background(after="one")

    @step
    def one(self, name: str) -> bool:
        Group.objects.create(name=name)
        return bool(self.context.in_worker)

    @step
    def two(self, one: bool) -> bool:
        return bool(self.context.in_worker)


def test_a_hand_off_is_delivered_after_it_is_committed() -> None:
    result = Handed.run(name="a")
    assert isinstance(result, Dispatched)
    assert dict(result.results) == {"one": False}
    execution = execution_of(result)
    assert execution.status == "completed"
    assert execution.result().unwrap() == {"one": False, "two": True}
    assert [entry.action for entry in execution.trace()] == ["run", "hand_off", "run"]


def test_a_hand_off_in_a_callers_transaction_is_sent_when_that_commits() -> None:
    with transaction.atomic():
        result = Handed.run(name="a")
        assert execution_of(result).status == "pending"
    assert execution_of(result).status == "completed"


def test_a_hand_off_in_a_transaction_that_is_rolled_back_never_existed() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Handed.run(name="a")
        raise ZeroDivisionError
    assert not Execution.objects.exists()
    assert not Group.objects.exists()
    assert immediate.waiting() == []


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_broker_that_is_down_fails_nothing_that_is_committed_and_the_sweeper_sends_again(
    in_transaction: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.DownBroker"}):
        if in_transaction:
            with transaction.atomic():
                result = Handed.run(name="a")
        else:
            result = Handed.run(name="a")
    assert isinstance(result, Dispatched)
    assert "the broker is down" in caplog.text
    execution = execution_of(result)
    assert execution.status == "pending"
    Execution.objects.update(sent_at=None)
    assert sweeper.recovery().sweep().delivered == 1
    execution.refresh_from_db()
    assert execution.status == "completed"


def test_enqueue_validates_here_and_runs_in_a_worker() -> None:
    result = Handed.using(queue_name="slow", priority=3, tags=["x"]).enqueue(name="b")
    execution = execution_of(result)
    assert (execution.queue_name, execution.priority, execution.tags) == ("slow", 3, ["x"])
    assert execution.result().unwrap() == {"one": True, "two": True}
    with pytest.raises(InputError, match="name"):
        Handed.enqueue()
    assert Execution.objects.count() == 1


class Elsewhere(Reactor[Any]):
    name: str

    class Meta:
        background = Background()

    @step
    def one(self, name: str) -> bool:
        return bool(self.context.in_worker)


def test_what_runs_wholly_in_the_background_is_validated_here_and_begins_in_a_worker() -> None:
    refused = Elsewhere.run()
    assert isinstance(refused, Failure)
    assert (list(refused.field_errors), refused.execution_id) == (["name"], None)
    assert not Execution.objects.exists()
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        result = Elsewhere.run(name="a")
        later = Elsewhere.using(run_after=3600).run(name="b")
    assert isinstance(result, Dispatched)
    execution = execution_of(result)
    assert (execution.status, execution.started_at, execution.trace()) == ("pending", None, [])
    worker.deliver(execution.pk)
    assert execution.result().unwrap() == {"one": True}
    worker.deliver(execution_of(later).pk)
    assert execution_of(later).status == "pending"


@pytest.mark.parametrize("run_after", [datetime(2030, 1, 1), -1, "soon"])  # that is what is refused
def test_a_time_that_says_nothing_is_refused(run_after: Any) -> None:
    with pytest.raises(InputError, match="run_after"):
        Handed.using(run_after=run_after).enqueue(name="a")
    assert not Execution.objects.exists()


def test_the_same_idempotency_key_enqueues_once() -> None:
    first = Handed.using(idempotency_key="k").enqueue(name="b")
    again = Handed.using(idempotency_key="k").enqueue(name="c")
    assert isinstance(again, Success)
    assert again.execution_id == first.execution_id


@pytest.mark.parametrize(
    "run_after",
    [lambda: 3600, lambda: timedelta(hours=1), lambda: datetime.now(UTC) + timedelta(hours=1)],
    ids=["seconds", "timedelta", "at"],
)
def test_run_after_delays_the_start(run_after: Callable[[], Any]) -> None:
    execution = execution_of(Handed.using(run_after=run_after()).enqueue(name="later"))
    assert execution.status == "pending"
    assert execution.wake_at is not None
    assert timedelta(minutes=59) < execution.wake_at - datetime.now(UTC) <= timedelta(hours=1)
    execution.cancel("changed my mind")
    execution.refresh_from_db()
    assert execution.status == "cancelled"


def test_a_retry_in_a_worker_is_scheduled_and_delivered_when_it_is_due() -> None:
    class Flaky(Reactor[Any]):
        @step(retry=Retry(max_attempts=2, delay=3600, backoff="fixed", jitter=0))
        def call(self) -> int:
            if self.context.attempt == 1:
                raise ConnectionError
            return 2

    execution = execution_of(Flaky.enqueue())
    assert execution.status == "scheduled"
    assert execution.lease_token is None
    Execution.objects.update(wake_at=datetime.now(UTC))
    immediate.drain()
    assert execution.result().unwrap() == {"call": 2}


def test_a_snooze_gives_the_lease_up_and_says_why() -> None:
    class Polling(Reactor[Any]):
        @step
        def poll(self) -> int:
            if self.context.snoozes < 2:
                snooze(3600, "remote is starting")
            return int(self.context.snoozes)

    result = Polling.run()
    assert isinstance(result, Dispatched)
    for snoozes in (1, 2):
        execution = execution_of(result)
        assert (execution.status, execution.snoozes) == ("scheduled", snoozes)
        assert execution.snooze_reason == "remote is starting"
        assert not execution.trace()
        Execution.objects.update(wake_at=datetime.now(UTC))
        immediate.drain()
    assert execution_of(result).result().unwrap() == {"poll": 2}


def test_language_and_time_zone_travel_with_the_execution() -> None:
    class Speaking(Reactor[Any]):
        @step
        def speak(self) -> tuple[str | None, str]:
            return translation.get_language(), timezone.get_current_timezone_name()

    with translation.override("fr"), timezone.override(ZoneInfo("Asia/Tokyo")), transaction.atomic():
        result = Speaking.enqueue()
        transaction.on_commit(lambda: translation.activate("de"))
    execution = execution_of(result)
    assert execution.carried == {"language": "fr", "time_zone": "Asia/Tokyo"}
    translation.activate("en")
    assert execution.result().unwrap() == {"speak": ("fr", "Asia/Tokyo")}


def test_the_trace_travels_with_the_execution_and_with_its_units() -> None:
    class Traced(Reactor[Any]):
        @async_step
        def letter(self) -> int:
            return trace.get_current_span().get_span_context().span_id

        @step
        def rest(self, letter: int) -> tuple[int, int]:
            return letter, trace.get_current_span().get_span_context().span_id

    span = trace.NonRecordingSpan(trace.SpanContext(trace_id=7, span_id=11, is_remote=False))
    with override_settings(DJANGO_REACTOR={"BACKEND": "immediate", "CARRY": ["opentelemetry"]}):
        with transaction.atomic(), trace.use_span(span):
            result = Traced.enqueue()
        assert execution_of(result).result().unwrap() == {"rest": (11, 11)}


def test_a_hand_off_after_a_unit_comes_once_that_is_started() -> None:
    class Posts(Reactor[Any]):
        class Meta:
            background = Background(after="letter")

        @async_step
        def letter(self) -> str:
            return "posted"

        @step
        def rest(self, letter: str) -> Any:
            return self.context.in_worker

    result = Posts.run()
    assert isinstance(result, Dispatched)
    execution = execution_of(result)
    assert [entry.action for entry in execution.trace()] == ["dispatch", "hand_off", "run"]
    assert execution.results["rest"] is True


class Award(Reactor[str]):
    points: int

    class Meta:
        returns = "awarded"

    @step(atomic=True)
    def awarded(self, points: int) -> str:
        if points < 0:
            raise ValueError("negative")
        return Group.objects.create(name=f"{points} points").name


class Units(Reactor[Any]):
    points: int = 5

    @async_step
    def mail(self, points: int) -> str:
        return f"mailed {points}"

    @async_reactor(Award)
    def award(self, points: int) -> dict[str, int]:
        return {"points": points}

    @step(tolerate=["award"])
    def read(self, mail: str, award: Any) -> tuple[str, str]:
        return mail, award.message if isinstance(award, Failure) else award


@pytest.mark.parametrize(("points", "read"), [(5, "5 points"), (-1, "negative")])
def test_units_run_on_their_own_and_are_read(points: int, read: str) -> None:
    execution = execution_of(Units.enqueue(points=points))
    assert execution.status == "completed"
    assert execution.results["read"] == (f"mailed {points}", read)
    children = {child.parent_step: child for child in execution.children.all()}
    assert children["mail"].relation == "async_step"
    assert children["award"].relation == "async_reactor"
    assert children["award"].status == ("completed" if points > 0 else "failed")
    assert {child.root_id for child in children.values()} == {execution.pk}


class Told(Reactor[Any]):
    points: int

    class Meta:
        returns = "counted"

    @async_step
    def mail(self, points: int) -> str:
        return f"mailed {points}"

    @step
    def counted(self, mail: str) -> str:
        return mail


class InElements(Reactor[Any]):
    @map_step(Told, fan_out=2)
    def elsewhere(self) -> list[dict[str, int]]:
        return [{"points": points} for points in (1, 2, 3)]

    @map_step(Told)
    def here(self) -> list[dict[str, int]]:
        return [{"points": points} for points in (4, 5)]

    @step
    def all_of(self, elsewhere: Any, here: Any) -> list[str]:
        return [*elsewhere.values(), *here.values()]


def test_units_inside_of_elements_are_executions_of_their_own_too() -> None:
    execution = execution_of(InElements.enqueue())
    assert execution.results["all_of"] == [f"mailed {points}" for points in (1, 2, 3, 4, 5)]
    units = Execution.objects.filter(relation="async_step")
    assert {unit.owner_id == unit.pk for unit in units} == {True}
    assert {unit.parent.relation for unit in units.select_related("parent") if unit.parent} == {"element"}
    assert {unit.root_id for unit in units} == {execution.pk}
    assert len(units) == 5


@pytest.mark.parametrize("durability", ["step", "exit"])
def test_a_unit_finds_all_that_its_parent_has_done_stored_before_it_begins(durability: str) -> None:
    class Storing(Reactor[Any]):
        @step
        def order(self) -> str:
            return "ordered"

        @async_step
        def unit(self, order: str) -> list[str]:
            return [entry.step for entry in Execution.objects.get(relation="root").trace()]

        @step
        def other(self, order: str) -> None: ...

    definition: Any = Storing
    definition.__reactor__ = replace(definition_of(Storing), durability=durability)
    assert Storing.run().is_success
    assert Execution.objects.get(relation="async_step").result().unwrap() == ["order", "unit"]


@pytest.fixture
def mail() -> Execution:
    """A unit that nobody has begun."""
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        Units.enqueue()
        worker.deliver(Execution.objects.get().pk)
    return Execution.objects.get(parent_step="mail")


def test_a_unit_whose_step_is_declared_no_more_can_be_cancelled(mail: Execution) -> None:
    Execution.objects.filter(pk=mail.pk).update(parent_step="post")
    mail.cancel("nobody knows it")
    mail.refresh_from_db()
    assert (mail.status, mail.stop) == ("cancelled", "")


class Unfindable(Reactor[Any]):
    """What its unit runs is known to another version of the project."""

    @async_step("elsewhere.Mail")
    def mail(self) -> dict[str, str]:
        return {}


def test_a_unit_of_which_this_process_does_not_know_what_it_runs_is_put_back_and_can_be_cancelled(
    mail: Execution,
) -> None:
    Execution.objects.filter(pk=mail.pk).update(reactor=definition_of(Unfindable).label)
    worker.deliver(mail.pk)
    assert immediate.waiting() == [str(mail.pk)]
    mail.refresh_from_db()
    assert mail.status == "pending"
    mail.cancel()
    mail.refresh_from_db()
    assert mail.status == "cancelled"


def test_a_unit_whose_parent_was_deleted_as_it_was_dispatched_runs_on_its_own(mail: Execution) -> None:
    with connection.cursor() as cursor:  # the ORM would delete the unit that it sees, too
        cursor.execute("DELETE FROM django_reactor_execution WHERE relation = 'root'")
    worker.deliver(mail.pk)
    assert mail.result() == Success("mailed 5", execution_id=mail.pk)


def test_a_reader_in_the_transaction_that_dispatched_its_unit_fails_at_once() -> None:
    with transaction.atomic():
        result = Units.run()
    assert isinstance(result, Failure)
    assert result.exception_class == "django_reactor.exceptions.WouldDeadlock"


def test_a_rolled_back_transaction_leaves_no_unit() -> None:
    class OneUnit(Reactor[Any]):
        @async_step
        def unit(self) -> None:
            Group.objects.create(name="never")

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        OneUnit.run()
        raise ZeroDivisionError
    assert not Execution.objects.exists()
    assert not Group.objects.exists()


class Reading(Reactor[Any]):
    @async_step
    def unit(self) -> str:
        return "done"

    @step
    def reader(self, unit: str) -> str:
        return f"read {unit}"


def _parked(timeout: float = 3600) -> tuple[Execution, Execution]:
    """A parent that waits for its unit, whose message is lost."""
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages", "PARK_TIMEOUT": timeout}):
        execution = execution_of(Reading.enqueue())
        worker.deliver(execution.pk)
    execution.refresh_from_db()
    assert execution.status == "scheduled"
    unit = execution.children.get()
    assert execution.waiting_for == f"unit:{unit.pk}"
    return execution, unit


def test_the_end_of_a_unit_wakes_the_parent_that_waits_for_it() -> None:
    execution, unit = _parked()
    worker.deliver(unit.pk)
    assert execution.result().unwrap() == {"reader": "read done"}


@pytest.mark.parametrize("timeout", [3600, float("inf")])
def test_a_wake_that_was_lost_in_a_crash_is_made_up_for_by_the_sweeper(timeout: float) -> None:
    execution, unit = _parked(timeout)
    Execution.objects.filter(pk=unit.pk).update(
        status="completed", output='"done"', wake_at=None, finished_at=datetime.now(UTC)
    )
    swept = sweeper.recovery().sweep()
    assert swept.woken == 1
    assert execution.result().unwrap() == {"reader": "read done"}
    assert sweeper.recovery().sweep().woken == 0


def test_a_parked_execution_can_be_cancelled_and_its_unit_that_has_not_started_with_it() -> None:
    execution, unit = _parked()
    execution.cancel("enough")
    unit.refresh_from_db()
    execution.refresh_from_db()
    assert (execution.status, unit.status) == ("cancelled", "cancelled")
    worker.deliver(unit.pk)
    worker.deliver(execution.pk)
    assert [entry.action for entry in execution.trace()] == ["dispatch", "cancel"]


@pytest.mark.parametrize("first", ["finish", "park", "neither"])
def test_no_wake_up_is_lost_whichever_of_finish_and_park_comes_first(first: str) -> None:
    """Two connections, in every order: the park looks at the unit after its own write, and again after its commit; the
    unit's end looks for who waits after its own commit."""
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        execution = execution_of(Reading.enqueue())
        if first == "park":
            worker.deliver(execution.pk)
            in_another_thread(worker.deliver, execution.children.get().pk)
        elif first == "finish":
            ended_before_the_park(execution)
        else:
            ended_before_the_commit_of_the_park(execution)
    execution.refresh_from_db()
    assert execution.wake_at is not None
    assert execution.wake_at <= datetime.now(UTC)  # due now, and not only at its timeout
    worker.deliver(execution.pk)
    assert execution.result().unwrap() == {"reader": "read done"}


def in_another_thread(function: Callable[..., None], *arguments: Any) -> None:
    def run() -> None:
        try:
            function(*arguments)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def ended_before_the_park(execution: Execution) -> None:
    """Deliver the parent; its unit ends between the parent's last look at it and the park."""

    def park(lease: Any, release: Any, has_come: Any) -> bool:
        in_another_thread(worker.deliver, UUID(release.waiting_for.removeprefix("unit:")))
        return runtime.services().deliveries.park(lease, release, has_come)

    deliver_with(park, execution)


def ended_before_the_commit_of_the_park(execution: Execution) -> None:
    """Deliver the parent; its unit ends, and looks for who waits for it, while the park has not been committed. Where
    the unit waits for that commit the park goes on meanwhile."""
    with another_session() as session:

        def park(lease: Any, release: Any, has_come: Any) -> bool:
            unit = UUID(release.waiting_for.removeprefix("unit:"))

            def look() -> bool:
                come = has_come()
                ending = session(lambda: worker.deliver(unit))
                if connection.vendor == "postgresql":
                    ending.result(30)
                endings.append(ending)
                return bool(come)

            return runtime.services().deliveries.park(lease, release, look)

        endings: list[Future[None]] = []
        deliver_with(park, execution)
        for ending in endings:
            ending.result(30)


def deliver_with(park: Callable[..., bool], execution: Execution) -> None:
    """Deliver it, parking so."""
    adapters = runtime.services()

    class Deliveries:
        def __getattr__(self, name: str) -> Any:
            return getattr(adapters.deliveries, name)

    deliveries: Any = Deliveries()
    deliveries.park = park
    delivering.deliver(replace(adapters, deliveries=deliveries), lambda label: definition_of(Reading), execution.pk)
