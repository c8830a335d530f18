"""The hot statements, compiled once per connection from the models and executed on Django's connection.

Row, entry and end are written by every execution, and the ORM costs several times the statement itself. While
somebody listens (`CaptureQueriesContext`, execute wrappers, DEBUG) they go through Django's cursor like any other
query; otherwise straight to the driver's. PostgreSQL prepares them if the project's `OPTIONS` allow it
(`prepare_threshold`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeVar
from uuid import UUID

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reactor.journal.fields import JSONTextField, storable

__all__ = ["Adapter", "Pair", "Statement", "Table", "as_is", "compiled_for", "now_sql", "somebody_listens"]

Adapter = Callable[[Any], Any]
"""What the driver is given for a value. None is given as it is."""
R = TypeVar("R")
C = TypeVar("C")

NOW = {
    "postgresql": "STATEMENT_TIMESTAMP()",
    "mysql": "UTC_TIMESTAMP(6)",
    "sqlite": "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f000', 'NOW')",
}
NOW_PLUS = {
    "postgresql": "STATEMENT_TIMESTAMP() + %s * INTERVAL '1 second'",
    "mysql": "UTC_TIMESTAMP(6) + INTERVAL %s SECOND",
    "sqlite": "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f000', 'NOW', %s || ' seconds')",
}


def now_sql(connection: BaseDatabaseWrapper, *, plus_seconds: bool = False) -> str:
    """The database's clock; `plus_seconds` takes one parameter. The same instants as `DbNow` means."""
    return (NOW_PLUS if plus_seconds else NOW)[connection.vendor]


def as_is(value: Any) -> Any:
    return value


def _as_hex(value: UUID) -> str:
    return value.hex


def _as_utc_text(value: datetime) -> str:
    """What Django's adapter makes for SQLite in UTC, in a fraction of its time."""
    return str(value if value.tzinfo is UTC else value.astimezone(UTC)).removesuffix("+00:00")


def _time_adapter(connection: BaseDatabaseWrapper) -> Adapter:
    if connection.vendor == "postgresql":
        return as_is  # the driver knows aware datetimes
    if connection.vendor == "sqlite" and connection.timezone is UTC:
        return _as_utc_text
    return connection.ops.adapt_datetimefield_value


def adapter_for(field: models.Field[Any, Any], connection: BaseDatabaseWrapper) -> Adapter:
    if isinstance(field, JSONTextField):
        return json.dumps
    if isinstance(field, models.TextField):
        return storable
    if isinstance(field, models.DateTimeField):
        return _time_adapter(connection)
    column = field.target_field if isinstance(field, models.ForeignKey) else field
    if isinstance(column, models.UUIDField) and not connection.features.has_native_uuid_field:
        return _as_hex
    return as_is


def reader_for(field: models.Field[Any, Any], connection: BaseDatabaseWrapper) -> Adapter:
    """What makes of a driver's value the field's: for texts, numbers, JSON and UUIDs."""
    if isinstance(field, JSONTextField):
        return _from_json
    column = field.target_field if isinstance(field, models.ForeignKey) else field
    if isinstance(column, models.UUIDField) and connection.vendor != "postgresql":
        return _from_hex
    return as_is


def _from_json(value: str | None) -> Any:
    return None if value is None else json.loads(value)


def _from_hex(value: str | None) -> UUID | None:
    return None if value is None else UUID(value)


