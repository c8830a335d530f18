"""The database's clock, read."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db.backends.base.base import BaseDatabaseWrapper

from django_reactor.journal.statements import Statement, now_sql

__all__ = ["instant_of", "now"]


def now(connection: BaseDatabaseWrapper) -> datetime:
    """Aware, in UTC."""
    ((read,),) = Statement(f"SELECT {now_sql(connection)}", []).fetch(connection, [])
    return instant_of(read)


def instant_of(read: str | datetime) -> datetime:
    """What a driver gives for the database's clock: aware, naive or text, by its kind; always UTC."""
    found = datetime.fromisoformat(read) if isinstance(read, str) else read
    return found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)
