"""The declared values: retry policies, hand-off points and coordination. Frozen, checked when they are made."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeGuard

from django_reactor.core.buckets import SECONDS, seconds_of
from django_reactor.exceptions import DefinitionError

__all__ = [
    "Background",
    "Coordination",
    "Duration",
    "Lock",
    "OrderedLock",
    "Period",
    "RateLimit",
    "Retry",
    "Semaphore",
    "seconds",
]

Duration = float | timedelta
Key = str | Callable[..., str]

BACKOFFS = ("exponential", "linear", "fixed")
BUCKETS = ("minute", "hour", "day", "week", "month", "quarter", "year")
MAX_EXPONENT = 62
"""Larger powers of two exceed any delay and only cost time (or overflow a float)."""


LONGEST = timedelta(days=100 * 365)
"""Of durations: what comes after it still is a time that every database can hold."""


def seconds(duration: Duration, what: str = "duration") -> float:
    """A duration, given in seconds or as a timedelta, in seconds."""
    number = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not is_number(number) or not 0 <= number < float("inf"):
        raise DefinitionError(f"{what} must be a number of seconds or a timedelta, not negative; got {duration!r}")
    if number > LONGEST.total_seconds():
        raise DefinitionError(f"{what} must be at most a hundred years; got {duration!r}")
    return float(number)


def is_number(value: object) -> bool:
    """A bool is none: `delay=True` is a mistake."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def is_count(value: object) -> TypeGuard[int]:
    """A whole number from 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


KNOWN_WINDOWS = f"{', '.join(SECONDS)}, and whole numbers of seconds up to those of a year"


def is_window(window: object) -> TypeGuard[str | int]:
    """Of a rate limit."""
    return window <= SECONDS["year"] if is_count(window) else isinstance(window, str) and window in SECONDS


def window_given_twice(windows: Iterable[str | int]) -> str | int | None:
    """One that is as long as another (`"minute"` and 60): they would be counted as one."""
    lengths: set[int] = set()
    for window in windows:
        if seconds_of(window) in lengths:
            return window
        lengths.add(seconds_of(window))
    return None


def exceptions(value: object, what: str) -> tuple[type[BaseException], ...]:
    kinds = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise DefinitionError(f"{what} takes exception classes; got {kind!r}")
    return kinds


@dataclass(frozen=True, slots=True)
class Retry:
    """When and how often a step is tried again.

    `max_attempts` counts the first attempt too. The delay before attempt n + 1 is, in seconds, `delay * 2**(n - 1)`
    (exponential), `delay * n` (linear) or `delay` (fixed), at most `max_delay`, then varied by ±`jitter` of itself.
    Only exceptions of a class in `on`, and of none in `never`, are retried; `fail()` is retried unless it said
    `retry=False`, and an error of which `retryable` is False never. In a caller the delay is slept; a worker's thread
    is free meanwhile.
    """

    max_attempts: int = 3
    backoff: Literal["exponential", "linear", "fixed"] = "exponential"
    delay: Duration = 1.0
    max_delay: Duration = 300.0
    jitter: float = 0.1
    on: Any = (Exception,)
    never: Any = ()

    def __post_init__(self) -> None:
        if not is_count(self.max_attempts):
            raise DefinitionError(f"Retry(max_attempts=…) must be a whole number from 1; got {self.max_attempts!r}")
        if self.backoff not in BACKOFFS:
            raise DefinitionError(f"Retry(backoff=…) must be one of {', '.join(BACKOFFS)}; got {self.backoff!r}")
        if not is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise DefinitionError(f"Retry(jitter=…) must be between 0 and 1; got {self.jitter!r}")
        object.__setattr__(self, "delay", seconds(self.delay, "Retry(delay=…)"))
        object.__setattr__(self, "max_delay", seconds(self.max_delay, "Retry(max_delay=…)"))
        object.__setattr__(self, "on", exceptions(self.on, "Retry(on=…)"))
        object.__setattr__(self, "never", exceptions(self.never, "Retry(never=…)"))

    def covers(self, error: BaseException) -> bool:
        """Whether the policy retries this exception; the number of attempts is not looked at."""
        return isinstance(error, self.on) and not isinstance(error, self.never)

    def delay_after(self, attempt: int, uniform: Callable[[float, float], float] = random.uniform) -> float:
        """Seconds to wait after the failed attempt of this number (from 1)."""
        base = seconds(self.delay)
        factor: int = {
            "exponential": 2 ** min(attempt - 1, MAX_EXPONENT),
            "linear": attempt,
            "fixed": 1,
        }[self.backoff]
        capped = min(base * factor, seconds(self.max_delay))
        return capped * uniform(1 - self.jitter, 1 + self.jitter)


ONE_ATTEMPT = Retry(max_attempts=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """Where an execution moves from its caller to a worker: after a step, before a step, or from the start, if neither
    is named. `run` returns `Dispatched` then; the worker begins once the caller's transaction is committed."""

    after: str | None = None
    before: str | None = None

    @property
    def is_everything(self) -> bool:
        """Whether no body runs in the caller."""
        return self.after is None and self.before is None

    def __post_init__(self) -> None:
        if self.after is not None and self.before is not None:
            raise DefinitionError("Background takes after=… or before=…, not both; use Background() for all of it")
        for name in (self.after, self.before):
            if name is not None and not is_text(name):
                raise DefinitionError(f"Background takes the name of a step; got {name!r}")


