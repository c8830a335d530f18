"""The hot statements: the same rows, whichever cursor they go through and however the connection is set up."""

from __future__ import annotations

import gc
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import UTC, datetime
from types import FrameType
from typing import Any
from uuid import uuid4
from weakref import ref

import pytest
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.test.utils import CaptureQueriesContext

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import HELD, Action, EntryOutcome, Status
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.records import Lease, Move
from django_reactor.journal.orm import OrmJournal
from django_reactor.models import Execution, JournalEntry
from tests.contract.committed import PATIENCE, another_session
from tests.contract.connections import default_connection_with
from tests.contract.stores import Orm, lease_of, new_execution

LONG = "x" * 300_000
TEXTS = ["", "plain", "ünïcode 🙈 \u2028", 'it\'s "quoted" \\ %s %% ? :1 $1', "line\nbreak\ttab", LONG]
INSTANTS = [
    datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC),
    datetime(2024, 3, 31, 1, 30, tzinfo=UTC),  # an hour that summer time skips in Paris
    datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]


def listened_to() -> AbstractContextManager[Any]:
    """While somebody listens the statements go through Django's cursor."""
    return CaptureQueriesContext(connection)


def wrapped() -> AbstractContextManager[Any]:
    return connection.execute_wrapper(lambda execute, *arguments: execute(*arguments))


@pytest.fixture(
    params=["the driver's cursor", "listened to", "wrapped", "in local time", "prepared", "bound by the server"]
)
def cursor(request: pytest.FixtureRequest, orm: Orm, database: str) -> Iterator[None]:
    ways: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "the driver's cursor": nullcontext,
        "listened to": listened_to,
        "wrapped": wrapped,
        "in local time": lambda: default_connection_with(time_zone="Europe/Paris"),
        "prepared": lambda: default_connection_with(prepare_threshold=0),
        "bound by the server": lambda: default_connection_with(server_side_binding=True),
    }
    if request.param in ("prepared", "bound by the server") and database != "postgresql":
        pytest.skip("an option of PostgreSQL")
    with ways[request.param]():
        yield


def entries() -> list[Entry]:
    """Every column in every shape that it may take."""
    made: list[Entry] = []
    for number, text in enumerate(TEXTS):
        made.append(
            Entry(
                seq=len(made) + 1,
                action=list(Action)[number],
                step=text[:200],
                outcome=list(EntryOutcome)[number],
                attempt=number,
                arguments=None if number % 2 else text,
                value=text if number % 2 else None,
                error={"message": text, "nested": [None, 1.5, {"b": 1, "a": True}], "nul": "\x00"} if text else None,
                reason=text,
                undoable=bool(number % 2),
                started_at=INSTANTS[number % 3],
                finished_at=INSTANTS[(number + 1) % 3],
            )
        )
    return made


def test_an_entry_comes_back_as_it_was_written_through_every_cursor(orm: Orm, cursor: None) -> None:
    new = new_execution()
    assert orm.executions.start(new)
    journal, written = OrmJournal(), entries()
    for entry in written[:-2]:
        journal.append(lease_of(new), entry)
    journal.reconsider(lease_of(new), written[-2])
    journal.move(lease_of(new), Move(to=Status.FAILED, expected=HELD), written[-1])
    assert list(journal.load(new.id)[1]) == written


def test_an_entry_comes_back_from_the_models_as_it_was_written(orm: Orm, cursor: None) -> None:
    """The models' own reading is independent of the journal's."""
    new = new_execution()
    assert orm.executions.start(new)
    for entry in entries():
        OrmJournal().append(lease_of(new), entry)
    rows = JournalEntry.objects.filter(execution=new.id).order_by("seq")
    assert [{name: getattr(row, name) for name in Entry.__slots__} for row in rows] == [
        {name: getattr(entry, name) for name in Entry.__slots__} for entry in entries()
    ]
    for name in ("arguments", "value", "error"):
        nothing = [entry.seq for entry in entries() if getattr(entry, name) is None]
        assert list(rows.filter(**{f"{name}__isnull": True}).values_list("seq", flat=True)) == nothing


@pytest.mark.parametrize("text", TEXTS)
def test_an_execution_comes_back_as_it_was_started_and_ended(orm: Orm, cursor: None, text: str) -> None:
    new = new_execution(
        inputs=text, tags=[text[:50], "vip"], idempotency_key=f"key {text[:200]}", priority=-3, queue_name="slow"
    )
    assert orm.executions.start(new)
    failure = {"message": text, "rollback_failures": [{"step": "a", "nul": "\x00"}]}
    OrmJournal().move(
        lease_of(new), Move(to=Status.FAILED, expected=HELD, output=text, failure=failure, rollback_failures=2)
    )
    row = Execution.objects.get(pk=new.id)
    assert (row.inputs, row.output, row.tags) == (text, text, [text[:50], "vip"])
    assert (row.idempotency_key, row.priority, row.queue_name) == (f"key {text[:200]}", -3, "slow")
    assert (row.failure, row.rollback_failures, row.carried) == (failure, 2, {})


