"""The journal on Django's ORM tables (PROTOCOL 3: append, finish, release).

1. `append` is one autocommit statement: INSERT … SELECT that locks the execution's row and finds our token in it.
2. `move` is one transaction: the conditional UPDATE of the row first, then the INSERT of the entry. Where PostgreSQL
   can take both as one statement, outside a caller's transaction, it is that: three round trips less. SQLite's two are
   a transaction without Django's there.
3. `reconsider` touches the row under our token before it reads anything, so that what it reads is fresh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.db import IntegrityError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, QuerySet, Value
from django.db.models.functions import Coalesce

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import HELD, Action, Stop
from django_reactor.core.waits import WaitState
from django_reactor.engine.execution_ports import LeaseLost, Overtaken, Refused
from django_reactor.engine.records import ExecutionRecord, Lease, Move, NewExecution, Recoveries, Release
from django_reactor.exceptions import ExecutionNotFound
from django_reactor.journal.fields import DbNow, InstantText, storable
from django_reactor.journal.reads import alias, locking
from django_reactor.journal.rows import (
    ENTRY_FIELDS,
    RECORD_FIELDS,
    START_CONSTANTS,
    START_FIELDS,
    entry_of,
    pending_row,
    record_of,
    row_of,
    started_row,
)
from django_reactor.journal.statements import Pair, Statement, Table, compiled_for, now_sql, somebody_listens
from django_reactor.journal.transactions import retried
from django_reactor.journal.trees import cancel_units, close_waits, give_parts
from django_reactor.models import Execution, JournalEntry, Wait

__all__ = [
    "OrmJournal",
    "alias",
    "entries_of",
    "locking",
]

R = TypeVar("R")

MOST_EXPECTED = 5
"""Places for expected statuses in the compiled statements that end an execution."""


def entries_of(connection: BaseDatabaseWrapper, execution_id: UUID) -> Sequence[Entry]:
    """The journal of one execution, in order."""
    rows = JournalEntry.objects.using(connection.alias).filter(execution=execution_id).order_by("seq")
    names, times = ENTRY_FIELDS[1:-2], ENTRY_FIELDS[-2:]
    columns = [InstantText(name) for name in times] if InstantText.is_known_to(connection) else times
    return [entry_of(row) for row in locking(rows, connection).values_list(*names, *columns)]


class Statements:
    """The compiled statements of one connection."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        execution, journal = Table(Execution, connection), Table(JournalEntry, connection)
        column, adapter = execution.column, execution.adapter
        held = f"{column('id')} = %s AND {column('lease_token')} = %s"
        unstopped = f"{held} AND {column('stop')} = ''"
        lock = {"postgresql": " FOR SHARE", "mysql": " LOCK IN SHARE MODE"}.get(connection.vendor, "")
        lease_adapters = [adapter("id"), adapter("lease_token")]
        self.append = journal.insert_where(ENTRY_FIELDS, f"{execution.name} WHERE {unstopped}{lock}", lease_adapters)
        self.insert_entry = journal.insert(ENTRY_FIELDS, {})
        now = now_sql(connection)
        later = now_sql(connection, plus_seconds=True)
        times = {"created_at": now, "updated_at": now}
        running = {"epoch": "1", "recoveries": "1", "sends": "0", "started_at": now, "lease_expires_at": later}
        pending = {"epoch": "0", "recoveries": "0", "sends": "1", "wake_at": later, "sent_at": later}
        self.start = execution.insert(START_FIELDS, START_CONSTANTS | times | running)
        self.enqueue = execution.insert(START_FIELDS, START_CONSTANTS | times | pending)
        part = {"epoch": "0", "recoveries": "0", "sends": "0", "started_at": now}
        self.open_part = execution.insert(START_FIELDS, START_CONSTANTS | times | part)
        end_fields = ("output", "failure", "rollback_failures", "status")
        sets = ", ".join(f"{column(name)} = %s" for name in end_fields)
        released = ", ".join(f"{column(name)} = NULL" for name in ("lease_token", "lease_expires_at", "wake_at"))
        expected = f"{column('status')} IN ({', '.join(['%s'] * MOST_EXPECTED)})"
        ending = (
            f"UPDATE {execution.name} SET {sets}, {released}, {column('waiting_for')} = '', "
            f"{column('recoveries')} = 0, {column('sends')} = 0, "
            f"{column('updated_at')} = {now}, {column('finished_at')} = {now}"
        )
        end_adapters = [*(adapter(name) for name in end_fields), *lease_adapters, *[adapter("status")] * MOST_EXPECTED]
        self.end = Statement(f"{ending} WHERE {unstopped} AND {expected}", end_adapters)
        self.end_stopped = Statement(f"{ending}, {column('stop')} = '' WHERE {held} AND {expected}", end_adapters)
        self.end_with_entry: Statement | None = None
        self.end_and_entry: Pair | None = None
        if connection.vendor == "postgresql":
            self.end_with_entry = journal.insert_after(self.end, ENTRY_FIELDS)
        elif connection.vendor == "sqlite":
            self.end_and_entry = Pair(self.end, self.insert_entry)


