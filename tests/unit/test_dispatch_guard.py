"""What is dispatched with a key that whoever dispatches it holds fails at once; nothing else is refused; in memory."""

from __future__ import annotations

from typing import Any

import pytest

from django_reactor import (
    Failure,
    Lock,
    OrderedLock,
    Reactor,
    Semaphore,
    Step,
    Success,
    async_reactor,
    async_step,
    compose,
    map_step,
    step,
)
from django_reactor.core.statuses import Status
from tests.coordination_support import Rivals, values_of

pytestmark = pytest.mark.usefixtures("own_registry")


class Ship(Reactor[Any]):
    order: str = "1"

    class Meta:
        lock = Lock("order:{order}")

    @step
    def work(self) -> str:
        return self.order


class Slot(Step[Any]):
    order: str = "1"

    class Meta:
        semaphore = Semaphore("order:{order}", limit=1)

    def run(self) -> str:
        return self.order


class Wide(Step[Any]):
    class Meta:
        semaphore = Semaphore("order:1", limit=2)

    def run(self) -> str:
        return "wide"


def would_deadlock(fleet: Rivals, key: str, *names: str) -> None:
    result = fleet.start()
    assert isinstance(result, Failure)
    assert result.exception_class == "django_reactor.exceptions.WouldDeadlock"
    assert result.step == "part"
    for expected in (repr(key), *names, "Compose it", "different keys", "enqueue()"):
        assert expected in result.message
    assert len(fleet.store.rows) == 1
    assert "undo before success" in fleet.told
    assert not any("compensate" in line for line in fleet.told)


def test_a_unit_whose_lock_its_parent_holds_fails_at_its_dispatch() -> None:
    class Parent(Reactor[Any]):
        class Meta:
            lock = Lock("order:1")

        @step
        def before(self) -> None: ...

        @before.undo
        def undo_before(self) -> None: ...

        @async_reactor(Ship)
        def part(self, before: None) -> Any:
            return {"order": "1"}

    would_deadlock(Rivals(Parent), "order:1", "Ship", "Parent")


def test_so_does_one_whose_semaphore_has_one_slot() -> None:
    class Parent(Reactor[Any]):
        class Meta:
            semaphore = Semaphore("order:1", limit=1)

        @step
        def before(self) -> None: ...

        @before.undo
        def undo_before(self) -> None: ...

        @async_step(Slot)
        def part(self, before: None) -> Any:
            return {"order": "1"}

    would_deadlock(Rivals(Parent), "order:1", "Parent.part")


def test_so_does_an_element_that_is_delivered_on_its_own() -> None:
    class Parent(Reactor[Any]):
        class Meta:
            lock = Lock("order:3")

        @step
        def before(self) -> None: ...

        @before.undo
        def undo_before(self) -> None: ...

        @map_step(Ship, fan_out=2)
        def part(self, before: None) -> Any:
            return [{"order": str(number)} for number in range(5)]

    fleet = Rivals(Parent)
    would_deadlock(fleet, "order:3", "Ship", "Parent")


def test_an_element_that_runs_here_enters_with_what_is_held() -> None:
    class ShipHere(Ship):
        pass

    class Parent(Reactor[Any]):
        class Meta:
            lock = Lock("order:3")

        @map_step(ShipHere)
        def part(self) -> Any:
            return [{"order": str(number)} for number in range(5)]

        @step
        def end(self, part: Any) -> Any:
            return [one["work"] for one in part.values()]

    fleet = Rivals(Parent)
    assert values_of(fleet.start())["end"] == ["0", "1", "2", "3", "4"]
    assert fleet.holder("order:3") is None


def test_a_composed_child_that_dispatches_is_looked_at_with_all_that_is_above_it() -> None:
    class Child(Reactor[Any]):
        @async_reactor(Ship)
        def part(self) -> Any:
            return {"order": "1"}

    class Parent(Reactor[Any]):
        class Meta:
            lock = Lock("order:1")

        @compose(Child)
        def child(self) -> Any:
            return {}

    result = Rivals(Parent).start()
    assert isinstance(result, Failure)
    assert (result.step, result.exception_class) == ("child.part", "django_reactor.exceptions.WouldDeadlock")


def test_a_unit_that_dispatches_is_looked_at_with_what_its_parent_holds() -> None:
    class Middle(Reactor[Any]):
        @async_reactor(Ship)
        def part(self) -> Any:
            return {"order": "1"}

    class Parent(Reactor[Any]):
        class Meta:
            lock = Lock("order:1")

        @async_reactor(Middle)
        def middle(self) -> Any:
            return {}

        @step
        def look(self) -> Any:
            fleet.deliver_to(fleet.unit("middle").id)
            return fleet.unit("middle").failure

    fleet = Rivals(Parent)
    fleet.others = (Middle, Ship)
    failure = values_of(fleet.start())["look"]
    assert failure["exception_class"] == "django_reactor.exceptions.WouldDeadlock"
    assert "Parent" in failure["message"]


def test_a_unit_that_dispatches_is_looked_at_with_the_lines_that_its_parent_stands_in() -> None:
    class Posted(Reactor[Any]):
        class Meta:
            ordered_lock = OrderedLock("order:1")

        @step
        def work(self) -> None: ...

    class Middle(Reactor[Any]):
        @async_reactor(Posted)
        def part(self) -> Any:
            return {}

    class Parent(Reactor[Any]):
        class Meta:
            ordered_lock = OrderedLock("order:1")

        @async_reactor(Middle)
        def middle(self) -> Any:
            return {}

        @step
        def look(self) -> Any:
            fleet.deliver_to(fleet.unit("middle").id)
            return fleet.unit("middle").failure

    fleet = Rivals(Parent)
    fleet.others = (Middle, Posted)
    failure = values_of(fleet.start())["look"]
    assert failure["exception_class"] == "django_reactor.exceptions.WouldDeadlock"
    assert "Parent" in failure["message"]


def test_what_a_stranger_holds_refuses_no_dispatch_of_a_unit() -> None:
    class Middle(Reactor[Any]):
        @async_reactor(Ship)
        def part(self) -> Any:
            return {"order": "1"}

    class Parent(Reactor[Any]):
        @async_reactor(Middle)
        def middle(self) -> Any:
            return {}

    fleet = Rivals(Parent)
    fleet.others = (Middle, Ship)
    fleet.lock("order:1")
    fleet.start()
    fleet.deliver_to(fleet.unit("middle").id)
    assert fleet.unit("middle").status is Status.COMPLETED
    assert fleet.unit("part").status is Status.PENDING


@pytest.mark.parametrize("target", [Ship, Slot, Wide])
def test_nothing_is_refused_falsely(target: Any) -> None:
    """Another key, a semaphore of several slots, and a key that was held and is free again."""

    class Child(Reactor[Any]):
        class Meta:
            lock = Lock("order:1")
            semaphore = Semaphore("order:1", limit=1)

        @step(lock=Lock("order:1"))
        def work(self) -> None: ...

    declared: Any = async_reactor if target is Ship else async_step

    class Parent(Reactor[Any]):
        class Meta:
            lock = Lock("order:2")
            semaphore = Semaphore("order:1" if target is Wide else "order:2", limit=2)

        @compose(Child)
        def child(self) -> Any:
            return {}

        @declared(target)  # type: ignore[untyped-decorator]
        def part(self, child: Any) -> Any:
            return {} if target is Wide else {"order": "1"}

    fleet = Rivals(Parent)
    fleet.others = (Ship,)
    assert isinstance(fleet.start(), Success)
    fleet.work()
    assert fleet.unit("part").status is Status.COMPLETED
