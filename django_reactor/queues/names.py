"""The names of queues that executions are delivered through."""

from __future__ import annotations

from typing import Any, cast

from django_reactor.conf import settings
from django_reactor.core import registry

__all__ = ["declared"]


def declared() -> list[str]:
    """The default queue, and those that reactors declare. A call may name another one by `using(queue_name=…)`."""
    definitions = (cast(Any, reactor).__reactor__ for reactor in registry.reactors())
    named = {definition.queue_name for definition in definitions} - {None}
    return sorted({settings.load().QUEUE_NAME, *named})
