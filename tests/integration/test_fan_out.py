"""Maps that fan out, on a real database, delivered by the immediate queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from django.db.models import Q
from django.test import override_settings

from django_reactor import (
    Dispatched,
    Failure,
    Reactor,
    Retry,
    Step,
    Success,
    compose,
    fail,
    halt,
    map_step,
    runtime,
    skip,
    step,
    sweeper,
    worker,
)
from django_reactor.core.statuses import HELD, MapState, Status
from django_reactor.core.targets import definition_of_target
from django_reactor.engine import delivering, fan_out
from django_reactor.engine.map_ports import MapKey
from django_reactor.engine.records import Move
from django_reactor.engine.recovery import Pace
from django_reactor.journal.due import free_and_due
from django_reactor.journal.elements import OrmElements
from django_reactor.journal.executions import OrmExecutions
from django_reactor.journal.fields import DbNow
from django_reactor.journal.maps import OrmMaps
from django_reactor.journal.sweeps import OrmSweeps
from django_reactor.models import Execution, MapRun
from django_reactor.queues import immediate, processes
from django_reactor.results import MapResults
from tests.contract.committed import PATIENCE, another_session
from tests.stored import execution_of

pytestmark = pytest.mark.django_db(transaction=True)

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _immediate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each delivery is of one element, but where a test says something else."""
    monkeypatch.setattr(fan_out, "TURN", 0.0)
    CALLS.clear()
    with override_settings(DJANGO_REACTOR={"BACKEND": "immediate"}):
        yield


class Double(Step[int]):
    n: int

    def run(self) -> int:
        CALLS.append(f"run {self.n}")
        if self.n == 13:
            fail("unlucky")
        if self.n == 77:
            halt("enough")
        if self.n == 88:
            skip("no need", value=-1)
        return self.n * 2

    def undo(self, result: int) -> None:
        CALLS.append(f"undo {result // 2}")
        if result == 2 * 66:
            fail("stuck")


class Doubled(Reactor[list[Any]]):
    numbers: list[int]

    class Meta:
        returns = "shown"

    @map_step(Double, fan_out=2)
    def doubled(self, numbers: list[int]) -> Iterable[dict[str, int]]:
        return ({"n": n} for n in numbers)

    @step
    def shown(self, doubled: MapResults) -> list[Any]:
        return [result.unwrap() for result in doubled]


def rows() -> list[Execution]:
    return list(Execution.objects.filter(relation="element").order_by("element_index"))


def test_elements_run_in_workers_and_the_rest_follows_when_all_have_ended() -> None:
    result = Doubled.run(numbers=[1, 2, 3, 4, 5])
    assert isinstance(result, Dispatched)
    execution = execution_of(result)
    assert execution.result().unwrap() == [2, 4, 6, 8, 10]
    assert sorted(CALLS) == [f"run {n}" for n in (1, 2, 3, 4, 5)]
    assert [entry.action for entry in execution.trace()] == ["dispatch", "run", "hand_off", "run"]
    assert {row.owner_id == row.pk for row in rows()} == {True}
    assert MapRun.objects.values_list("state", "total", "fan_out").get() == ("done", 5, 2)


def test_a_failure_fails_the_map_and_its_elements_are_undone_in_workers() -> None:
    execution = execution_of(Doubled.run(numbers=[1, 2, 13, 4, 5, 6, 7, 8]))
    result = execution.result()
    assert isinstance(result, Failure)
    assert (result.message, result.step) == ("element 2: unlucky", "doubled.Double")
    assert {row.status for row in rows()} == {"undone", "failed", "cancelled"}
    assert execution.status == "failed"
    done = {int(call.split()[1]) for call in CALLS if call.startswith("run")} - {13}
    undone = [int(call.split()[1]) for call in CALLS if call.startswith("undo")]
    assert undone == sorted(done, reverse=True)


def drained() -> None:
    """Deliver what waits, until nothing is left."""
    immediate.drain(timeout=5)


class Window(Step[int]):
    """Notes how many elements were in flight when it ran."""

    n: int

    def run(self) -> int:
        CALLS.append(f"run {self.n}")
        going = ("running", "scheduled", "paused")
        in_flight = Execution.objects.filter(relation="element").filter(
            Q(status__in=going) | Q(status="pending", wake_at__isnull=False)
        )
        WINDOWS.append(in_flight.count())
        return self.n


