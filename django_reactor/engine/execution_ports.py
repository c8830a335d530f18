"""What the engine needs of the rows of executions and of their journals, and how a store refuses a write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import Action, Stop
from django_reactor.engine.records import Claim, ExecutionRecord, Lease, Message, Move, NewExecution, Release, Route

__all__ = ["Deliveries", "Executions", "Journal", "LeaseLost", "Overtaken", "Refused"]


class LeaseLost(BaseException):
    """Another runner has this execution. Internal: whoever meets it stops without any write."""


class Overtaken(Exception):
    """An entry of this number is stored already: load the journal again and decide anew."""


class Refused(Exception):
    """The conditional write found no row: the lease is lost, or a stop was asked for, or another entry came first.
    `Journal.reconsider` tells which."""


class Journal(Protocol):
    """The append-only entries of executions. Each method is one transaction (a savepoint inside a caller's), retried
    by the adapter on deadlocks, lock timeouts and serialisation failures unless a caller's transaction is open.
    Errors of the database itself are raised as they come: they are no step's failure.

    Entries are of the lease's execution; the token and the stop that every write looks at are its owner's. Whatever
    stores a `resume` entry marks the accepted wait of its step as applied, in the same transaction."""

    def load(self, execution_id: UUID) -> tuple[ExecutionRecord, Sequence[Entry]]:
        """The row and its entries in order, in two queries. Raises `ExecutionNotFound`."""

    def append(self, lease: Lease, entry: Entry) -> None:
        """Store the entry if the lease holds and no stop was asked for, in one statement; else `Refused`."""

    def reconsider(self, lease: Lease, entry: Entry | None) -> tuple[Stop, str]:
        """After `Refused`: `LeaseLost` if the token is no longer ours; `Overtaken` if the entry's number is taken;
        otherwise store the entry whatever stop was asked for, and say which stop, and its reason."""

    def move(self, lease: Lease, move: Move, entry: Entry | None = None) -> None:
        """Change the status, and store the entry in the same transaction; `Refused` if any condition fails, and then
        nothing is changed."""

    def release(self, lease: Lease, release: Release, entry: Entry | None = None) -> None:
        """Give the owner's lease up, and store the entry in the same transaction; `Refused` as in `move`."""

    def dispatch(self, lease: Lease, child: NewExecution, entry: Entry) -> None:
        """Store the unit, pending, or the part, running, and the entry, in one transaction; `Refused` as in `move`."""

    def flush(self) -> None:
        """Store what the journal holds back, if it does so."""


class Executions(Protocol):
    """The rows of executions: who may run what. Each method is one transaction."""

    def start(self, new: NewExecution) -> bool:
        """Store it, running under its token or pending without one. False if its idempotency key is taken: nothing is
        stored then."""

    def find(self, reactor: str, idempotency_key: str) -> UUID | None:
        """The execution that has this key, also if it was committed after this transaction's snapshot."""

    def claim(self, execution_id: UUID, token: UUID, known: Sequence[str] | None = None) -> Claim | None:
        """Take the lease of an execution that is due and not held, and read it under that lease; None if it is not.
        With keys of what is known here (see `known`) only one of these is taken; None also where it would take more
        than one statement to tell.

        The first claim of an execution that nobody ran reads no entries: there are none yet."""

    def request_stop(self, execution_id: UUID, stop: Stop, reason: str) -> bool:
        """Ask its runner to stop at its next append; False if the status, or another stop, forbids it."""

    def take(self, execution_id: UUID, action: Action, token: UUID, now: datetime, reason: str = "") -> Lease | None:
        """The lease of an execution that nobody runs, for one of three ends of its rest; None if its status forbids it.

        `rollback`: from completed, halted, cancelled, aborted, paused, or failed with rollback failures; status
        rolling_back, waits closed, units that have not started cancelled, and the entry. `retry`: from failed or
        aborted; status running and the entry; a failed execution begins its next generation. `cancel`: from aborted;
        status running with the stop set, for the runner to obey.
        """

    def renew(self, tokens: Mapping[UUID, UUID]) -> tuple[set[UUID], set[UUID]]:
        """Extend the leases (execution id → token) that still hold. Returns the executions that were confirmed, and
        those that are lost; one whose row is locked is in neither set."""


class Deliveries(Protocol):
    """What a worker asks of the rows beside the lease."""

    def route(self, execution_id: UUID) -> Route | None:
        """None if there is no such execution (any more)."""

    def due_in(self, execution_id: UUID, within: float) -> float | None:
        """In how many seconds it is due, if nobody holds it and that is at most `within`: the message was early."""

    def put_back(self, execution_id: UUID, delay: float) -> bool:
        """Note that its message will come again in `delay` seconds. False if that is not called for: it is not due, or
        another message is underway, or somebody has its row locked, whom this does not wait for."""

    def park(self, lease: Lease, release: Release, has_come: Callable[[], bool]) -> bool:
        """Release, waiting for something; then look once more whether it has come, in the same transaction. True if it
        has, and the execution is due at once. If not, look again once that is committed, and `wake`: what came between
        the two may have found nobody who waits. `Refused` as in `Journal.release`."""

    def has_ended(self, execution_id: UUID) -> bool:
        """Read afresh, also inside a transaction."""

    def open_for(self, unit: UUID) -> float | None:
        """How many seconds ago a unit that has not ended was dispatched, by the store's clock; None if it has ended.
        Read afresh, also inside a transaction."""

    def wake(self, execution_id: UUID, waiting_for: str) -> Message | None:
        """Make the execution's owner due if it waits for this, perhaps among others, and return its message. A
        statement of its own, after what has come is committed."""

    def progress_of(self, execution_id: UUID) -> int:
        """How many entries it and its parts have; being cut off once more is no progress, and not counted."""

    def progressed(self, lease: Lease, entries: int) -> None:
        """Note that there are so many entries now, and begin to count recoveries anew."""
