"""Rate limits in the database of executions (PROTOCOL 8: rate limit).

1. One row for each key, window and bucket. The statement that counts makes the row, or finds it below its limit; the
   database's clock says which bucket it is.
2. Windows are charged in one transaction, the shortest first; one that is full takes the others back.
3. Who would have to wait long for what another session has counted and not committed is refused, and told to come again
   soon.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from django.db import OperationalError, connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reactor.coordination.database.counting import PATIENCE, Counting
from django_reactor.coordination.database.patience import TookTooLong, in_a_moment, is_lock_timeout, waiting_at_most
from django_reactor.coordination.database.purging import purge
from django_reactor.core.buckets import rolls_in
from django_reactor.core.keys import digest_of
from django_reactor.engine.coordination_ports import Counted, TooMany, Window
from django_reactor.journal.fields import DbNow
from django_reactor.journal.statements import compiled_for
from django_reactor.journal.transactions import retried
from django_reactor.models import RateCount

__all__ = ["DatabaseRateLimits"]

TRIES = 3
"""Of a charge that finds a window full which has rolled when it looks how long that will last."""


SOON = 5.0
"""Seconds after which what another session had not committed may be."""


class DatabaseRateLimits:
    """The port `RateLimits`. Thread-safe: each thread has its own connection."""

    joins_transactions = True

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[router.db_for_write(RateCount)]

    def charge(self, key: str, windows: Sequence[Window]) -> TooMany | None:
        connection = self.connection
        charge = _Charge(connection, key, sorted(windows, key=lambda window: window.seconds))
        for remaining in reversed(range(TRIES)):
            if charge.is_made():
                return None
            if (too_many := charge.refusal(rolled_is_free=remaining > 0)) is not None:
                return too_many
        raise AssertionError("unreachable")

    def counted(self, *keys: str) -> Sequence[Counted]:
        rows = RateCount.objects.using(self.connection.alias).filter(key_digest__in=[digest_of(key) for key in keys])
        return [
            Counted(key=row.key, seconds=row.window, count=row.count, rolls_at=row.ends_at)
            for row in rows.filter(ends_at__gt=DbNow()).order_by("key", "window")
        ]

    def purge(self, limit: int) -> int:
        over = RateCount.objects.using(self.connection.alias).filter(ends_at__lte=DbNow())
        return purge(self.connection, over, limit)


class _Charge:
    """One start, to be counted in every window."""

    def __init__(self, connection: BaseDatabaseWrapper, key: str, windows: Sequence[Window]) -> None:
        self._connection, self._key, self._windows = connection, key, windows
        self._digest, self._counting = digest_of(key), compiled_for(connection, Counting)
        self._asked = windows[0] if windows else None
        self._is_locked = False

    def is_made(self) -> bool:
        """Whether it is in all of them now; otherwise it is in none."""
        self._is_locked = False
        try:
            return retried(self._connection, lambda: in_a_moment(self._connection, self._all_or_none))
        except TookTooLong:
            self._is_locked = True
            return False

    def refusal(self, *, rolled_is_free: bool) -> TooMany | None:
        """Of the window that was full; None if that has rolled since."""
        window = self._asked
        assert window is not None  # or the charge would have been made
        now, count = self._counting.look(self._connection, self._digest, window)
        rolls = rolls_in(now, window.seconds)
        if count is not None and count >= window.limit:
            return TooMany(window=window, retry_after=rolls)
        if rolled_is_free and not self._is_locked:
            return None
        return TooMany(window=window, retry_after=min(rolls, SOON))

    def _all_or_none(self) -> bool:
        connection = self._connection
        if len(self._windows) == 1 and not connection.in_atomic_block and connection.vendor != "mysql":
            return self._count(self._windows[0])
        try:
            with self._block():
                for window in self._windows:
                    if not self._count(window):
                        raise _Full
        except _Full:
            return False
        return True

    def _block(self) -> AbstractContextManager[None]:
        """A transaction of our own needs no savepoint, and on PostgreSQL no other limit than the statement's."""
        if self._connection.in_atomic_block or self._connection.vendor == "mysql":
            return waiting_at_most(self._connection, PATIENCE)
        return transaction.atomic(using=self._connection.alias)

    def _count(self, window: Window) -> bool:
        self._asked = window
        try:
            return self._counting.count(self._connection, self._digest, self._key, window)
        except OperationalError as error:
            if not is_lock_timeout(error):
                raise
            raise TookTooLong from error


class _Full(Exception):
    """A window has no place: what was counted in the others is taken back."""
