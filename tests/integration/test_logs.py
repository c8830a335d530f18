"""What the log says of executions that go on in workers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_reactor import (
    Background,
    Lock,
    Reactor,
    Redacted,
    Retry,
    Step,
    async_step,
    fail,
    map_step,
    runtime,
    snooze,
    step,
)
from django_reactor.engine.coordination_ports import HoldKind, Wanted
from django_reactor.engine.identifiers import uuid7
from django_reactor.queues import immediate
from tests.stored import execution_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _immediate(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO, "django_reactor")
    with override_settings(DJANGO_REACTOR={"BACKEND": "immediate", "MAX_SNOOZES": 0, "SNOOZE_JITTER": 0}):
        yield


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "django_reactor"]


class Moving(Reactor[Any]):
    token: Redacted[str]

    class Meta:
        background = Background(after="one")

    @step
    def one(self) -> None: ...

    @async_step(after=["one"], retry=Retry(max_attempts=2, backoff="fixed", delay=0.01, jitter=0))
    def unit(self, token: str) -> None:
        if self.context.attempt == 1:
            raise ConnectionError(f"refused {token}\nevent=forged")

    @step(after=["one"])
    def other(self, token: str) -> None:
        if self.context.snoozes == 0:
            snooze(0.01, f"not with {token}")

    @step
    def reader(self, unit: None, other: None, token: str) -> None:
        fail(f"declined {token}\nevent=forged")


def test_each_move_and_the_end_in_a_worker_is_one_line_that_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    execution = execution_of(Moving.run(token="tok_4711"))
    immediate.drain(timeout=5)
    unit = execution.children.get()
    whose, units = f"reactor={execution.reactor} execution_id={execution.pk}", f"reactor={execution.reactor}"
    lines = said(caplog)
    assert sorted(lines) == sorted(
        [
            f"event=django_reactor.handed_off {whose}",
            f"event=django_reactor.dispatched {units} step=unit execution_id={execution.pk} unit_id={unit.pk}",
            f"event=django_reactor.retrying {units} step=unit execution_id={unit.pk} attempt=1 retry_in=0.010 "
            'error=ConnectionError reason="refused [REDACTED]\\nevent=forged"',
            f'event=django_reactor.snoozed {whose} delay=0.010 reason="not with [REDACTED]"',
            f'event=django_reactor.parked {whose} waiting_for="unit:{unit.pk}"',
            f"event=django_reactor.ended reactor={execution.reactor} execution_id={unit.pk} parent_id={execution.pk} "
            "status=completed",
            f"event=django_reactor.failed {units} step=reader execution_id={execution.pk} parent_id=None "
            'error=None rollback_failures=0 reason="declined [REDACTED]\\nevent=forged"',
        ]
    )
    assert [record.levelname for record in caplog.records if ".failed " in record.getMessage()] == ["INFO"]


class Refusing(Step[int]):
    n: int

    def run(self) -> int:
        fail("no")


class Here(Reactor[Any]):
    @map_step(Refusing, fan_out=2, fail_fast=False)
    def mapped(self) -> list[dict[str, int]]:
        return [{"n": 0}, {"n": 1}]


class Failing(Reactor[Any]):
    @step(retry=Retry(max_attempts=2, delay=0))
    def only(self) -> None:
        fail("no")


class Stuck(Reactor[Any]):
    @step
    def booked(self) -> int:
        return 1

    @booked.undo
    def cancelled(self) -> None:
        fail("nobody answers")

    @step(after=["booked"])
    def only(self) -> None:
        fail("no")


def test_a_failure_of_which_something_could_not_be_undone_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    Stuck.enqueue()
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert line.startswith("event=django_reactor.failed ")
    assert "rollback_failures=1" in line


def test_what_a_caller_is_told_is_not_logged_and_an_element_that_fails_is_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert Failing.run().is_failure
    assert said(caplog) == []
    Here.enqueue()
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
    assert sum("status=failed" in line for line in said(caplog)) == 2


class Locked(Reactor[Any]):
    class Meta:
        lock = Lock("key")

    @step
    def only(self) -> None: ...


def test_an_execution_that_fails_since_it_could_not_begin_is_told_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    holds = runtime.services().coordination.holds
    assert holds.take(uuid7(), 1, Wanted(kind=HoldKind.LOCK, key="key", ttl=60))
    assert execution_of(Locked.enqueue()).status == "failed"
    (line,) = (each for each in said(caplog) if each.startswith("event=django_reactor.failed "))
    assert "LockUnavailable" in line
