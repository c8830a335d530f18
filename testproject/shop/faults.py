"""Faults on purpose, the same on every run with the same seed.

Whether a fault strikes depends on nothing but the seed, the order, the point and the attempt, so an order meets the
same faults whatever ran before it, and a worker that was killed changes none of them. Faults are in force in the block
of `injected()` and, where `FaultsCarrier` is configured, in the workers that go on with what was started there;
elsewhere there are none, so an execution that failed of one completes when it is retried in the admin.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

__all__ = ["NO_FAULTS", "Faults", "FaultsCarrier", "GatewayFault", "about", "current", "injected"]

REPEATED_TIMEOUT = 0.5
"""Timeouts come in bursts: after one, the next is as likely as not, whatever the rate."""


class GatewayFault(StrEnum):
    DECLINE = "decline"
    TIMEOUT_CHARGED = "timeout charged"
    TIMEOUT_NOT_CHARGED = "timeout not charged"


TIMEOUTS = (GatewayFault.TIMEOUT_CHARGED, GatewayFault.TIMEOUT_NOT_CHARGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong around one order (or one customer). `rate` is the probability at each point, from 0 to 1."""

    rate: float = 0.0
    seed: int = 0
    order: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"a rate of faults is between 0 and 1; got {self.rate}")

    def strikes(self, point: str) -> bool:
        return self._draws(point).random() < self.rate

    def at_gateway(self, attempt: int) -> GatewayFault | None:
        """What the gateway does wrong at this attempt (from 1)."""
        draws = self._draws(f"gateway:{attempt}")
        if attempt > 1 and self._timed_out(attempt - 1):
            return draws.choice(TIMEOUTS) if draws.random() < REPEATED_TIMEOUT else None
        return draws.choice(list(GatewayFault)) if draws.random() < self.rate else None

    def _timed_out(self, attempt: int) -> bool:
        return self.at_gateway(attempt) in TIMEOUTS

    def _draws(self, point: str) -> random.Random:
        return random.Random(f"{self.seed}:{self.order}:{point}")


NO_FAULTS = Faults()
_current: ContextVar[Faults] = ContextVar("faults", default=NO_FAULTS)


def current() -> Faults:
    return _current.get()


def about(order: str) -> Faults:
    """The faults in force, around this order: what runs many orders at once is about none."""
    faults = current()
    return faults if faults.order or not order else replace(faults, order=order)


@contextmanager
def injected(faults: Faults) -> Iterator[None]:
    token = _current.set(faults)
    try:
        yield
    finally:
        _current.reset(token)


class FaultsCarrier:
    """For `DJANGO_REACTOR["CARRY"]`: the faults in force where an execution is started travel with it."""

    def capture(self) -> dict[str, Any] | None:
        faults = current()
        return None if faults == NO_FAULTS else asdict(faults)

    def restore(self, value: dict[str, Any]) -> AbstractContextManager[None]:
        return injected(Faults(**value))
