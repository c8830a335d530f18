"""A cycle of this project's locks, as an execution in a caller goes through it: taken, kept alive, released. Who finds
one taken asks again when it is freed in this process, or after a while."""

from __future__ import annotations

from uuid import uuid4

from django_reactor import runtime
from django_reactor.engine.coordination_ports import HoldKind, Wanted
from django_reactor.engine.demands import Demand
from django_reactor.engine.gates import Gate
from django_reactor.engine.holdings import Holdings

__all__ = ["Gated"]

TTL = WAIT = 60.0
"""Seconds."""


class Gated:
    """The store is that of the settings."""

    def __init__(self) -> None:
        owner = uuid4()
        self._level = owner, ""
        self._gate = Gate(
            services=runtime.services(), owner=owner, epoch=1, holdings=Holdings(), tell=lambda *_, **__: None
        )

    def cycle(self, key: int) -> None:
        wanted = Wanted(kind=HoldKind.LOCK, key=f"key:{key}", ttl=TTL)
        self._gate.enter(self._level, [Demand(wanted=wanted, wait=WAIT, rollback_wait=WAIT, auto_extend=True)])
        self._gate.leave(lambda _: True)

    def close(self) -> None:
        from django.db import connections

        connections.close_all()
