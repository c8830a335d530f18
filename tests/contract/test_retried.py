"""What the database broke off for another's sake is carried out again, up to three times, and never inside a caller's
transaction (PROTOCOL 2.4). The database really does it: by a lock timeout, a deadlock, a locked SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError, connection, transaction

from django_reactor.core.statuses import HELD, Action, Status, Stop
from django_reactor.engine.buffered import BufferedJournal
from django_reactor.engine.records import ExecutionRecord, Lease, Move, Release
from django_reactor.journal.orm import OrmJournal
from django_reactor.journal.transactions import retried
from django_reactor.models import Execution, JournalEntry
from tests.contract.committed import PATIENCE, another_session
from tests.contract.connections import default_connection_with
from tests.contract.locks import session_id, until_blocked
from tests.contract.stores import HOUR, INSTANT, Orm, entry, lease_of, new_execution

TRIES = 4
"""The first, and three more."""


@pytest.fixture
def lease(orm: Orm) -> Lease:
    new = new_execution()
    assert orm.executions.start(new)
    return lease_of(new)


@contextmanager
def impatient(database: str) -> Iterator[None]:
    """A connection that gives a lock up as soon as it can."""
    if database == "sqlite":
        with default_connection_with(timeout=0.01):
            yield
        return
    shortest = 0 if getattr(connection, "mysql_is_mariadb", False) else 1
    set_, reset = {
        "postgresql": ("SET lock_timeout = '50ms'", "SET lock_timeout = 0"),
        "mysql": (f"SET innodb_lock_wait_timeout = {shortest}", "SET innodb_lock_wait_timeout = 50"),
    }[database]
    with connection.cursor() as cursor:
        cursor.execute(set_)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(reset)


class Blocker:
    """Another session that keeps this execution's row locked (on SQLite: everything) until it is told to let go."""

    def __init__(self, lease: Lease, session: Callable[[Callable[[], None]], Any]) -> None:
        self._lease, self._session, self._block = lease, session, transaction.atomic()
        self._session(self._lock).result(PATIENCE)
        self.holds = True

    def _lock(self) -> None:
        self._block.__enter__()
        Execution.objects.filter(pk=self._lease.execution_id).update(priority=1)

    def let_go(self) -> None:
        if self.holds:
            self.holds = False
            self._session(lambda: self._block.__exit__(None, None, None)).result(PATIENCE)


