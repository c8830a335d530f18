"""Dramatiq: the broker that django_dramatiq's `DRAMATIQ_BROKER` or the project's own `set_broker` configures; without
one, a worker in threads of this process."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import dramatiq
import dramatiq.broker
from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning
from dramatiq.encoder import PickleEncoder
from dramatiq.message import get_encoder

from django_reactor.queues import actor, in_process

__all__ = ["DramatiqBackend", "configured_broker"]

LOWEST, HIGHEST = -100, 100
"""Priorities, as `django.tasks` counts them; one outside is taken for the nearest."""


class DramatiqBackend:
    """The adapter `dramatiq`.

    Dramatiq itself orders by the actor's priority, and there only what a worker has fetched already, so a message's
    priority is used where the broker orders by it: on a RabbitMQ broker with `max_priority`."""

    is_immediate = False
    supports_delay = True
    max_delay = 15 * 60.0
    """Workers hold delayed messages in memory, unacknowledged, which RabbitMQ tolerates for 30 minutes."""

    @property
    def supports_priority(self) -> bool:
        return bool(_max_priority(configured_broker()))

    def prepare(self) -> None:
        if (broker := configured_broker()) is not None:
            actor.prepare(broker)

    def enqueue(self, execution_id: str, *, queue_name: str, delay: float, priority: int | None) -> None:
        broker = configured_broker()
        if broker is None:
            broker = in_process.broker()
        else:
            actor.prepare(broker)  # of a broker that was set after the apps were loaded
        actor.declare_queue(broker, queue_name)
        options = {}
        if priority is not None and (highest := _max_priority(broker)):
            options["broker_priority"] = scaled(priority, highest)
        message: dramatiq.Message[None] = dramatiq.Message(
            queue_name=queue_name, actor_name=actor.ACTOR, args=(execution_id,), kwargs={}, options=options
        )
        broker.enqueue(message, delay=math.ceil(delay * 1000) if delay > 0 else None)

    def check(self) -> Sequence[CheckMessage]:
        return [*_check_installation(), *_check_broker(configured_broker())]


def configured_broker() -> dramatiq.Broker | None:
    """The broker that this project has set; `dramatiq.get_broker()` would make one up."""
    return dramatiq.broker.global_broker


def scaled(priority: int, highest: int) -> int:
    """A priority from `LOWEST` to `HIGHEST` on a scale from 0 to `highest`; 0, the default, is in the middle."""
    above = min(max(priority, LOWEST), HIGHEST) - LOWEST
    return above * highest // (HIGHEST - LOWEST)


def _max_priority(broker: dramatiq.Broker | None) -> int:
    return getattr(broker, "max_priority", None) or 0


def _check_installation() -> Iterator[CheckMessage]:
    if hasattr(django_settings, "DRAMATIQ_BROKER") and not apps.is_installed("django_dramatiq"):
        yield Error(
            "DRAMATIQ_BROKER is set, but nothing reads it: django_dramatiq is not in INSTALLED_APPS.",
            hint="Add 'django_dramatiq' to INSTALLED_APPS.",
            id="django_reactor.E202",
        )


def _check_broker(broker: dramatiq.Broker | None) -> Iterator[CheckMessage]:
    if broker is None:
        return
    present = any(isinstance(middleware, actor.WorkerLife) for middleware in broker.middleware)
    if not present or actor.ACTOR not in broker.actors:
        yield Error(
            "Dramatiq's broker was replaced after Django's apps were loaded: its workers would not know the actor "
            f"{actor.ACTOR!r}, nor recover executions.",
            hint="Configure it by DRAMATIQ_BROKER, or call dramatiq.set_broker() in the settings.",
            id="django_reactor.E203",
        )
    if isinstance(get_encoder(), PickleEncoder):
        yield Warning(
            "Dramatiq encodes messages as pickle: whoever can write to the broker can run code in the workers.",
            hint="Remove DRAMATIQ_ENCODER; the default is JSON.",
            id="django_reactor.W202",
        )
    if getattr(broker, "confirm_delivery", True) is False:
        yield Warning(
            "RabbitMQ is not asked to confirm messages: those that it loses wait for the next sweep.",
            hint="Add 'confirm_delivery': True to the OPTIONS of DRAMATIQ_BROKER.",
            id="django_reactor.W203",
        )
