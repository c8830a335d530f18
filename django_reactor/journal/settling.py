"""Whether anything still moves in a map, as SQL that is compiled once a connection (PROTOCOL 5, settle).

Every element asks that ends and brings no other in. One statement looks for all that would unsettle the map, on one
snapshot: between two, an element could leave a status that is still to be looked for, for one that has been. Each look
is for one row of one status, and passes none of those that have ended, nor, in a map that was given up, those that are
held.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper

from django_reactor.core.statuses import GIVEN_UP, MapState, Status
from django_reactor.journal.map_records import LOCKS, needs_lock
from django_reactor.journal.statements import Statement, Table, compiled_for
from django_reactor.models import Execution, MapRun

__all__ = ["is_settled"]

IN_FLIGHT = (Status.RUNNING, Status.SCHEDULED)
OPEN = (*IN_FLIGHT, Status.PAUSED, Status.PENDING, Status.ROLLING_BACK)
MAY_BE_HELD = (Status.PENDING, Status.ROLLING_BACK)
"""In flight as soon as their turn has come."""
SIGNS_OF_WORK = ("wake_at", "lease_expires_at")
"""Set in those whose turn has come, and in no other. Each has an index of the rows that have it, which are few."""


class Settling:
    """The statements of one connection."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        maps, rows = Table(MapRun, connection), Table(Execution, connection)
        anything_open = [_first(maps, rows, status) for status in OPEN]
        anything_at_work = [
            *(_first(maps, rows, status) for status in IN_FLIGHT),
            *(_any_with(maps, rows, status, sign) for status in MAY_BE_HELD for sign in SIGNS_OF_WORK),
        ]
        given_up = ", ".join(f"'{state}'" for state in GIVEN_UP)
        sql = (
            f"SELECT CASE WHEN m.{maps.column('state')} IN ('{MapState.RUNNING}', '{MapState.UNDOING}') "
            f"THEN {_none_of(anything_open)} WHEN m.{maps.column('state')} IN ({given_up}) "
            f"THEN {_none_of(anything_at_work)} END FROM {maps.name} m WHERE m.{maps.column('id')} = %s"
        )
        self._statements = {locks: Statement(sql + suffix, [maps.adapter("id")]) for locks, suffix in LOCKS.items()}

    def is_settled(self, connection: BaseDatabaseWrapper, map_id: UUID) -> bool:
        rows = self._statements[needs_lock(connection)].fetch(connection, [map_id])
        return bool(rows) and bool(rows[0][0])


def _first(maps: Table, rows: Table, status: Status) -> str:
    """The first element of this status, of the map `m`. The order keeps the database to the index of elements."""
    index = rows.column("element_index")
    return f"({_elements(maps, rows, status)} ORDER BY e.{index} LIMIT 1)"


def _any_with(maps: Table, rows: Table, status: Status, sign: str) -> str:
    """Among those of this status, most of which may be held. No order: that would lead through all of them."""
    return f"({_elements(maps, rows, status)} AND e.{rows.column(sign)} IS NOT NULL LIMIT 1)"


def _elements(maps: Table, rows: Table, status: Status) -> str:
    column = rows.column
    kinship = (("parent", "execution"), ("parent_step", "step"), ("parent_generation", "generation"))
    of_map = " AND ".join(f"e.{column(child)} = m.{maps.column(own)}" for child, own in kinship)
    return (
        f"SELECT e.{column('id')} FROM {rows.name} e WHERE {of_map} AND e.{column('status')} = '{status}' "
        f"AND e.{column('element_index')} >= 0"
    )


def _none_of(looks: Sequence[str]) -> str:
    return f"COALESCE({', '.join(looks)}) IS NULL"


def is_settled(connection: BaseDatabaseWrapper, map_id: UUID) -> bool:
    """Read afresh. False for a map in which nothing is meant to move, and for one that there is not."""
    return compiled_for(connection, Settling).is_settled(connection, map_id)