WINDOWS: list[int] = []


@pytest.mark.parametrize(("width", "expected"), [(1, 1), (4, 4), (True, 50)])
def test_no_more_elements_are_in_flight_than_fan_out_says(width: int, expected: int) -> None:
    WINDOWS.clear()

    class Wide(Reactor[Any]):
        @map_step(Window, fan_out=width)
        def all(self) -> Iterable[dict[str, int]]:
            return [{"n": n} for n in range(60)]

    assert execution_of(Wide.run()).status == "completed"
    assert max(WINDOWS) == expected
    assert len(WINDOWS) == 60
    assert MapRun.objects.get().fan_out == expected


class Lenient(Doubled):
    @map_step(Double, fan_out=3, fail_fast=False)
    def doubled(self, numbers: list[int]) -> Iterable[dict[str, int]]:
        return [{"n": n} for n in numbers]

    @step
    def shown(self, doubled: MapResults) -> list[Any]:
        return [result.value if isinstance(result, Success) else type(result).__name__ for result in doubled]


def test_without_fail_fast_every_element_has_its_result() -> None:
    execution = execution_of(Lenient.run(numbers=[1, 13, 77, 88, 13, 2]))
    assert execution.result().unwrap() == [2, "Failure", "Halt", -1, "Failure", 4]
    run = MapRun.objects.get()
    assert (run.state, run.summary["succeeded"], run.summary["halted"], run.summary["failed"]) == ("done", 3, 1, 2)
    assert [failure["index"] for failure in run.summary["failures"]] == [1, 4]
    assert run.first_failed is None


class Flaky(Reactor[int]):
    n: int

    class Meta:
        returns = "try_it"

    @step(retry=Retry(max_attempts=3, delay=0.01))
    def try_it(self, n: int) -> int:
        CALLS.append(f"try {n}.{self.context.attempt}")
        if self.context.attempt <= n:
            fail("again")
        return n

    @try_it.undo
    def take_back(self, n: int) -> None:
        CALLS.append(f"take back {n}")


class Retried(Reactor[Any]):
    last: int = 2

    class Meta:
        returns = "all"

    @map_step(Flaky, fan_out=2)
    def flaky(self, last: int) -> Iterable[dict[str, int]]:
        return [{"n": n} for n in range(last + 1)]

    @step
    def all(self, flaky: MapResults) -> list[int]:
        return list(flaky.values())


def test_an_element_is_tried_again_in_a_delivery_of_its_own() -> None:
    execution = execution_of(Retried.run())
    drained()
    assert execution.result().unwrap() == [0, 1, 2]
    assert [call for call in CALLS if call.startswith("try 2")] == ["try 2.1", "try 2.2", "try 2.3"]
    scheduled = [entry for row in rows() for entry in row.trace() if entry.outcome == "retrying"]
    assert len(scheduled) == 3


def test_an_element_that_fails_for_good_fails_the_map() -> None:
    execution = execution_of(Retried.run(last=4))
    drained()
    result = execution.result()
    assert isinstance(result, Failure)
    assert result.message == "element 3: again"
    assert {row.status for row in rows()[:3]} == {"undone"}


# -- beside other steps ------------------------------------------------------------------------------------------------


class Beside(Reactor[Any]):
    """Other steps go on while elements run; two maps may be open at once."""

    fails: bool = False

    class Meta:
        returns = "together"

    @map_step(Double, fan_out=1)
    def first(self) -> Iterable[dict[str, int]]:
        return [{"n": n} for n in (1, 2, 3)]

    @step
    def meanwhile(self, fails: bool) -> str:
        CALLS.append(f"meanwhile in_worker={self.context.in_worker}")
        if fails:
            fail("no")
        return "done"

    @meanwhile.undo
    def not_meanwhile(self) -> None:
        CALLS.append("undo meanwhile")

    @map_step(Double, fan_out=2)
    def second(self, meanwhile: str) -> Iterable[dict[str, int]]:
        return [{"n": n} for n in (10, 20)]

    @step
    def together(self, first: MapResults, second: MapResults) -> list[int]:
        return [*first.values(), *second.values()]


@contextmanager
def nothing_delivered() -> Iterator[None]:
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        yield


