"""Where every adapter's message ends up: the one function that delivers an execution."""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from django_reactor.exceptions import ConfigurationError

__all__ = ["deliver", "deliver_by"]

logger = logging.getLogger("django_reactor")

_deliver: Callable[[str], None] | None = None


def deliver_by(function: Callable[[str], None]) -> None:
    """Deliver by this function from now on."""
    global _deliver
    _deliver = function


def deliver(execution_id: str) -> None:
    """What a worker calls with the content of a message. One that holds no execution's id is logged and dropped: it
    would fail as often as it is delivered."""
    try:
        UUID(execution_id)
    except (AttributeError, TypeError, ValueError):
        logger.error("A message was dropped: it does not hold the id of an execution.")
        return
    if _deliver is None:
        raise ConfigurationError("nothing can be delivered before Django's apps are loaded; call django.setup()")
    _deliver(execution_id)
