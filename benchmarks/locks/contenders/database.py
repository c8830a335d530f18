"""This project's locks in the database."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.locks.polling import Polled

__all__ = ["session"]


def session(environment: Mapping[str, str]) -> Polled:
    from django_reactor.coordination.database.holds import DatabaseHolds

    return Polled(DatabaseHolds())
