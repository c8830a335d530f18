"""A process killed at any instant loses nothing: whoever takes over goes on after the last entry.

At most the body in flight runs again; an atomic step's writes are there exactly once; nothing is stuck.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from django_reactor import Dispatched, Failure, Success, actions
from django_reactor.core.statuses import Action, Status
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.models import Execution
from django_reactor.results import Result
from tests.crash.processes import Processes, expire, only_execution
from tests.crash.reactors import Fails, Places, Refuses, allow, effects

STARTED, BODY, ATOMIC = CrashPoint.STARTED, CrashPoint.BODY_DONE, CrashPoint.ATOMIC_BODY_DONE
RECORDED, UNDONE, END = CrashPoint.RECORDED, CrashPoint.ROLLBACK_BODY_DONE, CrashPoint.BEFORE_END

Point = tuple[CrashPoint, int]
Journal = list[tuple[str, str, str]]

FORWARD: Journal = [
    ("reserve", "run", "success"),
    ("book", "run", "success"),
    ("charge", "run", "success"),
    ("ship", "run", "success"),
]
FAILED: Journal = [*FORWARD[:3], ("ship", "run", "retrying"), ("ship", "run", "failure")]
ROLLED_BACK: Journal = [
    ("ship", "compensate", "success"),
    ("charge", "undo", "success"),
    ("book", "undo", "success"),
    ("reserve", "undo", "success"),
]
PLACED = Counter(["reserve", "book", "charge", "ship"])
REVERSED = Counter(["undo reserved", "undo booked", "undo charged"])
GIVEN_UP = PLACED + REVERSED + Counter(["ship", "compensate ship: ValueError"])


def recovered(execution_id: UUID) -> Result[Any] | None:
    """As the sweeper would, once the lease has expired."""
    if Execution.objects.filter(pk=execution_id, lease_token__isnull=False).exists():
        expire(execution_id)
    return actions.deliver(execution_id)


def journal(execution: Execution) -> Journal:
    return [(entry.step, entry.action, entry.outcome) for entry in execution.trace()]


def name_of(value: Point | Counter[str]) -> str:
    """Of a parameter, in the name of a test."""
    return " and ".join(value) + " again" if isinstance(value, Counter) else f"{value[0]}:{value[1]}"


def again(*bodies: str) -> Counter[str]:
    """Those that ran a second time."""
    return Counter(bodies)


def is_at_rest(execution: Execution, status: Status) -> bool:
    execution.refresh_from_db()
    held = (execution.lease_token, execution.lease_expires_at, execution.wake_at)
    return execution.status == status and held == (None, None, None) and execution.stop == ""


# -- forward -----------------------------------------------------------------------------------------------------------

CRASHES_FORWARD: list[tuple[Point, Counter[str]]] = [
    ((STARTED, 1), again()),
    ((BODY, 1), again("reserve")),
    ((RECORDED, 1), again()),
    ((ATOMIC, 1), again()),
    ((RECORDED, 2), again()),
    ((BODY, 2), again("charge")),
    ((RECORDED, 3), again()),
    ((BODY, 3), again("ship")),
    ((END, 1), again("ship")),
    ((RECORDED, 4), again()),
]


@pytest.mark.parametrize(("point", "ran_again"), CRASHES_FORWARD, ids=name_of)
def test_a_run_that_was_killed_completes(processes: Processes, point: Point, ran_again: Counter[str]) -> None:
    assert processes.run(Places, crash_at=point).was_killed
    execution = only_execution()
    result = recovered(execution.pk)
    if point == (RECORDED, 4):  # the end is stored with the last entry
        assert result is None
    else:
        assert isinstance(result, Success)
    assert is_at_rest(execution, Status.COMPLETED)
    assert execution.result() == Success("shipped", execution_id=execution.pk)
    assert journal(execution) == FORWARD
    assert effects() == PLACED + ran_again


def test_a_run_passes_no_other_point_forward(processes: Processes) -> None:
    """Or the list above is not all of them."""
    last = {point: max(n for (name, n), _ in CRASHES_FORWARD if name is point) for (point, _), _ in CRASHES_FORWARD}
    for point, count in last.items():
        process = processes.run(Places, crash_at=(point, count + 1))
        assert process.how == "exit 0", (point, count)


def test_a_live_lease_keeps_others_away_from_a_killed_run(processes: Processes) -> None:
    processes.run(Places, crash_at=(BODY, 2))
    execution = only_execution()
    assert actions.deliver(execution.pk) is None
    assert effects() == Counter(["reserve", "book", "charge"])


def test_a_run_that_is_killed_again_and_again_completes(processes: Processes) -> None:
    """Each runner dies before it writes, so that its body runs once more, and none before it."""
    processes.run(Places, crash_at=(BODY, 1))
    execution = only_execution()
    for _ in range(2):
        expire(execution.pk)
        assert processes.act("deliver", execution.pk, crash_at=(BODY, 1)).was_killed
    assert isinstance(recovered(execution.pk), Success)
    assert journal(execution) == FORWARD
    assert effects() == PLACED + again("reserve", "reserve", "reserve")


# -- in a rollback -----------------------------------------------------------------------------------------------------

CRASHES_ROLLING_BACK: list[tuple[Point, Counter[str]]] = [
    ((BODY, 3), again("ship")),
    ((RECORDED, 4), again()),
    ((BODY, 4), again("ship")),
    ((RECORDED, 5), again()),
    ((UNDONE, 1), again("compensate ship")),
    ((RECORDED, 6), again()),
    ((UNDONE, 2), again("undo charged")),
    ((RECORDED, 7), again()),
    ((ATOMIC, 2), again()),
    ((RECORDED, 8), again()),
    ((UNDONE, 3), again("undo reserved")),
    ((END, 1), again("undo reserved")),
    ((RECORDED, 9), again()),
]


def compensations_as_one(counted: Counter[str]) -> Counter[str]:
    """Another process knows the error from the journal only, and gets it as `StepFailed`."""
    return Counter(effect.partition(":")[0] for effect in counted.elements())


@pytest.mark.parametrize(("point", "ran_again"), CRASHES_ROLLING_BACK, ids=name_of)
def test_a_rollback_that_was_killed_is_completed(processes: Processes, point: Point, ran_again: Counter[str]) -> None:
    assert processes.run(Fails, crash_at=point).was_killed
    execution = only_execution()
    result = recovered(execution.pk)
    if point == (RECORDED, 9):
        assert result is None
    else:
        assert isinstance(result, Failure)
    assert is_at_rest(execution, Status.FAILED)
    failure = execution.result()
    assert isinstance(failure, Failure)
    assert (failure.message, failure.step, failure.rollback_failures) == ("no lorry", "ship", [])
    assert journal(execution) == FAILED + ROLLED_BACK
    assert compensations_as_one(effects()) == compensations_as_one(GIVEN_UP + ran_again)


def test_a_rollback_passes_no_other_point(processes: Processes) -> None:
    for point, count in ((BODY, 5), (ATOMIC, 3), (RECORDED, 10), (UNDONE, 4), (END, 2)):
        assert processes.run(Fails, crash_at=(point, count)).how == "exit 0", (point, count)


# -- in undo(), retry() and cancel() -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "ran_again"),
    [
        ((UNDONE, 1), again("undo charged")),
        ((RECORDED, 1), again()),
        ((ATOMIC, 1), again()),
        ((RECORDED, 2), again()),
        ((UNDONE, 2), again("undo reserved")),
        ((END, 1), again("undo reserved")),
        ((RECORDED, 3), again()),
    ],
    ids=name_of,
)
def test_an_undo_that_was_killed_is_completed(processes: Processes, point: Point, ran_again: Counter[str]) -> None:
    execution_id = Places.run().execution_id
    assert execution_id is not None
    assert processes.act("undo", execution_id, crash_at=point).was_killed
    execution = only_execution()
    recovered(execution.pk)
    assert is_at_rest(execution, Status.UNDONE)
    assert journal(execution) == [*FORWARD, ("", "rollback", ""), *ROLLED_BACK[1:]]
    assert effects() == PLACED + REVERSED + ran_again


def test_an_undo_that_lists_a_failure_and_was_killed_keeps_its_list(processes: Processes) -> None:
    execution_id = Refuses.run().execution_id
    assert execution_id is not None
    assert processes.act("undo", execution_id, crash_at=(UNDONE, 2)).was_killed
    execution = only_execution()
    recovered(execution.pk)
    assert is_at_rest(execution, Status.FAILED)
    assert effects() == PLACED + REVERSED + again("undo shipped", "undo charged")
    failure = execution.result()
    assert isinstance(failure, Failure)
    assert [(listed.step, listed.message) for listed in failure.rollback_failures] == [("ship", "the lorry is gone")]


RETRIED: Journal = [*FAILED, *ROLLED_BACK, ("", "retry", ""), *FORWARD]


@pytest.mark.parametrize(
    ("point", "ran_again"),
    [
        ((BODY, 1), again("reserve")),
        ((RECORDED, 1), again()),
        ((ATOMIC, 1), again()),
        ((RECORDED, 2), again()),
        ((BODY, 2), again("charge")),
        ((BODY, 3), again("ship")),
        ((END, 1), again("ship")),
        ((RECORDED, 4), again()),
    ],
    ids=name_of,
)
def test_a_retry_that_was_killed_completes(processes: Processes, point: Point, ran_again: Counter[str]) -> None:
    execution_id = Fails.run().execution_id
    assert execution_id is not None
    allow("ship")
    assert processes.act("retry", execution_id, crash_at=point).was_killed
    execution = only_execution()
    recovered(execution.pk)
    assert is_at_rest(execution, Status.COMPLETED)
    assert journal(execution) == RETRIED
    assert effects() == GIVEN_UP + PLACED + Counter(["allowed ship"]) + ran_again


def test_a_retry_that_mends_an_undo_and_was_killed_goes_on_mending(processes: Processes) -> None:
    execution_id = Refuses.run().execution_id
    assert execution_id is not None
    assert isinstance(actions.undo(execution_id), Failure)
    allow("undo")
    assert processes.act("retry", execution_id, crash_at=(UNDONE, 1)).was_killed
    execution = only_execution()
    assert isinstance(recovered(execution.pk), Success)
    assert is_at_rest(execution, Status.COMPLETED)
    assert effects()["undo shipped"] == 3  # it failed; the killed process; the one that took over
    assert effects()["ship"] == 2


def test_a_killed_run_is_cancelled_and_the_step_in_which_it_died_is_compensated_by_a_later_undo(
    processes: Processes,
) -> None:
    processes.run(Places, crash_at=(BODY, 2))
    execution = only_execution()
    expire(execution.pk)
    execution.cancel("the customer changed her mind")
    assert is_at_rest(execution, Status.CANCELLED)
    assert journal(execution) == [*FORWARD[:2], ("charge", "abort", ""), ("", "cancel", "")]
    assert effects() == Counter(["reserve", "book", "charge"])

    execution.undo()
    assert is_at_rest(execution, Status.UNDONE)
    done = Counter(["compensate charge: Interrupted", "undo booked", "undo reserved"])
    assert effects() == Counter(["reserve", "book", "charge"]) + done


def test_a_cancel_waits_for_the_lease_of_a_killed_run_and_is_obeyed_then(processes: Processes) -> None:
    processes.run(Places, crash_at=(BODY, 2))
    execution = only_execution()
    execution.cancel("too slow")
    execution.refresh_from_db()
    assert (execution.status, execution.stop, execution.stop_reason) == (Status.RUNNING, "cancel", "too slow")
    recovered(execution.pk)
    assert is_at_rest(execution, Status.CANCELLED)
    assert effects() == Counter(["reserve", "book", "charge"])


def test_a_worker_that_is_killed_before_it_writes_the_end_of_a_cancelled_run_leaves_that_to_the_next(
    processes: Processes,
) -> None:
    processes.run(Places, crash_at=(BODY, 2))
    execution = only_execution()
    execution.cancel("too slow")
    expire(execution.pk)
    assert processes.act("deliver", execution.pk, crash_at=(END, 1)).was_killed
    execution.refresh_from_db()
    assert (execution.status, execution.stop) == (Status.RUNNING, "cancel")
    recovered(execution.pk)
    assert is_at_rest(execution, Status.CANCELLED)
    assert journal(execution) == [*FORWARD[:2], ("charge", "abort", ""), ("", "cancel", "")]
    assert effects() == Counter(["reserve", "book", "charge"])


def test_a_run_that_was_killed_before_any_body_is_cancelled_with_nothing_to_undo(processes: Processes) -> None:
    processes.run(Places, crash_at=(STARTED, 1))
    execution = only_execution()
    expire(execution.pk)
    execution.cancel()
    execution.undo()
    assert is_at_rest(execution, Status.UNDONE)
    assert effects() == Counter()


# -- stalled, not dead -------------------------------------------------------------------------------------------------


def test_a_stalled_runner_writes_nothing_more_and_returns_dispatched(processes: Processes) -> None:
    stalled = processes.run(Places, stall_at="charge")
    assert stalled.how == "stopped"
    execution = only_execution()
    assert isinstance(recovered(execution.pk), Success)
    row, entries = Execution.objects.values().get(), journal(execution)

    process = processes.go_on(stalled)

    assert process.how == "exit 0"
    assert process.result.startswith(Dispatched.__name__)
    assert Execution.objects.values().get() == row
    assert journal(execution) == entries == FORWARD
    assert effects() == PLACED + again("charge")


def test_a_runner_that_stalled_in_a_rollback_writes_nothing_more(processes: Processes) -> None:
    stalled = processes.run(Fails, stall_at="undo charged")
    assert stalled.how == "stopped"
    execution = only_execution()
    assert isinstance(recovered(execution.pk), Failure)
    process = processes.go_on(stalled)
    assert process.result.startswith(Dispatched.__name__)
    assert is_at_rest(execution, Status.FAILED)
    assert journal(execution) == FAILED + ROLLED_BACK
    assert effects() == GIVEN_UP + again("undo charged")


def test_a_runner_that_stalled_in_an_atomic_step_leaves_no_writes(processes: Processes, database: str) -> None:
    if database == "sqlite":
        pytest.skip("the stalled transaction holds the only write lock: nobody can take over")
    stalled = processes.run(Places, stall_at="book")
    assert stalled.how == "stopped"
    execution = only_execution()
    assert isinstance(recovered(execution.pk), Success)
    process = processes.go_on(stalled)
    assert process.result.startswith(Dispatched.__name__)
    assert journal(execution) == FORWARD
    assert effects() == PLACED


def test_a_stalled_runner_does_not_revive_what_was_cancelled_meanwhile(processes: Processes) -> None:
    stalled = processes.run(Places, stall_at="charge")
    execution = only_execution()
    expire(execution.pk)
    execution.cancel()
    process = processes.go_on(stalled)
    assert process.result.startswith(Dispatched.__name__)
    assert is_at_rest(execution, Status.CANCELLED)
    assert [entry.action for entry in execution.trace()][-2:] == [Action.ABORT, Action.CANCEL]
    assert effects() == Counter(["reserve", "book", "charge"])


def test_a_runner_that_is_cancelled_in_a_body_journals_it_and_stops_there(processes: Processes) -> None:
    stalled = processes.run(Places, stall_at="charge")
    execution = only_execution()
    execution.cancel("enough")
    process = processes.go_on(stalled)
    assert process.result.startswith(Failure.__name__)
    assert is_at_rest(execution, Status.CANCELLED)
    assert journal(execution) == [*FORWARD[:3], ("", "cancel", "")]
