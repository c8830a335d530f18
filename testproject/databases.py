"""The test project's database, chosen by the environment.

`DATABASE` is `sqlite` (the default), `postgres` or `mariadb`; `DATABASE_NAME` is the database's name, for SQLite the
file's path. A server is found by `POSTGRES_…` or `MARIADB_…`: `HOST`, `PORT`, `USER`, `PASSWORD`; the defaults are
those of a local server. `POSTGRES_PREPARE_THRESHOLD` is how often a statement runs before psycopg prepares it (unset:
never, which a transaction-pooling PgBouncer needs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

__all__ = ["database"]

Environment = Mapping[str, str]

SQLITE_FILE = Path(__file__).resolve().parent / "db.sqlite3"


def database(environ: Environment) -> dict[str, Any]:
    """The `DATABASES["default"]` that the environment asks for."""
    kind = environ.get("DATABASE") or "sqlite"
    if kind not in KINDS:
        raise ImproperlyConfigured(f"DATABASE must be one of {', '.join(KINDS)}; got {kind!r}")
    return KINDS[kind](environ)


def sqlite(environ: Environment) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": environ.get("DATABASE_NAME") or str(SQLITE_FILE),
        "OPTIONS": {
            # A transaction that reads first and writes later would fail at once when another wrote in between.
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL",
            "timeout": 20,
        },
    }


def postgres(environ: Environment) -> dict[str, Any]:
    threshold = environ.get("POSTGRES_PREPARE_THRESHOLD")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": environ.get("DATABASE_NAME") or "django_reactor",
        **server(environ, "POSTGRES", port="5432", user="postgres"),
        "OPTIONS": {"prepare_threshold": int(threshold)} if threshold else {},
    }


def mariadb(environ: Environment) -> dict[str, Any]:
    import pymysql

    pymysql.install_as_MySQLdb()  # pure Python, so that the tests install where no compiler and no client library is
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": environ.get("DATABASE_NAME") or "django_reactor",
        **server(environ, "MARIADB", port="3306", user="root"),
        "OPTIONS": {"charset": "utf8mb4"},
        "TEST": {"CHARSET": "utf8mb4"},
    }


def server(environ: Environment, prefix: str, *, port: str, user: str) -> dict[str, str]:
    return {
        "HOST": environ.get(f"{prefix}_HOST") or "127.0.0.1",
        "PORT": environ.get(f"{prefix}_PORT") or port,
        "USER": environ.get(f"{prefix}_USER") or user,
        "PASSWORD": environ.get(f"{prefix}_PASSWORD") or "",
    }


KINDS: dict[str, Callable[[Environment], dict[str, Any]]] = {
    "sqlite": sqlite,
    "postgres": postgres,
    "mariadb": mariadb,
}
