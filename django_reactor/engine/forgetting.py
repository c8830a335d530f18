"""What is forgotten of coordination when nobody needs it any more (PROTOCOL 9): slots that nobody has held for a day,
counts of windows that are over, marks of past buckets, lines that have long ended.

1. One process of the fleet does it at a time, now and then, whether or not there is anything else to sweep. Two that do
   so at once do no harm.
2. By a bounded number of rows in one transaction, and so on while that many are found; what somebody has locked is left
   to the next time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from django_reactor.engine.recovery import Sweeps
from django_reactor.engine.services import Stores

__all__ = ["INTERVAL", "Forgetting"]

INTERVAL = 600.0
"""Seconds from one time to the next, of the fleet and of each process of it."""
MOST_CHUNKS = 200
"""Of a kind of rows, at one time: the next comes soon enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """`limit` is the most rows that one transaction deletes."""

    sweeps: Sweeps
    stores: Stores
    limit: int

    def forget_if_due(self, holder: UUID) -> int | None:
        """How many rows were forgotten. None if a process of the fleet has seen to it lately."""
        return self.forget() if self.sweeps.lead(holder, INTERVAL, task="forget") else None

    def forget(self) -> int:
        stores = self.stores
        kinds = (stores.holds, stores.rate_limits, stores.periods, stores.turns)
        return sum(self._all(kind.purge) for kind in kinds)

    def _all(self, purge: Callable[[int], int]) -> int:
        forgotten = 0
        for _ in range(MOST_CHUNKS):
            found = purge(self.limit)
            forgotten += found
            if found < self.limit:
                break
        return forgotten
