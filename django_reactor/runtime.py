"""Puts the adapters together, once a process, when they are first needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django_reactor.core import registry
from django_reactor.core.naming import suggestion
from django_reactor.engine import interruptions
from django_reactor.engine.services import Limits, Services, Stores
from django_reactor.exceptions import ConfigurationError

__all__ = ["SystemClock", "install", "services"]


class SystemClock:
    """The engine's port `Clock`."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> None:
        event.wait(seconds)


def services() -> Services:
    """The adapters of this process, on Django's connections. Needs loaded apps.

    Threads that ask for the first time at once get the same ones: another set would renew its leases by a thread of its
    own. Whichever was made first stays, without a lock that a fork could leave locked."""
    found = _made.get(_PROCESS)
    return _made.setdefault(_PROCESS, _make()) if found is None else found


_PROCESS = "process"
_made: dict[str, Services] = {}


def _make() -> Services:
    from django.db import connections
    from django.utils.timezone import get_default_timezone

    from django_reactor.carriers import ConfiguredCarriers
    from django_reactor.conf import settings
    from django_reactor.coordination.database.periods import DatabasePeriods
    from django_reactor.coordination.database.turns import DatabaseTurns
    from django_reactor.coordination.selection import chosen_holds, chosen_rate_limits
    from django_reactor.engine.hold_keeper import HoldKeeper
    from django_reactor.engine.leases import LeaseKeeper, boottime
    from django_reactor.journal.deliveries import OrmDeliveries
    from django_reactor.journal.elements import OrmElements
    from django_reactor.journal.executions import OrmExecutions
    from django_reactor.journal.maps import OrmMaps
    from django_reactor.journal.orm import OrmJournal, alias
    from django_reactor.journal.slots import OrmSlots
    from django_reactor.journal.stored import StoredValues
    from django_reactor.journal.transactions import DjangoTransactions
    from django_reactor.journal.waits import OrmAnswers, OrmWaits
    from django_reactor.messages import OnCommitMessenger
    from django_reactor.queues import processes
    from django_reactor.signals import SignalObserver
    from django_reactor.validation import validated

    executions, slots, holds, transactions = OrmExecutions(), OrmSlots(), chosen_holds(), DjangoTransactions(alias)
    keeper = HoldKeeper(holds, boottime)
    return Services(
        journal=OrmJournal(),
        executions=executions,
        leases=LeaseKeeper(executions, ttl=lambda: settings.load().LEASE_TTL, done=connections.close_all, holds=keeper),
        coordination=Stores(
            holds=holds,
            rate_limits=chosen_rate_limits(),
            periods=DatabasePeriods(),
            turns=DatabaseTurns(),
            keeper=keeper,
            named_limits=_named_limits,
            time_zone=get_default_timezone,
        ),
        transactions=transactions,
        deliveries=OrmDeliveries(),
        maps=OrmMaps(),
        elements=OrmElements(),
        slots=slots,
        waits=OrmWaits(),
        answers=OrmAnswers(),
        messenger=OnCommitMessenger(alias),
        carriers=ConfiguredCarriers(),
        limits=_limits,
        is_stopping=processes.is_stopping,
        validate=validated,
        clock=SystemClock(),
        observer=SignalObserver(transactions),
        new_codec=lambda: StoredValues(max_bytes=settings.load().MAX_PAYLOAD_BYTES, slots=slots),
    )


def _limits() -> Limits:
    from django_reactor.conf import settings

    loaded = settings.load()
    return Limits(
        max_recoveries=loaded.MAX_RECOVERIES,
        sweep_interval=loaded.SWEEP_INTERVAL,
        unknown_reactor_delay=loaded.SWEEP_INTERVAL,
        read_timeout=loaded.READ_TIMEOUT,
        park_timeout=loaded.PARK_TIMEOUT,
        snooze_delay=loaded.SNOOZE_DELAY,
        snooze_jitter=loaded.SNOOZE_JITTER,
        max_snoozes=loaded.MAX_SNOOZES,
    )


def _named_limits(name: str) -> Mapping[Any, int]:
    from django_reactor.conf import settings

    limits = settings.load().RATE_LIMITS
    if name not in limits:
        raise ConfigurationError(f"DJANGO_REACTOR['RATE_LIMITS'] names no {name!r}{suggestion(name, limits)}")
    named: Mapping[Any, int] = limits[name]
    return named


def install() -> None:
    """Tell the registry which app a module belongs to, and the engine what interrupts workers. Called when the apps are
    loaded."""
    from django_reactor.queues import interruptions as of_libraries

    registry.set_app_label_resolver(app_label_of)
    interruptions.extend(of_libraries.loaded, of_libraries.is_shutdown)


def app_label_of(module: str) -> str | None:
    from django.apps import apps

    config = apps.get_containing_app_config(module)
    return config.label if config is not None else None
