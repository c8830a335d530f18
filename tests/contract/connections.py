"""Django's connection to the tests' database, with other options, in this thread's place of the default one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

__all__ = ["default_connection_with"]


@contextmanager
def default_connection_with(*, time_zone: str | None = None, **options: Any) -> Iterator[None]:
    """`OPTIONS` and `TIME_ZONE` of the database, over those of the project."""
    usual = connections[DEFAULT_DB_ALIAS]
    other = usual.copy()
    other.settings_dict["OPTIONS"] = other.settings_dict["OPTIONS"] | options
    if time_zone is not None:
        other.settings_dict["TIME_ZONE"] = time_zone
    connections[DEFAULT_DB_ALIAS] = other
    try:
        yield
    finally:
        other.close()
        connections[DEFAULT_DB_ALIAS] = usual
