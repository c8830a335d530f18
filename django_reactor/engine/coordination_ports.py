"""What the engine asks of the stores of coordination (PROTOCOL 8). The store's clock decides what has expired.

Every method is one transaction of its own, or part of the one that is open on the database of executions: the engine
puts several together by `Transactions.carried_out`, so that a ticket, a mark or a hold commits with the execution. Each
of a store outside of that database raises `StoreUnavailable` where the store does not answer.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

__all__ = [
    "Counted",
    "Hold",
    "HoldKind",
    "Holder",
    "Key",
    "Holds",
    "Line",
    "Periods",
    "RateLimits",
    "Ticket",
    "TicketState",
    "TooMany",
    "Turn",
    "TurnState",
    "Turns",
    "Wanted",
    "Window",
]


class HoldKind(enum.StrEnum):
    LOCK = "lock"
    SEMAPHORE = "semaphore"


Key = tuple[HoldKind, str]
"""A lock and a semaphore of the same name are two things."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A hold that is to be taken. `ttl` is in seconds; a lock is what only one may hold."""

    kind: HoldKind
    key: str
    ttl: float
    limit: int = 1

    @property
    def kind_and_key(self) -> Key:
        return self.kind, self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What an owner holds from its claim of this number (`epoch`) on: only that claim, or a later one of the same
    owner, can extend or release it."""

    wanted: Wanted
    owner: UUID
    epoch: int
    slot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """For people, and for the guard against deadlocks: who has it, and until when if nobody extends it."""

    kind: HoldKind
    key: str
    slot: int
    owner: UUID
    epoch: int
    expires_at: datetime

    @property
    def kind_and_key(self) -> Key:
        return self.kind, self.key


class Holds(Protocol):
    """Locks and semaphores: slots with an owner and an expiry."""

    joins_transactions: bool
    """Whether what is taken in a transaction is free by itself when that is rolled back."""

    def take(self, owner: UUID, epoch: int, wanted: Wanted) -> Hold | None:
        """A free slot, or the owner's own, again for its whole ttl; None if there is none, or if that could not be
        found out at once (a row that somebody has locked). The owner's own slot is taken over by a higher epoch, and
        never by a lower one."""

    def extend(self, holds: Sequence[Hold]) -> set[Hold]:
        """Those that still hold, for a whole ttl from now; one whose row is locked by another is in neither."""

    def release(self, holds: Sequence[Hold]) -> set[Hold]:
        """Free those that are still held by this owner and epoch, and return them; the others are another's now."""

    def holders(self, kind: HoldKind, *keys: str) -> Sequence[Holder]:
        """Who holds these now, by key and slot."""

    def held_by(self, owner: UUID) -> Sequence[Holder]:
        """Everything that it holds now. For what was left over: it may read all that anybody holds."""

    def purge(self, limit: int) -> int:
        """Forget at most so many that nobody has held for a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """At most `limit` starts in each span of `seconds`, counted from the epoch."""

    name: str
    seconds: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TooMany:
    """The window that is full; `retry_after` is in seconds, until it rolls. Sooner if others have it locked, and nobody
    knows."""

    window: Window
    retry_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """For people: how many have started in the window of so many seconds that is open now, and when that rolls."""

    key: str
    seconds: int
    count: int
    rolls_at: datetime


class RateLimits(Protocol):
    joins_transactions: bool

    def charge(self, key: str, windows: Sequence[Window]) -> TooMany | None:
        """One start in every window, or in none."""

    def counted(self, *keys: str) -> Sequence[Counted]:
        """Of every window of these keys in which anybody has started; by key and length."""

    def purge(self, limit: int) -> int:
        """Forget at most so many counts of windows that are over."""


class Periods(Protocol):
    """Calendar buckets in which a run has succeeded. Always in the database of executions."""

    def now(self) -> datetime:
        """By the store's clock, aware: it says which bucket is the current one."""

    def is_marked(self, key: str, bucket: str) -> bool:
        """Also if the mark was committed after this transaction's snapshot."""

    def mark(self, key: str, bucket: str, execution_id: UUID, until: datetime) -> None:
        """Idempotent. The mark may be forgotten after `until`."""

    def purge(self, limit: int) -> int: ...


class TicketState(enum.StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    PASSED = "passed"
    """Its turn was given to others; it may still run when it is delivered."""

    @property
    def is_live(self) -> bool:
        return self in (TicketState.QUEUED, TicketState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    key: str
    number: int
    batch: int
    execution_id: UUID
    step: str
    """Empty for the ticket of a whole execution."""
    state: TicketState


class TurnState(enum.Enum):
    COME = "come"
    WAITS = "waits"
    CHAIN_FAILED = "chain_failed"
    """A lower number of the same batch has failed: in a strict chain this one must not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    state: TurnState
    ticket: Ticket
    head: Ticket | None = None
    """If it waits: the live ticket with the lowest number."""
    first_failed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A key of an ordered lock, for people."""

    key: str
    batch: int
    last: int
    """The number that was drawn last."""
    head: Ticket | None
    head_since: datetime | None
    first_failed: int | None
    live: int


class Turns(Protocol):
    """Ordered locks: numbers in the order of commits. Always in the database of executions."""

    def draw(self, key: str, execution_id: UUID, step: str = "") -> Ticket:
        """The next number, in the transaction that is open: it keeps others that draw for this key waiting until its
        end. Whoever has a live ticket of this key and step keeps it."""

    def turn(self, key: str, execution_id: UUID, step: str = "", *, strict: bool) -> Turn | None:
        """Whether it may run now; None if it has no ticket of this key and step. Whose turn has come is `running`
        from then on, and is not asked about the chain again."""

    def finish(self, execution_id: UUID, *, failed: bool, step: str | None = None) -> Sequence[str]:
        """Its tickets are done: of one step, or all, and those of its parts; the keys whose next in line may have its
        turn now."""

    def finish_cancelled(self, owner: UUID) -> Sequence[str]:
        """The tickets of units and elements that this execution, or a part of it, has started, and that have ended
        without their turn, are done; the keys whose next in line may have its turn now."""

    def tickets_of(self, owners: Collection[UUID]) -> Sequence[Ticket]:
        """Those of these executions and of their parts that have not ended, read afresh."""

    def head(self, key: str) -> Ticket | None:
        """The live ticket with the lowest number, read afresh; from now on it counts as the head."""

    def pass_over(self, key: str, poison_pill_timeout: float) -> bool:
        """Take the turn from a head whose execution is gone, or has ended without it; or that has been the head for so
        many seconds, and as long has shown no sign of life: no lease, no release, neither a pause nor a wait for a unit
        or a map. True if there is another head now."""

    def line(self, key: str) -> Line | None: ...

    def skip(self, key: str, number: int) -> bool:
        """Pass one number over by hand; False if it is not live."""

    def reset(self, key: str) -> int:
        """Pass every live number over; how many there were."""

    def purge(self, limit: int) -> int: ...
