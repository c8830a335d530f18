"""This project's locks in Redis."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.locks.polling import Polled

__all__ = ["session"]


def session(environment: Mapping[str, str]) -> Polled:
    from django_reactor.coordination.redis.holds import RedisHolds

    return Polled(RedisHolds())
