"""The words of the data model: statuses of an execution, actions and outcomes of a journal entry, relations.

They are the models' choices too. Which status allows which action is PROTOCOL section 10; the sets below are its
columns.
"""

from __future__ import annotations

import enum

__all__ = ["Action", "EntryOutcome", "MapState", "Relation", "Status", "Stop", "open_parts_of", "status_of_parts"]


class Status(enum.StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SCHEDULED = "scheduled"
    PAUSED = "paused"
    ROLLING_BACK = "rolling_back"
    COMPLETED = "completed"
    FAILED = "failed"
    HALTED = "halted"
    CANCELLED = "cancelled"
    UNDONE = "undone"
    ABORTED = "aborted"

    @property
    def is_end(self) -> bool:
        return self in ENDS


ENDS = frozenset({Status.COMPLETED, Status.FAILED, Status.HALTED, Status.CANCELLED, Status.UNDONE, Status.ABORTED})
FORWARD = (Status.PENDING, Status.RUNNING, Status.SCHEDULED, Status.PAUSED)
"""Statuses in which steps may still run, so that a cancel is accepted."""
UNDOABLE = (Status.PAUSED, Status.COMPLETED, Status.HALTED, Status.CANCELLED, Status.ABORTED)
"""Statuses that `undo()` accepts as they are; `failed` only with rollback failures that still stand."""
RETRYABLE = (Status.FAILED, Status.ABORTED)
HELD = (Status.RUNNING, Status.ROLLING_BACK)
"""Statuses of an execution whose runner holds a lease."""


class Relation(enum.StrEnum):
    ROOT = "root"
    COMPOSED = "composed"
    ELEMENT = "element"
    ASYNC_STEP = "async_step"
    ASYNC_REACTOR = "async_reactor"


PARTS = (Relation.COMPOSED, Relation.ELEMENT)
"""What stands and falls with the execution that it is a part of."""
UNITS = (Relation.ASYNC_STEP, Relation.ASYNC_REACTOR)
"""What is independent of the execution that started it."""


def open_parts_of(owner: Status) -> tuple[Status, ...]:
    """Statuses of parts that take on this status of their owner: while it only rests, what rolls back goes on so."""
    if not owner.is_end:
        return FORWARD
    broken_off = () if owner is Status.ABORTED else (Status.ABORTED,)
    return (*FORWARD, Status.ROLLING_BACK, *broken_off)


def status_of_parts(owner: Status) -> Status:
    """What those become: the same, but where their owner ends without them, in success or with a rollback that could
    not reach them."""
    return Status.CANCELLED if owner in (Status.COMPLETED, Status.FAILED, Status.UNDONE) else owner


class MapState(enum.StrEnum):
    """How far one map step is with its elements (PROTOCOL 5)."""

    LOADING = "loading"
    """Its source is read; nothing starts before that is done."""
    RUNNING = "running"
    FAILING = "failing"
    """No element starts any more; those that run settle."""
    WITHDRAWN = "withdrawn"
    """The same, and nobody waits for that: its execution has ended without it, unless it is undone."""
    DONE = "done"
    UNDOING = "undoing"
    UNDONE = "undone"
    """Every element that could be undone was given its undo. Those whose undo failed are `failed`."""


GIVEN_UP = (MapState.FAILING, MapState.WITHDRAWN)
"""No element begins any more."""
UNFINISHED = (MapState.LOADING, MapState.RUNNING, MapState.FAILING, MapState.UNDOING)
"""Somebody has to see to it that it comes to an end."""


class Stop(enum.StrEnum):
    """A request from outside that the runner obeys at its next append."""

    NONE = ""
    CANCEL = "cancel"
    UNDO = "undo"


class Action(enum.StrEnum):
    RUN = "run"
    COMPENSATE = "compensate"
    UNDO = "undo"
    DISPATCH = "dispatch"
    HAND_OFF = "hand_off"
    PAUSE = "pause"
    RESUME = "resume"
    ADMIT = "admit"
    ABORT = "abort"
    CANCEL = "cancel"
    ROLLBACK = "rollback"
    RETRY = "retry"


class EntryOutcome(enum.StrEnum):
    NONE = ""
    SUCCESS = "success"
    FAILURE = "failure"
    RETRYING = "retrying"
    SKIPPED = "skipped"
    HALTED = "halted"
