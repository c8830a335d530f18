"""Reactors that pass every kind of moment at which a worker may die. Their bodies leave a row for each time that one
ran: plain steps in autocommit, as a call to another system would, atomic ones in the transaction of their entry."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connection, connections

from django_reactor import Background, Reactor, Retry, Step, async_step, fail, interrupt, map_step, snooze, step
from django_reactor.core.statuses import Status
from django_reactor.models import Execution
from tests.killed import trap

__all__ = [
    "TABLE",
    "Asking",
    "Held",
    "Packing",
    "Placing",
    "Returning",
    "Waits",
    "Wrapping",
    "WrappingAll",
    "create_table",
    "drop_table",
    "effects_of",
]

TABLE = "killed_effects"
LIMIT = 120.0
"""Seconds after which a body gives up what it waits for: the test has failed by then."""

SOON = Retry(max_attempts=2, backoff="fixed", delay=0.1, jitter=0)


def leave(run: Any, effect: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {TABLE} (root, effect) VALUES (%s, %s)", [str(run.context.root_id), effect])
    trap.passed(effect)


def create_table(alias: str = DEFAULT_DB_ALIAS) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute(f"CREATE TABLE {TABLE} (root char(36) NOT NULL, effect varchar(50) NOT NULL)")


def drop_table(alias: str = DEFAULT_DB_ALIAS) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute(f"DROP TABLE {TABLE}")


def effects_of(root_id: UUID, alias: str = DEFAULT_DB_ALIAS) -> Counter[str]:
    """How often each body ran, as far as its writes are committed."""
    with connections[alias].cursor() as cursor:
        cursor.execute(f"SELECT effect FROM {TABLE} WHERE root = %s", [str(root_id)])
        return Counter(effect for (effect,) in cursor.fetchall())


class Placing(Reactor[str]):
    """Hands off, starts a unit, is refused once and tried again, waits for the unit, completes.

    The unit is refused once, snoozes once, and ends when its parent waits for it."""

    class Meta:
        app_label = "killed"
        returns = "ship"
        background = Background(after="reserve")

    @step
    def reserve(self) -> str:
        leave(self, "reserve")
        return "reserved"

    @async_step(retry=SOON)
    def notify(self, reserve: str) -> str:
        if self.context.attempt == 1:
            leave(self, "notify 1")
            raise ConnectionError("not yet")
        if self.context.snoozes == 0:
            leave(self, "notify snoozed")
            snooze(0.1)
        if not is_parked(self.context.root_id):
            trap.passed("notify waits")
            snooze(1)
        leave(self, "notify 2")
        return "notified"

    @step(atomic=True)
    def book(self, reserve: str) -> str:
        leave(self, "book")
        return "booked"

    @step(retry=SOON)
    def charge(self, book: str) -> str:
        leave(self, f"charge {self.context.attempt}")
        if self.context.attempt == 1:
            raise ConnectionError("not yet")
        return "charged"

    @step
    def confirm(self, charge: str, notify: str) -> str:
        leave(self, "confirm")
        return notify

    @step(atomic=True)
    def ship(self, confirm: str) -> str:
        leave(self, "ship")
        return "shipped"


def is_parked(execution_id: UUID) -> bool:
    return (
        Execution.objects.filter(pk=execution_id, status=Status.SCHEDULED, lease_token=None)
        .exclude(waiting_for="")
        .exists()
    )


class Returning(Reactor):
    """Fails for good in its last step and takes all of it back. One undo snoozes once, another is atomic."""

    class Meta:
        app_label = "killed"

    @step
    def reserve(self) -> str:
        leave(self, "reserve")
        return "reserved"

    @reserve.undo
    def release(self, result: str) -> None:
        leave(self, "release")

    @step(atomic=True)
    def book(self, reserve: str) -> str:
        leave(self, "book")
        return "booked"

    @book.undo
    def unbook(self, result: str) -> None:
        leave(self, "unbook")

    @step
    def charge(self, book: str) -> str:
        leave(self, "charge")
        return "charged"

    @charge.undo
    def refund(self, result: str) -> None:
        if self.context.snoozes == 0:
            leave(self, "refund snoozed")
            snooze(0.1)
        leave(self, "refund")

    @step(retry=SOON)
    def ship(self, charge: str) -> str:
        leave(self, f"ship {self.context.attempt}")
        raise ValueError("no lorry")

    @ship.undo
    @ship.compensate
    def call_off(self) -> None:
        leave(self, "call off")


class Asking(Reactor):
    """Pauses for an answer, and goes on with it in a worker."""

    class Meta:
        app_label = "killed"

    @step
    def reserve(self) -> str:
        leave(self, "reserve")
        return "reserved"

    @interrupt(payload=bool, resume="background")
    def approval(self, reserve: str) -> None:
        leave(self, "ask")

    @step
    def charge(self, approval: bool) -> bool:
        leave(self, "charge")
        return approval


class Pack(Step[int]):
    """One of several."""

    number: int

    def run(self) -> int:
        leave(self, f"pack {self.number}")
        return self.number


class Packing(Reactor):
    """Fans out over three elements, one at a time, and waits for them."""

    class Meta:
        app_label = "killed"

    @map_step(Pack, fan_out=1)
    def packed(self) -> Any:
        return ({"number": number} for number in range(3))

    @step
    def sealed(self, packed: Any) -> int:
        leave(self, "seal")
        return len(packed)


def hold(run: Any, effect: str) -> None:
    """Leave the effect. If the test asked for that, stay in the body until it lets go."""
    leave(run, effect)
    if effect != run.held:
        return
    folder, deadline = Path(run.folder), time.monotonic() + LIMIT
    (folder / f"{run.context.root_id} is in").touch()
    while not (folder / f"{run.context.root_id} may go").exists():
        assert time.monotonic() < deadline, "nobody let go"
        time.sleep(0.02)


class Held(Reactor):
    """A test can hold it in one of its bodies. Completes, or takes all back if it `fails`."""

    folder: str
    held: str = ""
    fails: bool = False

    class Meta:
        app_label = "killed"

    @step
    def reserve(self) -> str:
        hold(self, "reserve")
        return "reserved"

    @reserve.undo
    def release(self, result: str) -> None:
        hold(self, "release")

    @step(atomic=True)
    def book(self, reserve: str) -> str:
        hold(self, "book")
        return "booked"

    @book.undo
    def unbook(self, result: str) -> None:
        hold(self, "unbook")

    @step
    def charge(self, book: str, fails: bool) -> str:
        hold(self, "charge")
        if fails:
            raise ValueError("no lorry")
        return "charged"


class Waits(Reactor):
    """Waits for its unit, which is refused once, and tried again after some seconds."""

    class Meta:
        app_label = "killed"

    @async_step(retry=Retry(max_attempts=2, backoff="fixed", delay=4, jitter=0))
    def notify(self) -> str:
        leave(self, f"notify {self.context.attempt}")
        if self.context.attempt == 1:
            raise ConnectionError("not yet")
        return "notified"

    @step
    def confirm(self, notify: str) -> str:
        leave(self, "confirm")
        return notify


class Wrap(Step[int]):
    number: int
    torn: int

    class Meta:
        name = "killed.Wrap"

    def run(self) -> int:
        leave(self, f"wrap {self.number}")
        if self.number == self.torn:
            fail("torn")
        return self.number

    def undo(self, result: int) -> None:
        leave(self, f"unwrap {self.number}")

    def compensate(self, error: BaseException) -> None:
        """Of the one that is torn, and of those that a killed worker was at when the map failed."""
        leave(self, f"unwrap {self.number}")


class Wrapping(Reactor[int]):
    """Fans out over so many elements, one of which may fail."""

    count: int
    torn: int = -1

    class Meta:
        app_label = "killed"
        returns = "send"

    @map_step(Wrap, fan_out=20)
    def wrapped(self, count: int, torn: int) -> Iterator[dict[str, int]]:
        return self._elements(count, torn)

    @step
    def send(self, wrapped: Any) -> int:
        leave(self, "send")
        return len(wrapped.successes)

    def _elements(self, count: int, torn: int) -> Iterator[dict[str, int]]:
        leave(self, "read")
        return ({"number": number, "torn": torn} for number in range(count))


class WrappingAll(Wrapping):
    """Goes on with the others when one fails."""

    class Meta:
        app_label = "killed"

    @map_step(Wrap, fan_out=20, fail_fast=False)
    def wrapped(self, count: int, torn: int) -> Iterator[dict[str, int]]:
        return self._elements(count, torn)