def statements_of(connection: BaseDatabaseWrapper) -> Statements:
    return compiled_for(connection, Statements)


class OrmJournal:
    """The port `Journal`. Thread-safe: each thread has its own connection, and statements are compiled for each."""

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[alias()]

    def load(self, execution_id: UUID) -> tuple[ExecutionRecord, Sequence[Entry]]:
        connection = self.connection
        rows = Execution.objects.using(connection.alias).filter(pk=execution_id)
        values = locking(rows, connection).values(*RECORD_FIELDS).first()
        if values is None:
            raise ExecutionNotFound(execution_id)
        return record_of(values), entries_of(connection, execution_id)

    def append(self, lease: Lease, entry: Entry) -> None:
        if entry.action is Action.RESUME:
            self._append_in_transaction(lease, entry)
            return
        connection = self.connection
        statement = statements_of(connection).append
        values = [*row_of(lease.execution_id, entry), lease.owner, lease.token]
        if self._write(lambda: statement.execute(connection, values), connection) != 1:
            raise Refused

    def _append_in_transaction(self, lease: Lease, entry: Entry) -> None:
        rows, connection = self._held(lease).filter(stop=Stop.NONE), self.connection

        def statements() -> None:
            with transaction.atomic(using=connection.alias):
                if not rows.update(updated_at=DbNow()):
                    raise Refused
                self._insert(lease, entry, connection)

        self._write(statements, connection)

    def _insert(self, lease: Lease, entry: Entry, connection: BaseDatabaseWrapper) -> None:
        """In a transaction that has the owner's row."""
        if entry.action is Action.RESUME:
            waits = Wait.objects.using(connection.alias).filter(execution=lease.execution_id, step=entry.step)
            waits.filter(state=WaitState.ACCEPTED).update(state=WaitState.APPLIED)
        statements_of(connection).insert_entry.execute(connection, row_of(lease.execution_id, entry))

    def move(self, lease: Lease, move: Move, entry: Entry | None = None) -> None:
        connection = self.connection

        def write() -> None:
            if entry is None or not self._end_at_once(connection, lease, move, entry):
                self._move(connection, lease, move, entry)

        self._write(write, connection)

    def _end_at_once(self, connection: BaseDatabaseWrapper, lease: Lease, move: Move, entry: Entry) -> bool:
        """Without Django's transaction: if row and entry are all that there is to write, and no savepoint is needed for
        a refused INSERT."""
        if connection.in_atomic_block or entry.action is Action.RESUME or lease.owner_id is not None:
            return False
        if not move.only_ends or not connection.get_autocommit():
            return False
        compiled, end, noted = statements_of(connection), ending_row(lease, move), row_of(lease.execution_id, entry)
        if compiled.end_with_entry is not None:
            found = compiled.end_with_entry.execute(connection, [*end, *noted])
        elif compiled.end_and_entry is not None and not somebody_listens(connection):
            found = compiled.end_and_entry.execute(connection, end, noted)
        else:
            return False
        if found != 1:
            raise Refused
        return True

    def _move(self, connection: BaseDatabaseWrapper, lease: Lease, move: Move, entry: Entry | None) -> None:
        with transaction.atomic(using=connection.alias):
            if lease.owner_id is not None and not self._touch_owner(lease, move):
                raise Refused
            if self._update(connection, lease, move) != 1:
                raise Refused
            whole = move.whole(lease)
            if move.with_parts:
                give_parts(connection, lease.owner, move.to, whole)
            if move.cancels_units:
                cancel_units(connection, lease.owner, whole)
            if entry is not None:
                self._insert(lease, entry, connection)
            if move.closes_waits:
                close_waits(connection, lease.owner, whole)

    def _touch_owner(self, lease: Lease, move: Move) -> int:
        """Before a part's row is changed: the fence is in the owner's."""
        rows = self._held(lease)
        if not move.ignores_stop:
            rows = rows.filter(stop=Stop.NONE)
        changes: dict[str, Any] = {"status": move.to} if move.with_owner else {}
        return rows.update(updated_at=DbNow(), **changes)

    def _update_part(self, lease: Lease, move: Move) -> int:
        rows = Execution.objects.using(self.connection.alias).filter(
            pk=lease.execution_id, owner=lease.owner, status__in=move.expected
        )
        changes: dict[str, Any] = {"updated_at": DbNow(), "finished_at": None, "stop": Stop.NONE, "status": move.to}
        if not move.to.is_end:
            changes["started_at"] = Coalesce("started_at", DbNow())
        if move.to.is_end:
            ends = {"output": move.output, "failure": move.failure, "rollback_failures": move.rollback_failures}
            changes |= ends | {"finished_at": DbNow()}
        return rows.update(**changes)

    def _update(self, connection: BaseDatabaseWrapper, lease: Lease, move: Move) -> int:
        if lease.owner_id is not None:
            return self._update_part(lease, move)
        if move.to.is_end:
            compiled = statements_of(connection)
            statement = compiled.end_stopped if move.ignores_stop else compiled.end
            return statement.execute(connection, ending_row(lease, move))
        rows = self._held(lease).filter(status__in=move.expected)
        if not move.ignores_stop:
            rows = rows.filter(stop=Stop.NONE)
        cleared = {"stop": Stop.NONE} if move.clears_stop else {}
        return rows.update(updated_at=DbNow(), **cleared, status=move.to)

    def reconsider(self, lease: Lease, entry: Entry | None) -> tuple[Stop, str]:
        connection = self.connection

        def statements() -> tuple[Stop, str]:
            with transaction.atomic(using=connection.alias):
                if not self._held(lease).update(updated_at=DbNow()):
                    raise LeaseLost(lease.execution_id)
                entries = JournalEntry.objects.using(connection.alias).filter(execution=lease.execution_id)
                if entry is not None:
                    if locking(entries.filter(seq__gte=entry.seq), connection, 1).exists():
                        raise Overtaken
                    self._insert(lease, entry, connection)
                row = locking(self._held(lease), connection, 1).values("stop", "stop_reason").get()
                return Stop(row["stop"]), row["stop_reason"]

        return retried(connection, statements)

    def dispatch(self, lease: Lease, child: NewExecution, entry: Entry) -> None:
        connection = self.connection
        rows = self._held(lease).filter(stop=Stop.NONE)
        compiled = statements_of(connection)

        def statements() -> None:
            with transaction.atomic(using=connection.alias):
                if not rows.update(updated_at=DbNow()):
                    raise Refused
                if child.owner_id is None:
                    compiled.enqueue.execute(connection, pending_row(child))
                else:
                    compiled.open_part.execute(connection, started_row(child))
                self._insert(lease, entry, connection)

        self._write(statements, connection)

    def release(self, lease: Lease, release: Release, entry: Entry | None = None) -> None:
        connection = self.connection
        rows = self._held(lease).filter(status__in=HELD)
        if not release.ignores_stop:
            rows = rows.filter(stop=Stop.NONE)

        def statements() -> None:
            with transaction.atomic(using=connection.alias):
                if rows.update(**released(release)) != 1:
                    raise Refused
                if release.with_parts:
                    give_parts(connection, lease.owner, release.to)
                if entry is not None:
                    self._insert(lease, entry, connection)

        self._write(statements, connection)

    def flush(self) -> None:
        """Nothing is held back."""

    def _write(self, statements: Callable[[], R], connection: BaseDatabaseWrapper) -> R:
        """An entry of this number, or a child of this step, that is there already refuses the whole."""
        try:
            return retried(connection, statements)
        except IntegrityError as error:
            raise Refused from error

    def _held(self, lease: Lease) -> QuerySet[Execution, Execution]:
        rows = Execution.objects.using(self.connection.alias)
        return rows.filter(pk=lease.owner, lease_token=lease.token)


