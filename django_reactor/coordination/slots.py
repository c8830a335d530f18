"""Which slots of a key may be taken: what every store of holds agrees on.

1. Slots are numbered from 0. Whoever takes one of a free kind of slot below the limit needs nothing but that slot: the
   store gives each to one owner only.
2. A limit that was lowered leaves holders in slots beyond it. Each of them keeps back the highest free slot below the
   limit, until it is gone. All that were free and not kept back stay so while they are free, so that a look may be old.
3. An owner has one slot of a key. A later claim of the owner takes it over; an earlier one (a zombie) gets none at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

__all__ = ["Range", "Slot", "takeable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One that has ever been taken, as a store has it. `is_held`: by its owner, and has not expired."""

    number: int
    owner: UUID | None
    epoch: int
    is_held: bool


@dataclass(frozen=True, slots=True)
class Range:
    """Slots from `first` to `last`; each that is free may be taken. `own`: it is the owner's already."""

    first: int
    last: int
    own: bool = False


def takeable(slots: Sequence[Slot], limit: int, owner: UUID, epoch: int) -> Range | None:
    """None if there is none, free or not."""
    for slot in slots:
        if slot.owner == owner:
            if slot.epoch > epoch:
                return None
            if slot.is_held:
                return Range(slot.number, slot.number, own=True)
    held = {slot.number for slot in slots if slot.is_held}
    kept_back = sum(number >= limit for number in held)
    free = [number for number in range(limit) if number not in held]
    granted = free[: len(free) - kept_back] if kept_back else free
    return Range(0, granted[-1]) if granted else None
