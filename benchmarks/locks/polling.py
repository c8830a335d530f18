"""A cycle of this project's locks. Who finds one taken asks again, as often as redis-py's is told to."""

from __future__ import annotations

import time
from uuid import uuid4

from django_reactor.engine.coordination_ports import HoldKind, Holds, Wanted

__all__ = ["PAUSE", "Polled"]

PAUSE = 0.001
"""Seconds between two attempts."""


class Polled:
    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self._owner = uuid4()

    def cycle(self, key: int) -> None:
        wanted = Wanted(kind=HoldKind.LOCK, key=f"key:{key}", ttl=60)
        while (hold := self._holds.take(self._owner, 1, wanted)) is None:
            time.sleep(PAUSE)
        assert self._holds.release([hold])

    def close(self) -> None:
        from django.db import connections

        connections.close_all()