def deliver(*indexes: int, step: str = "first") -> None:
    """To elements, whose messages were lost."""
    for index in indexes:
        worker.deliver(Execution.objects.get(relation="element", parent_step=step, element_index=index).pk)


def deliver_all() -> None:
    """To elements, as long as the turn of one comes."""
    while due := [row.pk for row in rows() if row.wake_at is not None]:
        for execution_id in due:
            worker.deliver(execution_id)


def test_other_steps_go_on_in_a_worker_while_elements_run() -> None:
    with nothing_delivered():
        execution = execution_of(Beside.run())
        assert (execution.status, CALLS) == ("pending", [])
        worker.deliver(execution.pk)
        assert CALLS == ["meanwhile in_worker=True"]
        execution.refresh_from_db()
        assert (execution.status, execution.wake_at) == ("scheduled", None)
        first = MapRun.objects.get(step="first")
        assert f"map:{first.pk}" in execution.waiting_for.split()
        deliver(0, 1, step="second")
        worker.deliver(execution.pk)  # not woken: it is not due
        deliver(0, 1, 2)
        worker.deliver(execution.pk)
    assert execution.result().unwrap() == [2, 4, 6, 20, 40]


def test_a_failure_beside_a_map_lets_elements_in_flight_settle_and_undoes_them() -> None:
    with nothing_delivered():
        execution = execution_of(Beside.run(fails=True))
        deliver(0)
        worker.deliver(execution.pk)
        execution.refresh_from_db()
        assert (execution.status, execution.wake_at) == ("rolling_back", None)
        assert [row.status for row in rows()] == ["completed", "pending", "cancelled"]
        deliver(1)
        assert rows()[1].status == "cancelled"
        assert "run 2" not in CALLS
        worker.deliver(execution.pk)
        deliver_all()
        worker.deliver(execution.pk)
    assert [row.status for row in rows()] == ["undone", "undone", "cancelled"]
    result = execution.result()
    assert isinstance(result, Failure)
    assert (result.message, list(result.rollback_failures)) == ("no", [])
    assert CALLS == ["run 1", "meanwhile in_worker=True", "undo 1"]


def test_a_halt_beside_a_map_lets_no_other_element_begin() -> None:
    class Halted(Beside):
        @step
        def meanwhile(self, fails: bool) -> str:
            halt("enough")

    with nothing_delivered():
        execution = execution_of(Halted.run())
        deliver(0)
        worker.deliver(execution.pk)
        execution.refresh_from_db()
        assert execution.status == "halted"
        deliver(1)
        assert [row.status for row in rows()] == ["completed", "cancelled", "cancelled"]
        execution.undo()
        deliver_all()
        worker.deliver(execution.pk)
    execution.refresh_from_db()
    assert execution.status == "undone"
    assert (rows()[0].status, CALLS) == ("undone", ["run 1", "undo 1"])


def test_a_fan_out_in_a_composed_child_resumes_the_whole() -> None:
    class Parent(Reactor[Any]):
        class Meta:
            returns = "doubled"

        @compose(Doubled)
        def doubled(self) -> dict[str, list[int]]:
            return {"numbers": [1, 2, 3]}

    with nothing_delivered():
        execution = execution_of(Parent.run())
        assert execution.status == "scheduled"
        for index in range(3):
            deliver(index, step="doubled")
        worker.deliver(execution.pk)
    assert execution.result().unwrap() == [2, 4, 6]


def test_a_fan_out_inside_an_element_runs_there() -> None:
    class Outer(Reactor[Any]):
        @map_step(Doubled, fan_out=2)
        def rows(self) -> Iterable[dict[str, list[int]]]:
            return [{"numbers": [n, n + 1]} for n in (1, 3, 5)]

    execution = execution_of(Outer.run())
    found: Any = execution.result().unwrap()
    assert list(found["rows"].values()) == [[2, 4], [6, 8], [10, 12]]
    assert sorted(run.fan_out or 0 for run in MapRun.objects.all()) == [0, 0, 0, 2]
    execution.undo()
    assert set(Execution.objects.values_list("status", flat=True)) == {"undone"}


# -- cancel, undo, retry -----------------------------------------------------------------------------------------------


