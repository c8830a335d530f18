"""Locks and semaphores in memory, for tests of the engine: the same rules, checked by the same contract suite.

A lock makes each method atomic. Nothing survives the process, and nothing is rolled back with a transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django_reactor.coordination.slots import Slot, takeable
from django_reactor.engine.coordination_ports import Hold, Holder, HoldKind, Wanted

__all__ = ["MemoryHolds"]

IDLE = timedelta(days=1)


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class _Slot:
    owner: UUID | None
    epoch: int
    expires_at: datetime


@dataclass(slots=True)
class MemoryHolds:
    """The port `Holds`."""

    now: Callable[[], datetime] = _utc_now
    joins_transactions: bool = False
    _slots: dict[tuple[HoldKind, str], dict[int, _Slot]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def take(self, owner: UUID, epoch: int, wanted: Wanted) -> Hold | None:
        with self._lock:
            slots = self._slots.setdefault((wanted.kind, wanted.key), {})
            limit = 1 if wanted.kind is HoldKind.LOCK else wanted.limit
            within = takeable([self._seen(number, slot) for number, slot in slots.items()], limit, owner, epoch)
            if within is None:
                return None
            free = (n for n in range(within.first, within.last + 1) if within.own or not self._is_held(slots.get(n)))
            number = next(free)
            slots[number] = _Slot(owner, epoch, self.now() + timedelta(seconds=wanted.ttl))
            return Hold(wanted=wanted, owner=owner, epoch=epoch, slot=number)

    def extend(self, holds: Sequence[Hold]) -> set[Hold]:
        with self._lock:
            held = {hold for hold in holds if self._is_held(self._of(hold))}
            for hold in held:
                slot = self._of(hold)
                assert slot is not None  # it is held
                slot.expires_at = self.now() + timedelta(seconds=hold.wanted.ttl)
            return held

    def release(self, holds: Sequence[Hold]) -> set[Hold]:
        with self._lock:
            found = {hold: slot for hold in holds if (slot := self._of(hold)) is not None}
            for slot in found.values():
                slot.owner, slot.expires_at = None, self.now()
            return set(found)

    def holders(self, kind: HoldKind, *keys: str) -> Sequence[Holder]:
        with self._lock:
            return [holder for holder in self._holders() if holder.kind is kind and holder.key in keys]

    def held_by(self, owner: UUID) -> Sequence[Holder]:
        with self._lock:
            return [holder for holder in self._holders() if holder.owner == owner]

    def purge(self, limit: int) -> int:
        with self._lock:
            before = self.now() - IDLE
            idle = [
                (of, n) for of, slots in self._slots.items() for n, slot in slots.items() if slot.expires_at < before
            ]
            for of, number in idle[:limit]:
                del self._slots[of][number]
            return len(idle[:limit])

    def _holders(self) -> Sequence[Holder]:
        return [
            Holder(kind=kind, key=key, slot=n, owner=slot.owner, epoch=slot.epoch, expires_at=slot.expires_at)
            for (kind, key), slots in sorted(self._slots.items())
            for n, slot in sorted(slots.items())
            if slot.owner is not None and self._is_held(slot)
        ]

    def _of(self, hold: Hold) -> _Slot | None:
        slot = self._slots.get((hold.wanted.kind, hold.wanted.key), {}).get(hold.slot)
        return slot if slot is not None and (slot.owner, slot.epoch) == (hold.owner, hold.epoch) else None

    def _is_held(self, slot: _Slot | None) -> bool:
        return slot is not None and slot.owner is not None and slot.expires_at > self.now()

    def _seen(self, number: int, slot: _Slot) -> Slot:
        return Slot(number=number, owner=slot.owner, epoch=slot.epoch, is_held=self._is_held(slot))
