"""Who waits for a lock, as the database itself sees it."""

from __future__ import annotations

import pytest
from django.db import connection

from tests.contract.committed import eventually

__all__ = ["session_id", "until_blocked"]

SESSION = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}
BLOCKED = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'",
    "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = %s "
    "AND trx_state = 'LOCK WAIT'",
}

INTERVAL = {"postgresql": 0.005, "mysql": 0.15}
"""Seconds between two looks. InnoDB shows an old picture to who looks ten times a second or more often."""


def session_id() -> int:
    """Of this thread's connection."""
    if connection.vendor not in SESSION:
        pytest.skip("SQLite has one writer at a time, and no locks on rows")
    with connection.cursor() as cursor:
        cursor.execute(SESSION[connection.vendor])
        (number,) = cursor.fetchone()
    return int(number)


def until_blocked(session: int) -> None:
    def is_blocked() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(BLOCKED[connection.vendor], [session])
            (count,) = cursor.fetchone()
        return bool(count)

    eventually(is_blocked, f"session {session} waiting for a lock", interval=INTERVAL[connection.vendor])