def test_a_cancelled_map_lets_nothing_begin_and_keeps_what_was_done() -> None:
    with nothing_delivered():
        execution = execution_of(Doubled.run(numbers=[1, 2, 3, 4]))
        deliver(0, step="doubled")
        execution.cancel("enough")
        execution.refresh_from_db()
        assert (execution.status, execution.stop_reason) == ("cancelled", "enough")
        assert [row.status for row in rows()] == ["completed", "pending", "pending", "cancelled"]
        deliver(1, 2, step="doubled")
        assert [row.status for row in rows()] == ["completed", "cancelled", "cancelled", "cancelled"]
        assert CALLS == ["run 1"]
        execution.undo()
        deliver_all()
        worker.deliver(execution.pk)
    execution.refresh_from_db()
    assert execution.status == "undone"
    assert CALLS == ["run 1", "undo 1"]
    assert [row.status for row in rows()] == ["undone", "undone", "undone", "cancelled"]


def test_an_undo_waits_for_elements_that_still_run_after_a_cancel() -> None:
    """One is at work in a process that does not answer."""
    with nothing_delivered():
        execution = execution_of(Doubled.run(numbers=[1, 2]))
        one = rows()[0]
        lease = OrmExecutions().claim(one.pk, uuid4())
        assert lease is not None
        execution.cancel()
        execution.undo()
        execution.refresh_from_db()
        assert (execution.status, execution.wake_at) == ("rolling_back", None)
        Execution.objects.filter(pk=one.pk).update(lease_expires_at=DbNow() - timedelta(hours=1))
        deliver(0, 1, step="doubled")
        worker.deliver(execution.pk)
        deliver_all()
        worker.deliver(execution.pk)
    execution.refresh_from_db()
    assert execution.status == "undone"
    assert [row.status for row in rows()] == ["undone", "undone"]
    assert CALLS == []


def test_the_undo_of_a_map_is_carried_out_in_workers_and_lists_what_it_could_not_undo() -> None:
    execution = execution_of(Doubled.run(numbers=[1, 66, 2, 66, 3]))
    assert execution.status == "completed"
    CALLS.clear()
    with nothing_delivered():
        assert isinstance(execution.undo(), Dispatched)
        assert CALLS == []
        for index in (4, 3, 2, 1, 0):
            deliver(index, step="doubled")
        worker.deliver(execution.pk)
    assert CALLS == ["undo 3", "undo 66", "undo 2", "undo 66", "undo 1"]
    result = execution.result()
    assert isinstance(result, Failure)
    assert [(one.step, one.element_index) for one in result.rollback_failures] == [
        ("doubled.Double", 1),
        ("doubled.Double", 3),
    ]
    execution.refresh_from_db()
    assert (execution.status, execution.rollback_failures) == ("failed", 2)
    CALLS.clear()
    execution.undo()
    execution.refresh_from_db()
    assert (execution.status, CALLS) == ("failed", ["undo 66", "undo 66"])
    assert [row.status for row in rows()] == ["undone", "failed", "undone", "failed", "undone"]


def test_another_undo_waits_for_its_workers_as_the_first_did_and_lists_what_they_could_not_undo() -> None:
    execution = execution_of(Doubled.run(numbers=[1, 66, 2, 66, 3]))
    execution.undo()
    CALLS.clear()
    with nothing_delivered():
        assert isinstance(execution.undo(), Dispatched)
        execution.refresh_from_db()
        assert (execution.status, CALLS) == ("rolling_back", [])
        for index in (3, 1):
            deliver(index, step="doubled")
        worker.deliver(execution.pk)
    assert CALLS == ["undo 66", "undo 66"]
    execution.refresh_from_db()
    assert (execution.status, execution.rollback_failures) == ("failed", 2)


def test_a_failed_map_that_is_retried_has_new_elements() -> None:
    class Second(Doubled):
        @map_step(Double, fan_out=2)
        def doubled(self, numbers: list[int]) -> Iterable[dict[str, int]]:
            return [{"n": n if self.context.run_key.endswith(":0") else 7} for n in numbers]

    execution = execution_of(Second.run(numbers=[1, 13]))
    assert execution.status == "failed"
    execution.retry()
    assert execution.result().unwrap() == [14, 14]
    assert MapRun.objects.order_by("generation").values_list("generation", "state")[1] == (1, "done")


# -- in a transaction of the caller ------------------------------------------------------------------------------------


