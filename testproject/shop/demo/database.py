"""The demo's own database: a file, or one that is made on a server and dropped at the end."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

__all__ = ["is_file", "own_database"]

MARK = 0x53484F50  # "SHOP"
"""SQLite's `application_id` of a file that the demo made: it never deletes any other."""


def is_file() -> bool:
    """Whether the demo's database is a file, which stays, rather than one on a server."""
    return connection.vendor == "sqlite"


@contextmanager
def own_database(*, keep: bool) -> Iterator[None]:
    """The one that the settings name, empty but for its tables. With `keep` a file is left as it is; a database on a
    server cannot be kept."""
    if is_file():
        connection.close()  # the file may be made anew
        prepare_file(Path(connection.settings_dict["NAME"]), keep=keep)
        call_command("migrate", verbosity=0, interactive=False)
        yield
    elif keep:
        raise CommandError("--keep goes on with a file; a database on a server is dropped when the demo ends")
    else:
        _on_server(f"CREATE DATABASE {_name()}" + (" CHARACTER SET utf8mb4" if connection.vendor == "mysql" else ""))
        try:
            call_command("migrate", verbosity=0, interactive=False)
            yield
        finally:
            connection.close()
            # A worker that was killed may be connected until the server finds out.
            _on_server(f"DROP DATABASE {_name()}" + (" WITH (FORCE)" if connection.vendor == "postgresql" else ""))


def prepare_file(path: Path, *, keep: bool) -> None:
    """Make an empty database file, or with `keep` leave the one that is there."""
    if not path.parent.is_dir():
        raise CommandError(f"{path.parent} is no directory")
    if path.exists():
        if not _is_ours(path):
            raise CommandError(f"{path} exists and was not made by this command; name another file with --database")
        if keep:
            return
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
            path.with_name(name).unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA application_id = {MARK}")
        file.execute("PRAGMA journal_mode = WAL")


def _is_ours(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(path)) as file:
            return bool(file.execute("PRAGMA application_id").fetchone()[0] == MARK)
    except sqlite3.Error:
        return False


def _name() -> str:
    return connection.ops.quote_name(str(connection.settings_dict["NAME"]))


def _on_server(statement: str) -> None:
    """As Django does for test databases: without connecting to the one that is made or dropped."""
    with connection._nodb_cursor() as cursor:
        cursor.execute(statement)
