"""The floor: Dramatiq alone, on the same Redis, with the middleware of the test project; actors that store nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AgeLimit, Callbacks, Retries, ShutdownNotifications, TimeLimit

from benchmarks.queues.contenders import broker
from benchmarks.queues.stamps import send_stamp

__all__ = ["consumers", "producer"]

if "BENCHMARK_REDIS" in os.environ:
    NAMESPACE = broker.prefix(os.environ, "raw")
    REDIS = RedisBroker(
        url=broker.url(os.environ),
        namespace=NAMESPACE,
        middleware=[AgeLimit(), TimeLimit(), ShutdownNotifications(), Callbacks(), Retries()],
    )
    dramatiq.set_broker(REDIS)

    @dramatiq.actor(max_retries=0)
    def nothing() -> None:
        pass

    @dramatiq.actor(max_retries=0)
    def stamp() -> None:
        send_stamp()


class Raw:
    def enqueue(self, number: int) -> None:
        for _ in range(number):
            nothing.send()

    def enqueue_stamp(self) -> None:
        stamp.send()

    def gather(self, number: int) -> int:
        """Nothing is gathered: so fast are the messages alone."""
        self.enqueue(number)
        self.wait_until_done()
        return number

    def wait_until_done(self) -> None:
        """Redis holds each message until it is acknowledged."""
        client: Any = REDIS.client
        broker.wait_until(lambda: not client.hlen(f"{NAMESPACE}:default.msgs"))

    def close(self) -> None:
        REDIS.close()


def producer(environment: Mapping[str, str]) -> Raw:
    return Raw()


def consumers(python: str) -> Sequence[Sequence[str]]:
    return [[python, "-m", "dramatiq", __name__, "--processes", "2", "--threads", "4", "--skip-logging"]]
