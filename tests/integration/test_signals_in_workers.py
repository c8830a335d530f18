"""What observers are told of executions of every kind, here and in workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings

from django_reactor import (
    Background,
    Reactor,
    Retry,
    Step,
    async_reactor,
    async_step,
    compose,
    fail,
    interrupt,
    map_step,
    signals,
    snooze,
    step,
    worker,
)
from django_reactor.models import Execution
from django_reactor.queues import immediate
from tests.stored import execution_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("delivered_at_once")]

Told = list[tuple[str, UUID, dict[str, Any]]]


@pytest.fixture
def told() -> Iterator[Told]:
    """Everything that is sent, in order."""
    heard: Told = []
    with ExitStack() as stack:
        for name, signal in signals.SIGNALS.items():

            def hear(sender: type, execution_id: UUID, signal: object, name: str = name, **details: Any) -> None:
                heard.append((name, execution_id, details))

            signal.connect(hear, weak=False)
            stack.callback(signal.disconnect, hear)
        yield heard


class Part(Reactor[Any]):
    n: int = 0

    @step
    def only(self, n: int) -> int:
        return n


class Everything(Reactor[Any]):
    """Has a part, a unit of each kind, and elements here and in workers."""

    @async_step
    def mail(self) -> None: ...

    @async_reactor(Part)
    def award(self) -> dict[str, int]:
        return {}

    @compose(Part)
    def part(self) -> dict[str, int]:
        return {}

    @map_step(Part)
    def here(self) -> list[dict[str, int]]:
        return [{"n": 1}, {"n": 2}]

    @map_step(Part, fan_out=1)
    def elsewhere(self) -> list[dict[str, int]]:
        return [{"n": 3}, {"n": 4}, {"n": 5}]

    @step
    def last(self, part: Any, here: Any, elsewhere: Any) -> None: ...


@pytest.mark.parametrize("how", ["run", "enqueue"])
def test_each_execution_of_any_kind_is_told_as_started_once_before_all_else_of_it_and_once_as_ended(
    told: Told, how: str
) -> None:
    getattr(Everything, how)()
    ids = set(Execution.objects.values_list("pk", flat=True))
    assert Counter(Execution.objects.values_list("relation", flat=True)) == {
        "root": 1,
        "composed": 1,
        "async_step": 1,
        "async_reactor": 1,
        "element": 5,
    }
    for name in ("execution_started", "execution_completed"):
        assert Counter(pk for event, pk, _ in told if event == name) == dict.fromkeys(ids, 1)
    for pk in ids:
        mine = [event for event, about, _ in told if about == pk]
        assert (mine[0], mine[-1]) == ("execution_started", "execution_completed")


class Long(Reactor[Any]):
    class Meta:
        background = Background(after="begin")

    @step
    def begin(self) -> None: ...

    @begin.undo
    def take_back(self, result: None) -> None: ...

    @step(after=["begin"], retry=Retry(max_attempts=2, backoff="fixed", delay=0.05, jitter=0))
    def poll(self) -> None:
        if self.context.snoozes == 0:
            snooze(0.05, "not yet")
        if self.context.attempt == 1:
            fail("no")

    @async_step(after=["poll"])
    def mail(self) -> None: ...

    @interrupt(after=["mail"])
    def ask(self) -> None: ...

    @step
    def last(self, ask: str) -> None: ...


def test_what_becomes_of_an_execution_is_told_in_order(told: Told) -> None:
    execution = execution_of(Long.run())
    immediate.drain(timeout=5)
    execution.resume("go")
    execution.undo()
    mine = [(event, details) for event, pk, details in told if pk == execution.pk]
    assert [event for event, _ in mine] == [
        *("execution_started", "step_started", "step_completed", "handed_off"),
        *("step_started", "execution_snoozed"),
        *("step_started", "step_retrying"),
        *("step_started", "step_completed", "dispatched", "step_started", "execution_paused"),
        *("step_completed", "step_started", "step_completed", "execution_completed"),
        *("undo_started", "undo_completed", "execution_undone"),
    ]
    details = dict(mine)
    assert (details["execution_snoozed"]["reason"], details["execution_snoozed"]["delay"]) == ("not yet", 0.05)
    assert (details["step_retrying"]["step"], details["step_retrying"]["attempt"]) == ("poll", 1)
    unit = execution.children.get(relation="async_step")
    assert (details["dispatched"]["step"], details["dispatched"]["unit_id"]) == ("mail", unit.pk)
    assert [wait.step for wait in details["execution_paused"]["waits"]] == ["ask"]


def test_what_is_cancelled_before_anybody_took_it_up_never_started(told: Told) -> None:
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        execution_of(Part.enqueue()).cancel()
    assert [event for event, _, _ in told] == ["execution_cancelled"]


class Refusing(Step[int]):
    n: int

    def run(self) -> int:
        if self.n == 0:
            fail("no")
        return self.n


class FailsFast(Reactor[Any]):
    @map_step(Refusing, fan_out=2)
    def mapped(self) -> list[dict[str, int]]:
        return [{"n": 0}, {"n": 1}, {"n": 2}]


def test_elements_that_do_not_begin_since_their_map_failed_are_not_told_as_started(told: Told) -> None:
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        FailsFast.run()
        elements = list(Execution.objects.filter(relation="element").order_by("element_index"))
        for element in elements:
            worker.deliver(element.pk)
    started = {pk for event, pk, _ in told if event == "execution_started"}
    assert started & {element.pk for element in elements} == {elements[0].pk}


def test_a_receiver_that_raises_breaks_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def breaks(**_: Any) -> None:
        raise RuntimeError("no metrics")

    signals.execution_started.connect(breaks)
    try:
        execution = execution_of(Part.enqueue(n=3))
    finally:
        signals.execution_started.disconnect(breaks)
    assert execution.status == "completed"
    assert "event=django_reactor.receiver_failed signal=execution_started" in caplog.text
