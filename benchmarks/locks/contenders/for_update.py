"""SELECT … FOR UPDATE of a row that is there, on psycopg alone. Held for as long as its transaction is open."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

__all__ = ["session"]

TABLE = "CREATE TABLE IF NOT EXISTS benchmark_rows (id integer PRIMARY KEY)"


class Session:
    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url)
        with self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(0)")  # or two make the table at once
            self._connection.execute(TABLE)
            rows = "INSERT INTO benchmark_rows SELECT generate_series(1, 1000) ON CONFLICT DO NOTHING"
            self._connection.execute(rows)

    def cycle(self, key: int) -> None:
        with self._connection.transaction():
            self._connection.execute("SELECT id FROM benchmark_rows WHERE id = %s FOR UPDATE", [key])

    def close(self) -> None:
        self._connection.close()


def session(environment: Mapping[str, str]) -> Session:
    return Session(environment["BENCHMARK_URL"])