def ending_row(lease: Lease, move: Move) -> list[Any]:
    expected = [status.value for status in move.expected]
    expected += expected[-1:] * (MOST_EXPECTED - len(expected))
    ending = [move.output, move.failure, move.rollback_failures, move.to.value]
    return [*ending, lease.owner, lease.token, *expected]


def released(release: Release) -> dict[str, Any]:
    """`wake_at` before `status`: MySQL evaluates SET from left to right."""
    wake_at = None if release.wake_in is None else DbNow() + timedelta(seconds=release.wake_in)
    own_snooze = release.snooze is not None and not release.contended
    snoozes = F("snoozes") + 1 if own_snooze else F("snoozes")
    recoveries = {
        Recoveries.RESET: Value(0),
        Recoveries.GIVE_BACK: F("recoveries") - 1,
        Recoveries.KEEP: F("recoveries"),
    }
    return {
        "wake_at": wake_at,
        "sent_at": wake_at,
        "sends": 0,
        "recoveries": recoveries[release.recoveries],
        "snoozes": snoozes,
        "contentions": F("contentions") + 1 if release.contended else 0,
        "snooze_reason": storable(release.snooze or ""),
        "waiting_for": release.waiting_for,
        "lease_token": None,
        "lease_expires_at": None,
        "updated_at": DbNow(),
        "status": release.to,
    }
