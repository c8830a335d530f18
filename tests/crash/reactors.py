"""Small reactors whose bodies leave a trace outside the journal: a row for each time that one ran.

Plain steps write it in autocommit, as a call to another system would; atomic ones in the transaction of their entry.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

from django.db import connection

from django_reactor import Lock, OrderedLock, Period, RateLimit, Reactor, compose, interrupt, snooze, step
from django_reactor.core.options import Retry

__all__ = [
    "Asks",
    "AsksInside",
    "AsksLater",
    "Contested",
    "Declines",
    "Fails",
    "Guarded",
    "Misses",
    "Places",
    "Refuses",
    "Signs",
    "allow",
    "effects",
    "leave",
    "stall_at",
]

TABLE = "crash_effects"

_stall_at = ""


def stall_at(effect: str) -> None:
    """Stop this process (SIGSTOP) right after it has left this effect."""
    global _stall_at
    _stall_at = effect


def leave(effect: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {TABLE} (effect) VALUES (%s)", [effect])
    if effect == _stall_at:
        os.kill(os.getpid(), signal.SIGSTOP)


def effects() -> Counter[str]:
    """How often each body ran, as far as its writes are committed."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT effect FROM {TABLE}")
        return Counter(effect for (effect,) in cursor.fetchall())


def allow(effect: str) -> None:
    """From now on a body that waits for this does not fail."""
    leave(f"allowed {effect}")


class _Order(Reactor):
    """Three steps to reverse, the second of them atomic."""

    class Meta:
        abstract = True
        app_label = "crash"

    @step
    def reserve(self) -> str:
        leave("reserve")
        return "reserved"

    @reserve.undo
    def release(self, result: str) -> None:
        leave(f"undo {result}")

    @step(atomic=True)
    def book(self, reserve: str) -> str:
        leave("book")
        return "booked"

    @book.undo
    def unbook(self, result: str) -> None:
        leave(f"undo {result}")

    @step
    def charge(self, book: str) -> str:
        leave("charge")
        return "charged"

    @charge.undo
    def refund(self, result: str) -> None:
        leave(f"undo {result}")

    @charge.compensate
    def void(self, error: BaseException) -> None:
        leave(f"compensate charge: {type(error).__name__}")


class Places(_Order):
    """Completes."""

    class Meta:
        app_label = "crash"
        returns = "ship"

    @step
    def ship(self, charge: str) -> str:
        leave("ship")
        return "shipped"


class Guarded(Reactor):
    """Coordinates by all that there is, and one of its steps by a lock of its own."""

    class Meta:
        app_label = "crash"
        lock = Lock("guarded")
        rate_limit = RateLimit("guarded", limits={"day": 100})
        period = Period("guarded", every="year")

    @step
    def reserve(self) -> None:
        leave("reserve")

    @step(after=["reserve"], lock=Lock("charging"), rate_limit=RateLimit("charging", limits={"day": 100}))
    def charge(self) -> None:
        leave("charge")

    @step(after=["charge"])
    def ship(self) -> None:
        leave("ship")


class Queued(Reactor):
    """One at a time, in order; and its second step, too, in a line of its own."""

    class Meta:
        app_label = "crash"
        ordered_lock = OrderedLock("queued", strict=False)

    @step
    def reserve(self) -> None:
        leave(f"reserve {self.context.execution_id}")

    @step(after=["reserve"], ordered_lock=OrderedLock("charging", strict=False))
    def charge(self) -> None:
        leave(f"charge {self.context.execution_id}")


class Fails(_Order):
    """Fails in its last step, until that is allowed."""

    class Meta:
        app_label = "crash"

    @step(retry=Retry(max_attempts=2, delay=0))
    def ship(self, charge: str) -> str:
        leave("ship")
        if not effects()["allowed ship"]:
            raise ValueError("no lorry")
        return "shipped"

    @ship.undo
    def fetch_back(self, result: str) -> None:
        leave(f"undo {result}")

    @ship.compensate
    def call_off(self, error: BaseException) -> None:
        leave(f"compensate ship: {type(error).__name__}")


class Refuses(_Order):
    """One undo fails, until that is allowed."""

    class Meta:
        app_label = "crash"

    @step
    def ship(self, charge: str) -> str:
        leave("ship")
        return "shipped"

    @ship.undo
    def fetch_back(self, result: str) -> None:
        leave(f"undo {result}")
        if not effects()["allowed undo"]:
            raise ValueError("the lorry is gone")


class Signs(Reactor):
    """Composed of an order, between two steps of its own."""

    class Meta:
        app_label = "crash"

    @step
    def offer(self) -> str:
        leave("offer")
        return "offered"

    @offer.undo
    def withdraw(self, result: str) -> None:
        leave(f"undo {result}")

    @compose(Places)
    def order(self, offer: str) -> dict[str, str]:
        return {}

    @step
    def sign(self, order: str) -> str:
        leave("sign")
        return "signed"


class Declines(Signs):
    """Fails after its order is placed."""

    class Meta:
        app_label = "crash"

    @step
    def sign(self, order: str) -> str:
        leave("sign")
        raise ValueError("no signature")


class Misses(Signs):
    """Its order fails."""

    class Meta:
        app_label = "crash"

    order = compose(Fails)


class Contested(Reactor):
    """Is given up twice on its way, for anybody to take it at once: for a second attempt, and for a snooze."""

    class Meta:
        app_label = "crash"

    @step
    def reserve(self) -> None:
        leave(f"reserve {self.context.execution_id}")

    @step(after=["reserve"], retry=Retry(max_attempts=2, delay=0.001, jitter=0))
    def charge(self) -> None:
        leave(f"charge {self.context.attempt} {self.context.execution_id}")
        if self.context.attempt == 1:
            raise ConnectionError("not yet")

    @step(after=["charge"], atomic=True)
    def book(self) -> None:
        leave(f"book {self.context.execution_id}")

    @step(after=["book"])
    def ship(self) -> None:
        leave(f"ship {self.context.snoozes} {self.context.execution_id}")
        if self.context.snoozes == 0:
            snooze(0)


class Asks(Reactor):
    """Pauses for an approval, between two steps to reverse."""

    class Meta:
        app_label = "crash"
        returns = "ship"

    @step
    def reserve(self) -> str:
        leave("reserve")
        return "reserved"

    @reserve.undo
    def release(self, result: str) -> None:
        leave(f"undo {result}")

    @interrupt(payload=int, correlation_id="about {reserve}", max_attempts=1)
    def approval(self, reserve: str) -> None:
        leave("ask")

    @step
    def ship(self, approval: int) -> str:
        leave(f"ship {approval}")
        return f"shipped {approval}"


class AsksLater(Asks):
    """A worker goes on with the answer."""

    class Meta:
        app_label = "crash"

    @interrupt(payload=int, max_attempts=1, resume="background")
    def approval(self, reserve: str) -> None:
        leave("ask")


class AsksInside(Reactor):
    """Composed of one that pauses."""

    class Meta:
        app_label = "crash"
        returns = "sign"

    order = compose(Asks)

    @step
    def sign(self, order: str) -> str:
        leave("sign")
        return f"signed, {order}"