def test_elements_that_were_let_go_in_a_transaction_run_after_it() -> None:
    with transaction.atomic():
        execution = execution_of(Doubled.run(numbers=[1, 2, 3]))
        assert (execution.status, CALLS) == ("scheduled", [])
    assert execution.result().unwrap() == [2, 4, 6]


def test_a_map_in_a_transaction_that_is_rolled_back_never_existed() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Doubled.run(numbers=[1, 2, 3])
        raise ZeroDivisionError
    assert (Execution.objects.count(), MapRun.objects.count(), CALLS) == (0, 0, [])
    assert immediate.waiting() == []


def test_a_reactor_that_is_stored_at_its_exit_is_stored_before_its_map() -> None:
    class AtExit(Doubled):
        class Meta:
            durability = "exit"
            returns = "shown"

        @step
        def before(self) -> str:
            return "done"

        @map_step(Double, fan_out=2, after=["before"])
        def doubled(self, numbers: list[int]) -> Iterable[dict[str, int]]:
            return [{"n": n} for n in numbers]

    execution = execution_of(AtExit.run(numbers=[1, 2, 3]))
    assert execution.result().unwrap() == [2, 4, 6]


# -- the sweeper -------------------------------------------------------------------------------------------------------


def test_the_sweeper_wakes_who_waits_for_a_map_that_has_settled() -> None:
    """A process died between the end of the last element and the wake."""
    with nothing_delivered():
        execution = execution_of(Doubled.run(numbers=[1, 2]))
        deliver(0, step="doubled")
        last = rows()[1]
        of = OrmElements().map_of(MapKey(execution.pk, "doubled", 0))
        claim = OrmExecutions().claim(last.pk, uuid4())
        assert of is not None
        assert claim is not None
        OrmElements().finish(claim.lease, of, 1, Move(to=Status.COMPLETED, expected=HELD, output="4"), None)
        assert execution_of(execution.result()).wake_at is None
        swept = sweeper.recovery().sweep()
        assert (swept.woken, swept.let_go) == (1, 0)
        worker.deliver(execution.pk)
    assert execution.result().unwrap() == [2, 4]


def test_the_sweeper_widens_a_window_that_was_narrowed() -> None:
    with nothing_delivered():
        execution_of(Doubled.run(numbers=[1, 2, 3, 4]))
        deliver(0, step="doubled")
        Execution.objects.filter(element_index=2).update(wake_at=None)
        swept = sweeper.recovery().sweep()
        assert (swept.woken, swept.let_go) == (0, 1)
        assert sweeper.recovery().sweep().let_go == 0
    assert [row.wake_at is not None for row in rows()] == [False, True, True, False]


def test_the_sweeper_leaves_maps_without_fan_out_and_those_that_have_ended_alone() -> None:
    class Inline(Doubled):
        @map_step(Double)
        def doubled(self, numbers: list[int]) -> Iterable[dict[str, int]]:
            return [{"n": n} for n in numbers]

    Inline.run(numbers=[1])
    Doubled.run(numbers=[1])
    MapRun.objects.filter(fan_out=None).update(state="running")
    assert OrmSweeps().moving(Pace(interval=15, limit=10)) == []


# -- poison ------------------------------------------------------------------------------------------------------------


def test_an_element_that_ends_its_processes_fails_and_the_others_do_not() -> None:
    with nothing_delivered():
        execution = execution_of(Lenient.run(numbers=[1, 2]))
        poisonous = rows()[0]
        limit = 6
        for _ in range(limit):
            assert OrmExecutions().claim(poisonous.pk, uuid4()) is not None
            Execution.objects.filter(pk=poisonous.pk).update(lease_expires_at=DbNow() - timedelta(hours=1))
        deliver(0, 1, step="doubled")
        worker.deliver(execution.pk)
    assert execution.result().unwrap() == ["Failure", 4]
    failure = rows()[0].result()
    assert isinstance(failure, Failure)
    assert failure.exception_class == "django_reactor.exceptions.PoisonExecution"


# -- turns -------------------------------------------------------------------------------------------------------------


