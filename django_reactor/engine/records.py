"""What the engine and its adapters hand each other of an execution: its row, the right to write it, what to write."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import Relation, Status, Stop

__all__ = [
    "AND_MORE",
    "Claim",
    "ExecutionRecord",
    "Lease",
    "Message",
    "Move",
    "NewExecution",
    "Parent",
    "Recoveries",
    "Release",
    "Route",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewExecution:
    """An execution that is about to be stored: running under the lease of whoever stores it, or, without a token,
    pending and due in `wake_in` seconds."""

    id: UUID
    reactor: str
    fingerprint: str
    inputs: str
    token: UUID | None = None
    wake_in: float = 0.0
    carried: Mapping[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None
    tags: Sequence[str] = ()
    queue_name: str = "default"
    priority: int | None = None
    relation: Relation = Relation.ROOT
    parent: Parent | None = None
    owner_id: UUID | None = None
    """Whose lease it runs under, if it has none of its own: then it is running as soon as it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """Who started an execution that is no root, and by which step."""

    id: UUID
    root_id: UUID
    step: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRecord:
    """The row of an execution, as far as the engine reads it."""

    id: UUID
    root_id: UUID
    reactor: str
    fingerprint: str
    status: Status
    inputs: str
    tags: Sequence[str] = ()
    stop: Stop = Stop.NONE
    stop_reason: str = ""
    epoch: int = 0
    generation: int = 0
    recoveries: int = 0
    progress: int = 0
    snoozes: int = 0
    snooze_reason: str = ""
    """Not empty if the last release was a snooze."""
    contentions: int = 0
    """How often in a row it was put off since others had what it needs; 0 if its last release had another reason."""
    queue_name: str = "default"
    priority: int | None = None
    carried: Mapping[str, Any] = field(default_factory=dict)
    failure: Mapping[str, Any] | None = None
    output: str | None = None
    idempotency_key: str | None = None
    relation: Relation = Relation.ROOT
    parent_id: UUID | None = None
    parent_step: str = ""
    parent_generation: int = 0
    element_index: int = -1
    owner_id: UUID | None = None

    @property
    def owner(self) -> UUID:
        return self.owner_id or self.id

    @classmethod
    def of(cls, new: NewExecution) -> ExecutionRecord:
        """The row as it is when it has just been stored."""
        parent, leased = new.parent, new.token is not None
        return cls(
            id=new.id,
            root_id=parent.root_id if parent else new.id,
            reactor=new.reactor,
            fingerprint=new.fingerprint,
            status=Status.RUNNING if leased or new.owner_id is not None else Status.PENDING,
            inputs=new.inputs,
            tags=tuple(new.tags),
            epoch=1 if leased else 0,
            recoveries=1 if leased else 0,
            idempotency_key=new.idempotency_key,
            queue_name=new.queue_name,
            priority=new.priority,
            carried=dict(new.carried),
            relation=new.relation,
            parent_id=parent.id if parent else None,
            parent_step=parent.step if parent else "",
            parent_generation=parent.generation if parent else 0,
            owner_id=new.owner_id,
        )

    @property
    def parent_name(self) -> str:
        """What its parent calls it: the step, and the place of an element."""
        return self.parent_step if self.element_index < 0 else f"{self.parent_step}[{self.element_index}]"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write for one execution: only who has the token that stands in its owner's row may.

    The owner is the execution itself, or, for a part of another one (`owner_id`), the one that runs it.
    """

    execution_id: UUID
    token: UUID
    epoch: int = 1
    owner_id: UUID | None = None

    @property
    def owner(self) -> UUID:
        return self.owner_id or self.execution_id

    def over(self, part: UUID) -> Lease:
        """The same right, to write for a part of the owner."""
        return Lease(part, self.token, self.epoch, self.owner)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lease that was taken of an execution that was due, and what stood in the rows from then on."""

    lease: Lease
    record: ExecutionRecord
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A change of status under a lease. An end gives the lease up, and no other move does (see `Release`)."""

    to: Status
    expected: Collection[Status]
    output: str | None = None
    failure: Mapping[str, Any] | None = None
    rollback_failures: int = 0
    ignores_stop: bool = False
    """A stop that was asked for refuses a move, unless the move is how it is obeyed."""
    clears_stop: bool = False
    """The move is how a stop is obeyed, and the execution goes on after it."""
    cancels_units: bool = False
    """Units of the whole that have not started become cancelled, in the same transaction."""
    closes_waits: bool = False
    """No answer is waited for any more in the whole, in the same transaction."""
    with_parts: bool = False
    """Parts of the whole that are open follow it (`status_of_parts`)."""
    with_owner: bool = False
    """The owner of this part takes the same status."""

    def whole(self, lease: Lease) -> UUID:
        """What moves, with all its parts at any depth: an owner, or a part of it."""
        return lease.owner if self.with_owner else lease.execution_id

    @property
    def only_ends(self) -> bool:
        """Whether it is an end, and row and entry are all that there is to write."""
        more = self.cancels_units or self.closes_waits or self.with_parts or self.with_owner
        return self.to.is_end and not (more or self.ignores_stop or self.clears_stop)


AND_MORE = " and more"


class Recoveries(enum.Enum):
    """What becomes of the count of claims without progress when a lease is given up."""

    RESET = "reset"
    GIVE_BACK = "give_back"
    """This claim does not count: the worker was shut down."""
    KEEP = "keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The lease is given up before the end, and the execution is due again in `wake_in` seconds (PROTOCOL 3, release).
    `snooze` is the reason of a snooze, which is counted, apart if it is `contended`: for what others have."""

    to: Status
    wake_in: float | None = 0.0
    """None: not before somebody wakes it."""
    snooze: str | None = None
    contended: bool = False
    waiting_for: str = ""
    """The words for what wakes it: any of them, or, if it ends with `AND_MORE`, others too."""
    recoveries: Recoveries = Recoveries.RESET
    ignores_stop: bool = False
    with_parts: bool = False
    """Parts that are open take the same status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """*Deliver this execution*, after `delay` seconds. It carries an id and nothing else."""

    execution_id: UUID
    queue_name: str
    priority: int | None = None
    delay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a delivery may know before it has the lease: none of it ever changes."""

    reactor: str
    queue_name: str
    priority: int | None
    relation: Relation = Relation.ROOT
    parent_step: str = ""
