"""Actions inside a caller's transaction that began before what they act on (MySQL's snapshots, PROTOCOL 2.2 and 2.3).

On READ COMMITTED each statement sees what is committed; on SQLite nobody else can write meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, cast
from uuid import UUID

import pytest
from django.db import OperationalError, transaction

from django_reactor import Failure, Reactor, Success, actions, interrupt, map_step, step
from django_reactor.core.statuses import Status
from django_reactor.engine.records import NewExecution
from django_reactor.exceptions import InvalidTransition
from django_reactor.models import Execution, JournalEntry, MapRun
from tests.contract.committed import PATIENCE, another_session
from tests.contract.connections import default_connection_with
from tests.contract.stores import HOUR, Orm, entry, lease_of, new_execution

_ran: Counter[str] = Counter()
_may_succeed: list[bool] = []


class Snapshot(Reactor):
    class Meta:
        app_label = "contract"
        returns = "charge"

    @step
    def reserve(self) -> str:
        _ran["reserve"] += 1
        return "reserved"

    @reserve.undo
    def release(self, result: str) -> None:
        _ran[f"undo {result}"] += 1

    @step
    def charge(self, reserve: str) -> str:
        _ran["charge"] += 1
        if not _may_succeed:
            raise ValueError("declined")
        return "charged"

    @charge.undo
    def refund(self, result: str) -> None:
        _ran[f"undo {result}"] += 1


class Inquiry(Reactor[str]):
    """An element that pauses the root."""

    number: int

    class Meta:
        app_label = "contract"
        returns = "answer"

    @interrupt(payload=str)
    def answer(self) -> None: ...

    @step
    def keep(self, answer: str) -> str:
        return answer

    @keep.undo
    def drop(self, result: str) -> None:
        _ran[f"undo {result}"] += 1


class AskedTwice(Reactor[Any]):
    class Meta:
        app_label = "contract"
        returns = "asked"

    @map_step(Inquiry)
    def asked(self) -> Any:
        return ({"number": number} for number in range(2))


@pytest.fixture(autouse=True)
def snapshots(orm: Orm, database: str) -> Iterator[None]:
    """MySQL's own default isolation, which keeps a snapshot for the whole transaction; Django's default does not."""
    if database == "sqlite":
        pytest.skip("one writer at a time: nothing changes behind a transaction that writes")
    _ran.clear()
    _may_succeed[:] = [True]
    with default_connection_with(isolation_level="repeatable read") if database == "mysql" else nullcontext():
        yield


@pytest.fixture
def waiting(orm: Orm) -> NewExecution:
    """Its process died before any body, and its lease is over."""
    new = new_execution(reactor="contract.Snapshot", inputs="{}")
    assert orm.executions.start(new)
    orm.change(new.id, lease_expires_at=orm.now() - HOUR)
    return new


def take_a_snapshot() -> None:
    """What MySQL shows to the rest of the transaction."""
    list(Execution.objects.all())
    list(JournalEntry.objects.all())


def elsewhere(action: Any, *arguments: Any) -> Any:
    with another_session() as session:
        return session(lambda: action(*arguments)).result(PATIENCE)


def status_of(execution_id: UUID) -> Status:
    return Status(Execution.objects.values_list("status", flat=True).get(pk=execution_id))


def test_what_completed_behind_the_snapshot_is_undone(waiting: NewExecution) -> None:
    with transaction.atomic():
        take_a_snapshot()
        assert isinstance(elsewhere(actions.deliver, waiting.id), Success)
        actions.undo(waiting.id)
    assert status_of(waiting.id) is Status.UNDONE
    assert _ran == Counter(["reserve", "charge", "undo charged", "undo reserved"])


def test_what_failed_behind_the_snapshot_is_retried(waiting: NewExecution) -> None:
    _may_succeed.clear()
    with transaction.atomic():
        take_a_snapshot()
        assert isinstance(elsewhere(actions.deliver, waiting.id), Failure)
        _may_succeed.append(True)
        assert actions.retry(waiting.id) == Success("charged", execution_id=waiting.id)
    assert status_of(waiting.id) is Status.COMPLETED
    assert _ran == Counter(["reserve", "charge", "undo reserved", "reserve", "charge"])
    seqs = JournalEntry.objects.order_by("seq").values_list("seq", flat=True)
    assert list(seqs) == list(range(1, len(seqs) + 1))


def test_what_was_begun_behind_the_snapshot_is_continued(orm: Orm, waiting: NewExecution) -> None:
    """Its entries are those that another process appended meanwhile."""
    value = '"reserved"'

    def append() -> None:
        orm.journal(waiting).append(lease_of(waiting), entry(1, step="reserve", value=value, undoable=True))

    with transaction.atomic():
        take_a_snapshot()
        elsewhere(append)
        assert isinstance(actions.deliver(waiting.id), Success)
    assert _ran == Counter(["charge"])


def test_what_ended_behind_the_snapshot_cannot_be_cancelled_and_says_as_what(waiting: NewExecution) -> None:
    with transaction.atomic():
        take_a_snapshot()
        elsewhere(actions.deliver, waiting.id)
        with pytest.raises(InvalidTransition, match="it is completed"):
            actions.cancel(waiting.id)


def test_what_was_started_behind_the_snapshot_can_be_acted_on() -> None:
    with transaction.atomic():
        take_a_snapshot()
        execution_id = elsewhere(Snapshot.run).execution_id
        actions.undo(execution_id)
    assert status_of(execution_id) is Status.UNDONE


def test_an_idempotency_key_taken_behind_the_snapshot_is_found() -> None:
    call = Snapshot.using(idempotency_key="17")
    with transaction.atomic():
        take_a_snapshot()
        first = elsewhere(call.run)
        assert call.run() == first
    assert _ran == Counter(["reserve", "charge"])


def test_what_an_element_did_behind_the_snapshot_counts_in_its_map() -> None:
    root = AskedTwice.run().execution_id
    assert root is not None
    with transaction.atomic():
        take_a_snapshot()
        elsewhere(actions.resume, root, "first")
        results: Any = actions.resume(root, "second").unwrap()
        assert list(results.values()) == ["first", "second"]
        assert (len(results.successes), results.summary()["succeeded"]) == (2, 2)
    assert cast(Any, MapRun.objects.get(execution=root).summary)["succeeded"] == 2


def test_what_an_element_did_behind_the_snapshot_is_undone_with_its_map() -> None:
    root = AskedTwice.run().execution_id
    assert root is not None
    with transaction.atomic():
        take_a_snapshot()
        elsewhere(actions.resume, root, "first")
        actions.undo(root)
    assert status_of(root) is Status.UNDONE
    assert _ran == Counter(["undo first"])


def test_a_stricter_isolation_on_postgres_is_the_callers_error(waiting: NewExecution, database: str) -> None:
    """Nothing is tried again inside the caller's transaction; afterwards it can be repeated."""
    if database != "postgresql":
        pytest.skip("an isolation level of PostgreSQL")
    from psycopg import IsolationLevel

    def in_one_transaction() -> None:
        with transaction.atomic():
            take_a_snapshot()
            elsewhere(actions.undo, waiting.id)
            actions.undo(waiting.id)

    actions.deliver(waiting.id)
    with default_connection_with(isolation_level=IsolationLevel.REPEATABLE_READ):
        with pytest.raises(OperationalError, match="could not serialize access"):
            in_one_transaction()
        with transaction.atomic(), pytest.raises(InvalidTransition, match="it is undone"):
            actions.undo(waiting.id)
    assert status_of(waiting.id) is Status.UNDONE
    assert _ran["undo charged"] == 1
