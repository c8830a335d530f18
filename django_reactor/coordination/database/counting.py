"""The statements of rate limits, compiled once a connection."""

from __future__ import annotations

from datetime import datetime

from django.db.backends.base.base import BaseDatabaseWrapper

from django_reactor.coordination.database.clock import instant_of
from django_reactor.engine.coordination_ports import Window
from django_reactor.journal.statements import Statement, Table, as_is, now_sql
from django_reactor.models import RateCount

__all__ = ["PATIENCE", "Counting"]

PATIENCE = 1.0
"""Seconds for a count that another session has not committed."""

BUCKET = {
    "postgresql": "FLOOR(EXTRACT(EPOCH FROM STATEMENT_TIMESTAMP()) / %s)::bigint",
    "mysql": "UNIX_TIMESTAMP() DIV %s",
    "sqlite": "CAST(STRFTIME('%%s', 'NOW') AS INTEGER) / %s",
}
"""Its parameter is the window's seconds. (MySQL's functions of other times mean the session's time zone.)"""
UNTIL = {
    "postgresql": "TO_TIMESTAMP(({bucket} + 1) * %s)",
    "mysql": "TIMESTAMP('1970-01-01') + INTERVAL ({bucket} + 1) * %s SECOND",
    "sqlite": "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f000', ({bucket} + 1) * %s, 'unixepoch')",
}
SOURCE = {
    "postgresql": f", set_config('lock_timeout', '{round(PATIENCE * 1000)}ms', true)",
    "mysql": "",
    "sqlite": "",
}
"""On PostgreSQL the statement itself says how long it waits, for the rest of its transaction."""


class Counting:
    """The statements of one connection."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        counts, vendor = Table(RateCount, connection), connection.vendor
        column, name = counts.column, counts.name
        digest, window, bucket, count = map(column, ("key_digest", "window", "bucket", "count"))
        this = f"{digest} = %s AND {window} = %s AND {bucket} = {BUCKET[vendor]}"
        columns = ", ".join((digest, column("key"), window, bucket, count, column("ends_at")))
        values = f"{counts.value('key_digest')}, {counts.value('key')}, {counts.value('window')}, bucket"
        add_one = f"UPDATE {name} SET {count} = {count} + 1 WHERE {this} AND {count} < %s"
        look = f"SELECT {now_sql(connection)}, (SELECT {count} FROM {name} WHERE {this})"
        self._look = Statement(look, [as_is] * 3)
        self._add_one = Statement(add_one, [as_is] * 4)
        insert = f"INSERT INTO {name} ({columns})"
        if vendor == "mysql":
            # Of values: what is selected waits for a lock of the whole table.
            first = f"VALUES (%s, %s, %s, {BUCKET[vendor]}, 0, {UNTIL[vendor].format(bucket=BUCKET[vendor])})"
            same = f"ON DUPLICATE KEY UPDATE {count} = {name}.{count}"
        else:
            # SQLite takes ON after FROM for a join's, unless there is a WHERE.
            source = f"(SELECT {BUCKET[vendor]} AS bucket{SOURCE[vendor]}) AS now WHERE true"
            first = f"SELECT {values}, 1, {UNTIL[vendor].format(bucket='bucket')} FROM {source}"
            same = f"ON CONFLICT ({digest}, {window}, {bucket}) DO UPDATE SET {count} = {name}.{count} + 1"
            same = f"{same} WHERE {name}.{count} < %s"
        self._insert = Statement(f"{insert} {first} {same}", [as_is, counts.adapter("key"), *[as_is] * 4])
        self._is_one_statement = vendor != "mysql"

    def count(self, connection: BaseDatabaseWrapper, digest: str, key: str, window: Window) -> bool:
        """One more in the current bucket; False if that is full."""
        seconds = window.seconds
        if self._is_one_statement:
            return self._insert.execute(connection, [digest, key, seconds, seconds, seconds, window.limit]) == 1
        one_more = [digest, seconds, seconds, window.limit]
        if self._add_one.execute(connection, one_more):
            return True
        if self.look(connection, digest, window)[1] is not None:
            return False
        self._insert.execute(connection, [digest, key, seconds, seconds, seconds, seconds])
        return self._add_one.execute(connection, one_more) == 1

    def look(self, connection: BaseDatabaseWrapper, digest: str, window: Window) -> tuple[datetime, int | None]:
        """The database's clock, and how many have started in the bucket that it shows; None: nobody has counted."""
        ((now, count),) = self._look.fetch(connection, [digest, window.seconds, window.seconds])
        return instant_of(now), count
