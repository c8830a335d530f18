"""What a thread of a crew does, over and over: lock and unlock, start, stand in a line. It writes all of it down.

Executions are claimed again and again, by whoever likes: the claim before has become a zombie, in this process or in
another, and does not know. Nobody looks at what a store has in it: it is asked as the engine asks it.
"""

from __future__ import annotations

import fcntl
import os
import random
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from django.db import DatabaseError, transaction

from django_reactor.coordination.database.turns import DatabaseTurns
from django_reactor.engine.coordination_ports import (
    HoldKind,
    Holds,
    RateLimits,
    Ticket,
    TicketState,
    Wanted,
    Window,
)
from django_reactor.engine.identifiers import uuid7
from django_reactor.engine.records import NewExecution
from django_reactor.exceptions import StoreUnavailable
from django_reactor.journal.executions import OrmExecutions
from tests.proof.events import Recorder

__all__ = ["LEASE_TTL", "LINES", "LONG", "POISON", "TTL", "Claims", "Cycles"]

TTL = 0.4
LEASE_TTL = 0.4
POISON = 0.5
LONG = Window(name="minute", seconds=60, limit=60)
WINDOWS = [Window(name="second", seconds=1, limit=4), LONG]
WANTED = [
    Wanted(kind=HoldKind.LOCK, key="one", ttl=TTL),
    Wanted(kind=HoldKind.LOCK, key="two", ttl=TTL),
    Wanted(kind=HoldKind.SEMAPHORE, key="three at once", ttl=TTL, limit=3),
    Wanted(kind=HoldKind.SEMAPHORE, key="of changing limits", ttl=TTL, limit=4),
    Wanted(kind=HoldKind.SEMAPHORE, key="of changing limits", ttl=TTL, limit=2),
]
LINES = ("first", "second")
OWNERS = [UUID(int=number) for number in range(1, 26)]
"""So few that most claims overtake another one."""
PAUSE = 0.004
TRIES = 40
BURST = 6
STAYS = (0, 0.001, 0.005, 0.03)
"""Seconds."""


class Claims:
    """How often each owner was claimed, in a file that all processes share."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def next(self, number: int) -> int:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            read = os.pread(file, 8, number * 8)
            epoch: int = (struct.unpack("q", read)[0] if len(read) == 8 else 0) + 1
            os.pwrite(file, struct.pack("q", epoch), number * 8)
        finally:
            os.close(file)
        return epoch


@dataclass(slots=True, kw_only=True)
class Cycles:
    record: Recorder
    claims: Claims
    holds: Holds
    rates: RateLimits | None
    turns: DatabaseTurns | None
    is_over: Callable[[], bool]

    def run(self, number: int) -> None:
        """One thread of a process, the first of them, stands in lines: who waits there does nothing else."""
        while not self.is_over():
            if number == 0 and self.turns is not None:
                self.line()
            elif self.rates is not None and random.random() < 0.2:
                self.start()
            else:
                self.hold()

    # -- locks and semaphores ------------------------------------------------------------------------------------------

    def hold(self) -> None:
        number = random.randrange(len(OWNERS))
        owner, epoch = OWNERS[number], self.claims.next(number)
        wanted = WANTED[number % len(WANTED)] if random.random() < 0.8 else random.choice(WANTED)
        for _ in range(TRIES):
            if self.is_over() or (self._held(owner, epoch, wanted) and random.random() < 0.3):
                return  # or it takes it once more, whoever has claimed its execution since
            time.sleep(PAUSE)

    def _held(self, owner: UUID, epoch: int, wanted: Wanted) -> bool:
        record, name = self.record, self.record.name()
        asked = {"key": f"{wanted.kind}:{wanted.key}", "owner": owner.hex, "epoch": epoch}
        record.note("asks", name, **asked, limit=wanted.limit, ttl=wanted.ttl)
        with self._failing(name):
            hold = self.holds.take(owner, epoch, wanted)
            if hold is None:
                record.note("refused", name)
                return False
            record.note("has", name, slot=hold.slot)
            time.sleep(random.choice(STAYS))
            while random.random() < 0.3:
                record.note("asks more", name)
                if hold not in self.holds.extend([hold]):
                    record.note("has no more", name)
                    break
                record.note("has more", name)
            if random.random() < 0.02:  # as if its runner had died
                return True
            if random.random() < 0.01:
                time.sleep(TTL * 1.2)
            record.note("leaves", name)
            record.note("left", name, freed=hold in self.holds.release([hold]))
        return True

    @contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        try:
            yield
        except (DatabaseError, StoreUnavailable) as error:
            self.record.note("failed", name, error=f"{type(error).__name__}: {error}")
            time.sleep(PAUSE)

    # -- rate limits ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for _ in range(BURST):
            self._start()

    def _start(self) -> None:
        assert self.rates is not None
        record, name, windows = self.record, self.record.name(), WINDOWS
        record.note("charges", name, key="api", windows={each.seconds: each.limit for each in windows})
        with self._failing(name):
            too_many = self.rates.charge("api", windows)
            if too_many is None:
                record.note("counted", name)
            else:
                record.note("refused", name, full=too_many.window.seconds, retry_after=too_many.retry_after)

    # -- ordered locks -------------------------------------------------------------------------------------------------

    def line(self) -> None:
        assert self.turns is not None
        record, name, key = self.record, self.record.name(), random.choice(LINES)
        new = NewExecution(id=uuid7(), token=uuid7(), reactor="proof.Line", fingerprint="0" * 16, inputs="{}")
        record.note("draws", name, key=key, patience=LEASE_TTL + POISON)
        with self._failing(name):
            with transaction.atomic():
                assert OrmExecutions().start(new)
                ticket = self.turns.draw(key, new.id)
                if random.random() < 0.1:
                    transaction.set_rollback(True)
                    return
            record.note("drew", name, number=ticket.number)
            self._stand(name, ticket, new)

    def _stand(self, name: str, ticket: Ticket, new: NewExecution) -> None:
        turns, record, key = self.turns, self.record, ticket.key
        assert turns is not None
        assert new.token is not None
        while True:
            asked = record.note("asks to live", name)
            if not OrmExecutions().renew({new.id: new.token})[0]:
                return
            record.note("lives", name, since=asked)
            turn = turns.turn(key, new.id, strict=False)
            assert turn is not None
            if turn.head is None:
                break
            if self.is_over():
                return  # as if it had died
            turns.pass_over(key, POISON)
            time.sleep(PAUSE)
        record.note("enters", name, passed=turn.ticket.state is TicketState.PASSED)
        time.sleep(random.choice((0, 0.001, 0.005)))
        record.note("goes", name)
        turns.finish(new.id, failed=random.random() < 0.2)
