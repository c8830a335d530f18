"""PostgreSQL's advisory locks of a session: nothing is stored, and who loses the connection loses the lock."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

__all__ = ["session"]


class Session:
    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def cycle(self, key: int) -> None:
        self._connection.execute("SELECT pg_advisory_lock(%s)", [key])
        self._connection.execute("SELECT pg_advisory_unlock(%s)", [key])

    def close(self) -> None:
        self._connection.close()


def session(environment: Mapping[str, str]) -> Session:
    return Session(environment["BENCHMARK_URL"])
