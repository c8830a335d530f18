"""Named instants at which a crash must lose nothing. Tests arm one, and the process dies there by SIGKILL.

Armed by the environment variable `DJANGO_REACTOR_CRASH_AT` (`point`, or `point:n` for the n-th time that it is
reached), by `arm`, or by `watch` with a trap that knows more than the point. Unarmed, reaching a point costs one
comparison.
"""

from __future__ import annotations

import enum
import os
import signal
from collections.abc import Callable

__all__ = ["CrashPoint", "Trap", "arm", "reached", "watch"]


class CrashPoint(enum.StrEnum):
    STARTED = "started"
    """The row is stored; no body ran."""
    BODY_DONE = "body_done"
    """A body has ended; its entry is not stored."""
    ATOMIC_BODY_DONE = "atomic_body_done"
    """An atomic step's body has ended inside its transaction; its entry is not stored."""
    RECORDED = "recorded"
    """An entry is committed; the next decision is not carried out."""
    ROLLBACK_BODY_DONE = "rollback_body_done"
    """An undo or a compensation has ended; its entry is not stored."""
    BEFORE_END = "before_end"
    """Everything is journaled; the end is not written."""
    CLAIMED = "claimed"
    """A worker has the lease; nothing has run."""
    RELEASED = "released"
    """The lease is given up (hand-off, retry, snooze, park); its message is not sent."""
    DISPATCHED = "dispatched"
    """A unit, or a map, and its parent's entry are stored; the messages are not sent."""
    LOADED = "loaded"
    """Some elements of a map are stored; none has begun."""
    ELEMENT_ENDED = "element_ended"
    """The end of an element is committed, and the turn of the next one; its message is not sent."""
    SETTLED = "settled"
    """All elements of a map have ended; their step has not."""
    WAIT_OPENED = "wait_opened"
    """The wait of an interrupt is open; its function did not run."""
    PAUSED = "paused"
    """The execution has paused; nobody was told."""
    ANSWERED = "answered"
    """The answer of an interrupt is stored; nobody goes on by it."""
    ADMITTED = "admitted"
    """Rate limits are charged, and that is journaled; no lock is taken."""
    TAKEN = "taken"
    """Locks and semaphores are held; no body ran, and where they are taken first, nothing is stored."""
    BEFORE_RELEASE = "before_release"
    """What was held for is done; the holds are not free."""
    DRAWN = "drawn"
    """Numbers of ordered locks are drawn, in the transaction that stores the execution; it is not committed."""
    PARKED_IN_LINE = "parked_in_line"
    """An execution waits for its turn; it has not looked once more whether that has come."""
    BEFORE_NEXT_TURN = "before_next_turn"
    """A ticket's end is committed; the next in the line is not woken."""
    BEFORE_WAKE = "before_wake"
    """A unit's end is committed; its parent is not woken."""


Trap = Callable[[CrashPoint], bool]
"""Called at each point, in the thread that reaches it; True: the process dies there."""


class _Countdown:
    """The trap of one point, for the n-th time that it is reached."""

    def __init__(self, point: str, count: int) -> None:
        self._point, self._left = point, count

    def __call__(self, point: CrashPoint) -> bool:
        if point != self._point:
            return False
        self._left -= 1
        return self._left == 0


def _from_environment() -> Trap | None:
    point, _, count = os.environ.get("DJANGO_REACTOR_CRASH_AT", "").partition(":")
    return _Countdown(point, int(count or 1)) if point else None


_trap: Trap | None = _from_environment()


def arm(point: CrashPoint | None, count: int = 1) -> None:
    """Die when the point is reached for the `count`-th time from now; None disarms."""
    watch(None if point is None else _Countdown(point, count))


def watch(trap: Trap | None) -> None:
    """Ask this trap at each point from now on; None disarms."""
    global _trap
    _trap = trap


def reached(point: CrashPoint) -> None:
    if _trap is not None and _trap(point):
        os.kill(os.getpid(), signal.SIGKILL)
