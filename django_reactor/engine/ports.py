"""What the engine needs from outside, one port per job. Every adapter of a port passes the same contract suite."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from django_reactor.core.entries import Entry
from django_reactor.core.redaction import Redactor
from django_reactor.core.statuses import Action, Relation, Status, Stop
from django_reactor.engine.coordination_ports import Holds, Periods, RateLimits, Turns
from django_reactor.exceptions import ConfigurationError

if TYPE_CHECKING:
    from django_reactor.engine.hold_keeper import HoldKeeper
    from django_reactor.engine.leases import LeaseKeeper
    from django_reactor.engine.map_ports import Elements, Maps, Slots
    from django_reactor.engine.waits import Answers, Waits

__all__ = [
    "AND_MORE",
    "Carriers",
    "Claim",
    "Clock",
    "Codec",
    "Deliveries",
    "ExecutionRecord",
    "Executions",
    "Journal",
    "Lease",
    "LeaseLost",
    "Limits",
    "Message",
    "Messenger",
    "Move",
    "NewExecution",
    "Observer",
    "Overtaken",
    "Recoveries",
    "Refused",
    "Release",
    "Route",
    "Scope",
    "Stores",
    "Transactions",
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
    """Units that have not started, its own and those of its parts, become cancelled, in the same transaction."""
    closes_waits: bool = False
    """No answer is waited for any more, by an owner and its parts, or by a part, in the same transaction."""
    with_parts: bool = False
    """Parts of this owner that are open take the same status."""
    with_owner: bool = False
    """The owner of this part takes the same status."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Settings that the engine obeys. Times in seconds."""

    max_recoveries: int = 5
    sweep_interval: float = 15.0
    unknown_reactor_delay: float = 15.0
    read_timeout: float = 30.0
    park_timeout: float = 3600.0
    snooze_delay: float = 5.0
    snooze_jitter: float = 5.0
    max_snoozes: int = 20


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

    def park(self, lease: Lease, release: Release, has_come: Callable[[], bool]) -> bool:
        """Release, waiting for something; then look once more whether it has come, in the same transaction. True if it
        has, and the execution is due at once. `Refused` as in `Journal.release`."""

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


class Messenger(Protocol):
    def send(self, message: Message) -> None:
        """Send it once the transaction that is open now is committed, or never. A broker that fails is logged, not
        raised: the sweeper sends again."""


class Carriers(Protocol):
    """What a delivery needs from where its execution was started: language, time zone."""

    def capture(self) -> Mapping[str, Any]: ...

    def restored(self, carried: Mapping[str, Any]) -> AbstractContextManager[None]: ...


class Codec(Protocol):
    """Values as text. One per run: it gives back the very model instances that passed through it."""

    def encode(self, value: object, *, at: str, redacted: bool = False) -> str:
        """Raises `SerializationError`; `at` begins the path in it. A redacted one is marked in the text itself."""

    def encode_arguments(self, values: Mapping[str, object], *, redacted: Collection[str], at: str) -> str: ...

    def decode(self, text: str) -> Any:
        """Raises `Gone`, or `SerializationError` if the text cannot be understood here."""

    def decode_arguments(self, text: str) -> Mapping[str, Any]:
        """A mapping that decodes a name when it is asked for."""

    def display(self, text: str, redactor: Redactor) -> Any:
        """A JSON-compatible rendering for people; never raises, never fetches."""

    def secrets(self, text: str) -> Sequence[object]:
        """The values that the text itself marks as secret."""


class Scope(Protocol):
    """The database blocks around one body."""

    def opened_by_body(self) -> bool:
        """Whether the body that runs now has a transaction block of its own open."""

    def roll_back(self) -> None:
        """Undo the body's writes when the scope ends."""

    def check(self) -> BaseException | None:
        """Why the body's writes cannot be committed, if they can't."""


class CommitRefused(Exception):
    """The database refused to commit an atomic step, for a reason that lies in the step's own writes (its
    `__cause__`): a constraint. Nothing was written."""


class Transactions(Protocol):
    def in_callers_block(self) -> bool:
        """Whether the caller has a transaction open on the database of executions."""

    def around_body(self) -> AbstractContextManager[Scope]:
        """No transaction of our own; inside a caller's, a savepoint on each connection that has one open."""

    def reconnect(self) -> None:
        """Give up this thread's connections: an interruption may have struck inside a statement."""

    def carried_out(self, statements: Callable[[], None]) -> None:
        """Carry statements of the engine out as one transaction, and again if the database broke it off for another's
        sake, as the journal does with each of its own. Not for bodies."""

    def after_commit(self, then: Callable[[], None]) -> None:
        """Call it once the caller's transaction is committed; if that is rolled back, forget it."""

    def atomic(self) -> AbstractContextManager[Scope]:
        """One transaction (in a caller's: a savepoint) around body and entry; `CommitRefused` from its exit."""


class Clock(Protocol):
    def now(self) -> datetime:
        """The time of day, aware, UTC: for display only; the database's clock decides leases and due times."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class Observer(Protocol):
    """Told after the fact; cannot change or break a run."""

    def notice(self, event: str, reactor: type, execution_id: UUID, **details: Any) -> None: ...


def _by_contract(definition: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
    validated: Mapping[str, Any] = definition.contract.validate(values)
    return validated


def no_named_limits(name: str) -> Mapping[str, int]:
    raise ConfigurationError(f"no rate limit has the name {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The stores of coordination, and what keeps alive what this process has taken from them."""

    holds: Holds
    rate_limits: RateLimits
    periods: Periods
    turns: Turns
    keeper: HoldKeeper
    time_zone: Callable[[], tzinfo] = lambda: UTC
    """Whose calendar a period without a time zone of its own follows."""
    named_limits: Callable[[str], Mapping[str, int]] = no_named_limits
    """The limits of a name in `RATE_LIMITS`; `ConfigurationError` if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The adapters of one runtime."""

    journal: Journal
    executions: Executions
    transactions: Transactions
    clock: Clock
    observer: Observer
    leases: LeaseKeeper
    deliveries: Deliveries
    waits: Waits
    answers: Answers
    messenger: Messenger
    carriers: Carriers
    maps: Maps
    elements: Elements
    slots: Slots
    coordination: Stores
    limits: Callable[[], Limits] = Limits
    validate: Callable[[Any, Mapping[str, Any]], Mapping[str, Any]] = _by_contract
    """The inputs of a reactor, by its contract and its `clean`."""
    is_stopping: Callable[[], bool] = lambda: False
    """Whether this worker was asked to stop: then another one does the rest, after the step that runs."""
    new_codec: Any = field(repr=False)
    """Makes a `Codec` for one run."""
