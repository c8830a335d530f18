"""What one runner holds, for which of its levels. In memory only: a stored count would survive a crash, and never
reach zero.

A level is an execution (the owner, or a part of it), or one step of it. Who asks for a key that the runner holds
already enters with it: the hold is free when the last level has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from django_reactor.engine.coordination_ports import Hold, HoldKind, Wanted

__all__ = ["FOREVER", "Holding", "Holdings", "Level"]

Level = tuple[UUID, str]
"""An execution, and one of its steps or ''."""
FOREVER = float("inf")


@dataclass(slots=True, eq=False, weakref_slot=True)
class Holding:
    """One hold, and until when it is good by the local clock."""

    hold: Hold
    auto_extend: bool
    good_until: float
    due_at: float = FOREVER
    """When it is to be extended."""
    step: str = ""
    """The step that took it, or ''."""
    levels: set[Level] = field(default_factory=set)
    waits_for_commit: bool = False
    """It was taken for a caller's transaction that the store does not take part in: it can only be freed when that has
    ended."""
    is_given_up: bool = False
    """To be freed then."""

    @property
    def key(self) -> str:
        return self.hold.wanted.key


@dataclass(slots=True)
class Holdings:
    """Not thread-safe."""

    entered: set[UUID] = field(default_factory=set)
    """The executions that were let in, with their locks and semaphores."""
    has_entered: bool = False
    """Whether any was."""
    _held: dict[tuple[HoldKind, str], Holding] = field(default_factory=dict)

    def enter(self, execution_id: UUID) -> None:
        self.entered.add(execution_id)
        self.has_entered = True

    def __bool__(self) -> bool:
        return bool(self._held)

    def __iter__(self) -> Iterator[Holding]:
        """Those of some level."""
        return (holding for holding in self._held.values() if holding.levels)

    def get(self, wanted: Wanted) -> Holding | None:
        return self._held.get((wanted.kind, wanted.key))

    def of_key(self, key: str) -> Holding | None:
        """The lock of this key, or else the semaphore."""
        found = (self._held.get((kind, key)) for kind in HoldKind)
        return next((holding for holding in found if holding is not None and holding.levels), None)

    def put(self, holding: Holding) -> None:
        self._held[holding.hold.wanted.kind, holding.key] = holding

    def leave(self, is_left: Callable[[Level], bool]) -> list[Holding]:
        """Leave these levels. What no other level needs is no longer held here, and returned, to be freed in the
        reverse order of taking."""
        free: list[Holding] = []
        for place, holding in list(self._held.items()):
            if not holding.levels:
                continue
            holding.levels -= {level for level in holding.levels if is_left(level)}
            if not holding.levels:
                free.append(holding)
                if not holding.waits_for_commit:
                    del self._held[place]
        return free[::-1]

    def without(self, is_left: Callable[[Level], bool]) -> list[Holding]:
        """What no level would need any more if these were left."""
        return [holding for holding in self if all(is_left(level) for level in holding.levels)][::-1]

    def lapsed(self, now: float) -> list[Holding]:
        """Those that were not confirmed in time, and may be another's."""
        return [holding for holding in self._held.values() if holding.levels and holding.good_until <= now]

    def forget(self) -> list[Holding]:
        """Hold nothing any more, and say what was held."""
        held = list(self)
        self._held.clear()
        self.entered.clear()
        return held
