"""The signals tell what happened, to whoever listens, and no receiver changes what happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.dispatch import Signal
from django.test import override_settings

from django_reactor import (
    Background,
    Failure,
    Lock,
    Reactor,
    Retry,
    Semaphore,
    async_step,
    fail,
    halt,
    interrupt,
    signals,
    skip,
    snooze,
    step,
)
from tests.stored import execution_of

pytestmark = pytest.mark.django_db(transaction=True)

Told = list[tuple[str, dict[str, Any]]]


@contextmanager
def connected(receiver: Callable[..., Any], *names: str) -> Iterator[None]:
    chosen = [signals.SIGNALS[name] for name in names or signals.SIGNALS]
    for signal in chosen:
        signal.connect(receiver, weak=False)
    try:
        yield
    finally:
        for signal in chosen:
            signal.disconnect(receiver)


@pytest.fixture
def told() -> Iterator[Told]:
    """What was sent, in order."""
    names = {signal: name for name, signal in signals.SIGNALS.items()}
    heard: Told = []

    def receiver(signal: Signal, **details: Any) -> None:
        heard.append((names[signal], details))

    with connected(receiver):
        yield heard


def names_of(told: Told) -> list[str]:
    """Each with its step, where it has one."""
    return [" ".join(filter(None, (name, details.get("step")))) for name, details in told]


class Errand(Reactor):
    """Goes wrong as told."""

    how: str = ""

    @step
    def pack(self, how: str) -> str:
        return "parcel"

    @pack.undo
    def unpack(self, how: str) -> None:
        if how == "glued":
            fail("the parcel is glued")

    @step(after=["pack"])
    def bring(self, how: str) -> None:
        match how:
            case "halts":
                halt("nobody is at home")
            case "skips":
                skip("it was brought")
            case "snoozes":
                snooze(60, "the shop is closed")
            case "is aborted":
                raise KeyboardInterrupt

    @step(after=["bring"], retry=Retry(max_attempts=2, delay=0))
    def sign(self, how: str) -> None:
        if how == "glued" or (how == "again" and self.context.attempt == 1):
            raise ValueError("no pen")

    @sign.compensate
    def tear_up(self, how: str) -> None: ...


COMPLETED = [
    *("execution_started", "step_started pack", "step_completed pack", "step_started bring", "step_completed bring"),
    *("step_started sign", "step_completed sign", "execution_completed"),
]


@pytest.mark.parametrize("how", ["", "skips"])
def test_a_run_is_told_step_by_step(told: Told, how: str) -> None:
    result = Errand.run(how=how)
    assert names_of(told) == COMPLETED
    for _, details in told:
        assert (details["sender"], details["execution_id"]) == (Errand, result.execution_id)


def test_each_attempt_is_told_with_its_number_and_its_entry(told: Told) -> None:
    execution = execution_of(Errand.run(how="again"))
    entries = {entry.seq: entry for entry in execution.trace()}
    assert [(name, d["attempt"]) for name, d in told if d.get("step") == "sign"] == [
        *(("step_started", 1), ("step_retrying", 1), ("step_started", 2), ("step_completed", 2)),
    ]
    ended = [details["entry"] for _, details in told if "entry" in details]
    assert [(e.seq, e.action, e.outcome) for e in ended] == [(e.seq, e.action, e.outcome) for e in entries.values()]


def test_a_failure_and_its_rollback_are_told(told: Told) -> None:
    Errand.run(how="glued")
    assert names_of(told)[6:] == [
        *("step_retrying sign", "step_started sign", "step_failed sign"),
        *("compensation_started sign", "compensation_completed sign", "undo_started pack", "undo_failed pack"),
        "execution_failed",
    ]


def test_an_undo_is_told(told: Told) -> None:
    execution = execution_of(Errand.run())
    told.clear()
    execution.undo()
    assert names_of(told) == ["undo_started pack", "undo_completed pack", "execution_undone"]


def test_a_compensation_that_failed_is_told(told: Told) -> None:
    class Stuck(Reactor):
        @step
        def go(self) -> None:
            fail("no")

        @go.compensate
        def give_up(self) -> None:
            fail("no either")

    Stuck.run()
    assert names_of(told)[-2:] == ["compensation_failed go", "execution_failed"]


def test_a_halt_is_told(told: Told) -> None:
    Errand.run(how="halts")
    assert names_of(told)[-2:] == ["step_completed bring", "execution_halted"]


def test_an_abort_and_a_cancel_are_told(told: Told) -> None:
    with suppress(KeyboardInterrupt):
        Errand.run(how="is aborted")
    assert names_of(told)[-1] == "execution_aborted"
    Errand.executions.get().cancel()
    assert names_of(told)[-1] == "execution_cancelled"


def test_a_pause_is_told_with_what_it_waits_for(told: Told) -> None:
    class Asks(Reactor):
        @interrupt(correlation_id="the boss")
        def approval(self) -> None: ...

    Asks.run()
    name, details = told[-1]
    assert name == "execution_paused"
    assert [(wait.step, wait.correlation_id) for wait in details["waits"]] == [("approval", "the boss")]


@override_settings(DJANGO_REACTOR={"BACKEND": "immediate"})
def test_what_goes_on_in_a_worker_is_told(told: Told) -> None:
    class Posts(Reactor):
        class Meta:
            background = Background(after="write")

        @async_step
        def letter(self) -> str:
            return "posted"

        @step(after=["letter"])
        def write(self) -> None: ...

        @step(after=["write"])
        def rest(self) -> None: ...

    result = Posts.run()
    unit = execution_of(result).children.get()
    of_root = names_of([each for each in told if each[1]["execution_id"] == result.execution_id])
    of_unit = names_of([each for each in told if each[1]["execution_id"] == unit.pk])
    assert of_root == [
        *("execution_started", "dispatched letter", "step_started write", "step_completed write", "handed_off"),
        *("step_started rest", "step_completed rest", "execution_completed"),
    ]
    assert of_unit == ["execution_started", "step_started letter", "step_completed letter", "execution_completed"]
    assert {details["sender"] for _, details in told} == {Posts}
    assert dict(told)["dispatched"]["unit_id"] == unit.pk


@override_settings(DJANGO_REACTOR={"BACKEND": "immediate"})
def test_a_snooze_is_told_with_its_reason(told: Told) -> None:
    Errand.run(how="snoozes")
    snoozed = dict(told)["execution_snoozed"]
    assert (snoozed["delay"], snoozed["reason"]) == (60, "the shop is closed")


def test_locks_and_semaphores_are_told_with_their_keys(told: Told) -> None:
    class Guarded(Reactor):
        class Meta:
            lock = Lock("whole")

        @step(semaphore=Semaphore("part", limit=2))
        def go(self) -> None: ...

    Guarded.run()
    held = [(name, d["key"], d["step"]) for name, d in told if "key" in d]
    assert held == [
        ("lock_acquired", "whole", ""),
        ("semaphore_acquired", "part", "go"),
        ("semaphore_released", "part", "go"),
        ("lock_released", "whole", ""),
    ]


# -- receivers that fail -----------------------------------------------------------------------------------------------


def break_down(**details: Any) -> None:
    raise RuntimeError("a receiver is down")


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("how", ["", "glued", "halts"])
def test_what_a_receiver_raises_is_logged_and_changes_nothing(
    how: str, in_transaction: bool, caplog: pytest.LogCaptureFixture
) -> None:
    undisturbed = Errand.run(how=how)
    with connected(break_down):
        if in_transaction:
            with transaction.atomic():
                result = Errand.run(how=how)
        else:
            result = Errand.run(how=how)
    assert (type(result), execution_of(result).status) == (type(undisturbed), execution_of(undisturbed).status)
    assert trace_of(result) == trace_of(undisturbed)
    assert "event=django_reactor.receiver_failed signal=execution_started" in caplog.text
    assert f"execution_id={result.execution_id} error=RuntimeError" in caplog.text


def trace_of(result: Any) -> list[Any]:
    return [(entry.step, entry.action, entry.outcome) for entry in execution_of(result).trace()]


def counts_a_name_twice(**details: Any) -> None:
    Group.objects.create(name="of a receiver")
    Group.objects.create(name="of a receiver")


def test_a_database_error_of_a_receiver_breaks_neither_the_run_nor_the_callers_transaction() -> None:
    with connected(counts_a_name_twice), transaction.atomic():
        Group.objects.create(name="caller's")
        result = Errand.run(how="glued")
        Group.objects.create(name="after")
    assert isinstance(result, Failure)
    assert [failure.step for failure in result.rollback_failures] == ["pack"]
    assert trace_of(result) == trace_of(Errand.run(how="glued"))
    assert set(Group.objects.values_list("name", flat=True)) == {"caller's", "after"}


def test_what_receivers_write_stays_in_the_callers_transaction() -> None:
    def count(signal: Signal, **details: Any) -> None:
        Group.objects.create(name=f"{Group.objects.count()}")

    with connected(count, "step_completed"), transaction.atomic():
        Errand.run()
    assert Group.objects.count() == 3
    with connected(count, "step_completed"), suppress(ZeroDivisionError), transaction.atomic():
        Errand.run()
        raise ZeroDivisionError
    assert Group.objects.count() == 3
