"""The `Lock` of redis-py, with a timeout as ours."""

from __future__ import annotations

from collections.abc import Mapping

from redis import Redis

__all__ = ["session"]

PAUSE = 0.001
"""Seconds between two attempts; a hundred times as many by default."""


class Session:
    def __init__(self, url: str, prefix: str) -> None:
        self._client, self._prefix = Redis.from_url(url), prefix

    def cycle(self, key: int) -> None:
        lock = self._client.lock(f"{self._prefix}:redis-py:{key}", timeout=60, sleep=PAUSE)
        assert lock.acquire()
        lock.release()

    def close(self) -> None:
        self._client.close()


def session(environment: Mapping[str, str]) -> Session:
    return Session(environment["BENCHMARK_REDIS"], environment["BENCHMARK_PREFIX"])
