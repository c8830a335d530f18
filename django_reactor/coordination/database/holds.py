"""Locks and semaphores in the database of executions (PROTOCOL 8: take, extend, release).

1. A lock is taken by one UPDATE of its row, if that is free or ours and nobody has it locked. For a semaphore the rows
   of its key are read first, which say which slots may be taken.
2. A slot that nobody ever had has no row: then it is an INSERT. Who would have to wait there for what another session
   has not committed waits for an instant only.
3. What is taken in a transaction is an uncommitted row, which others skip; it is free again by a rollback.
4. Extend and release name owner and epoch. A release waits for a moment where another has the row locked: otherwise a
   renewal at the same instant would keep the lock for its whole ttl.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Final
from uuid import UUID

from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Q, QuerySet

from django_reactor import models
from django_reactor.coordination.database.holding import Claim, Holding
from django_reactor.coordination.database.patience import TookTooLong, in_a_moment
from django_reactor.coordination.database.purging import purge
from django_reactor.coordination.slots import Range, Slot, takeable
from django_reactor.core.keys import digest_of
from django_reactor.engine.coordination_ports import Hold, Holder, HoldKind, Wanted
from django_reactor.journal.fields import DbNow
from django_reactor.journal.statements import compiled_for
from django_reactor.journal.transactions import retried

__all__ = ["DatabaseHolds"]

TRIES = 3
"""Of a take that finds no row, and then somebody who was quicker to make it."""
MOST_MADE = 3
"""New slots that one take tries to make where others are making them."""
SOMEBODY_WAS_QUICKER: Final = -1
ONLY_SLOT = Range(0, 0)
PATIENCE_OF_A_RELEASE = 2.0
"""Seconds for a row that another has locked."""
IDLE = timedelta(days=1)


class DatabaseHolds:
    """The port `Holds`. Thread-safe: each thread has its own connection.

    A transaction of MySQL with a snapshot of its own (REPEATABLE READ) does not see who has since gone beyond a limit
    that is lower now.
    """

    joins_transactions = True

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[router.db_for_write(models.Holder)]

    @property
    def _rows(self) -> QuerySet[models.Holder, models.Holder]:
        return models.Holder.objects.using(self.connection.alias)

    def take(self, owner: UUID, epoch: int, wanted: Wanted) -> Hold | None:
        connection = self.connection
        taking = _Taking(connection, owner, epoch, wanted)
        try:
            slot = retried(connection, lambda: in_a_moment(connection, taking.slot))
        except TookTooLong:
            return None
        return None if slot is None else Hold(wanted=wanted, owner=owner, epoch=epoch, slot=slot)

    def extend(self, holds: Sequence[Hold]) -> set[Hold]:
        connection = self.connection
        holding = compiled_for(connection, Holding)
        return {hold for hold in holds if retried(connection, partial(holding.extend, connection, hold))}

    def release(self, holds: Sequence[Hold]) -> set[Hold]:
        connection = self.connection
        return {hold for hold in holds if retried(connection, partial(_released, connection, hold))}

    def holders(self, kind: HoldKind, *keys: str) -> Sequence[Holder]:
        return self._held(Q(kind=kind, key_digest__in=[digest_of(key) for key in keys]))

    def held_by(self, owner: UUID) -> Sequence[Holder]:
        return self._held(Q(owner=owner))

    def _held(self, which: Q) -> Sequence[Holder]:
        rows = self._rows.filter(which, owner__isnull=False, expires_at__gt=DbNow()).order_by("kind", "key", "slot")
        return [
            Holder(
                kind=HoldKind(row.kind),
                key=row.key,
                slot=row.slot,
                owner=row.owner,
                epoch=row.epoch,
                expires_at=row.expires_at,
            )
            for row in rows
            if row.owner is not None
        ]

    def purge(self, limit: int) -> int:
        connection = self.connection
        return purge(connection, self._rows.filter(expires_at__lt=DbNow() - IDLE), limit)


class _Taking:
    """One take: finds the slot, or makes it."""

    def __init__(self, connection: BaseDatabaseWrapper, owner: UUID, epoch: int, wanted: Wanted) -> None:
        self._connection, self._wanted = connection, wanted
        self._claim = Claim(wanted=wanted, digest=digest_of(wanted.key), owner=owner, epoch=epoch)
        self._holding = compiled_for(connection, Holding)
        self._known: set[int] = set()
        """Slots that have rows, whether or not this transaction's snapshot shows them."""

    def slot(self) -> int | None:
        """The number of the one that is ours now."""
        is_lock = self._wanted.kind is HoldKind.LOCK
        for _ in range(TRIES):
            slots = () if is_lock else self._slots()
            within = ONLY_SLOT if is_lock else self._takeable(slots)
            if within is None:
                return None
            taken = self._holding.take(self._connection, self._claim, within, [0] if is_lock else self._likely(slots))
            if taken is not None:
                return taken
            if within.own:  # it was given up since the look, and is another's: there may be more
                continue
            self._known.update(slot.number for slot in slots or self._slots())
            made = self._make(within)
            if made is not SOMEBODY_WAS_QUICKER:
                return made
        return None

    def _likely(self, slots: Sequence[Slot]) -> list[int]:
        held = {slot.number for slot in slots if slot.is_held}
        return sorted({slot.number for slot in slots} | self._known, key=lambda number: (number in held, number))

    def _slots(self) -> Sequence[Slot]:
        return self._holding.slots(self._connection, self._claim)

    def _takeable(self, slots: Sequence[Slot]) -> Range | None:
        return takeable(slots, self._wanted.limit, self._claim.owner, self._claim.epoch)

    def _make(self, within: Range) -> int | None:
        """The number of a new row; None if there is none to make, or if others are about to make them all."""
        missing = (number for number in range(within.first, within.last + 1) if number not in self._known)
        for number in islice(missing, MOST_MADE):
            with suppress(TookTooLong):
                if self._holding.make(self._connection, self._claim, number):
                    return number
                self._known.add(number)
                return SOMEBODY_WAS_QUICKER
        return None


def _released(connection: BaseDatabaseWrapper, hold: Hold) -> bool:
    holding = compiled_for(connection, Holding)
    if holding.release(connection, hold):
        return True
    if holding.is_still_held(connection, hold):
        with suppress(TookTooLong):
            return holding.release_patiently(connection, hold, PATIENCE_OF_A_RELEASE)
    return False
