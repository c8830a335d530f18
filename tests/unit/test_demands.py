"""What a declaration asks of coordination for some values."""

from __future__ import annotations

from django_reactor.core.options import Coordination, Lock, OrderedLock, RateLimit, Semaphore
from django_reactor.engine.demands import demands_of


def test_two_who_ask_for_the_same_ask_in_one_order() -> None:
    """Whoever asked in another would wait for those who wait for him."""

    def asked(*keys: str) -> list[list[str]]:
        coordination = Coordination(
            ordered_lock=tuple(OrderedLock(key) for key in keys),
            rate_limit=tuple(RateLimit(key, limits={"day": 1}) for key in keys),
            lock=tuple(Lock(key) for key in keys),
            semaphore=tuple(Semaphore(key) for key in keys),
        )
        demands = demands_of(coordination, {}, "Here", lambda name: {})
        return [
            [each.key for each in demands.orders],
            [each.key for each in demands.limits],
            [each.wanted.key for each in demands.holds],
        ]

    assert asked("a", "b", "c") == asked("c", "a", "b") == [["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c"] * 2]
