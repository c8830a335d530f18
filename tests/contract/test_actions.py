"""PROTOCOL 10 for users: which statuses allow undo, retry, cancel, answers and timeouts, and where each leads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from django_reactor import Dispatched, Reactor, actions, interrupt, step, sweeper
from django_reactor.core.statuses import FORWARD, HELD, Status, Stop
from django_reactor.exceptions import AlreadyResumed, ExecutionNotFound, InputError, InvalidTransition
from django_reactor.journal.due import WAITING
from django_reactor.models import Execution, JournalEntry, Wait
from tests.contract.stores import HOUR, Orm

REFUSED = "refused"
UNCHANGED = "unchanged"

LEADS_TO: dict[str, dict[Status, str]] = {
    "cancel": {
        Status.PENDING: Status.CANCELLED,
        Status.RUNNING: Status.RUNNING,  # its runner obeys at its next write
        Status.SCHEDULED: Status.CANCELLED,
        Status.PAUSED: Status.CANCELLED,
        Status.ROLLING_BACK: REFUSED,
        Status.COMPLETED: REFUSED,
        Status.FAILED: REFUSED,
        Status.HALTED: REFUSED,
        Status.CANCELLED: UNCHANGED,
        Status.UNDONE: REFUSED,
        Status.ABORTED: Status.CANCELLED,
    },
    "undo": {
        Status.PENDING: REFUSED,
        Status.RUNNING: REFUSED,
        Status.SCHEDULED: REFUSED,
        Status.PAUSED: Status.UNDONE,
        Status.ROLLING_BACK: REFUSED,
        Status.COMPLETED: Status.UNDONE,
        Status.FAILED: REFUSED,
        Status.HALTED: Status.UNDONE,
        Status.CANCELLED: Status.UNDONE,
        Status.UNDONE: REFUSED,
        Status.ABORTED: Status.UNDONE,
    },
    "retry": dict.fromkeys(Status, REFUSED) | {Status.FAILED: Status.COMPLETED, Status.ABORTED: Status.COMPLETED},
}
CANCEL_FIRST = {Status.PENDING, Status.RUNNING, Status.SCHEDULED}


class Acted(Reactor):
    class Meta:
        app_label = "contract"

    @step
    def only(self) -> str:
        return "done"

    @only.undo
    def take_back(self, result: str) -> None: ...


@pytest.fixture
def execution(orm: Orm) -> Execution:
    Acted.run()
    return Execution.objects.get()


def put(orm: Orm, execution_id: UUID, status: Status, **columns: Any) -> None:
    held = status in HELD
    lease = {"lease_token": uuid4(), "lease_expires_at": orm.now() + HOUR} if held else {}
    orm.change(execution_id, status=status, **lease | columns)


def stored() -> list[Any]:
    return [list(Execution.objects.values()), list(JournalEntry.objects.values())]


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("action", LEADS_TO)
def test_each_status_allows_its_actions(orm: Orm, execution: Execution, action: str, status: Status) -> None:
    put(orm, execution.pk, status)
    before, expected = stored(), LEADS_TO[action][status]
    if expected == REFUSED:
        with pytest.raises(InvalidTransition) as refused:
            getattr(execution, action)()
        assert (refused.value.action, refused.value.status) == (action, status)
        assert f"cannot {action} execution {execution.pk}: it is {status}" in str(refused.value)
        assert ("cancel it first" in str(refused.value)) == (action == "undo" and status in CANCEL_FIRST)
        assert stored() == before
        return
    getattr(execution, action)()
    if expected == UNCHANGED:
        assert stored() == before
        return
    execution.refresh_from_db()
    assert execution.status == expected
    if expected != Status.RUNNING:
        assert (execution.lease_token, execution.wake_at, execution.stop) == (None, None, "")


@pytest.mark.parametrize("status", [Status.RUNNING, Status.ROLLING_BACK])
def test_an_expired_lease_lets_a_cancel_end_only_what_went_forward(
    orm: Orm, execution: Execution, status: Status
) -> None:
    put(orm, execution.pk, status, lease_expires_at=orm.now() - timedelta(seconds=1))
    if status is Status.RUNNING:
        execution.cancel()
        execution.refresh_from_db()
        assert execution.status == Status.CANCELLED
    else:
        with pytest.raises(InvalidTransition):
            execution.cancel()


def test_with_a_stop_pending_a_cancel_is_repeated_and_nothing_else_is_allowed(orm: Orm, execution: Execution) -> None:
    put(orm, execution.pk, Status.RUNNING)
    execution.cancel("first")
    execution.cancel("second")
    for action in ("undo", "retry"):
        with pytest.raises(InvalidTransition):
            getattr(execution, action)()
    execution.refresh_from_db()
    assert (execution.status, execution.stop, execution.stop_reason) == (Status.RUNNING, "cancel", "second")


@pytest.mark.parametrize("action", ["undo", "retry", "cancel", "deliver", "resume"])
def test_an_unknown_execution_is_not_acted_on(orm: Orm, action: str) -> None:
    with pytest.raises(ExecutionNotFound):
        getattr(actions, action)(uuid4(), *(["payload"] if action == "resume" else []))


class Asked(Reactor):
    class Meta:
        app_label = "contract"

    @interrupt(payload=int, max_attempts=2)
    def ask(self) -> None: ...

    @step
    def after(self, ask: int) -> int:
        return ask


@pytest.fixture
def paused(orm: Orm) -> Execution:
    Asked.run()
    return Execution.objects.get()


def all_of() -> list[Any]:
    return [*stored(), list(Wait.objects.values())]


@pytest.mark.parametrize("status", Status)
def test_each_status_takes_answers_or_refuses_them(orm: Orm, paused: Execution, status: Status) -> None:
    put(orm, paused.pk, status)
    if status not in FORWARD:
        before = all_of()
        for payload in (7, "invalid"):
            with pytest.raises(InvalidTransition) as refused:
                paused.resume(payload)
            assert (refused.value.action, refused.value.status) == ("resume", status)
            with pytest.raises(InvalidTransition):
                paused.resume(payload, step="ask")
        assert all_of() == before
        return
    with pytest.raises(InputError):
        paused.resume("invalid")
    result = paused.resume(7)
    after = Execution.objects.get()
    if status is Status.PAUSED:
        assert (result.is_success, after.status) == (True, Status.COMPLETED)
        return
    assert (result, after.status, Wait.objects.get().state) == (Dispatched(paused.pk), status, "accepted")
    before = all_of()
    for step_name in (None, "ask"):
        with pytest.raises(AlreadyResumed):
            paused.resume(8, step=step_name)
    assert all_of() == before


@pytest.mark.parametrize("status", FORWARD)
def test_with_a_stop_pending_no_answer_is_taken(orm: Orm, paused: Execution, status: Status) -> None:
    put(orm, paused.pk, status, stop=Stop.CANCEL)
    before = all_of()
    for payload in (7, "invalid"):
        with pytest.raises(InvalidTransition, match="a cancel is requested"):
            paused.resume(payload)
    assert all_of() == before


@pytest.mark.parametrize("status", Status)
def test_each_status_lets_a_wait_time_out_or_not(orm: Orm, paused: Execution, status: Status) -> None:
    put(orm, paused.pk, status)
    Wait.objects.update(timeout_at=orm.now() - HOUR)
    before = all_of()
    timed_out = sweeper.recovery(lambda message: None).sweep().timed_out
    if status not in FORWARD:
        assert (timed_out, all_of()) == (0, before)
        return
    assert (timed_out, Wait.objects.get().state) == (1, "timed_out")
    assert Execution.objects.get().status == (Status.PENDING if status is Status.PAUSED else status)


@pytest.mark.parametrize("status", Status)
def test_a_delivery_runs_only_what_is_due(orm: Orm, execution: Execution, status: Status) -> None:
    put(orm, execution.pk, status)
    before = stored()
    assert actions.deliver(execution.pk) is None
    assert stored() == before


def due(orm: Orm, status: Status) -> dict[str, Any]:
    past = orm.now() - timedelta(seconds=1)
    return {"lease_expires_at": past} if status in HELD else {"wake_at": past}


@pytest.mark.parametrize("status", Status)
def test_a_delivery_of_what_is_due_goes_on_with_it_where_its_status_allows_that(
    orm: Orm, execution: Execution, status: Status
) -> None:
    put(orm, execution.pk, status, **due(orm, status))
    before = stored()
    if actions.deliver(execution.pk) is None:
        assert status not in (*WAITING, *HELD)
        assert stored() == before
        return
    assert status in (*WAITING, *HELD)
    execution.refresh_from_db()
    assert (Status(execution.status).is_end, execution.lease_token, execution.wake_at) == (True, None, None)


@pytest.mark.parametrize("status", [Status.PENDING, Status.RUNNING, Status.SCHEDULED])
def test_a_sweep_and_a_delivery_obey_a_stop_that_is_pending(orm: Orm, execution: Execution, status: Status) -> None:
    put(orm, execution.pk, status, stop=Stop.CANCEL, stop_reason="enough", **due(orm, status))
    swept: list[UUID] = []
    sweeper.recovery(lambda message: swept.append(message.execution_id)).sweep()
    actions.deliver(execution.pk)
    execution.refresh_from_db()
    assert (swept, execution.status) == ([execution.pk], Status.CANCELLED)
    assert [(entry.action, entry.reason) for entry in execution.trace()][1:] == [("cancel", "enough")]
