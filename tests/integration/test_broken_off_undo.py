"""An undo was broken off by an interruption inside a part, and perhaps the execution is then cancelled: no part of it
is left open, and the next undo goes on where that one stood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_reactor import Reactor, compose, interrupt, map_step, step
from django_reactor.models import Execution
from tests.stored import execution_of

pytestmark = pytest.mark.django_db(transaction=True)

CALLS: list[str] = []
INTERRUPTED: list[str] = []
"""The undo in which the process is interrupted, once."""


@pytest.fixture(autouse=True)
def _no_messages() -> Iterator[None]:
    CALLS.clear()
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        yield


def called(name: str) -> None:
    CALLS.append(name)
    if name in INTERRUPTED:
        INTERRUPTED.clear()
        raise KeyboardInterrupt


class Part(Reactor[Any]):
    number: int = 0

    class Meta:
        app_label = "broken_off"

    @step
    def first(self, number: int) -> int:
        return number

    @first.undo
    def undo_first(self, result: int) -> None:
        called(f"first {result}")

    @step
    def second(self, first: int) -> int:
        return first

    @second.undo
    def undo_second(self, result: int) -> None:
        called(f"second {result}")


class Asking(Part):
    class Meta:
        app_label = "broken_off"

    @interrupt(payload=int)
    def ask(self, second: int) -> None: ...


class Failing(Part):
    class Meta:
        app_label = "broken_off"

    @step
    def third(self, second: int) -> None:
        raise ValueError


class ComposedOpen(Reactor[Any]):
    class Meta:
        app_label = "broken_off"

    @compose(Asking)
    def part(self) -> Any:
        return {}


class MappedOpen(Reactor[Any]):
    class Meta:
        app_label = "broken_off"

    @map_step(Asking)
    def parts(self) -> Any:
        return ({"number": number} for number in range(2))


class ComposedFailing(Reactor[Any]):
    class Meta:
        app_label = "broken_off"

    @compose(Failing)
    def part(self) -> Any:
        return {}


class MappedFailing(Reactor[Any]):
    class Meta:
        app_label = "broken_off"

    @map_step(Failing)
    def parts(self) -> Any:
        return ({"number": number} for number in range(2))


class Composed(Reactor[Any]):
    class Meta:
        app_label = "broken_off"

    @compose(Part)
    def part(self) -> Any:
        return {}


class Mapped(Reactor[Any]):
    class Meta:
        app_label = "broken_off"

    @map_step(Part)
    def parts(self) -> Any:
        return ({"number": number} for number in range(2))


class Nested(Reactor[Any]):
    class Meta:
        app_label = "broken_off"

    @compose(Mapped)
    def inner(self) -> Any:
        return {}


class NestedOpen(Reactor[Any]):
    class Meta:
        app_label = "broken_off"

    @map_step(ComposedOpen)
    def inner(self) -> Any:
        return ({} for _ in range(2))


def broken_off(reactor: Any, at: str) -> Execution:
    execution = execution_of(reactor.run())
    INTERRUPTED[:] = [at]
    with pytest.raises(KeyboardInterrupt):
        execution.undo()
    execution.refresh_from_db()
    assert execution.status == "aborted"
    return execution


def open_rows() -> list[Execution]:
    return list(Execution.objects.exclude(status__in=("completed", "failed", "halted", "cancelled", "undone")))


ONE = ["second 0", "first 0"]
TWO = ["second 1", "first 1", "second 0", "first 0"]


WHOLES = [(Composed, ONE), (Mapped, TWO), (ComposedOpen, ONE), (MappedOpen, ONE), (Nested, TWO), (NestedOpen, ONE)]
CASES = [
    *((reactor, whole, place, "cancel and undo") for reactor, whole in WHOLES for place in {0, len(whole) - 2 or 1}),
    *((reactor, ONE, 0, then) for reactor in (ComposedOpen, MappedOpen) for then in ("undo", "retry")),
]


@pytest.mark.parametrize(("reactor", "whole", "place", "then"), CASES)
def test_what_was_not_undone_is_undone_next(reactor: Any, whole: list[str], place: int, then: str) -> None:
    execution = broken_off(reactor, whole[place])
    if then == "cancel and undo":
        execution.cancel()
        assert not open_rows()
    execution.retry() if then == "retry" else execution.undo()
    execution.refresh_from_db()
    expected = [*whole[: place + 1], *whole[place:]]
    assert (CALLS, execution.status) == (expected, "undone")
    assert not Execution.objects.filter(started_at__isnull=False).exclude(status="undone").exists()


@pytest.mark.parametrize("reactor", [ComposedFailing, MappedFailing])
@pytest.mark.parametrize(("place", "then"), [(0, "undo"), (1, "cancel and undo"), (0, "retry")])
def test_of_a_part_that_rolled_itself_back(reactor: Any, place: int, then: str) -> None:
    INTERRUPTED[:] = [ONE[place]]
    with pytest.raises(KeyboardInterrupt):
        reactor.run()
    (execution,) = reactor.executions.all()
    if then == "cancel and undo":
        execution.cancel()
        assert not open_rows()
    execution.retry() if then == "retry" else execution.undo()
    execution.refresh_from_db()
    expected = [*ONE[: place + 1], *ONE[place:]]
    assert (CALLS, execution.status) == (expected, "failed" if then == "retry" else "undone")
