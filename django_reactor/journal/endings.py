"""The end of an element and the beginning of the next one, as one statement (PROTOCOL 5).

Only where the database can: PostgreSQL carries out the parts of a WITH in one statement, on one snapshot, and passes
over rows that others have locked. Everywhere else the same is done by several statements in one transaction.

The next one is looked for behind the one that ended: the turns of those before it have come. (What a broken transaction
leaves behind the sweeper finds.) So the search does not pass all the index entries of elements that have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from django.db import IntegrityError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reactor.conf import settings
from django_reactor.core.entries import Entry
from django_reactor.core.statuses import MapState, Status
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.map_ports import MapRecord, Taken
from django_reactor.engine.records import Lease, Message, Move
from django_reactor.journal.orm import ending_row, statements_of
from django_reactor.journal.rows import ENTRY_FIELDS, row_of
from django_reactor.journal.statements import Statement, Table, as_is, compiled_for, now_sql
from django_reactor.journal.transactions import retried
from django_reactor.models import Execution, JournalEntry, MapRun

__all__ = ["Ending", "ending_of"]


class Ending:
    """Compiled for one connection."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._taking = _statement(connection, takes=True)
        self._letting_go = _statement(connection, takes=False)

    def execute(
        self,
        connection: BaseDatabaseWrapper,
        lease: Lease,
        of: MapRecord,
        index: int,
        move: Move,
        entry: Entry,
        take: UUID | None,
    ) -> Message | Taken | None:
        """An element in an undo is not followed here: the map is not running then."""
        key = of.key
        values = [
            *ending_row(lease, move),
            *row_of(lease.execution_id, entry),
            *(of.id, key.execution_id, key.step, key.generation, index),
        ]
        statement = self._letting_go
        if take is not None:
            statement = self._taking
            values += [take, settings.load().LEASE_TTL]
        try:
            ((ended, execution_id, *following),) = retried(connection, lambda: statement.fetch(connection, values))
        except IntegrityError as error:
            raise Refused from error
        if not ended:
            raise Refused
        if execution_id is None:
            return None
        if take is None:
            return Message(execution_id=execution_id, queue_name=following[0], priority=following[1])
        return Taken(lease=Lease(execution_id, take, following[2]), index=following[0], inputs=following[1])


def _statement(connection: BaseDatabaseWrapper, *, takes: bool) -> Statement:
    rows, journal, maps = Table(Execution, connection), Table(JournalEntry, connection), Table(MapRun, connection)
    column = rows.column
    ended = statements_of(connection).end
    noted = journal.insert_after(ended, ENTRY_FIELDS)
    its_own, _, insert = noted.sql.removeprefix("WITH updated AS (").partition(" RETURNING 1) ")
    brought_in = _taking(rows) if takes else _letting_go(rows)
    sql = f"""
WITH updated AS ({its_own} RETURNING 1), noted AS ({insert} RETURNING 1), following AS (
    SELECT e.{column("id")} FROM {rows.name} e JOIN updated ON true
        JOIN {maps.name} m ON m.{maps.column("id")} = %s AND m.{maps.column("state")} = '{MapState.RUNNING}'
    WHERE e.{column("parent")} = %s AND e.{column("parent_step")} = %s AND e.{column("parent_generation")} = %s
        AND e.{column("status")} = '{Status.PENDING}' AND e.{column("element_index")} > %s
        AND e.{column("wake_at")} IS NULL AND e.{column("lease_token")} IS NULL AND e.{column("started_at")} IS NULL
    ORDER BY e.{column("element_index")} LIMIT 1 FOR NO KEY UPDATE OF e SKIP LOCKED
), brought_in AS ({brought_in})
SELECT (SELECT count(*) FROM noted), brought_in.* FROM (SELECT 1) AS one LEFT JOIN brought_in ON true"""
    adapters = [
        *noted.adapters,
        *(maps.adapter("id"), rows.adapter("parent"), rows.adapter("parent_step")),
        *(rows.adapter("parent_generation"), rows.adapter("element_index")),
        *((rows.adapter("lease_token"), as_is) if takes else ()),
    ]
    return Statement(sql, adapters)


def _taking(rows: Table) -> str:
    now, column = now_sql(rows.connection), rows.column
    changes = {
        "lease_token": "%s",
        "lease_expires_at": now_sql(rows.connection, plus_seconds=True),
        "epoch": f"t.{column('epoch')} + 1",
        "recoveries": f"t.{column('recoveries')} + 1",
        "sends": "0",
        "started_at": now,
        "updated_at": now,
        "status": f"'{Status.RUNNING}'",
    }
    return _bringing_in(rows, changes, ("id", "element_index", "inputs", "epoch"))


def _letting_go(rows: Table) -> str:
    now = now_sql(rows.connection)
    changes = {"wake_at": now, "sent_at": now, "sends": "1", "updated_at": now}
    return _bringing_in(rows, changes, ("id", "queue_name", "priority"))


def _bringing_in(rows: Table, changes: Mapping[str, str], fields: Sequence[str]) -> str:
    sets = ", ".join(f"{rows.column(name)} = {sql}" for name, sql in changes.items())
    returned = ", ".join(f"t.{rows.column(name)}" for name in fields)
    return (
        f"UPDATE {rows.name} t SET {sets} FROM following WHERE t.{rows.column('id')} = following.{rows.column('id')} "
        f"RETURNING {returned}"
    )


def ending_of(connection: BaseDatabaseWrapper) -> Ending | None:
    """None where the database cannot do it in one statement."""
    return compiled_for(connection, Ending) if connection.vendor == "postgresql" else None
