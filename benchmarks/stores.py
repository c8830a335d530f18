"""Where contenders write: databases of this run's own, created before it and dropped after it.

A worker finds its store by the environment: in the words of `testproject.databases`, and as `BENCHMARK_URL` for those
that are not on Django. `BENCHMARK_PRAGMAS` are the SQLite pragmas that every contender sets on its connections, so that
all wait for the disk equally.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg

from testproject.databases import server

__all__ = ["STORES", "Store", "available", "created", "pragmas", "settings_of_server"]

PREPARE_THRESHOLD = 2
"""Executions of a statement before psycopg prepares it, in the store `prepared`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    name: str
    vendor: str
    prepares: bool = False

    def environment(self, database: str, synchronous: str) -> dict[str, str]:
        chosen = {"DATABASE": self.vendor, "DATABASE_NAME": database, "BENCHMARK_URL": self.url(database)}
        if self.vendor == "sqlite":
            chosen["BENCHMARK_PRAGMAS"] = pragmas(synchronous)
        if self.prepares:
            chosen["POSTGRES_PREPARE_THRESHOLD"] = str(PREPARE_THRESHOLD)
        rest = {k: v for k, v in os.environ.items() if k not in ("DEBUG", "POSTGRES_PREPARE_THRESHOLD")}
        return rest | chosen | {"DJANGO_SETTINGS_MODULE": "benchmarks.settings"}

    def url(self, database: str) -> str:
        if self.vendor == "sqlite":
            return f"sqlite:///{database}"
        found = server(os.environ, "POSTGRES", port="5432", user="postgres")
        password = f":{quote(found['PASSWORD'], safe='')}" if found["PASSWORD"] else ""
        return f"postgresql://{quote(found['USER'], safe='')}{password}@{found['HOST']}:{found['PORT']}/{database}"


STORES = {
    store.name: store
    for store in (
        Store(name="sqlite", vendor="sqlite"),
        Store(name="postgres", vendor="postgres"),
        Store(name="prepared", vendor="postgres", prepares=True),
    )
}


def pragmas(synchronous: str) -> str:
    return f"PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous}; PRAGMA foreign_keys=ON"


def available(store: Store) -> bool:
    """Whether the store's server answers."""
    if store.vendor == "sqlite":
        return True
    try:
        _maintenance().close()
    except psycopg.OperationalError:
        return False
    return True


@contextmanager
def created(store: Store, synchronous: str) -> Iterator[Mapping[str, str]]:
    """The environment of workers on a migrated database that is gone after the block."""
    with tempfile.TemporaryDirectory(prefix="django-reactor-benchmark-") as folder:
        if store.vendor == "sqlite":
            yield _migrated(store.environment(str(Path(folder) / "benchmark.sqlite3"), synchronous))
            return
        database = f"django_reactor_benchmark_{os.getpid()}_{store.name}"
        with _maintenance() as connection:
            connection.execute(f'CREATE DATABASE "{database}"'.encode())
            try:
                yield _migrated(store.environment(database, synchronous))
            finally:
                connection.execute(f'DROP DATABASE "{database}" WITH (FORCE)'.encode())


def _migrated(environment: dict[str, str]) -> dict[str, str]:
    subprocess.run([sys.executable, "-m", "django", "migrate", "--verbosity", "0"], env=environment, check=True)
    return environment


def settings_of_server() -> Mapping[str, str]:
    """What decides how long a commit takes there."""
    with _maintenance() as connection:
        names = ("server_version", "fsync", "synchronous_commit")
        return {name: connection.execute(f"SHOW {name}".encode()).fetchone()[0] for name in names}  # type: ignore[index]


def _maintenance() -> psycopg.Connection:
    url = STORES["postgres"].url("postgres")
    return psycopg.connect(url, autocommit=True, connect_timeout=3)
