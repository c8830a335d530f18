"""The port `RateLimits` on Redis. What is counted is not taken back by a rollback of the database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from django_reactor.coordination.redis.server import Script, Server
from django_reactor.engine.coordination_ports import Counted, TooMany, Window

__all__ = ["RedisRateLimits"]


class RedisRateLimits:
    """Thread-safe. Raises `StoreUnavailable` where Redis does not answer."""

    joins_transactions = False

    def __init__(self, server: Server | None = None) -> None:
        self._server = server or Server()

    def charge(self, key: str, windows: Sequence[Window]) -> TooMany | None:
        in_order = sorted(windows, key=lambda window: window.seconds)
        if not in_order:
            return None
        arguments = [number for window in in_order for number in (window.seconds, window.limit)]
        full = self._server.call(Script.CHARGE, [self._server.hash_of("rate", key)], arguments, about=key)
        if full is None:
            return None
        which, microseconds = full
        return TooMany(window=in_order[int(which)], retry_after=int(microseconds) / 1_000_000)

    def counted(self, *keys: str) -> Sequence[Counted]:
        found = (each for key in set(keys) for each in self._counted(key))
        return sorted(found, key=lambda each: (each.key, each.seconds))

    def _counted(self, key: str) -> Iterator[Counted]:
        for seconds, count, rolls_at in self._server.call(Script.COUNTED, [self._server.hash_of("rate", key)], [], key):
            yield Counted(
                key=key,
                seconds=int(seconds),
                count=int(count),
                rolls_at=datetime.fromtimestamp(int(rolls_at), UTC),
            )

    def purge(self, limit: int) -> int:
        """Redis forgets them by itself."""
        return 0