@dataclass(frozen=True)
class Statement:
    """SQL with `%s` placeholders, and what adapts each parameter."""

    sql: str
    adapters: Sequence[Adapter]

    @cached_property
    def _adapted(self) -> Sequence[tuple[int, Adapter]]:
        """The parameters that are not taken as they are, which most are."""
        return [(position, adapt) for position, adapt in enumerate(self.adapters) if adapt is not as_is]

    @cached_property
    def qmark(self) -> str:
        """For sqlite3's own cursor."""
        return "%".join(part.replace("%s", "?") for part in self.sql.split("%%"))

    def execute(self, connection: BaseDatabaseWrapper, values: Sequence[Any]) -> int:
        """The number of rows. Autocommits, or takes part in the transaction that is open."""
        return self._run(connection, values, _count)

    def fetch(self, connection: BaseDatabaseWrapper, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """The rows that it gives, as the driver gives them; otherwise as `execute`."""
        return self._run(connection, values, _rows)

    def adapted(self, values: Sequence[Any]) -> list[Any]:
        """What the driver is given for them."""
        parameters = list(values)
        for position, adapt in self._adapted:
            if (value := parameters[position]) is not None:
                parameters[position] = adapt(value)
        return parameters

    def _run(self, connection: BaseDatabaseWrapper, values: Sequence[Any], answer: Callable[[Any], R]) -> R:
        parameters = self.adapted(values)
        if somebody_listens(connection) or connection.vendor == "mysql":
            with connection.cursor() as cursor:
                cursor.execute(self.sql, parameters)
                return answer(cursor)
        cursor = _ready_cursor(connection)
        sql = self.qmark if connection.vendor == "sqlite" else self.sql
        with connection.wrap_database_errors:
            return answer(cursor.execute(sql, parameters))


@dataclass(frozen=True)
class Pair:
    """Two statements of SQLite's in a transaction of their own, the second if the first finds a row: Django's `atomic`
    costs as much as both. Only outside of every other transaction, and while nobody listens."""

    first: Statement
    second: Statement

    def execute(
        self, connection: BaseDatabaseWrapper, first_values: Sequence[Any], second_values: Sequence[Any]
    ) -> int:
        """The number of rows of the first one. Whatever fails takes both back."""
        cursor = _ready_cursor(connection)
        with connection.wrap_database_errors:
            try:
                cursor.execute("BEGIN IMMEDIATE")
                found = int(cursor.execute(self.first.qmark, self.first.adapted(first_values)).rowcount)
                if found:
                    cursor.execute(self.second.qmark, self.second.adapted(second_values))
                cursor.execute("COMMIT")
            except BaseException:
                if connection.connection.in_transaction:  # some errors end it themselves
                    cursor.execute("ROLLBACK")
                raise
        return found


def somebody_listens(connection: BaseDatabaseWrapper) -> bool:
    """Then every statement is to be seen, as Django executes it."""
    return connection.queries_logged or bool(connection.execute_wrappers)


def _ready_cursor(connection: BaseDatabaseWrapper) -> Any:
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    return _own_cursor(connection)


OWN_CURSOR = "_django_reactor_cursor"


def _own_cursor(connection: BaseDatabaseWrapper) -> Any:
    """The driver's, kept as long as the driver's connection is: psycopg's remembers how each type is sent. It stands on
    Django's connection, with which it goes; and that belongs to this thread, since `connections` gave it."""
    cursor = connection.__dict__.get(OWN_CURSOR)
    if cursor is None or cursor.connection is not connection.connection:
        cursor = connection.__dict__[OWN_CURSOR] = _opened(connection.vendor, connection.connection)
    return cursor


def _opened(vendor: str, raw: Any) -> Any:
    if vendor == "sqlite":
        return raw.cursor()
    from psycopg import Cursor  # server-side binding: only that can be prepared

    return Cursor(raw)


def _count(cursor: Any) -> int:
    return int(cursor.rowcount)


def _rows(cursor: Any) -> Sequence[Sequence[Any]]:
    found: Sequence[Sequence[Any]] = cursor.fetchall()
    return found


@dataclass(frozen=True)
class Table:
    """Names and types of one model's table, quoted for one connection."""

    model: type[models.Model]
    connection: BaseDatabaseWrapper

    @cached_property
    def name(self) -> str:
        return self.connection.ops.quote_name(self.model._meta.db_table)

    def column(self, field: str) -> str:
        return self.connection.ops.quote_name(str(self._field(field).column))

    def adapter(self, field: str) -> Adapter:
        return adapter_for(self._field(field), self.connection)

    def reader(self, field: str) -> Adapter:
        return reader_for(self._field(field), self.connection)

    def _field(self, name: str) -> models.Field[Any, Any]:
        field = self.model._meta.get_field(name)
        assert isinstance(field, models.Field)  # not a reverse relation
        return field

    def value(self, field: str) -> str:
        """A placeholder that PostgreSQL can type in a SELECT list."""
        if self.connection.vendor != "postgresql":
            return "%s"
        found = self._field(field)
        if isinstance(found, models.ForeignKey):
            found = found.target_field
        if isinstance(found, models.CharField | models.TextField):
            return "%s"
        return f"%s::{found.db_type(self.connection)}"

    def insert(self, fields: Sequence[str], expressions: dict[str, str], suffix: str = "") -> Statement:
        """INSERT of these fields as parameters and of those expressions, whose parameters come last, in order."""
        columns = ", ".join(self.column(name) for name in (*fields, *expressions))
        values = ", ".join(("%s",) * len(fields) + tuple(expressions.values()))
        extra = sum(sql.count("%s") for sql in expressions.values())
        return Statement(
            f"INSERT INTO {self.name} ({columns}) VALUES ({values}){suffix}",
            [self.adapter(name) for name in fields] + [as_is] * extra,
        )

    def insert_where(self, fields: Sequence[str], condition: str, adapters: Sequence[Adapter]) -> Statement:
        """INSERT … SELECT of one row of parameters, if the condition (a FROM clause and on) finds a row. Its parameters
        come last.

        A violated unique constraint is no row on PostgreSQL, where an error would break the transaction that is open;
        elsewhere it is an `IntegrityError`.
        """
        conflict = " ON CONFLICT DO NOTHING" if self.connection.vendor == "postgresql" else ""
        insert = self._insert_from(fields, condition)
        return Statement(f"{insert.sql}{conflict}", [*insert.adapters, *adapters])

    def insert_after(self, update: Statement, fields: Sequence[str]) -> Statement:
        """An UPDATE of one row and, if it finds that row, the INSERT of another, as one statement of PostgreSQL, whose
        parameters come in this order. It reports the rows inserted; if the INSERT is refused, nothing is updated."""
        insert = self._insert_from(fields, "updated")
        return Statement(
            f"WITH updated AS ({update.sql} RETURNING 1) {insert.sql}", [*update.adapters, *insert.adapters]
        )

    def _insert_from(self, fields: Sequence[str], source: str) -> Statement:
        columns = ", ".join(self.column(name) for name in fields)
        values = ", ".join(self.value(name) for name in fields)
        sql = f"INSERT INTO {self.name} ({columns}) SELECT {values} FROM {source}"
        return Statement(sql, [self.adapter(name) for name in fields])


COMPILED = "_django_reactor_compiled"


def compiled_for(connection: BaseDatabaseWrapper, kind: Callable[[BaseDatabaseWrapper], C]) -> C:
    """What this class compiles for a connection, when the connection first needs it. It refers to the connection, so it
    stands there: a table of ours would keep the connections of threads that have ended alive."""
    compiled: dict[Callable[[BaseDatabaseWrapper], Any], Any] | None = connection.__dict__.get(COMPILED)
    if compiled is None:
        compiled = connection.__dict__[COMPILED] = {}
    found: C | None = compiled.get(kind)
    if found is None:
        found = compiled[kind] = kind(connection)
    return found