def _check_key(kind: str, key: object) -> None:
    if not (callable(key) or (isinstance(key, str) and key)):
        raise DefinitionError(f"{kind} needs a key: a format string over the inputs, or a callable; got {key!r}")


def _check_ttl(kind: str, ttl: Duration) -> None:
    if not seconds(ttl, f"{kind}(ttl=…)") > 0:
        raise DefinitionError(f"{kind}(ttl=…) must be positive; got {ttl!r}")


@dataclass(frozen=True, slots=True)
class Lock:
    """One execution at a time with this key: a format string over named values, or a callable that takes them by name.

    Durations are seconds or timedelta. The lock is held, and kept alive unless `auto_extend` is False, until the last
    undo; it is free at the latest `ttl` after its process has died. A caller tries for `wait`, blocking its thread, and
    then gets `LockUnavailable`; in a worker the execution is due again later. An undo of a step that has the lock tries
    for `rollback_wait` (None: the `ttl`), and is listed as a rollback failure if it cannot have it.
    """

    key: Key
    ttl: Duration = field(default=60, kw_only=True)
    wait: Duration = field(default=0, kw_only=True)
    auto_extend: bool = field(default=True, kw_only=True)
    rollback_wait: Duration | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_key("Lock", self.key)
        _check_ttl("Lock", self.ttl)
        seconds(self.wait, "Lock(wait=…)")
        if self.rollback_wait is not None:
            seconds(self.rollback_wait, "Lock(rollback_wait=…)")


