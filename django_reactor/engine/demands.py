"""What a reactor, or a step, asks of coordination for these values: its keys made, its limits looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django_reactor.core.buckets import seconds_of, shown_window
from django_reactor.core.keys import render_key
from django_reactor.core.naming import is_storable
from django_reactor.core.options import Coordination, Lock, Period, Primitive, RateLimit, Semaphore, seconds
from django_reactor.engine.coordination_ports import HoldKind, Key, Ticket, Wanted, Window
from django_reactor.exceptions import (
    ArgumentError,
    ContentionError,
    LockUnavailable,
    OutOfTurn,
    RateLimited,
    SemaphoreUnavailable,
)

__all__ = ["Demand", "Demands", "Limited", "Ordered", "Periodic", "demands_of", "exclusive_keys", "orders_of"]

NamedLimits = Callable[[str], Mapping[Any, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One hold. Times are in seconds; `rollback_wait` is how long an undo tries to get it."""

    wanted: Wanted
    wait: float
    rollback_wait: float
    auto_extend: bool

    @property
    def is_exclusive(self) -> bool:
        return self.wanted.limit == 1

    def unavailable(self) -> ContentionError:
        key, limit = self.wanted.key, self.wanted.limit
        if self.wanted.kind is HoldKind.LOCK:
            return LockUnavailable(f"lock {key!r} is held by another execution", key)
        return SemaphoreUnavailable(f"semaphore {key!r} has no free slot ({limit} in all)", key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """A rate limit: its windows, the shortest first."""

    key: str
    windows: Sequence[Window]

    def exceeded(self, window: Window, retry_after: float) -> RateLimited:
        text = f"rate limit {self.key!r}: {window.limit} starts in this {window.name} are used up"
        return RateLimited(f"{text}; free in {retry_after:.3g} s", self.key, retry_after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Periodic:
    """Once in each calendar bucket."""

    key: str
    period: Period


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """A place in a line. `poison_pill_timeout` is in seconds."""

    key: str
    poison_pill_timeout: float
    strict: bool

    def out_of_turn(self, head: Ticket | None) -> OutOfTurn:
        before = "" if head is None else f": number {head.number} comes first"
        return OutOfTurn(f"it is not its turn under the ordered lock {self.key!r}{before}", self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """In the order in which they are asked. Lines, limits and holds are sorted, so that two who ask for the same ask in
    one order."""

    orders: Sequence[Ordered] = ()
    periods: Sequence[Periodic] = ()
    limits: Sequence[Limited] = ()
    holds: Sequence[Demand] = ()

    @property
    def asks_admission(self) -> bool:
        """Whether there is something that is asked once, and not taken."""
        return bool(self.periods or self.limits)


def demands_of(coordination: Coordination, values: Mapping[str, Any], where: str, named: NamedLimits) -> Demands:
    """Raises `ArgumentError` for a key that cannot be made, `ConfigurationError` for limits that nobody has named, and
    what the values themselves raise (`Gone`)."""

    def key_of(declared: Primitive, option: str) -> str:
        return _key_of(declared, values, f"{where}.{option}")

    limits = [
        Limited(key=each.name or key_of(each, "rate_limit"), windows=_windows(each, named))
        for each in coordination.rate_limit
    ]
    locks = [_lock(each, key_of(each, "lock")) for each in coordination.lock]
    semaphores = [_semaphore(each, key_of(each, "semaphore")) for each in coordination.semaphore]
    return Demands(
        orders=orders_of(coordination, values, where),
        periods=[Periodic(key=key_of(each, "period"), period=each) for each in coordination.period],
        limits=sorted(limits, key=lambda limited: limited.key),
        holds=[*sorted(locks, key=_by_key), *sorted(semaphores, key=_by_key)],
    )


def orders_of(coordination: Coordination, values: Mapping[str, Any], where: str) -> Sequence[Ordered]:
    """The lines that it stands in, each once. Raises `ArgumentError`, and what the values themselves raise."""
    orders = {
        key: Ordered(key=key, poison_pill_timeout=seconds(each.poison_pill_timeout), strict=each.strict)
        for each in coordination.ordered_lock
        for key in (_key_of(each, values, f"{where}.ordered_lock"),)
    }
    return [orders[key] for key in sorted(orders)]


def _key_of(declared: Primitive, values: Mapping[str, Any], where: str) -> str:
    return _checked(render_key(declared.key, values, where), where)


def exclusive_keys(coordination: Coordination, values: Mapping[str, Any], where: str) -> set[Key]:
    """What only one can hold, for the guard against deadlocks."""
    if not (coordination.lock or coordination.semaphore):
        return set()
    holds = demands_of(coordination.holds_only(), values, where, lambda name: {}).holds
    return {each.wanted.kind_and_key for each in holds if each.is_exclusive}


def _by_key(demand: Demand) -> str:
    return demand.wanted.key


def _lock(lock: Lock, key: str) -> Demand:
    ttl = seconds(lock.ttl)
    return Demand(
        wanted=Wanted(kind=HoldKind.LOCK, key=key, ttl=ttl),
        wait=seconds(lock.wait),
        rollback_wait=ttl if lock.rollback_wait is None else seconds(lock.rollback_wait),
        auto_extend=lock.auto_extend,
    )


def _semaphore(semaphore: Semaphore, key: str) -> Demand:
    ttl = seconds(semaphore.ttl)
    return Demand(
        wanted=Wanted(kind=HoldKind.SEMAPHORE, key=key, ttl=ttl, limit=semaphore.limit),
        wait=seconds(semaphore.wait),
        rollback_wait=ttl if semaphore.rollback_wait is None else seconds(semaphore.rollback_wait),
        auto_extend=True,
    )


def _windows(limit: RateLimit, named: NamedLimits) -> Sequence[Window]:
    limits = limit.limits if limit.name is None else named(limit.name)
    windows = [Window(name=shown_window(each), seconds=seconds_of(each), limit=most) for each, most in limits.items()]
    return sorted(windows, key=lambda window: window.seconds)


def _checked(key: str, where: str) -> str:
    if not is_storable(key):
        raise ArgumentError(f"{where}: the key holds NUL or lone surrogates, which databases refuse")
    return key
