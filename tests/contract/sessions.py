"""Sessions of the database's server: killed under our feet, or with a clock of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from tests.contract.committed import PATIENCE, another_session

__all__ = ["clock_ahead", "kill_session", "session_id"]

OWN_ID = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}
KILL = {"postgresql": "SELECT pg_terminate_backend(%s, 5000)", "mysql": "KILL CONNECTION %s"}


def session_id() -> int:
    """Of this thread's connection. Skips the test where there is no server to speak of."""
    if connection.vendor not in OWN_ID:
        pytest.skip("SQLite has no session that could be lost")
    with connection.cursor() as cursor:
        cursor.execute(OWN_ID[connection.vendor])
        return int(cursor.fetchone()[0])


def kill_session(number: int) -> None:
    """End it on the server, as a restart or an administrator does; its client learns of it from its next statement."""

    def kill() -> None:
        with connection.cursor() as cursor:
            cursor.execute(KILL[connection.vendor], [number])

    with another_session() as session:
        session(kill).result(PATIENCE)


@contextmanager
def clock_ahead(seconds: int) -> Iterator[None]:
    """For this thread's session the database's clock is so far ahead of this machine's; for nobody else."""
    match connection.vendor:
        case "postgresql":
            ahead, back = _postgres(seconds)
        case "mysql":
            ahead, back = [f"SET timestamp = UNIX_TIMESTAMP() + {seconds}"], ["SET timestamp = DEFAULT"]
        case _:
            ahead, back = [], []
            _replace_sqlite_clock(seconds)
    try:
        _execute(ahead)
        yield
    finally:
        _execute(back)
        if connection.vendor == "sqlite":
            connection.close()  # which forgets the replacement


def _postgres(seconds: int) -> tuple[list[str], list[str]]:
    """A function that is found before PostgreSQL's own of the same name."""
    function = (
        "CREATE FUNCTION ahead.statement_timestamp() RETURNS timestamptz LANGUAGE sql AS "
        f"$$ SELECT pg_catalog.statement_timestamp() + interval '{seconds} seconds' $$"
    )
    ahead = ["CREATE SCHEMA ahead", function, "SET search_path = ahead, public, pg_catalog"]
    return ahead, ["RESET search_path", "DROP SCHEMA ahead CASCADE"]


def _replace_sqlite_clock(seconds: int) -> None:
    def ahead(*_: Any) -> str:
        moment = datetime.now(UTC) + timedelta(seconds=seconds)
        return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "000"

    connection.ensure_connection()
    connection.connection.create_function("STRFTIME", -1, ahead)  # as many arguments as its own: any


def _execute(statements: list[str]) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
