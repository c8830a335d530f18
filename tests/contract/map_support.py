"""Maps under contract: stored, opened and carried out element by element, as their runners would do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import HELD, Action, EntryOutcome, MapState, Status
from django_reactor.engine.identifiers import uuid7
from django_reactor.engine.map_ports import Kinship, MapKey, MapRecord, NewElement, NewMap, Slot, Taken
from django_reactor.engine.records import Lease, Message, Move, Release
from tests.contract.stores import INSTANT, Store, entry

__all__ = ["STEP", "World"]

STEP = "imported"
FORWARD_ENDS = {
    Status.COMPLETED: EntryOutcome.SUCCESS,
    Status.FAILED: EntryOutcome.FAILURE,
    Status.HALTED: EntryOutcome.HALTED,
}


@dataclass(slots=True)
class World:
    """One map of an execution that runs."""

    store: Store
    lease: Lease
    record: MapRecord
    own_leases: bool = True

    @classmethod
    def begin(
        cls, store: Store, lease: Lease, *, fan_out: int | None = 2, fail_fast: bool = True, generation: int = 0
    ) -> World:
        key = MapKey(lease.execution_id, STEP, generation)
        record = store.maps.begin(lease, NewMap(id=uuid7(), key=key, fan_out=fan_out, fail_fast=fail_fast))
        return cls(store, lease, record, own_leases=fan_out is not None)

    @classmethod
    def opened(cls, store: Store, lease: Lease, count: int, **options: Any) -> World:
        world = cls.begin(store, lease, **options)
        world.add(count)
        world.open(count)
        return world

    @property
    def key(self) -> MapKey:
        return self.record.key

    def park(self, release: Release, lease: Lease | None = None) -> bool:
        """As the owner does that waits for the map."""
        settled = self.store.elements.is_settled
        return self.store.deliveries.park(lease or self.lease, release, lambda: settled(self.record.id))

    @property
    def state(self) -> MapState | None:
        found = self.store.elements.find(self.record.id)
        return None if found is None else found.state

    @property
    def slots(self) -> Sequence[Slot]:
        return self.store.slots.slots(self.key, limit=1000)

    @property
    def statuses(self) -> list[Status]:
        return [slot.status for slot in self.slots]

    @property
    def let_go(self) -> list[int]:
        """Which elements are due and not begun."""
        return [slot.index for slot in self.slots if self.store.row(slot.execution_id).wake_at is not None]

    def id_of(self, index: int) -> UUID:
        return self.slots[index].execution_id

    def add(self, count: int, start: int = 0, failures: Mapping[int, Mapping[str, Any]] | None = None) -> None:
        kinship = Kinship(
            root_id=self.lease.execution_id,
            reactor="contract.Row",
            fingerprint="0123456789abcdef",
            owner_id=None if self.own_leases else self.lease.owner,
            tags=("imports",),
            carried={"language": "de"},
            queue_name="rows",
            priority=3,
        )
        elements = [
            NewElement(id=uuid7(), index=index, inputs=f'{{"n": {index}}}', failure=(failures or {}).get(index))
            for index in range(start, start + count)
        ]
        self.store.maps.add(self.lease, self.record, kinship, elements)

    def open(self, total: int) -> Sequence[Message]:
        opened = entry(1, action=Action.DISPATCH, step=STEP, outcome=EntryOutcome.NONE, value="map", undoable=True)
        return self.store.maps.open(self.lease, self.record, total, opened)

    def claim(self, index: int) -> Lease:
        claim = self.store.executions.claim(self.id_of(index), uuid4())
        assert claim is not None, f"element {index} is not due"
        return claim.lease

    def finish(self, index: int, to: Status, lease: Lease | None = None, **fields: Any) -> Message | None:
        held = lease or self.claim(index)
        ending = Move(to=to, expected=HELD, ignores_stop=to in (Status.CANCELLED, Status.UNDONE), **fields)
        following = self.store.elements.finish(held, self.record, index, ending, self._last(to))
        assert not isinstance(following, Taken)
        return following

    def take_after(self, index: int, to: Status, token: UUID, lease: Lease | None = None) -> Message | Taken | None:
        """End an element whose runner would take the next one."""
        ending = Move(to=to, expected=HELD, output='"x"' if to is Status.COMPLETED else None)
        held = lease or self.claim(index)
        return self.store.elements.finish(held, self.record, index, ending, self._last(to), token)

    def finish_undo(self, index: int, to: Status) -> Message | None:
        """The end of an element that was rolled back."""
        ending = Move(to=to, expected=HELD, ignores_stop=True)
        following = self.store.elements.finish(self.claim(index), self.record, index, ending, None)
        assert not isinstance(following, Taken)
        return following

    @staticmethod
    def _last(to: Status) -> Entry | None:
        outcome = FORWARD_ENDS.get(to)
        if outcome is None:
            return None
        return Entry(
            seq=1,
            action=Action.RUN,
            step="row",
            outcome=outcome,
            value="1",
            reason="enough" if to is Status.HALTED else "",
            attempt=1,
            started_at=INSTANT,
            finished_at=INSTANT,
        )

    def withdraw(self, stops: Mapping[Status, Any] | None = None, limit: int = 100) -> Sequence[Message]:
        messages = None
        while messages is None:
            messages = self.store.maps.withdraw(self.lease, self.record, stops or {}, limit)
        return messages

    def roll_back(self, limit: int = 100) -> Sequence[Message]:
        messages = None
        while messages is None:
            messages = self.store.maps.roll_back(self.lease, self.record, limit)
        return messages