@dataclass(frozen=True, slots=True)
class Semaphore:
    """At most `limit` executions at a time with this key. Everything else is as with a `Lock`, whose `auto_extend` it
    always has; what a caller gets is `SemaphoreUnavailable`. A limit may be changed: who is in stays in, and counts."""

    key: Key
    limit: int = field(default=5, kw_only=True)
    ttl: Duration = field(default=60, kw_only=True)
    wait: Duration = field(default=0, kw_only=True)
    rollback_wait: Duration | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_key("Semaphore", self.key)
        if not is_count(self.limit):
            raise DefinitionError(f"Semaphore(limit=…) must be a whole number from 1; got {self.limit!r}")
        _check_ttl("Semaphore", self.ttl)
        seconds(self.wait, "Semaphore(wait=…)")
        if self.rollback_wait is not None:
            seconds(self.rollback_wait, "Semaphore(rollback_wait=…)")


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most so many starts in each window (`second`, `minute`, `hour`, `day`, `week`, `month`, `year`, or a whole
    number of seconds); all windows are charged or none. `named` takes the limits from settings.

    Asked once for each execution, or attempt of a step. Windows are fixed, and counted by the store's clock from 1970
    on: a month is 31 days there, a year 366. A caller gets `RateLimited`; in a worker the execution is due again when
    the window rolls.
    """

    key: Key
    limits: Mapping[Any, int] = field(default_factory=dict, kw_only=True)
    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_key("RateLimit", self.key)
        if self.name is None and not self.limits:
            raise DefinitionError('RateLimit needs limits={"minute": 100}, or use RateLimit.named("…")')
        if not isinstance(self.limits, Mapping):
            raise DefinitionError(
                f'RateLimit(limits=…) must be a mapping such as {{"minute": 100}}; got {self.limits!r}'
            )
        for window, limit in self.limits.items():
            if not is_window(window):
                raise DefinitionError(f"RateLimit knows the windows {KNOWN_WINDOWS}; got {window!r}")
            if not is_count(limit):
                raise DefinitionError(
                    f"RateLimit(limits={{{window!r}: …}}) must be a whole number from 1; got {limit!r}"
                )
        if (twice := window_given_twice(self.limits)) is not None:
            raise DefinitionError(f"RateLimit(limits=…) has the window {twice!r} twice; got {self.limits!r}")

    @classmethod
    def named(cls, name: str) -> RateLimit:
        """The limits that `DJANGO_REACTOR["RATE_LIMITS"]` gives under this name, which is also the key: all that use it
        are counted together."""
        if not is_text(name):
            raise DefinitionError(f"RateLimit.named takes a name from DJANGO_REACTOR['RATE_LIMITS']; got {name!r}")
        return cls(name, name=name)


@dataclass(frozen=True, slots=True)
class Period:
    """At most one success in each calendar bucket (or each so many seconds). `tz` None: the project's `TIME_ZONE`.

    What comes later in the bucket halts, or skips the step. The bucket is marked in the transaction of the success; two
    that begin together may both run, unless a `Lock` keeps them apart.
    """

    key: Key
    every: str | int = field(default="day", kw_only=True)
    tz: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_key("Period", self.key)
        if self.every not in BUCKETS and not is_count(self.every):
            raise DefinitionError(
                f"Period(every=…) must be one of {', '.join(BUCKETS)}, or a number of seconds; got {self.every!r}"
            )
        if is_count(self.every):
            seconds(self.every, "Period(every=…)")


@dataclass(frozen=True, slots=True)
class OrderedLock:
    """Executions with this key run one at a time, in the order in which the transactions that started them committed.

    A caller gets `OutOfTurn` if anybody is in the line; in a worker the execution parks until its turn has come. Until
    the starting transaction ends, others that start with the key wait for it. A head that gives no sign of life for
    `poison_pill_timeout` (seconds or timedelta) is passed over. `strict`: after a failure those that come later in the
    same batch are halted.
    """

    key: Key
    poison_pill_timeout: Duration = field(default=600, kw_only=True)
    strict: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        _check_key("OrderedLock", self.key)
        seconds(self.poison_pill_timeout, "OrderedLock(poison_pill_timeout=…)")


Primitive = Lock | Semaphore | RateLimit | Period | OrderedLock


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordination:
    """What one reactor or step declares, in DESIGN's order of taking: ordered, period, rate limit, lock, semaphore."""

    ordered_lock: tuple[OrderedLock, ...] = ()
    period: tuple[Period, ...] = ()
    rate_limit: tuple[RateLimit, ...] = ()
    lock: tuple[Lock, ...] = ()
    semaphore: tuple[Semaphore, ...] = ()
    _is_declared: bool = field(init=False, repr=False, compare=False, default=False)
    """Asked before every decision of an execution."""

    def __post_init__(self) -> None:
        declared = bool(self.ordered_lock or self.period or self.rate_limit or self.lock or self.semaphore)
        object.__setattr__(self, "_is_declared", declared)

    def holds_only(self) -> Coordination:
        """Without what is asked once, and not held."""
        return Coordination(lock=self.lock, semaphore=self.semaphore)

    def __bool__(self) -> bool:
        return self._is_declared
