"""An execution that waits for several things at once goes on with whatever comes first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from django.db import connections
from django.test import override_settings

from django_reactor import Reactor, async_step, compose, fail, interrupt, map_step, runtime, step, sweeper, worker
from django_reactor.core.targets import definition_of_target as definition_of
from django_reactor.engine import delivering
from django_reactor.journal.due import free_and_due
from django_reactor.models import Execution
from tests.stored import execution_of

pytestmark = pytest.mark.django_db(transaction=True)

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _no_messages() -> Iterator[None]:
    """Each test says what is delivered when."""
    CALLS.clear()
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        yield


def work() -> None:
    """Deliver what is due, until nothing is."""
    while due := list(Execution.objects.filter(free_and_due()).order_by("pk")):
        for execution in due:
            worker.deliver(execution.pk)


class Line(Reactor[str]):
    name: str

    class Meta:
        app_label = "several"
        returns = "done"

    @step
    def done(self, name: str) -> str:
        if name == "bad":
            fail("unlucky")
        return name

    @done.undo
    def not_done(self, result: str) -> None:
        CALLS.append(f"undo {result}")


class AskedLine(Line):
    class Meta:
        app_label = "several"

    @interrupt(payload=str)
    def ask(self) -> None: ...

    @step
    def done(self, name: str, ask: str) -> str:
        return f"{name} {ask}"


class Two(Reactor[Any]):
    class Meta:
        app_label = "several"

    @map_step(Line, fan_out=2)
    def left(self) -> Any:
        return [{"name": "l"}]

    @map_step(Line, fan_out=2)
    def right(self) -> Any:
        return [{"name": "r"}]

    @step
    def after_left(self, left: Any) -> str:
        CALLS.append("after left")
        return "left"

    @step
    def after_right(self, right: Any) -> str:
        CALLS.append("after right")
        return "right"


class OneFails(Two):
    class Meta:
        app_label = "several"

    @map_step(AskedLine, fan_out=1)
    def left(self) -> Any:
        return [{"name": "l"}, {"name": "m"}]

    @map_step(Line, fan_out=1)
    def right(self) -> Any:
        return [{"name": "r"}, {"name": "bad"}, {"name": "never"}]


class Composed(Reactor[Any]):
    """One of the maps is a composed child's."""

    class Meta:
        app_label = "several"

    class Child(Reactor[Any]):
        class Meta:
            app_label = "several"

        @map_step(Line, fan_out=2)
        def left(self) -> Any:
            return [{"name": "l"}]

        @step
        def after_left(self, left: Any) -> str:
            CALLS.append("after left")
            return "left"

    @compose(Child)
    def child(self) -> Any:
        return {}

    @map_step(Line, fan_out=2)
    def right(self) -> Any:
        return [{"name": "r"}]

    @step
    def after_right(self, right: Any) -> str:
        CALLS.append("after right")
        return "right"


class BesideUnit(Two):
    """A map, and a unit whose reader waits."""

    class Meta:
        app_label = "several"

    @async_step
    def right(self) -> str:
        return "r"


class BesidePause(Two):
    """Two maps, and an interrupt: the owner is paused."""

    class Meta:
        app_label = "several"

    @interrupt(payload=str)
    def ask(self) -> None: ...


BOTH_WAYS = [("left", "right"), ("right", "left")]
WAITING = [Two, Composed, BesideUnit, BesidePause]


def waiting(reactor: type[Reactor[Any]], status: str = "scheduled") -> Execution:
    """Both are open, and nothing of either has begun."""
    execution = execution_of(reactor.enqueue())
    worker.deliver(execution.pk)
    execution.refresh_from_db()
    assert execution.status == status
    return execution


def parts(root: Execution, step: str) -> Iterator[Execution]:
    yield from Execution.objects.filter(root=root.pk, parent_step=step).order_by("element_index")


def finish(root: Execution, step: str) -> None:
    for part in parts(root, step):
        worker.deliver(part.pk)


def progress(root: Execution) -> None:
    """What a worker does that gets the root's message."""
    worker.deliver(root.pk)


@pytest.mark.parametrize(("first", "second"), BOTH_WAYS)
@pytest.mark.parametrize("reactor", WAITING)
def test_what_rests_on_the_first_that_comes_goes_on_while_the_other_is_open(
    reactor: type[Reactor[Any]], first: str, second: str
) -> None:
    root = waiting(reactor, "paused" if reactor is BesidePause else "scheduled")
    finish(root, first)
    progress(root)
    assert [f"after {first}"] == CALLS
    finish(root, second)
    progress(root)
    assert [f"after {first}", f"after {second}"] == CALLS
    root.refresh_from_db()
    if reactor is BesidePause:
        assert root.status == "paused"
        root.resume("yes")
        root.refresh_from_db()
    assert root.status == "completed"