def test_a_worker_takes_one_element_after_another_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "TURN", 60.0)
    with nothing_delivered():
        execution = execution_of(Doubled.run(numbers=[1, 2, 3, 4, 5]))
        deliver(0, step="doubled")
        assert CALLS == ["run 1", "run 3", "run 4", "run 5"]
        assert [row.status for row in rows()] == ["completed", "pending", "completed", "completed", "completed"]
        assert [(row.epoch, row.lease_token, row.recoveries) for row in rows()[2:]] == [(1, None, 0)] * 3
        deliver(1, step="doubled")
        worker.deliver(execution.pk)
    assert execution.result().unwrap() == [2, 4, 6, 8, 10]


def test_a_worker_that_is_stopping_takes_no_other_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "TURN", 60.0)

    class Stops(Doubled):
        @map_step("test_fan_out.StopsWorker", fan_out=1)
        def doubled(self, numbers: list[int]) -> Iterable[dict[str, int]]:
            return [{"n": n} for n in numbers]

    with nothing_delivered():
        Stops.run(numbers=[1, 2])
        try:
            deliver(0, step="doubled")
        finally:
            processes.stopped()
    assert CALLS == ["run 1"]
    assert [(row.status, row.wake_at is not None) for row in rows()] == [("completed", False), ("pending", True)]


class StopsWorker(Step[int]):
    n: int

    def run(self) -> int:
        CALLS.append(f"run {self.n}")
        processes.stopping()
        return self.n


def test_an_element_that_is_taken_and_fails_fails_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "TURN", 60.0)
    execution = execution_of(Doubled.run(numbers=[1, 2, 3, 13, 5, 6]))
    assert execution.status == "failed"
    assert {row.status for row in rows()} == {"undone", "failed", "cancelled"}
    assert MapRun.objects.get().first_failed == 3


# -- what has ended without its maps -----------------------------------------------------------------------------------


class Halts(Reactor[Any]):
    """Halts while its map is open."""

    class Meta:
        returns = "shown"

    @map_step(Double, fan_out=2)
    def doubled(self) -> Iterable[dict[str, int]]:
        return ({"n": n} for n in range(1, 6))

    @step
    def enough(self) -> None:
        halt("enough")

    @step
    def shown(self, doubled: MapResults, enough: None) -> None: ...


@pytest.mark.parametrize("end", ["cancelled", "halted"])
def test_a_sweep_looks_no_more_at_the_map_of_an_execution_that_has_ended_without_it(end: str) -> None:
    with nothing_delivered():
        root = execution_of(Halts.enqueue() if end == "halted" else Doubled.enqueue(numbers=[1, 2, 3, 4]))
        worker.deliver(root.pk)
        if end == "cancelled":
            root.refresh_from_db()
            root.cancel()
        root.refresh_from_db()
        assert root.status == end
        assert MapRun.objects.get().state == "withdrawn"
        pace = Pace(interval=15, limit=100)
        assert OrmSweeps().moving(pace) == []
        deliver_all()
        assert {row.status for row in rows()} == {"cancelled"}
        assert CALLS == []
        assert OrmSweeps().lead(uuid4(), 0)
        assert not OrmSweeps().is_called_for(uuid4(), pace)


def test_what_is_undone_after_a_cancel_waits_for_the_element_that_still_runs() -> None:
    with nothing_delivered():
        root = execution_of(Doubled.enqueue(numbers=[1, 2, 3]))
        worker.deliver(root.pk)
        lease = OrmExecutions().claim(rows()[0].pk, uuid4())
        assert lease is not None  # somebody runs it
        root.refresh_from_db()
        root.cancel()
        root.refresh_from_db()
        root.undo()
        root.refresh_from_db()
        assert root.status == "rolling_back"
        assert OrmSweeps().moving(Pace(interval=15, limit=100)) != []
        Execution.objects.filter(pk=rows()[0].pk).update(lease_expires_at=DbNow() - timedelta(hours=1))
        worker.deliver(rows()[0].pk)  # its process has died
        worker.deliver(root.pk)
        while due := [row.pk for row in (*rows(), Execution.objects.get(pk=root.pk)) if row.wake_at is not None]:
            for pk in due:
                worker.deliver(pk)
        root.refresh_from_db()
        assert root.status == "undone"
        assert MapRun.objects.get().state == "undone"


class Died(BaseException):
    """The process is gone: nothing is written any more."""


