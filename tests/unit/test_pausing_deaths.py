"""A process that pauses, or brings an answer, dies at each call of a port in turn: nothing is lost or taken twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from django_reactor import Failure, Paused, Reactor, async_step, compose, interrupt, step
from django_reactor.core.statuses import HELD, Status
from django_reactor.exceptions import AlreadyResumed, InputError
from django_reactor.results import Result
from tests.engine_support import LEASE_TTL, Fleet

PORTS = ("journal", "executions", "deliveries", "waits", "answers", "messenger")

done: Counter[str] = Counter()


class Inner(Reactor[str]):
    class Meta:
        returns = "sent"

    @step
    def packed(self) -> str:
        done["packed"] += 1
        return "packed"

    @packed.undo
    def unpack(self, result: str) -> None:
        done["unpack"] += 1

    @interrupt(payload=int, correlation_id="inner", max_attempts=1)
    def weighed(self, packed: str) -> None:
        done["asked inner"] += 1

    @step
    def sent(self, weighed: int) -> str:
        done["sent"] += 1
        return f"{weighed} kg"


class Outer(Reactor[Any]):
    class Meta:
        returns = "last"

    @step
    def first(self) -> str:
        done["first"] += 1
        return "first"

    @first.undo
    def undo_first(self, result: str) -> None:
        done["undo first"] += 1

    @async_step
    def unit(self) -> str:
        return "unit"

    @step
    def reader(self, unit: str) -> str:
        done["reader"] += 1
        return unit

    inner = compose(Inner, after=["first"])

    @interrupt(payload=str, correlation_id="outer")
    def own(self, first: str) -> None:
        done["asked outer"] += 1

    @step
    def last(self, inner: str, own: str, reader: str) -> str:
        done["last"] += 1
        return f"{inner}, {own}, {reader}"


class Death(BaseException):
    pass


@dataclass(slots=True)
class Process:
    """Dies at its `at`-th call of a port, before or after it; then it calls nothing more."""

    at: int
    after: bool
    calls: int = 0
    dead: bool = False

    def call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.dead:
            raise Death
        self.calls += 1
        if self.calls != self.at:
            return method(*args, **kwargs)
        self.dead = True
        if self.after:
            method(*args, **kwargs)
        raise Death


@dataclass(frozen=True, slots=True)
class Mortal:
    port: Any
    process: Process

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.port, name)
        return lambda *args, **kwargs: self.process.call(method, *args, **kwargs)


@dataclass(slots=True)
class Doomed(Fleet):
    others: tuple[Any, ...] = (Inner,)
    lived: bool = field(default=True)

    @contextmanager
    def by(self, process: Process) -> Iterator[None]:
        """What is done in this block is done by a process that may die of it."""
        alive = self.services
        mortal: dict[str, Any] = {name: cast(Any, Mortal(getattr(alive, name), process)) for name in PORTS}
        self.services = replace(alive, **mortal)
        try:
            with suppress(Death):
                yield
        finally:
            self.services, self.lived = alive, not process.dead

    def settle(self) -> None:
        """What workers and the sweeper do until nothing is due and nobody holds anything."""
        for _ in range(20):
            self.work()
            held = [row for row in self.store.rows.values() if row.token is not None]
            if held:
                self.clock.advance(LEASE_TTL + 1)
            self.clock.advance(3600)
            swept = self.sweep()
            if not held and not swept.delivered and not swept.woken:
                return
        raise AssertionError("it never comes to rest")

    def answer(self, payload: Any, step_name: str) -> Result[Any] | None:
        """Brought again by somebody who does not know whether it arrived; None if it had."""
        try:
            return self.resume(payload, step=step_name)
        except AlreadyResumed:
            return None

    def open_steps(self) -> list[str]:
        return sorted(known.name for known in self.services.answers.of_owner(self.execution_id) if known.is_open)


def deaths(act: Callable[[Process], bool]) -> int:
    """Die at each call in turn, before and after it; how many there were."""
    for after in (False, True):
        at = 1
        while not act(Process(at, after)):
            at += 1
    return at - 1


def test_on_the_way_to_a_pause() -> None:
    def act(process: Process) -> bool:
        done.clear()
        fleet = Doomed(Outer)
        with fleet.by(process):
            assert isinstance(fleet.start(), Paused)
        if not fleet.store.rows:  # it died before it was stored
            return fleet.lived
        fleet.settle()
        assert fleet.status is Status.PAUSED
        assert fleet.open_steps() == ["inner.weighed", "own"]
        for name in ("asked inner", "asked outer", "first", "packed", "reader"):
            assert 1 <= done.pop(name) <= 2, (name, process)
        assert not done
        return fleet.lived

    assert deaths(act) > 15


@pytest.mark.parametrize("steps", [("own", "inner.weighed"), ("inner.weighed", "own")])
def test_on_the_way_from_an_answer_to_the_end(steps: tuple[str, str]) -> None:
    payloads = {"own": "mine", "inner.weighed": 3}

    def act(process: Process) -> bool:
        fleet = Doomed(Outer)
        fleet.start()
        fleet.settle()
        done.clear()
        for number, name in enumerate(steps):
            with fleet.by(process if number else Process(0, after=False)):
                fleet.resume(payloads[name], step=name)
            lived = fleet.lived
            if not lived and fleet.status is not Status.COMPLETED:
                fleet.answer(payloads[name], name)
            fleet.settle()
        assert (fleet.status, fleet.record.output) == (Status.COMPLETED, '"3 kg, mine, unit"')
        assert {name: count for name, count in done.items() if count > 2} == {}
        assert done.total() <= len(["sent", "last"]) + 1
        return lived

    assert deaths(act) > 5


def test_on_the_way_from_the_last_invalid_answer_to_the_end_of_the_rollback() -> None:
    def act(process: Process) -> bool:
        fleet = Doomed(Outer)
        fleet.start()
        fleet.settle()
        done.clear()
        with fleet.by(process), suppress(InputError):
            assert isinstance(fleet.resume("heavy", step="inner.weighed"), Failure)
        lived = fleet.lived
        fleet.settle()
        if fleet.status is Status.PAUSED:  # it died before it was counted
            assert isinstance(fleet.resume("heavy", step="inner.weighed"), Failure)
        assert fleet.status is Status.FAILED
        assert set(done) == {"unpack", "undo first"}
        assert done.total() <= 3
        assert fleet.open_steps() == []
        assert all(row.record.status not in HELD for row in fleet.store.rows.values())
        return lived

    assert deaths(act) > 10


def test_an_answer_that_nobody_knows_the_fate_of_is_counted_once() -> None:
    """The same answer is brought again and again by processes that die."""
    fleet = Doomed(Inner, others=())
    fleet.start()
    for at in range(1, 12):
        with fleet.by(Process(at, after=True)), suppress(AlreadyResumed):
            fleet.resume(7)
        if fleet.status is not Status.PAUSED:
            break
    fleet.settle()
    assert fleet.record.output == '"7 kg"'
