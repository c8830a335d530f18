"""The stores of coordination on Redis under contract, with keys of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from django.core.cache import caches
from django.test import override_settings
from django_redis import get_redis_connection

from django_reactor.conf import settings
from django_reactor.coordination.redis.holds import RedisHolds
from django_reactor.coordination.redis.rates import RedisRateLimits
from django_reactor.coordination.redis.server import Server
from django_reactor.engine.coordination_ports import Holds, RateLimits
from testproject.brokers import REDIS_CACHE

__all__ = ["RedisStore", "redis_at", "redis_store"]

ALIAS = "redis"
PREFIX = f"test-{uuid4().hex}"


class RedisStore:
    """The clock is the server's own: so everything else is moved back."""

    def __init__(self) -> None:
        server = Server()
        self.holds: Holds = RedisHolds(server)
        self.rate_limits: RateLimits = RedisRateLimits(server)
        self.prefix: str = caches[ALIAS].key_prefix
        self._server = server

    @property
    def client(self) -> Any:
        return get_redis_connection(ALIAS)

    def has_run_for_long(self) -> None:
        """Longer than any ttl: what was held before it began is over."""
        self.client.set(self._server.since, 0)
        self.client.set(self._server.run, self.client.info("server")["run_id"])

    def has_come_back(self) -> None:
        """As a server that was started again with what it had kept: its scripts are gone. For one of the test's own."""
        self.client.set(self._server.run, "an earlier run")
        self.client.script_flush()

    def keys(self) -> list[bytes]:
        """But for those that say since when the server runs: without them it counts as emptied."""
        keys = self.client.scan_iter(f"{self.prefix}:*")
        return [name for name in keys if not name.endswith((b":since", b":run"))]

    def after(self, seconds: float) -> None:
        for name in self.keys():
            text = name.decode()
            if ":owner:" not in text:
                for field, stored in self.client.hgetall(name).items():
                    moved = _later(stored.decode("utf-8", "surrogatepass"), field.decode(), ":rate:" in text, seconds)
                    self.client.hset(name, field, moved.encode("utf-8", "surrogatepass"))


def _later(stored: str, field: str, is_count: bool, seconds: float) -> str:
    if is_count:
        bucket, count = stored.split(" ")
        return f"{int(bucket) + int(-seconds // int(field))} {count}"
    owner, epoch, expiry, text = stored.split(" ", 3)
    return f"{owner} {epoch} {int(expiry) - int(seconds * 1000)} {text}"


@contextmanager
def redis_at(url: str, **options: Any) -> Iterator[None]:
    """The project's cache is on this server, with the prefix of this run of tests."""
    cache = {"BACKEND": REDIS_CACHE, "LOCATION": url, "KEY_PREFIX": PREFIX, "OPTIONS": options}
    with override_settings(CACHES={"default": {"BACKEND": REDIS_CACHE, "LOCATION": url}, ALIAS: cache}):
        assert settings.load().REDIS_ALIAS == ALIAS
        yield


@contextmanager
def redis_store(url: str) -> Iterator[RedisStore]:
    """Its keys are deleted in the end."""
    with redis_at(url):
        store = RedisStore()
        store.has_run_for_long()
        try:
            yield store
        finally:
            if keys := store.keys():
                store.client.delete(*keys)
