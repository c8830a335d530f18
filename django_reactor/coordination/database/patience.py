"""How long a statement may wait for what another transaction has locked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import OperationalError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["SHORT", "TookTooLong", "in_a_moment", "is_lock_timeout", "waiting_at_most"]

R = TypeVar("R")

SHORT = 0.1
"""Seconds: longer than a commit usually takes, and shorter than a caller notices."""
MOMENT = 1.0
"""Seconds that SQLite's one writer may keep us waiting."""

LOCK_NOT_AVAILABLE = "55P03"
LOCK_WAIT_TIMEOUT = 1205
LOCK_NOWAIT = 3572


class TookTooLong(Exception):
    """Another transaction has what the statement needs, and goes on having it."""


def is_lock_timeout(error: OperationalError) -> bool:
    cause = error.__cause__
    if getattr(cause, "sqlstate", None) == LOCK_NOT_AVAILABLE:
        return True
    number = cause.args[0] if cause is not None and cause.args else None
    return number in (LOCK_WAIT_TIMEOUT, LOCK_NOWAIT) or "locked" in str(error)


@contextmanager
def waiting_at_most(connection: BaseDatabaseWrapper, seconds: float) -> Iterator[None]:
    """A block, a savepoint of its own in a transaction, whose statements raise `TookTooLong` rather than wait longer.

    MySQL counts in whole seconds, from 1; MariaDB, where less than one is asked for, does not wait at all.
    """
    try:
        with (
            AROUND[connection.vendor](connection, seconds),
            transaction.atomic(using=connection.alias),
            INSIDE[connection.vendor](connection, seconds),
        ):
            yield
    except OperationalError as error:
        if not is_lock_timeout(error):
            raise
        raise TookTooLong from error


def in_a_moment(connection: BaseDatabaseWrapper, statements: Callable[[], R]) -> R:
    """Raises `TookTooLong` if SQLite's file stays locked by another's transaction, in which any row may have been
    written. Inside a transaction it is ours, or the error is the caller's."""
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        return statements()
    usual = _value(connection, "PRAGMA busy_timeout", [])
    _value(connection, f"PRAGMA busy_timeout = {round(min(usual, MOMENT * 1000))}", [])
    try:
        return statements()
    except OperationalError as error:
        if not is_lock_timeout(error):
            raise
        raise TookTooLong from error
    finally:
        _value(connection, f"PRAGMA busy_timeout = {usual}", [])


@contextmanager
def _on_postgresql(connection: BaseDatabaseWrapper, seconds: float) -> Iterator[None]:
    """The setting goes with the savepoint if that is rolled back; otherwise it would stay until the caller's end."""
    asked = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)"
    usual = _value(connection, asked, [f"{round(seconds * 1000)}ms"])
    yield
    _value(connection, "SELECT set_config('lock_timeout', %s, true)", [usual])


@contextmanager
def _on_mysql(connection: BaseDatabaseWrapper, seconds: float) -> Iterator[None]:
    """The setting is the session's, and no part of a transaction."""
    least = 0 if getattr(connection, "mysql_is_mariadb", False) else 1
    usual = _value(connection, "SELECT @@SESSION.innodb_lock_wait_timeout", [])
    _set(connection, max(int(seconds), least))
    try:
        yield
    finally:
        _set(connection, usual)


@contextmanager
def _nothing(connection: BaseDatabaseWrapper, seconds: float) -> Iterator[None]:
    """In a transaction of SQLite the only writer is we."""
    yield


AROUND = {"postgresql": _nothing, "mysql": _on_mysql, "sqlite": _nothing}
INSIDE = {"postgresql": _on_postgresql, "mysql": _nothing, "sqlite": _nothing}
"""The savepoint, or the transaction, of the block."""


def _value(connection: BaseDatabaseWrapper, sql: str, parameters: list[Any]) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchone()[0]


def _set(connection: BaseDatabaseWrapper, seconds: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", [seconds])
