"""What Django's own fields, indexes and functions don't give the tables of executions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models.sql.compiler import SQLCompiler

__all__ = ["DbNow", "ExactCharField", "InstantText", "JSONTextField", "PartialIndex", "storable"]


def storable(text: str) -> str:
    """The text without what a database cannot hold: NUL on PostgreSQL, lone surrogates anywhere. What a body says of
    its outcome must not keep the outcome from being stored. (Values are ASCII, and pass at once.)"""
    if text.isascii() and "\x00" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


# django-stubs make fields generic; Django itself does not.
if TYPE_CHECKING:
    _TextField = models.TextField[Any, Any]
else:
    _TextField = models.TextField


class JSONTextField(_TextField):
    """JSON as text: jsonb would reorder keys, and refuse NaN and the escaped character \\u0000."""

    def from_db_value(self, value: str | None, expression: object, connection: BaseDatabaseWrapper) -> Any:
        return None if value is None else json.loads(value)

    def to_python(self, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    def get_prep_value(self, value: Any) -> str | None:
        return None if value is None else json.dumps(value)

    def value_to_string(self, obj: models.Model) -> str:
        return json.dumps(self.value_from_object(obj))


if TYPE_CHECKING:
    ExactCharField = models.CharField
else:

    class ExactCharField(models.CharField):
        """A name or a key: of two that differ in anything, neither is found for the other. By default MySQL would take
        those for the same that differ in case, in accents, or by blanks at the end."""

        def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
            parameters = super().db_parameters(connection)
            if connection.vendor == "mysql":
                parameters["collation"] = "utf8mb4_nopad_bin" if connection.mysql_is_mariadb else "utf8mb4_0900_bin"
            return parameters


class DbNow(models.Func):
    """The database's clock at the start of this statement, in UTC.

    Django's `Now()` gives the session's time zone on MySQL, with its jumps in spring and autumn, and the start of the
    transaction on PostgreSQL.

    SQLite compares times as text, and has milliseconds. They are written with six digits, as Django writes what it
    calculates from them: of two texts for one instant, the shorter one would count as earlier.
    """

    template = "CURRENT_TIMESTAMP"
    output_field = models.DateTimeField()

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="STATEMENT_TIMESTAMP()", **extra)

    def as_mysql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="UTC_TIMESTAMP(6)", **extra)

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        return self.as_sql(
            compiler, connection, template="STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f000', 'NOW')", **extra
        )


class InstantText(models.Func):
    """A stored time as ISO text in UTC, for `datetime.fromisoformat`: drivers and Django take several times as long.

    Not for MySQL, nor for an SQLite file in local time.
    """

    output_field = models.TextField()

    @staticmethod
    def is_known_to(connection: BaseDatabaseWrapper) -> bool:
        return connection.vendor == "postgresql" or (connection.vendor == "sqlite" and connection.timezone is UTC)

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        iso = """TO_CHAR(%(expressions)s AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')"""
        return self.as_sql(compiler, connection, template=iso, **extra)

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="(%(expressions)s || '+00:00')", **extra)


class PartialIndex(models.Index):
    """An index of the rows that fulfil `where`; of all rows where the database has no partial indexes (MySQL, which
    Django's `condition` would leave without any)."""

    def __init__(self, *, where: models.Q, fields: Sequence[str], name: str) -> None:
        super().__init__(fields=fields, name=name)
        self.where = where

    def deconstruct(self) -> Any:
        path, _, kwargs = super().deconstruct()
        return path, (), kwargs | {"where": self.where}

    def _get_condition_sql(self, model: type[models.Model], schema_editor: BaseDatabaseSchemaEditor) -> str | None:
        if not schema_editor.connection.features.supports_partial_indexes:
            return None
        partial = models.Index(fields=self.fields, name=self.name, condition=self.where)
        sql: str | None = partial._get_condition_sql(model, schema_editor)  # type: ignore[attr-defined]  # private
        return sql
