"""The journal of an element of a map: its end is also the next one's turn, in one transaction (PROTOCOL 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID, uuid4

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import Status, Stop
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.execution_ports import Journal
from django_reactor.engine.map_ports import MapRecord, Taken
from django_reactor.engine.records import ExecutionRecord, Lease, Message, Move, NewExecution, Release
from django_reactor.engine.services import Services

__all__ = ["ElementJournal", "Question", "never"]

Question = Callable[[], bool]


def never() -> bool:
    return False


class ElementJournal:
    """The port `Journal` over another one. `following` is what came of the end: the message of the element whose turn
    has come, or that element itself, taken in the same transaction; None if it was no one's."""

    following: Message | Taken | None = None

    def __init__(self, services: Services, of: MapRecord, element: ExecutionRecord, may_take: Question) -> None:
        self.of = of
        self._journal: Journal = services.journal
        self._services, self._element, self._may_take = services, element, may_take

    def of_next(self, element: ExecutionRecord) -> ElementJournal:
        return ElementJournal(replace(self._services, journal=self._journal), self.of, element, self._may_take)

    def load(self, execution_id: UUID) -> tuple[ExecutionRecord, Sequence[Entry]]:
        return self._journal.load(execution_id)

    def append(self, lease: Lease, entry: Entry) -> None:
        self._journal.append(lease, entry)

    def reconsider(self, lease: Lease, entry: Entry | None) -> tuple[Stop, str]:
        return self._journal.reconsider(lease, entry)

    def move(self, lease: Lease, move: Move, entry: Entry | None = None) -> None:
        if lease.execution_id != self._element.id or not move.to.is_end or move.to is Status.ABORTED:
            self._journal.move(lease, move, entry)
            return
        take = uuid4() if self._may_take() else None
        index = self._element.element_index
        self.following = self._services.elements.finish(lease, self.of, index, move, entry, take)
        reached(CrashPoint.ELEMENT_ENDED)
        if isinstance(self.following, Message):
            self._services.messenger.send(self.following)

    def release(self, lease: Lease, release: Release, entry: Entry | None = None) -> None:
        self._journal.release(lease, release, entry)

    def dispatch(self, lease: Lease, child: NewExecution, entry: Entry) -> None:
        self._journal.dispatch(lease, child, entry)

    def flush(self) -> None:
        self._journal.flush()