def drained_again(root: Execution) -> None:
    """All leases have lapsed."""
    Execution.objects.filter(lease_token__isnull=False).update(lease_expires_at=DbNow() - timedelta(hours=1))
    while due := list(Execution.objects.filter(free_and_due() | Q(lease_token__isnull=False))):
        for execution in due:
            worker.deliver(execution.pk)
    root.refresh_from_db()


@pytest.mark.parametrize(
    ("numbers", "state", "statuses"),
    [
        ([1, 2], MapState.DONE, {"completed"}),
        ([1, 13], MapState.FAILING, {"failed", "undone"}),
        ([1, 13], MapState.UNDONE, {"failed", "undone"}),
    ],
)
def test_a_process_that_dies_between_the_end_of_a_map_and_its_entry_is_followed(
    numbers: list[int], state: MapState, statuses: set[str]
) -> None:
    class Dies(OrmMaps):
        def end(self, lease: Any, settled: Any, to: MapState, summary: Any = None) -> None:
            super().end(lease, settled, to, summary)
            if to is state:
                raise Died

    with nothing_delivered():
        root = execution_of(Doubled.enqueue(numbers=numbers))
        services = replace(runtime.services(), maps=Dies())
        with pytest.raises(Died):
            while due := list(Execution.objects.filter(free_and_due())):
                for execution in due:
                    target = Doubled if execution == root else Double
                    delivering.deliver(services, lambda label: definition_of_target(target), execution.pk)  # noqa: B023
        drained_again(root)
    assert root.status == ("completed" if statuses == {"completed"} else "failed")
    assert {row.status for row in rows()} == statuses


def test_a_worker_that_loses_its_lease_while_it_looks_whether_a_failed_map_has_settled_stops_silently() -> None:
    class LosesLease(OrmElements):
        def is_settled(self, map_id: UUID) -> bool:
            Execution.objects.filter(pk=root.pk).update(lease_token=uuid4())
            return super().is_settled(map_id)

    with nothing_delivered():
        root = execution_of(Doubled.enqueue(numbers=[13, 2]))
        worker.deliver(root.pk)
        for row in rows():
            worker.deliver(row.pk)
        services = replace(runtime.services(), elements=LosesLease())
        result = delivering.deliver(services, lambda label: definition_of_target(Doubled), root.pk)
    root.refresh_from_db()
    assert (result, root.status) == (Dispatched(root.pk), "running")


class LosesLeaseAndFails(Reactor[Any]):
    class Meta:
        app_label = "fan_out"

    @map_step(Double, fan_out=2)
    def doubled(self) -> Iterable[dict[str, int]]:
        Execution.objects.filter(pk=self.context.execution_id).update(lease_token=uuid4())
        fail("no source")


def test_a_worker_that_loses_its_lease_in_a_source_that_fails_after_another_died_loading_it_stops_silently() -> None:
    with nothing_delivered():
        root = execution_of(LosesLeaseAndFails.enqueue())
        MapRun.objects.create(pk=uuid4(), execution=root, step="doubled", fan_out=2, fail_fast=True, state="loading")
        worker.deliver(root.pk)
    root.refresh_from_db()
    assert (root.status, MapRun.objects.get().state) == ("running", "loading")


def test_a_map_that_fails_while_its_owner_looks_whether_it_has_settled_has_failed() -> None:
    class FailsMeanwhile(OrmElements):
        looked = False

        def is_settled(self, map_id: UUID) -> bool:
            if not self.looked:
                self.looked = True
                with another_session() as session:
                    session(lambda: worker.deliver(rows()[0].pk)).result(PATIENCE)
            return super().is_settled(map_id)

    with nothing_delivered():
        root = execution_of(Single.enqueue(numbers=[13, 2, 3]))
        services = replace(runtime.services(), elements=FailsMeanwhile())
        delivering.deliver(services, lambda label: definition_of_target(Single), root.pk)
        while due := list(Execution.objects.filter(free_and_due())):
            for execution in due:
                worker.deliver(execution.pk)
    root.refresh_from_db()
    assert (root.status, [row.status for row in rows()]) == ("failed", ["failed", "cancelled", "cancelled"])
    assert MapRun.objects.get().state == "undone"


class Single(Doubled):
    @map_step(Double, fan_out=1)
    def doubled(self, numbers: list[int]) -> Iterable[dict[str, int]]:
        return ({"n": n} for n in numbers)
