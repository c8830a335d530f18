"""Interrupts inside elements of maps, and beside maps; on the in-memory adapters."""

from __future__ import annotations

from typing import Any

import pytest

from django_reactor import Dispatched, Failure, Paused, Reactor, Success, interrupt, map_step, step
from django_reactor.core.statuses import Status
from django_reactor.engine import resuming
from django_reactor.exceptions import InputError
from django_reactor.results import Result
from tests.engine_support import Fleet


class Line(Reactor[str]):
    number: int

    class Meta:
        returns = "done"

    @step
    def seen(self, number: int) -> int:
        return number

    @seen.undo
    def unsee(self, result: int) -> None: ...

    @interrupt(payload=str, correlation_id="line-{number}")
    def ask(self, number: int) -> None: ...

    @step
    def done(self, ask: str) -> str:
        return f"{self.number} {ask}"


class Here(Reactor[Any]):
    count: int = 2

    class Meta:
        returns = "collected"

    @map_step(Line)
    def lines(self, count: int) -> Any:
        return ({"number": number} for number in range(count))

    @step
    def beside(self) -> str:
        return "beside"

    @step
    def collected(self, lines: Any, beside: str) -> list[str]:
        return list(lines.values())


class Out(Reactor[Any]):
    class Meta:
        returns = "collected"

    @map_step(Line, fan_out=2)
    def lines(self) -> Any:
        return ({"number": number} for number in range(3))

    @step
    def collected(self, lines: Any) -> list[str]:
        return list(lines.values())


class Beside(Reactor[Any]):
    """An interrupt of its own beside a map that fans out, and so runs in a worker from there on."""

    class Meta:
        returns = "both"

    @map_step("test_pausing_in_maps.Quick", fan_out=2)
    def lines(self) -> Any:
        return ({"number": number} for number in range(3))

    @interrupt(payload=str)
    def own(self) -> None: ...

    @step
    def collected(self, lines: Any) -> list[int]:
        return list(lines.values())

    @step
    def both(self, own: str, collected: list[int]) -> str:
        return f"{own} {collected}"


class Quick(Reactor[int]):
    number: int

    class Meta:
        returns = "squared"

    @step
    def squared(self, number: int) -> int:
        return number * number


def steps_of(result: Result[Any] | None) -> list[str]:
    assert isinstance(result, Paused), result
    return [wait.step for wait in result.waits]


def fleet_of(reactor: type[Reactor[Any]]) -> Fleet:
    fleet = Fleet(reactor)
    fleet.others = (Line, Quick)
    return fleet


def test_an_element_without_fan_out_pauses_the_root_and_the_next_one_follows_it() -> None:
    fleet = fleet_of(Here)
    first = fleet.start()
    assert steps_of(first) == ["lines[0].ask"]
    assert "run beside success" in fleet.told
    second = fleet.resume("a")
    assert steps_of(second) == ["lines[1].ask"]
    with pytest.raises(InputError, match="did you mean"):
        fleet.resume("b", step="lines[0].aks")
    assert fleet.resume("b", step="lines[1].ask").unwrap() == ["0 a", "1 b"]


def test_a_paused_map_without_fan_out_is_undone() -> None:
    fleet = fleet_of(Here)
    fleet.start()
    fleet.resume("a")
    fleet.undo()
    assert fleet.status is Status.UNDONE
    assert all(not known.is_open for known in fleet.services.answers.of_owner(fleet.execution_id))


def answer(fleet: Fleet, payload: object, correlation_id: str) -> Result[Any]:
    """As a webhook does that knows nothing of maps."""
    definition = Line.__reactor__
    assert definition is not None
    return resuming.resume_correlated(fleet.services, fleet._known, definition, payload, correlation_id, None)


def only_root(fleet: Fleet) -> Result[Any] | None:
    """Deliver what was sent for the root, and keep the messages for its elements."""
    mine = [message for message in fleet.messenger.sent if message.execution_id == fleet.execution_id]
    fleet.messenger.sent = [message for message in fleet.messenger.sent if message not in mine]
    results = [fleet.deliver_to(message.execution_id) for message in mine]
    return results[-1] if results else None


def test_an_element_that_fans_out_pauses_by_itself_and_the_next_one_begins_when_it_has_ended() -> None:
    fleet = fleet_of(Out)
    assert isinstance(fleet.start(), Dispatched)
    fleet.work()
    open_ones = [key for key, stored in fleet.store.waits.items() if stored.wait.state == "open"]
    assert (fleet.status.value, len(open_ones)) == ("scheduled", 2)
    for number in range(3):
        assert answer(fleet, "x", f"line-{number}").unwrap() == f"{number} x"
        fleet.work()
    assert fleet.record.output == '["0 x","1 x","2 x"]'


def test_an_element_that_is_answered_wrongly_too_often_fails_its_map() -> None:
    class Strict(Reactor[Any]):
        number: int

        @interrupt(payload=int, max_attempts=1, correlation_id="line-{number}")
        def ask(self, number: int) -> None: ...

    class Fails(Reactor[Any]):
        @map_step(Strict, fan_out=2)
        def lines(self) -> Any:
            return ({"number": number} for number in range(3))

        @step
        def never(self, lines: Any) -> None: ...

    fleet = Fleet(Fails)
    fleet.others = (Strict,)
    fleet.start()
    fleet.work()
    definition = Strict.__reactor__
    assert definition is not None
    result = resuming.resume_correlated(fleet.services, fleet._known, definition, "many", "line-1", None)
    assert isinstance(result, Failure)
    fleet.work()
    assert fleet.status is Status.FAILED
    assert {stored.wait.state.value for stored in fleet.store.waits.values()} == {"rejected", "closed"}


def test_an_interrupt_beside_a_map_pauses_its_execution_and_the_end_of_the_map_lets_its_reader_run() -> None:
    fleet = fleet_of(Beside)
    fleet.start()
    assert steps_of(only_root(fleet)) == ["own"]
    assert fleet.status is Status.PAUSED
    assert steps_of(fleet.work()) == ["own"]
    assert "run collected success" in fleet.told
    assert fleet.resume("mine").unwrap() == "mine [0, 1, 4]"


def test_a_map_that_settled_while_nobody_was_woken_is_found_by_the_sweeper() -> None:
    fleet = fleet_of(Beside)
    fleet.start()
    only_root(fleet)
    for row in fleet.store.rows.values():
        if row.record.parent_step == "lines":
            row.change(status=Status.COMPLETED, output="1")
            row.wake_at = None
    fleet.messenger.sent.clear()
    assert fleet.sweep().woken == 1
    assert steps_of(fleet.work()) == ["own"]
    assert "run collected success" in fleet.told


def test_an_answer_before_the_end_of_the_map_is_taken_and_the_map_waited_for() -> None:
    fleet = fleet_of(Beside)
    fleet.start()
    only_root(fleet)
    assert isinstance(fleet.resume("mine"), Dispatched)
    assert isinstance(fleet.work(), Success)
    assert fleet.record.output == '"mine [0, 1, 4]"'


def test_a_cancelled_map_closes_the_waits_of_its_elements() -> None:
    fleet = fleet_of(Out)
    fleet.start()
    fleet.work()
    fleet.cancel()
    fleet.work()
    assert fleet.status is Status.CANCELLED
    assert {stored.wait.state.value for stored in fleet.store.waits.values()} == {"closed"}
