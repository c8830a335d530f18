"""What one runtime has to work with: the adapters of all ports, and the settings that the engine obeys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

from django_reactor.engine.coordination_ports import Holds, Periods, RateLimits, Turns
from django_reactor.engine.execution_ports import Deliveries, Executions, Journal
from django_reactor.engine.hold_keeper import HoldKeeper
from django_reactor.engine.leases import LeaseKeeper
from django_reactor.engine.map_ports import Elements, Maps, Slots
from django_reactor.engine.ports import Carriers, Clock, Messenger, Observer, Transactions
from django_reactor.engine.waits import Answers, Waits
from django_reactor.exceptions import ConfigurationError

__all__ = ["Limits", "Services", "Stores", "no_named_limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Settings that the engine obeys. Times in seconds."""

    max_recoveries: int = 5
    sweep_interval: float = 15.0
    unknown_reactor_delay: float = 15.0
    read_timeout: float = 30.0
    park_timeout: float = 3600.0
    snooze_delay: float = 5.0
    snooze_jitter: float = 5.0
    max_snoozes: int = 20


def _by_contract(definition: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
    validated: Mapping[str, Any] = definition.contract.validate(values)
    return validated


def no_named_limits(name: str) -> Mapping[Any, int]:
    raise ConfigurationError(f"no rate limit has the name {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The stores of coordination, and what keeps alive what this process has taken from them."""

    holds: Holds
    rate_limits: RateLimits
    periods: Periods
    turns: Turns
    keeper: HoldKeeper
    time_zone: Callable[[], tzinfo] = lambda: UTC
    """Whose calendar a period without a time zone of its own follows."""
    named_limits: Callable[[str], Mapping[Any, int]] = no_named_limits
    """The limits of a name in `RATE_LIMITS`; `ConfigurationError` if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The adapters of one runtime."""

    journal: Journal
    executions: Executions
    transactions: Transactions
    clock: Clock
    observer: Observer
    leases: LeaseKeeper
    deliveries: Deliveries
    waits: Waits
    answers: Answers
    messenger: Messenger
    carriers: Carriers
    maps: Maps
    elements: Elements
    slots: Slots
    coordination: Stores
    limits: Callable[[], Limits] = Limits
    validate: Callable[[Any, Mapping[str, Any]], Mapping[str, Any]] = _by_contract
    """The inputs of a reactor, by its contract and its `clean`."""
    is_stopping: Callable[[], bool] = lambda: False
    """Whether this worker was asked to stop: then another one does the rest, after the step that runs."""
    new_codec: Any = field(repr=False)
    """Makes a `Codec` for one run."""
