"""The thread that keeps the leases of a process alive looks in time, and seldom."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID, uuid4

from django_reactor.engine.execution_ports import Executions
from django_reactor.engine.leases import LeaseKeeper, boottime
from django_reactor.engine.records import Lease
from tests.contract.committed import eventually

KEEPER = "django-reactor-leases"


class Renewals:
    """Of the port `Executions`, what a keeper asks."""

    def __init__(self) -> None:
        self.renewed = threading.Event()

    def renew(self, tokens: Mapping[UUID, UUID]) -> tuple[set[UUID], set[UUID]]:
        self.renewed.set()
        return set(tokens), set()


def test_a_lease_wakes_the_thread_only_if_that_would_look_too_late() -> None:
    ttl, looks, renewals = 3600.0, 0, Renewals()

    def now() -> float:
        nonlocal looks
        looks += threading.current_thread().name == KEEPER
        return boottime()

    keeper = LeaseKeeper(cast(Executions, cast(Any, renewals)), ttl=lambda: ttl, now=now)
    lease = Lease(uuid4(), uuid4())
    keeper.hold(lease)
    eventually(lambda: looks and keeper._looks_at, "the sleep of the thread")
    looks_before = looks
    for _ in range(50):
        keeper.let_go(lease)
        keeper.hold(lease)
    assert looks == looks_before
    keeper.let_go(lease)
    ttl = 0.3
    keeper.hold(lease)
    assert renewals.renewed.wait(20), "it was woken, or it would have slept for twenty minutes"
    keeper.let_go(lease)
