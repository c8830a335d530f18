"""Reactors whose bodies write down that they are in, under what they have declared."""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path
from typing import Any

from django_reactor import Lock, OrderedLock, Period, RateLimit, Reactor, Semaphore, step
from tests.proof.events import Recorder

__all__ = ["LIMIT", "PATIENCE", "PER_SECOND", "Guarded", "InOrder", "Limited", "Once", "Pooled"]

TTL = 2.0
LIMIT = 2
PER_SECOND = 1
PATIENCE = 60.0
STAY = 0.05
"""Seconds in a body."""
SAFE = 5 / 6
"""The part of the ttl after which the engine no longer relies on a hold."""


@cache
def _recorder(path: Path, process: int) -> Recorder:
    return Recorder(path)


def recorder(run: Any) -> Recorder:
    return _recorder(Path(run.record), os.getpid())


def stay_with(run: Any, key: str, limit: int = 1) -> None:
    """In the section of a lock or a semaphore. It surely holds for as long as the engine takes that for confirmed."""
    record, name = recorder(run), recorder(run).name()
    holding = run.context.holdings.of_key(key)
    owner, epoch = run.context.root_id.hex, run.context.fence(key)
    record.note("asks", name, key=key, owner=owner, epoch=epoch, limit=limit, ttl=TTL)
    record.note("has", name, slot=holding.hold.slot)
    record.note("has more", name, since=holding.good_until - TTL * SAFE)
    time.sleep(STAY)
    record.note("has more", name, since=holding.good_until - TTL * SAFE)
    record.note("leaves", name)


class Guarded(Reactor):
    record: str
    room: int

    class Meta:
        app_label = "proof"
        lock = Lock("room:{room}", ttl=TTL)

    @step
    def first(self, room: int) -> None:
        stay_with(self, f"room:{room}")

    @step(after=["first"])
    def second(self, room: int) -> None:
        stay_with(self, f"room:{room}")


class Pooled(Reactor):
    record: str

    class Meta:
        app_label = "proof"

    @step(semaphore=Semaphore("pool", limit=LIMIT, ttl=TTL))
    def only(self) -> None:
        stay_with(self, "pool", LIMIT)


class Limited(Reactor):
    record: str
    name: str

    class Meta:
        app_label = "proof"
        rate_limit = RateLimit("api", limits={"second": PER_SECOND})

    @step
    def only(self, name: str) -> None:
        recorder(self).note("counted", name)


class Once(Reactor):
    record: str
    report: int

    class Meta:
        app_label = "proof"
        lock = Lock("report:{report}", ttl=TTL)
        period = Period("report:{report}", every=10**9)

    @step
    def only(self, report: int) -> None:
        stay_with(self, f"report:{report}")


class InOrder(Reactor):
    record: str
    account: int
    name: str

    class Meta:
        app_label = "proof"
        ordered_lock = OrderedLock("account:{account}", poison_pill_timeout=PATIENCE)

    @step
    def only(self, name: str) -> None:
        record = recorder(self)
        record.note("lives", name, since=record.note("enters", name, passed=False))
        time.sleep(STAY)
        record.note("goes", name)
