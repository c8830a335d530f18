"""Keeps the holds of this process alive, in the thread that renews its leases (PROTOCOL 8, extend).

1. Each is extended every third of its ttl, all that are due by one call of the store. One that was confirmed is good,
   by the local clock, until the time *before* the call plus 5/6 of its ttl.
2. One that was not confirmed is tried again soon; whether it is lost its runner finds out before the next body.
3. What a caller's transaction gave up by being rolled back is freed here: nobody else would.
4. Whoever waits here for what is freed here is woken.
5. It keeps nothing that no run refers to any more: an interruption may strike a run between any two things that it does
   to give a hold up, and what is left half given up has to lapse.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable

from django_reactor.engine.coordination_ports import Holds
from django_reactor.engine.holdings import FOREVER, Holding
from django_reactor.engine.waiting_room import WaitingRoom

__all__ = ["HoldKeeper", "Pledge"]

logger = logging.getLogger("django_reactor")


AGAIN = 1.0
"""Seconds until what could not be freed is tried again."""


class HoldKeeper:
    """Thread-safe. `wake` is called when there may be something to do earlier than `due_in` has said; `nudge` too,
    where nothing may be waited for."""

    def __init__(self, holds: Holds, now: Callable[[], float]) -> None:
        self._holds, self.now = holds, now
        self.wake: Callable[[], None] = lambda: None
        self.nudge: Callable[[], None] = lambda: None
        self.reset()

    def reset(self) -> None:
        """A forked child keeps nothing alive of what its parent has taken, and nobody waits in it."""
        self._lock = threading.RLock()  # a finalizer may strike whoever has it
        self._kept: weakref.WeakValueDictionary[int, Holding] = weakref.WeakValueDictionary()
        self._abandoned: deque[Holding] = deque()
        self._free_at = 0.0
        self.room = WaitingRoom()

    def confirm(self, holding: Holding, asked_at: float) -> None:
        """It was taken, or extended, by a call of the store that began then."""
        ttl = holding.hold.wanted.ttl
        holding.good_until = asked_at + ttl * 5 / 6
        holding.due_at = asked_at + ttl / 3

    def keep(self, holding: Holding) -> None:
        if not holding.auto_extend:
            return
        with self._lock:
            self._kept[id(holding)] = holding
        self.wake()

    def drop(self, holding: Holding) -> None:
        with self._lock:
            self._kept.pop(id(holding), None)

    def abandon(self, holding: Holding) -> None:
        """Have it freed soon. For finalizers, which may strike anywhere: asks no store, and waits for no lock."""
        self._abandoned.append(holding)
        self.nudge()

    def free(self, holding: Holding) -> bool:
        """Whether it was still held."""
        self.drop(holding)
        released = self._holds.release([holding.hold])
        self.room.freed(holding.hold.wanted.kind_and_key)
        return bool(released)

    def rest(self, *holdings: Holding) -> None:
        """Nobody runs with these for a while: they hold for a whole ttl from now, and no longer."""
        for holding in holdings:
            self.drop(holding)
        if extended := [holding.hold for holding in holdings if holding.auto_extend]:
            self._holds.extend(extended)

    def due_in(self) -> float | None:
        """Seconds until something is to be done; None while there is nothing."""
        with self._lock:
            due_at = min((holding.due_at for holding in self._kept.values()), default=FOREVER)
        if self._abandoned:
            due_at = min(due_at, self._free_at)
        return None if due_at == FOREVER else max(0.0, due_at - self.now())

    def beat(self) -> None:
        """Do what is due. Raises what the store raises; then it stays due, a little later."""
        now = self.now()
        with self._lock:
            due = [holding for holding in self._kept.values() if holding.due_at <= now]
        for holding in due:
            holding.due_at = now + holding.hold.wanted.ttl / 6
        if self._abandoned and self._free_at <= now:
            self._free_abandoned()
        if due:
            extended = self._holds.extend([holding.hold for holding in due])
            for holding in due:
                if holding.hold in extended:
                    self.confirm(holding, now)

    def _free_abandoned(self) -> None:
        self._free_at = self.now() + AGAIN  # if the store raises
        while self._abandoned:
            self.free(self._abandoned[0])
            self._abandoned.popleft()
        self._free_at = 0.0


class Pledge:
    """Held for a caller's transaction that the store does not take part in. Its hook for the commit has the only
    reference to this: a rollback drops both, and the hold is freed."""

    def __init__(self, keeper: HoldKeeper, holding: Holding) -> None:
        self._keeper, self._holding = keeper, holding
        self._forgotten = weakref.finalize(self, keeper.abandon, holding)
        self._forgotten.atexit = False

    def committed(self) -> None:
        """Free it if its run is done with it; otherwise whoever goes on takes it over."""
        self._forgotten.detach()
        self._keeper.drop(self._holding)
        if self._holding.is_given_up:
            self._keeper.free(self._holding)
        else:
            self._keeper.rest(self._holding)
