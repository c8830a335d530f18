"""Period marks in the database of executions, with which they commit (PROTOCOL 8: period)."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from django_reactor.coordination.database import clock
from django_reactor.coordination.database.fresh import needs_locking_reads
from django_reactor.coordination.database.patience import TookTooLong, waiting_at_most
from django_reactor.coordination.database.purging import purge
from django_reactor.core.keys import digest_of
from django_reactor.journal.fields import DbNow, storable
from django_reactor.journal.statements import Statement, Table, as_is, compiled_for
from django_reactor.journal.transactions import retried
from django_reactor.models import PeriodMark

__all__ = ["DatabasePeriods"]

PATIENCE = 1.0
"""Seconds for a mark that another session has not committed, where a read must lock."""


class DatabasePeriods:
    """The port `Periods`. Thread-safe: each thread has its own connection.

    A transaction of PostgreSQL with a snapshot of its own (REPEATABLE READ, SERIALIZABLE) sees what was marked before
    the snapshot: who has read first, and asks later, is one of two that run at once.
    """

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[router.db_for_write(PeriodMark)]

    @property
    def _rows(self) -> QuerySet[PeriodMark, PeriodMark]:
        return PeriodMark.objects.using(self.connection.alias)

    def now(self) -> datetime:
        return clock.now(self.connection)

    def is_marked(self, key: str, bucket: str) -> bool:
        connection = self.connection
        reading = compiled_for(connection, _Reading)
        values = [digest_of(key), bucket]
        if not needs_locking_reads(connection):
            return bool(reading.plain.fetch(connection, values))
        try:
            with waiting_at_most(connection, PATIENCE):
                return bool(reading.fresh.fetch(connection, values))
        except TookTooLong:
            return False  # another marks it, and has not committed

    def mark(self, key: str, bucket: str, execution_id: UUID, until: datetime) -> None:
        """Waits for nobody: whoever else marks this bucket has a row of its own."""
        mark = PeriodMark(
            key_digest=digest_of(key), key=storable(key), bucket=bucket, execution_id=execution_id, until=until
        )
        retried(self.connection, lambda: self._rows.bulk_create([mark], ignore_conflicts=True))

    def purge(self, limit: int) -> int:
        return purge(self.connection, self._rows.filter(until__lt=DbNow()), limit)


class _Reading:
    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        marks = Table(PeriodMark, connection)
        column = marks.column
        sql = f"SELECT 1 FROM {marks.name} WHERE {column('key_digest')} = %s AND {column('bucket')} = %s LIMIT 1"
        self.plain = Statement(sql, [as_is] * 2)
        self.fresh = Statement(f"{sql} LOCK IN SHARE MODE", [as_is] * 2)
