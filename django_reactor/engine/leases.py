"""Keeps the leases of this process alive (PROTOCOL 3, renew).

1. One thread for all leases, started with the first one and again after a fork; every third of the TTL it renews them
   all in one statement, on a connection of its own. Without leases it sleeps and asks the database nothing. The same
   thread keeps locks and semaphores alive (see `hold_keeper`), each at its own pace.
2. A confirmed lease is good, by the local clock, until the time *before* the statement plus 5/6 of the TTL.
3. A runner looks at that before each body. If it is overdue, it renews the lease itself before it goes on. This only
   saves work: the fence in every write is what protects.
4. An interruption may strike a runner anywhere in here. It leaves no lock to him: only `with` on a lock of the
   interpreter's own takes and gives back in one piece, a condition's does not. So the runners have the lock, and the
   condition over it is the thread's.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from django_reactor.engine.execution_ports import Executions, LeaseLost
from django_reactor.engine.hold_keeper import HoldKeeper
from django_reactor.engine.records import Lease

__all__ = ["LeaseKeeper", "boottime"]

logger = logging.getLogger("django_reactor")


FOREVER = float("inf")
CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def boottime() -> float:
    """Seconds on a clock that runs on while the machine sleeps, where there is one."""
    return time.monotonic() if CLOCK is None else time.clock_gettime(CLOCK)


@dataclass(slots=True)
class _Kept:
    """A lease of this process, and until when it is good by the local clock."""

    token: UUID
    good_until: float


class LeaseKeeper:
    """Thread-safe. `ttl` is in seconds; the thread calls `done` after each renewal, to give up its connection."""

    def __init__(
        self,
        executions: Executions,
        ttl: Callable[[], float],
        done: Callable[[], None] = lambda: None,
        now: Callable[[], float] = boottime,
        holds: HoldKeeper | None = None,
    ) -> None:
        self._executions, self._ttl, self._done, self._now, self._holds = executions, ttl, done, now, holds
        if holds is not None:
            holds.wake, holds.nudge = self._attend, self._attend_if_free
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """A forked child has neither the thread nor the leases of its parent."""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._kept: dict[UUID, _Kept] = {}
        self._thread: threading.Thread | None = None
        self._due_at = 0.0
        self._looks_at = 0.0
        if self._holds is not None:
            self._holds.reset()

    def hold(self, lease: Lease) -> None:
        """Renew this lease until it is let go."""
        with self._lock:
            if not self._kept:
                self._due_at = self._now() + self._ttl() / 3
            self._kept[lease.execution_id] = _Kept(lease.token, self._good_until(self._now()))
            self._attend()

    def let_go(self, lease: Lease) -> None:
        """Idempotent; leaves the lease of another runner of this process alone."""
        with self._lock:
            kept = self._kept.get(lease.execution_id)
            if kept is not None and kept.token == lease.token:
                del self._kept[lease.execution_id]

    def check(self, lease: Lease) -> None:
        """Before a body: raises `LeaseLost` if another runner has taken over. Leases that nobody registered (in a
        caller's transaction) are left to the fence."""
        kept = self._kept.get(lease.execution_id)  # one look-up needs no lock
        if kept is not None and self._now() > kept.good_until:
            self._renew({lease.execution_id: lease.token})
            if self._now() > kept.good_until:
                raise LeaseLost(lease.execution_id)

    def _attend(self) -> None:
        """Let the thread look again what is due, and when; unless it will in time by itself, which is seldom: it would
        take the processor from whoever has just taken a lease or a lock."""
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._keep, name="django-reactor-leases", daemon=True)
                thread.start()  # a process may be out of threads, for a while
                self._thread = thread
            elif not self._looks_in_time():
                self._changed.notify()

    def _looks_in_time(self) -> bool:
        """Whoever is at work looks again after that. A sleep may last longer than its time: a machine slept too."""
        pause, now = self._pause(), self._now()
        return self._looks_at == 0.0 or pause is None or now < self._looks_at <= now + pause

    def _attend_if_free(self) -> None:
        """If somebody has the lock, the thread looks when the next thing is due."""
        if self._lock.acquire(blocking=False):
            try:
                self._attend()  # reentrant
            finally:
                self._lock.release()

    def _good_until(self, asked_at: float) -> float:
        return asked_at + self._ttl() * 5 / 6

    def _keep(self) -> None:
        try:
            while True:
                self._keep_once()
        finally:
            self._looks_at, self._thread = 0.0, None  # whoever comes next starts another

    def _keep_once(self) -> None:
        with self._changed:
            while (pause := self._pause()) is None or pause > 0:
                self._looks_at = FOREVER if pause is None else self._now() + pause
                self._changed.wait(pause)
            self._looks_at = 0.0
            is_due = self._now() >= self._due_at
            tokens = {pk: kept.token for pk, kept in self._kept.items()} if is_due else {}
        try:
            self._or_log(partial(self._renew_all, tokens), len(tokens))
            self._or_log(self._keep_holds)
        finally:
            self._or_log(self._done)

    def _pause(self) -> float | None:
        """Seconds until something is due; None while there is nothing to keep."""
        pauses = [self._due_at - self._now()] if self._kept else []
        holds = None if self._holds is None else self._holds.due_in()
        return min(pauses if holds is None else [*pauses, holds], default=None)

    def _renew_all(self, tokens: dict[UUID, UUID]) -> None:
        if tokens:
            self._due_at = self._now() + self._ttl() / 3
            self._renew(tokens)

    def _keep_holds(self) -> None:
        if self._holds is not None:
            self._holds.beat()

    def _or_log(self, turn: Callable[[], None], leases: int = 0) -> None:
        """A database that is away may be back at the next turn: the thread must live on."""
        try:
            turn()
        except Exception as error:  # noqa: BLE001  # one turn of a thread
            logger.warning("event=django_reactor.renewal_failed leases=%d error=%s", leases, type(error).__name__)

    def _renew(self, tokens: dict[UUID, UUID]) -> None:
        asked_at = self._now()
        confirmed, lost = self._executions.renew(tokens)
        with self._lock:
            for execution_id, token in tokens.items():
                kept = self._kept.get(execution_id)
                if kept is None or kept.token != token:
                    continue
                if execution_id in confirmed:
                    kept.good_until = self._good_until(asked_at)
                elif execution_id in lost:
                    kept.good_until = float("-inf")
