"""What the engine needs of the rows of maps: their runner's side, their elements' side, and the readers of results.

*Held* is an element whose turn has not come: pending, or rolling back, with no time at which it is due. *In flight* is
one that has begun, or may begin at any moment. A map is *settled* when nothing of it is in flight that will not wait
for its map, and, unless it fails, nothing is held either (PROTOCOL 5).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import MapState, Status, Stop
from django_reactor.engine.records import ExecutionRecord, Lease, Message, Move

__all__ = [
    "CHUNK",
    "Elements",
    "Kinship",
    "MapKey",
    "MapRecord",
    "Maps",
    "NewElement",
    "NewMap",
    "Slot",
    "Slots",
    "Taken",
]

CHUNK = 500
"""Elements that are stored, or changed, in one transaction, at most."""


@dataclass(frozen=True, slots=True)
class MapKey:
    """One run of a map step: whose, which, and in which generation of that execution."""

    execution_id: UUID
    step: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMap:
    """A map that is about to be stored. `fan_out` is None for one whose elements run one after another."""

    id: UUID
    key: MapKey
    fan_out: int | None
    fail_fast: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRecord:
    """The row of a map. `owner_id` is the execution that waits for it."""

    id: UUID
    key: MapKey
    owner_id: UUID
    state: MapState
    fan_out: int | None
    fail_fast: bool
    total: int | None = None
    first_failed: int | None = None
    rollbacks: int = 0
    """How often its elements were prepared to be undone."""

    @property
    def waiting_for(self) -> str:
        """What stands in the row of an execution that waits for this map."""
        return f"map:{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinship:
    """What the elements of one map have in common. Without an `owner_id` each has a lease of its own."""

    root_id: UUID
    reactor: str
    fingerprint: str
    owner_id: UUID | None = None
    carried: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    queue_name: str = "default"
    priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewElement:
    """With a `failure` it has failed before it began: its inputs were refused."""

    id: UUID
    index: int
    inputs: str
    failure: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """An element whose turn has come, under the lease of whoever ended the one before it. What isn't here it shares
    with that one."""

    lease: Lease
    index: int
    inputs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What a map keeps for one element: as much of its row as its result takes."""

    index: int
    execution_id: UUID
    status: Status
    output: str | None = None
    """None also where the target declares no result: then `results` are its steps' values, by stored name."""
    results: Mapping[str, str | None] = field(default_factory=dict)
    has_begun: bool = False
    failure: Mapping[str, Any] | None = None
    reason: str = ""
    """Why it halted, or was stopped."""


class Maps(Protocol):
    """The rows of a map, written by the runner of the execution that it belongs to. Each method is one transaction,
    fenced by that execution's owner as `Journal.move` is: `Refused` if the lease is lost, and, where the map goes
    forward, if a stop was asked for.

    What returns None has done a part: call it again. So no transaction grows with the number of elements.
    """

    @property
    def reads_beside_writes(self) -> bool:
        """Whether elements can be stored while a query that gives them is still being read."""

    def begin(self, lease: Lease, new: NewMap) -> MapRecord:
        """Store it, loading; or the one that an earlier runner has stored under this key."""

    def add(self, lease: Lease, loading: MapRecord, kinship: Kinship, elements: Sequence[NewElement]) -> None:
        """Store elements, held. Refuses a stop."""

    def discard(self, lease: Lease, loading: MapRecord, limit: int) -> bool:
        """Delete elements of a map that was never opened, at most `limit`; False if there may be more. When none is
        left the map goes too."""

    def open(self, lease: Lease, loading: MapRecord, total: int, entry: Entry) -> Sequence[Message]:
        """Its source is stored whole: let the first `fan_out` elements go, and journal it. Refuses a stop."""

    def withdraw(
        self, lease: Lease, running: MapRecord, stops: Mapping[Status, Stop], limit: int
    ) -> Sequence[Message] | None:
        """Let no other element begin: the map fails, and held elements become cancelled. Then elements in flight are
        asked to stop, by status, if at all; the messages are of those that nobody runs."""

    def roll_back(self, lease: Lease, settled: MapRecord, limit: int) -> Sequence[Message] | None:
        """Prepare all elements that did something to be undone, held; then let the first `fan_out` go, the last ones of
        the source first."""

    def end(self, lease: Lease, settled: MapRecord, state: MapState, summary: Mapping[str, Any] | None = None) -> None:
        """Nothing in it moves any more. Idempotent; without a summary the one that there is stays."""


class Elements(Protocol):
    """What the runners of elements with a lease of their own do beside running, what their map's owner looks at, and
    what the sweeper mends. Each method is one transaction."""

    def find(self, map_id: UUID) -> MapRecord | None: ...

    def map_of(self, key: MapKey) -> MapRecord | None: ...

    def unfinished(self, owner_id: UUID, whole: UUID) -> Sequence[MapRecord]:
        """Maps of an owner and its parts, or of this part of it and its own, that have not come to an end. Read afresh,
        also inside a transaction."""

    def next_of(
        self, key: MapKey, *, statuses: Collection[Status], after: int = -1, backwards: bool = False
    ) -> tuple[ExecutionRecord, bool] | None:
        """The first element, in the order of the source, of these statuses whose index is greater than `after`, and
        whether it has begun. Backwards: the last one of all that have. Read afresh, also inside a transaction."""

    def finish(
        self, lease: Lease, of: MapRecord, index: int, move: Move, entry: Entry | None, take: UUID | None = None
    ) -> Message | Taken | None:
        """End an element as `Journal.move` does. In the same transaction, if it is the first that fails a map that
        fails fast, the map fails; otherwise the turn of the next held element has come: its message. With the token
        `take`, and while the map goes forward, the caller has that element's lease instead."""

    def is_settled(self, map_id: UUID) -> bool:
        """Read afresh. False for a map in which nothing is meant to move."""

    def wake(self, settled: MapRecord) -> Message | None:
        """Make the owner due if it waits for this map, perhaps among others. A statement of its own, after what settled
        it is committed."""

    def top_up(self, map_id: UUID) -> Sequence[Message]:
        """Let held elements go until as many are in flight as may be: a process that died can have narrowed the
        window."""


class Slots(Protocol):
    """What readers of a map's results ask for. No locks, and no statement that takes more than `limit` rows."""

    def counts(self, key: MapKey) -> Mapping[Status, int]: ...

    def slots(
        self,
        key: MapKey,
        *,
        statuses: Collection[Status] | None = None,
        after: int = -1,
        skip: int = 0,
        limit: int,
        backwards: bool = False,
    ) -> Sequence[Slot]:
        """In the order of the source: those of these statuses whose index is greater than `after`, without the first
        `skip` of them. Backwards: from the last one on, all of them."""

    def summary(self, key: MapKey) -> Mapping[str, Any] | None:
        """What was noted when the map was done."""
