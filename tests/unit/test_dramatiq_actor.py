"""What a Dramatiq broker knows after the apps are loaded."""

from __future__ import annotations

from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import AgeLimit, Retries, ShutdownNotifications, TimeLimit

from django_reactor import Reactor, step
from django_reactor.queues import actor

MIDDLEWARE: list[type[dramatiq.Middleware]] = [AgeLimit, TimeLimit, ShutdownNotifications, Retries]


def prepared(*middleware: type[dramatiq.Middleware]) -> dramatiq.Broker:
    broker = StubBroker(middleware=[each() for each in middleware])
    for _ in range(2):
        actor.prepare(broker)
    return broker


def test_dramatiq_neither_retries_nor_limits_nor_interrupts_a_delivery() -> None:
    options = prepared(*MIDDLEWARE).get_actor(actor.ACTOR).options
    assert options == {"max_retries": 0, "time_limit": float("inf"), "max_age": None, "notify_shutdown": False}


@pytest.mark.parametrize("left_out", MIDDLEWARE)
def test_a_broker_needs_none_of_dramatiqs_middleware(left_out: type[dramatiq.Middleware]) -> None:
    broker = prepared(*(each for each in MIDDLEWARE if each is not left_out))
    assert len(broker.get_actor(actor.ACTOR).options) == len(MIDDLEWARE) - 1


def test_our_middleware_is_added_once() -> None:
    assert [type(each) for each in prepared(*MIDDLEWARE).middleware] == [*MIDDLEWARE, actor.WorkerLife]


@pytest.mark.usefixtures("own_registry")
def test_a_worker_listens_to_the_queues_of_all_reactors() -> None:
    class Slow(Reactor[Any]):
        class Meta:
            queue_name = "slow"

        @step
        def work(self) -> None: ...

    assert {"default", "slow"} <= prepared().get_declared_queues()
