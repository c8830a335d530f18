"""The row of a map, with the owner that waits for it, as SQL that is compiled once a connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper

from django_reactor.core.statuses import UNFINISHED, MapState
from django_reactor.engine.map_ports import MapKey, MapRecord
from django_reactor.journal.reads import locking
from django_reactor.journal.statements import Adapter, Statement, Table, compiled_for
from django_reactor.models import Execution, MapRun

__all__ = ["LOCKS", "needs_lock", "record_by_id", "record_by_key", "unfinished_of"]

KEY = ("execution", "step", "generation")
FIELDS = (
    "id",
    *KEY,
    "state",
    "fan_out",
    "fail_fast",
    "total",
    "first_failed",
    "rollbacks",
)


class Records:
    """The statements of one connection."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        maps, rows = Table(MapRun, connection), Table(Execution, connection)
        self._readers: list[Adapter] = [*(maps.reader(name) for name in FIELDS), rows.reader("owner")]
        columns = ", ".join(f"m.{maps.column(name)}" for name in FIELDS)
        sql = (
            f"SELECT {columns}, e.{rows.column('owner')} FROM {maps.name} m "
            f"JOIN {rows.name} e ON e.{rows.column('id')} = m.{maps.column('execution')} WHERE "
        )
        by_id = f"{sql}m.{maps.column('id')} = %s"
        by_key = sql + " AND ".join(f"m.{maps.column(name)} = %s" for name in KEY)
        of_id, of_key = [maps.adapter("id")], [maps.adapter(name) for name in KEY]
        self._by_id = {locks: Statement(by_id + suffix, of_id) for locks, suffix in LOCKS.items()}
        self._by_key = {locks: Statement(by_key + suffix, of_key) for locks, suffix in LOCKS.items()}

    def by_id(self, connection: BaseDatabaseWrapper, map_id: UUID) -> MapRecord | None:
        return self._record(self._by_id[needs_lock(connection)].fetch(connection, [map_id]))

    def by_key(self, connection: BaseDatabaseWrapper, key: MapKey) -> MapRecord | None:
        values = [key.execution_id, key.step, key.generation]
        return self._record(self._by_key[needs_lock(connection)].fetch(connection, values))

    def _record(self, rows: Sequence[Sequence[Any]]) -> MapRecord | None:
        if not rows:
            return None
        *values, owner_id = self._read(rows[0])
        return _record_of(dict(zip(FIELDS, values, strict=True)), owner_id)

    def _read(self, row: Sequence[Any]) -> Iterator[Any]:
        return (read(value) for read, value in zip(self._readers, row, strict=True))


LOCKS = {False: "", True: " FOR UPDATE"}


def needs_lock(connection: BaseDatabaseWrapper) -> bool:
    """As `locking` says: inside a caller's transaction MySQL would read from an old snapshot."""
    return connection.vendor == "mysql" and len(connection.atomic_blocks) > 1


def _records_of(connection: BaseDatabaseWrapper) -> Records:
    return compiled_for(connection, Records)


def record_by_id(connection: BaseDatabaseWrapper, map_id: UUID) -> MapRecord | None:
    return _records_of(connection).by_id(connection, map_id)


def record_by_key(connection: BaseDatabaseWrapper, key: MapKey) -> MapRecord | None:
    return _records_of(connection).by_key(connection, key)


def unfinished_of(connection: BaseDatabaseWrapper, owner_id: UUID) -> list[MapRecord]:
    """Of an owner and its parts."""
    maps = MapRun.objects.using(connection.alias).filter(execution__owner=owner_id, state__in=UNFINISHED)
    rows = locking(maps.order_by("pk"), connection).values(*FIELDS)
    return [_record_of(values, owner_id) for values in rows]


def _record_of(values: dict[str, Any], owner_id: UUID) -> MapRecord:
    key = MapKey(*(values.pop(name) for name in KEY))
    state, fail_fast = MapState(values.pop("state")), bool(values.pop("fail_fast"))
    return MapRecord(key=key, owner_id=owner_id, state=state, fail_fast=fail_fast, **values)