@pytest.mark.parametrize(("first", "second"), BOTH_WAYS)
@pytest.mark.parametrize("reactor", WAITING)
def test_one_that_ends_between_the_last_look_and_the_park_is_not_missed(
    reactor: type[Reactor[Any]], first: str, second: str
) -> None:
    execution = execution_of(reactor.enqueue())
    adapters = runtime.services()

    def meanwhile(name: str) -> Callable[..., Any]:
        port = adapters.waits if name == "pause" else adapters.deliveries

        def call(*args: Any, **options: Any) -> Any:
            if not CALLS:
                CALLS.append("meanwhile")
                in_another_thread(lambda: finish(execution, first))
            return getattr(port, name)(*args, **options)

        return call

    services = replace(
        adapters,
        deliveries=cast(Any, Intercepted(adapters.deliveries, "park", meanwhile("park"))),
        waits=cast(Any, Intercepted(adapters.waits, "pause", meanwhile("pause"))),
    )
    delivering.deliver(services, lambda label: definition_of(reactor), execution.pk)
    progress(execution)
    assert ["meanwhile", f"after {first}"] == CALLS


class Intercepted:
    def __init__(self, port: Any, name: str, call: Callable[..., Any]) -> None:
        self._port, self._name, self._call = port, name, call

    def __getattr__(self, name: str) -> Any:
        return self._call if name == self._name else getattr(self._port, name)


def in_another_thread(work: Callable[[], object]) -> None:
    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize(("first", "second"), BOTH_WAYS)
@pytest.mark.parametrize("reactor", WAITING)
def test_a_sweep_finds_the_wake_that_a_crash_has_lost(reactor: type[Reactor[Any]], first: str, second: str) -> None:
    root = waiting(reactor, "paused" if reactor is BesidePause else "scheduled")
    asleep = Execution.objects.filter(pk=root.pk).values("status", "wake_at", "sent_at", "sends").get()
    finish(root, first)
    Execution.objects.filter(pk=root.pk).update(**asleep)  # the process died before its wake
    assert sweeper.recovery().sweep().woken == 1
    work()
    assert CALLS[0] == f"after {first}"


def test_one_that_fails_fast_undoes_the_others_at_once_and_waits_for_no_answer() -> None:
    root = execution_of(OneFails.enqueue())
    work()
    root.refresh_from_db()
    assert root.status == "failed"
    assert CALLS == ["undo r"]
    assert [part.status for part in parts(root, "left")] == ["undone", "cancelled"]
    assert [part.status for part in parts(root, "right")] == ["undone", "failed", "cancelled"]


class FailsBeside(Two):
    class Meta:
        app_label = "several"

    @map_step(Line, fan_out=1)
    def left(self) -> Any:
        return [{"name": "l"}, {"name": "never"}]

    @map_step(Line, fan_out=1)
    def right(self) -> Any:
        return [{"name": "r"}, {"name": "bad"}]


def test_while_one_map_is_undone_nothing_of_another_begins() -> None:
    root = waiting(FailsBeside)
    finish(root, "right")
    progress(root)
    root.refresh_from_db()
    assert root.status == "rolling_back"
    assert [part.status for part in parts(root, "left")] == ["pending", "cancelled"]
    work()
    root.refresh_from_db()
    assert (root.status, CALLS) == ("failed", ["undo r"])


@pytest.mark.parametrize("end", ["cancel", "undo after cancel"])
def test_a_cancel_reaches_the_elements_of_all_maps_and_nobody_wakes_what_has_ended(end: str) -> None:
    root = waiting(Two)
    finish(root, "right")
    root.refresh_from_db()
    root.cancel("enough")
    work()
    root.refresh_from_db()
    assert root.status == "cancelled"
    assert [part.status for part in parts(root, "left")] == ["cancelled"]
    if end == "undo after cancel":
        root.undo()
        work()
        root.refresh_from_db()
        assert (root.status, CALLS) == ("undone", ["undo r"])


def many() -> type[Reactor[Any]]:
    def source(self: Any) -> Any:
        return [{"name": "x"}]

    def reader(index: int) -> Callable[..., Any]:
        namespace: dict[str, Any] = {"CALLS": CALLS}
        exec(f"def after_{index}(self, map_{index}): CALLS.append('after {index}')", namespace)
        return cast(Callable[..., Any], namespace[f"after_{index}"])

    body: dict[str, Any] = {"Meta": type("Meta", (), {"app_label": "several"}), "__module__": __name__}
    for index in range(8):
        body[f"map_{index}"] = map_step(AskedLine, fan_out=1)(source)
    for index in range(8):
        body[f"after_{index}"] = step(reader(index))
    return cast(type[Reactor[Any]], cast(Any, type(Reactor))("SoMany", (Reactor,), body))


def test_of_more_than_its_row_can_name_each_wakes_it_too() -> None:
    root = execution_of(many().enqueue())
    work()
    for index in reversed(range(8)):
        (element,) = parts(root, f"map_{index}")
        assert element.status == "paused"
        element.resume("yes")
        work()
        assert CALLS[-1] == f"after {index}"
    root.refresh_from_db()
    assert root.status == "completed"