class Attempts:
    """Counts how often a statement of this kind is sent, and lets the blocker go before the n-th."""

    def __init__(self, word: str, blocker: Blocker, *, let_go_before: int | None) -> None:
        self.count, self._word, self._blocker, self._let_go_before = 0, word, blocker, let_go_before

    def __call__(self, execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        if sql.startswith(self._word):
            self.count += 1
            if self.count == self._let_go_before:
                self._blocker.let_go()
        return execute(sql, *arguments)

    def __enter__(self) -> Attempts:
        self._wrapper: AbstractContextManager[Any] = connection.execute_wrapper(self)
        self._wrapper.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._wrapper.__exit__(*raised)


def verbs(orm: Orm, lease: Lease) -> dict[str, Callable[[], object]]:
    """Every transaction of the engine that waits for the row."""
    journal, executions, pk = OrmJournal(), orm.executions, lease.execution_id
    keyed = new_execution(idempotency_key="17")
    return {
        "append": lambda: journal.append(lease, entry(1)),
        "move": lambda: journal.move(lease, Move(to=Status.COMPLETED, expected=HELD), entry(1)),
        "an end with all that was held back": lambda: held_back(orm, lease).move(
            lease, Move(to=Status.COMPLETED, expected=HELD)
        ),
        "a release with all that was held back": lambda: held_back(orm, lease).release(
            lease, Release(to=Status.SCHEDULED)
        ),
        "a flush": lambda: held_back(orm, lease).flush(),
        "reconsider": lambda: journal.reconsider(lease, entry(1)),
        "release": lambda: journal.release(lease, Release(to=Status.SCHEDULED)),
        "request_stop": lambda: executions.request_stop(pk, Stop.CANCEL, "enough"),
        "take": lambda: executions.take(pk, Action.ROLLBACK, uuid4(), INSTANT),
        "start": lambda: executions.start(new_execution()),
        "start with a key": lambda: executions.start(keyed),
        "claim": lambda: executions.claim(pk, uuid4()),
        "renew": lambda: executions.renew({pk: lease.token}),
    }


def held_back(orm: Orm, lease: Lease) -> BufferedJournal:
    """With one entry that is not stored yet."""
    new = replace(new_execution(), id=lease.execution_id, token=lease.token)
    journal = BufferedJournal(OrmJournal(), orm.executions, orm.transactions, new, ExecutionRecord.of(new), stored=True)
    journal.append(lease, entry(1))
    return journal


HELD_BACK = ("an end with all that was held back", "a release with all that was held back", "a flush")
WAITS_FOR_THE_ROW = ["append", "move", *HELD_BACK, "reconsider", "release", "request_stop", "take"]
WAITS_FOR_THE_FILE = [*WAITS_FOR_THE_ROW, "start", "start with a key", "claim", "renew"]
"""SQLite has one lock for all; elsewhere a start meets nobody, and claim and renewal skip locked rows."""


@pytest.mark.parametrize("verb", WAITS_FOR_THE_FILE)
def test_a_transaction_that_gave_up_a_lock_is_carried_out_again(
    orm: Orm, lease: Lease, database: str, verb: str
) -> None:
    if database != "sqlite" and verb not in WAITS_FOR_THE_ROW:
        pytest.skip("it never waits for a row")
    prepare(orm, lease, verb)
    with ExitStack() as stack:
        stack.enter_context(impatient(database))
        blocker = Blocker(lease, stack.enter_context(another_session()))
        stack.callback(blocker.let_go)
        attempts = stack.enter_context(Attempts(first_word(verb, database), blocker, let_go_before=TRIES))
        assert verbs(orm, lease)[verb]() not in (False,)
    assert attempts.count == TRIES


def prepare(orm: Orm, lease: Lease, verb: str) -> None:
    if verb == "take":
        orm.change(lease.execution_id, status=Status.ABORTED, lease_token=None, lease_expires_at=None)
    if verb == "claim":
        orm.change(lease.execution_id, lease_expires_at=orm.now() - HOUR)


def first_word(verb: str, database: str) -> str:
    """Of the statement that meets the lock. On SQLite a transaction takes it when it begins; PostgreSQL ends by one
    statement."""
    in_one_statement = verb in ("append", "request_stop", "start", "claim")
    if database == "sqlite" and not in_one_statement:
        return "BEGIN"
    if database == "postgresql" and verb == "move":
        return "WITH"
    if verb in ("append", "start", *HELD_BACK):
        return "INSERT"
    return f"UPDATE {connection.ops.quote_name(Execution._meta.db_table)}"


def test_after_the_last_try_the_error_is_raised_and_nothing_is_written(orm: Orm, lease: Lease, database: str) -> None:
    with ExitStack() as stack:
        stack.enter_context(impatient(database))
        blocker = Blocker(lease, stack.enter_context(another_session()))
        stack.callback(blocker.let_go)
        attempts = stack.enter_context(Attempts("INSERT", blocker, let_go_before=None))
        with pytest.raises(OperationalError):
            OrmJournal().append(lease, entry(1))
    assert attempts.count == TRIES
    assert orm.row(lease.execution_id).entries == ()


def test_inside_a_callers_transaction_nothing_is_tried_again(orm: Orm, lease: Lease, database: str) -> None:
    """The whole of it is lost to the database, and only the caller can repeat it."""
    if database == "sqlite":
        pytest.skip("whoever has begun a transaction has the file's lock already")
    with ExitStack() as stack:
        stack.enter_context(impatient(database))
        blocker = Blocker(lease, stack.enter_context(another_session()))
        stack.callback(blocker.let_go)
        attempts = stack.enter_context(Attempts("INSERT", blocker, let_go_before=2))
        with pytest.raises(OperationalError), transaction.atomic():
            OrmJournal().append(lease, entry(1))
    assert attempts.count == 1
    assert orm.row(lease.execution_id).entries == ()


def test_the_drivers_own_cursor_is_tried_again_too(orm: Orm, lease: Lease, database: str) -> None:
    """Nobody listens here: the statement goes past Django's cursor. What counts the tries is the driver's trace."""
    if database != "sqlite":
        pytest.skip("the driver of SQLite tells what it runs")
    with ExitStack() as stack:
        stack.enter_context(impatient(database))
        blocker = Blocker(lease, stack.enter_context(another_session()))
        stack.callback(blocker.let_go)
        connection.ensure_connection()
        raw: sqlite3.Connection = connection.connection
        tries: list[str] = []

        def traced(sql: str) -> None:
            tries.append(sql)
            if len(tries) == 3:
                blocker.let_go()

        raw.set_trace_callback(traced)
        OrmJournal().append(lease, entry(1))
        raw.set_trace_callback(None)
    assert [sql.split()[0] for sql in tries] == ["INSERT"] * 3
    assert orm.row(lease.execution_id).entries == (entry(1),)


def test_the_victim_of_a_deadlock_is_carried_out_again(orm: Orm, lease: Lease, database: str) -> None:
    """Two sessions that take two rows in opposite order: the database breaks one of them off, and both end well."""
    other = new_execution()
    assert orm.executions.start(other)
    rows = [lease.execution_id, other.id]
    begun: list[int] = []

    def both(order: list[Any], number: int, in_between: Callable[[], None]) -> None:
        def statements() -> None:
            with transaction.atomic():
                begun.append(number)
                Execution.objects.filter(pk=order[0]).update(priority=number)
                if begun.count(number) == 1:
                    in_between()
                Execution.objects.filter(pk=order[1]).update(priority=number)

        retried(connection, statements)

    with another_session() as session:
        other_id = session(session_id).result(PATIENCE)
        futures: list[Any] = []

        def start_the_other() -> None:
            futures.append(session(lambda: both(rows[::-1], 2, lambda: None)))
            until_blocked(other_id)

        both(rows, 1, start_the_other)
        futures[0].result(PATIENCE)
    assert len(begun) > 2  # the victim again; it may be the victim of the next deadlock too
    assert len(set(Execution.objects.values_list("priority", flat=True))) == 1


def test_an_error_of_the_statement_itself_is_raised_at_once(orm: Orm) -> None:
    calls: list[int] = []

    def statements() -> None:
        calls.append(1)
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM there_is_no_such_table")

    with pytest.raises(Exception, match="there_is_no_such_table"):
        retried(connection, statements)
    assert len(calls) == 1


def test_a_serialisation_failure_is_carried_out_again(orm: Orm, lease: Lease, database: str) -> None:
    if database != "postgresql":
        pytest.skip("an error of PostgreSQL's stricter isolation levels")
    from psycopg import IsolationLevel

    with (
        default_connection_with(isolation_level=IsolationLevel.REPEATABLE_READ),
        another_session() as session,
    ):
        reads: list[int] = []

        def statements() -> None:
            with transaction.atomic():
                reads.append(JournalEntry.objects.count())  # the snapshot
                if len(reads) == 1:
                    session(lambda: Execution.objects.filter(pk=lease.execution_id).update(priority=1)).result(PATIENCE)
                Execution.objects.filter(pk=lease.execution_id).update(priority=2)

        retried(connection, statements)
    assert len(reads) == 2
    assert Execution.objects.get().priority == 2
