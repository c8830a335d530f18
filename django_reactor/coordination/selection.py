"""The stores that the project has chosen."""

from __future__ import annotations

from django_reactor.conf import settings
from django_reactor.engine.coordination_ports import Holds, RateLimits

__all__ = ["chosen_holds", "chosen_rate_limits"]


def chosen_holds() -> Holds:
    if settings.load().COORDINATION == "redis":
        from django_reactor.coordination.redis.holds import RedisHolds

        return RedisHolds()
    from django_reactor.coordination.database.holds import DatabaseHolds

    return DatabaseHolds()


def chosen_rate_limits() -> RateLimits:
    if settings.load().COORDINATION == "redis":
        from django_reactor.coordination.redis.rates import RedisRateLimits

        return RedisRateLimits()
    from django_reactor.coordination.database.rates import DatabaseRateLimits

    return DatabaseRateLimits()