def test_a_started_row_is_what_the_models_defaults_say(orm: Orm, cursor: None) -> None:
    """The statement names every column itself: none may differ from the model's default."""
    new = new_execution()
    assert orm.executions.start(new)
    row = Execution.objects.get(pk=new.id)
    given = {"id", "reactor", "fingerprint", "inputs", "status", "root", "owner", "queue_name"}
    leased = {"lease_token", "lease_expires_at", "epoch", "recoveries", "created_at", "started_at", "updated_at"}
    for field in Execution._meta.concrete_fields:
        if field.name not in given | leased:
            assert getattr(row, field.attname) == field.get_default(), field.name
    assert (row.root_id, row.owner_id, row.queue_name) == (new.id, new.id, "default")
    assert row.created_at == row.started_at == row.updated_at


def test_the_statements_are_prepared_where_the_project_allows_it(orm: Orm, database: str) -> None:
    if database != "postgresql":
        pytest.skip("an option of PostgreSQL")

    def prepared_inserts() -> int:
        new = new_execution()
        assert orm.executions.start(new)
        for entry in entries():
            OrmJournal().append(lease_of(new), entry)
        with connection.cursor() as own:
            own.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT INTO %%'")
            return int(own.fetchone()[0])

    with default_connection_with(prepare_threshold=None):
        assert prepared_inserts() == 0
    with default_connection_with(prepare_threshold=1):
        assert prepared_inserts() >= 1


def test_a_statement_goes_through_the_connection_that_stands_now(orm: Orm, cursor: None) -> None:
    """Between two of them a server's connection may have been given up, as after a request or a time out."""
    new = new_execution()
    assert orm.executions.start(new)
    first, second, *_ = entries()
    OrmJournal().append(lease_of(new), first)
    connection.close()
    OrmJournal().append(lease_of(new), second)
    assert list(OrmJournal().load(new.id)[1]) == [first, second]


def test_the_connection_of_a_thread_that_has_ended_is_not_kept_alive(orm: Orm) -> None:
    with default_connection_with():
        assert orm.executions.start(new_execution())
        used = ref(connections[DEFAULT_DB_ALIAS])
    gc.collect()
    assert used() is None


def test_nobody_who_listens_misses_a_statement(orm: Orm) -> None:
    new = new_execution()
    seen: list[str] = []

    def listen(execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        seen.append(sql.split()[0])
        return execute(sql, *arguments)

    with ExitStack() as both:
        captured = both.enter_context(CaptureQueriesContext(connection))
        both.enter_context(connection.execute_wrapper(listen))
        assert orm.executions.start(new)
        OrmJournal().append(lease_of(new), entries()[0])
        OrmJournal().move(lease_of(new), Move(to=Status.COMPLETED, expected=HELD), None)
    assert [word for word in seen if word != "BEGIN"] == ["INSERT", "INSERT", "UPDATE"]
    assert [q["sql"].split()[0] for q in captured.captured_queries] == ["INSERT", "INSERT", "BEGIN", "UPDATE", "COMMIT"]


def test_an_end_whose_entry_is_refused_is_taken_back_and_leaves_no_transaction_open(orm: Orm, cursor: None) -> None:
    """Of a number that is there already: another runner's."""
    new = new_execution()
    assert orm.executions.start(new)
    first, second, *_ = entries()
    OrmJournal().append(lease_of(new), first)
    before = orm.row(new.id)
    with pytest.raises(Refused):
        OrmJournal().move(lease_of(new), Move(to=Status.COMPLETED, expected=HELD, output="1"), first)
    assert orm.row(new.id) == before
    with another_session() as session:
        assert session(lambda: orm.row(new.id).status).result(PATIENCE) is Status.RUNNING
        OrmJournal().move(lease_of(new), Move(to=Status.COMPLETED, expected=HELD, output="1"), second)
        assert session(lambda: orm.row(new.id).status).result(PATIENCE) is Status.COMPLETED
    assert list(orm.row(new.id).entries) == [first, second]


def test_an_end_that_is_refused_by_the_fence_leaves_no_entry(orm: Orm, cursor: None) -> None:
    new = new_execution()
    assert orm.executions.start(new)
    before = orm.row(new.id)
    with pytest.raises(Refused):
        OrmJournal().move(Lease(new.id, uuid4()), Move(to=Status.COMPLETED, expected=HELD), entries()[0])
    assert orm.row(new.id) == before


@pytest.mark.parametrize("number", [1, 2, 3, 4], ids=["begin", "update", "insert", "commit"])
def test_an_end_on_sqlite_that_is_interrupted_right_after_one_of_its_statements_is_whole_or_not_there(
    orm: Orm, database: str, number: int
) -> None:
    if database != "sqlite":
        pytest.skip("elsewhere it is one statement, or Django's transaction")
    new = new_execution()
    assert orm.executions.start(new)
    before, executed = orm.row(new.id), 0

    def strike(frame: FrameType, event: str, called: Any) -> None:
        """As a signal's handler would, between two operations of Python."""
        nonlocal executed
        if event == "c_return" and isinstance(getattr(called, "__self__", None), sqlite3.Cursor):
            executed += called.__name__ == "execute"
            if executed == number:
                raise KeyboardInterrupt

    sys.setprofile(strike)
    try:
        with pytest.raises(KeyboardInterrupt):
            OrmJournal().move(lease_of(new), Move(to=Status.COMPLETED, expected=HELD), entries()[0])
    finally:
        sys.setprofile(None)
    after = orm.row(new.id)
    with another_session() as session:
        session(lambda: orm.change(new.id, priority=1)).result(PATIENCE)  # which nobody's open transaction holds up
    if number < 4:
        assert after == before
    else:
        assert (after.status, len(after.entries)) == (Status.COMPLETED, 1)
