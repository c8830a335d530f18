"""Reactors with maps, whose bodies leave a trace; and a fleet of workers in one process, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.test import override_settings

from django_reactor import Reactor, fail, map_step, step, sweeper, worker
from django_reactor.core.statuses import ENDS
from django_reactor.engine import fan_out
from django_reactor.engine.records import Message
from django_reactor.journal.due import free_and_due
from django_reactor.journal.fields import DbNow
from django_reactor.models import Execution
from django_reactor.results import MapResults
from tests.crash.reactors import leave

__all__ = ["FansOut", "FansOutAndFails", "Maps", "MapsAndFails", "MapsAndLoses", "FansOutAndLoses", "drive", "recover"]

ELEMENTS = 3
ROUNDS = 50
"""More than any of these takes."""


class Packs(Reactor[str]):
    number: int
    fails: bool

    class Meta:
        app_label = "crash"
        returns = "label"

    @step
    def pack(self, number: int) -> str:
        leave(f"pack {number}")
        return f"packed {number}"

    @pack.undo
    def unpack(self, result: str) -> None:
        leave(f"undo {result}")

    @step(atomic=True)
    def label(self, pack: str, number: int, fails: bool) -> str:
        leave(f"label {number}")
        if fails:
            fail("torn")
        return f"labelled {number}"

    @label.undo
    def peel(self, result: str) -> None:
        leave(f"undo {result}")


class _Mapped(Reactor):
    fan_out: int | None = None
    loses: bool = False

    class Meta:
        abstract = True
        app_label = "crash"

    @step
    def open(self) -> str:
        leave("open")
        return "opened"

    @open.undo
    def shut(self, result: str) -> None:
        leave(f"undo {result}")

    @map_step(Packs)
    def packed(self, open: str) -> Iterator[dict[str, Any]]:
        return elements()

    @step
    def send(self, packed: MapResults) -> str:
        leave("send")
        return ", ".join(packed.values())


def elements(failing: int = -1) -> Iterator[dict[str, Any]]:
    for number in range(ELEMENTS):
        yield {"number": number, "fails": number == failing}


class Maps(_Mapped):
    """Its elements run in its own process."""

    class Meta:
        app_label = "crash"


class MapsAndLoses(_Mapped):
    """Its last element fails."""

    class Meta:
        app_label = "crash"

    @map_step(Packs)
    def packed(self, open: str) -> Iterator[dict[str, Any]]:
        return elements(failing=ELEMENTS - 1)


class MapsAndFails(_Mapped):
    """A later step fails."""

    class Meta:
        app_label = "crash"

    @step
    def send(self, packed: MapResults) -> str:
        leave("send")
        raise ValueError("no lorry")


class FansOut(_Mapped):
    class Meta:
        app_label = "crash"

    @map_step(Packs, fan_out=2)
    def packed(self, open: str) -> Iterator[dict[str, Any]]:
        return elements()


class FansOutAndLoses(_Mapped):
    class Meta:
        app_label = "crash"

    @map_step(Packs, fan_out=1)
    def packed(self, open: str) -> Iterator[dict[str, Any]]:
        return elements(failing=ELEMENTS - 1)


class FansOutAndFails(FansOut):
    class Meta:
        app_label = "crash"

    @step
    def send(self, packed: MapResults) -> str:
        leave("send")
        raise ValueError("no lorry")


def drive(reactor: type[Reactor]) -> None:
    """Run it, and then deliver what is due, until nothing is."""
    if reactor is FansOutAndFails:
        fan_out.TURN = 0.0  # each element by a message of its own
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        reactor.run()
        while due := list(
            Execution.objects.filter(free_and_due()).order_by("wake_at", "pk").values_list("pk", flat=True)
        ):
            for execution_id in due:
                worker.deliver(execution_id)


def recover() -> None:
    """What sweepers and workers do when leases have expired and messages are lost."""

    def deliver(message: Message) -> None:
        worker.deliver(message.execution_id)

    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        for _ in range(ROUNDS):
            rows = Execution.objects.exclude(status__in=ENDS)
            if not rows.exists():
                return
            rows.filter(lease_token__isnull=False).update(lease_expires_at=DbNow())
            rows.update(sent_at=None)
            sweeper.recovery(deliver).sweep()
    raise AssertionError(f"still open: {list(rows.values('reactor', 'status', 'wake_at', 'waiting_for'))}")
