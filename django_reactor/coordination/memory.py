"""Rate limits, periods and ordered locks in memory, for tests of the engine (holds: `memory_holds`).

A lock makes each method atomic. Nothing survives the process, and nothing is rolled back with a transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django_reactor.core.buckets import rolls_in, window_at
from django_reactor.core.keys import digest_of
from django_reactor.engine.coordination_ports import (
    Counted,
    Line,
    Ticket,
    TicketState,
    TooMany,
    Turn,
    TurnState,
    Window,
)

__all__ = ["MemoryPeriods", "MemoryRateLimits", "MemoryTurns"]

KEPT = timedelta(days=1)


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class MemoryRateLimits:
    """The port `RateLimits`."""

    now: Callable[[], datetime] = _utc_now
    joins_transactions: bool = False
    _counts: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def charge(self, key: str, windows: Sequence[Window]) -> TooMany | None:
        with self._lock:
            now = self.now()
            buckets = {(key, each.seconds, window_at(now, each.seconds)): each for each in windows}
            full = [each for bucket, each in buckets.items() if self._counts.get(bucket, 0) >= each.limit]
            if full:
                shortest = min(full, key=lambda each: each.seconds)
                return TooMany(window=shortest, retry_after=rolls_in(now, shortest.seconds))
            for bucket in buckets:
                self._counts[bucket] = self._counts.get(bucket, 0) + 1
            return None

    def counted(self, *keys: str) -> Sequence[Counted]:
        with self._lock:
            now = self.now()
            return [
                Counted(key=key, seconds=seconds, count=count, rolls_at=now + timedelta(seconds=rolls_in(now, seconds)))
                for (key, seconds, bucket), count in sorted(self._counts.items())
                if key in keys and bucket == window_at(now, seconds)
            ]

    def purge(self, limit: int) -> int:
        with self._lock:
            now = self.now()
            over = [bucket for bucket in self._counts if bucket[2] < window_at(now, bucket[1])][:limit]
            for bucket in over:
                del self._counts[bucket]
            return len(over)


@dataclass(slots=True)
class MemoryPeriods:
    """The port `Periods`."""

    clock: Callable[[], datetime] = _utc_now
    _marks: dict[tuple[str, str, UUID], datetime] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def now(self) -> datetime:
        return self.clock()

    def is_marked(self, key: str, bucket: str) -> bool:
        with self._lock:
            return any(mark[:2] == (key, bucket) for mark in self._marks)

    def mark(self, key: str, bucket: str, execution_id: UUID, until: datetime) -> None:
        with self._lock:
            self._marks.setdefault((key, bucket, execution_id), until)

    def purge(self, limit: int) -> int:
        with self._lock:
            over = [mark for mark, until in self._marks.items() if until < self.now()][:limit]
            for mark in over:
                del self._marks[mark]
            return len(over)


@dataclass(slots=True)
class _Place:
    ticket: Ticket
    head_since: datetime | None = None
    turn_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def is_live(self) -> bool:
        return self.ticket.state.is_live

    @property
    def has_ended(self) -> bool:
        return self.ticket.state in (TicketState.DONE, TicketState.FAILED)

    def become(self, state: TicketState) -> None:
        self.ticket = replace(self.ticket, state=state)


@dataclass(slots=True)
class _Line:
    drawn_at: datetime
    batch: int = 0
    last: int = 0
    places: list[_Place] = field(default_factory=list)

    def head(self, now: datetime) -> _Place | None:
        found = next((place for place in self.places if place.is_live), None)
        if found is not None and found.head_since is None:
            found.head_since = now
        return found

    def first_failed(self, batch: int) -> int | None:
        tickets = (place.ticket for place in self.places)
        return next((t.number for t in tickets if t.batch == batch and t.state is TicketState.FAILED), None)

    def is_asked_about(self, place: _Place) -> bool:
        """By a strict chain."""
        alive = (each for each in self.places if each.is_live or each.ticket.state is TicketState.PASSED)
        batches = {each.ticket.batch for each in alive}
        return place.ticket.state is TicketState.FAILED and place.ticket.batch in batches


def _always_seen(execution_id: UUID) -> datetime | None:
    return datetime.max.replace(tzinfo=UTC)


def _none(owner: UUID) -> Collection[UUID]:
    return ()


@dataclass(slots=True)
class MemoryTurns:
    """The port `Turns`. `last_seen` says when an execution gave the last sign of life, now if it runs or rests; None:
    it is gone, or has ended. `is_at_work` says whether it runs or rests, `parts_of` what is a part of it,
    `ended_below` which of those have ended that it, or a part of it, has started, and `tree_in_line` what it is a part
    of, if that waits in a line."""

    now: Callable[[], datetime] = _utc_now
    last_seen: Callable[[UUID], datetime | None] = _always_seen
    parts_of: Callable[[UUID], Collection[UUID]] = _none
    ended_below: Callable[[UUID], Collection[UUID]] = _none
    is_at_work: Callable[[UUID], bool] = lambda execution_id: True
    tree_in_line: Callable[[UUID], Collection[UUID] | None] = lambda execution_id: None
    _lines: dict[str, _Line] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def draw(self, key: str, execution_id: UUID, step: str = "") -> Ticket:
        with self._lock:
            own = self._own(key, execution_id, step)
            if own is not None and own.is_live:
                return own.ticket
            line = self._lines.setdefault(key, _Line(self.now()))
            line.drawn_at = self.now()
            line.last += 1
            if not any(place.is_live for place in line.places):
                line.batch += 1
            ticket = Ticket(
                key=key,
                number=line.last,
                batch=line.batch,
                execution_id=execution_id,
                step=step,
                state=TicketState.QUEUED,
            )
            line.places.append(_Place(ticket))
            return ticket

    def turn(self, key: str, execution_id: UUID, step: str = "", *, strict: bool) -> Turn | None:
        with self._lock:
            own = self._own(key, execution_id, step)
            if own is None:
                return None
            line, state = self._lines[key], own.ticket.state
            if own.turn_at is not None or state in (TicketState.DONE, TicketState.FAILED):
                return Turn(state=TurnState.COME, ticket=own.ticket)
            head = line.head(self.now())
            if state is TicketState.QUEUED and head is not None and head is not own:
                return Turn(state=TurnState.WAITS, ticket=own.ticket, head=head.ticket)
            failed = line.first_failed(own.ticket.batch)
            if strict and failed is not None and failed < own.ticket.number:
                return Turn(state=TurnState.CHAIN_FAILED, ticket=own.ticket, first_failed=failed)
            if own.is_live:
                own.become(TicketState.RUNNING)
            own.turn_at = self.now()
            return Turn(state=TurnState.COME, ticket=own.ticket)

    def finish(self, execution_id: UUID, *, failed: bool, step: str | None = None) -> Sequence[str]:
        with self._lock:
            keys: list[str] = []
            for place in self._not_ended([execution_id]):
                if step is not None and (place.ticket.execution_id, place.ticket.step) != (execution_id, step):
                    continue
                if place.is_live:
                    keys.append(place.ticket.key)
                place.become(TicketState.FAILED if failed else TicketState.DONE)
                place.ended_at = self.now()
            return list(dict.fromkeys(keys))

    def finish_cancelled(self, owner: UUID) -> Sequence[str]:
        with self._lock:
            ended = self.ended_below(owner)
            return list(dict.fromkeys(key for each in ended for key in self.finish(each, failed=False)))

    def tickets_of(self, owners: Collection[UUID]) -> Sequence[Ticket]:
        with self._lock:
            return [place.ticket for place in self._not_ended(owners)]

    def _not_ended(self, owners: Collection[UUID]) -> list[_Place]:
        whose = {*owners, *(part for owner in owners for part in self.parts_of(owner))}
        places = (place for line in self._lines.values() for place in line.places)
        return [place for place in places if place.ticket.execution_id in whose and not place.has_ended]

    def head(self, key: str) -> Ticket | None:
        with self._lock:
            head = self._head(key)
            return None if head is None else head.ticket

    def pass_over(self, key: str, poison_pill_timeout: float) -> bool:
        with self._lock:
            head = self._head(key)
            if head is None or head.head_since is None:
                return False
            seen = self.last_seen(head.ticket.execution_id)
            tree = self.tree_in_line(head.ticket.execution_id)
            if seen is not None and tree is not None:
                levels = {(each.ticket.execution_id, each.ticket.step) for each in self._not_ended(tree)}
                seen = self.now() if len(levels) == 1 else head.head_since
            if seen is not None and max(seen, head.head_since) > self.now() - timedelta(seconds=poison_pill_timeout):
                return False
            self._pass([head])
            return self._head(key) is not None

    def line(self, key: str) -> Line | None:
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                return None
            live = [place for place in line.places if place.is_live]
            return Line(
                key=key,
                batch=line.batch,
                last=line.last,
                head=live[0].ticket if live else None,
                head_since=live[0].head_since if live else None,
                first_failed=line.first_failed(line.batch),
                live=len(live),
            )

    def skip(self, key: str, number: int) -> bool:
        with self._lock:
            return bool(self._pass([place for place in self._places(key) if place.ticket.number == number]))

    def reset(self, key: str) -> int:
        with self._lock:
            return self._pass(self._places(key))

    def purge(self, limit: int) -> int:
        with self._lock:
            before, forgotten = self.now() - KEPT, 0
            for key, line in list(self._lines.items()):
                old = [place for place in line.places if self._is_over(line, place, before)][: limit - forgotten]
                for place in old:
                    line.places.remove(place)
                forgotten += len(old)
                if not line.places and line.drawn_at < before and forgotten < limit:
                    del self._lines[key]
                    forgotten += 1
            return forgotten

    def is_kept_waiting(self, execution_id: UUID, digest: str, waiting: Collection[UUID]) -> bool:
        """Whether a head that runs, or one of those that wait there, stands before it in the line of this digest."""
        with self._lock:
            for place in self._not_ended([execution_id]):
                if digest_of(place.ticket.key) == digest and place.ticket.state is TicketState.QUEUED:
                    live = [each for each in self._places(place.ticket.key) if each.is_live]
                    before = [each.ticket.execution_id for each in live[: live.index(place)]]
                    if before and (self.is_at_work(before[0]) or not {*before}.isdisjoint(waiting)):
                        return True
            return False

    def _is_over(self, line: _Line, place: _Place, before: datetime) -> bool:
        if place.ended_at is None or place.ended_at >= before:
            return False
        is_gone = place.ticket.state is TicketState.PASSED and self.last_seen(place.ticket.execution_id) is None
        return (place.has_ended or is_gone) and not line.is_asked_about(place)

    def _pass(self, places: Sequence[_Place]) -> int:
        live = [place for place in places if place.is_live]
        for place in live:
            place.become(TicketState.PASSED)
            place.ended_at = self.now()
        return len(live)

    def _places(self, key: str) -> Sequence[_Place]:
        return self._lines[key].places if key in self._lines else ()

    def _head(self, key: str) -> _Place | None:
        line = self._lines.get(key)
        return None if line is None else line.head(self.now())

    def _own(self, key: str, execution_id: UUID, step: str) -> _Place | None:
        own = [p for p in self._places(key) if (p.ticket.execution_id, p.ticket.step) == (execution_id, step)]
        return own[-1] if own else None
