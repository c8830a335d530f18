"""Queues bring one message to a worker: *deliver execution N*. They never see a table.

1. `backend()` is the adapter that `DJANGO_REACTOR["BACKEND"]` names; its `enqueue` gives the message to a broker.
2. The broker's worker calls the adapter's entry, and the entry calls `entry.deliver`.
3. Whoever builds the runtime says by `install(deliver)` what that is, once, when the apps are loaded.
"""

from __future__ import annotations

from collections.abc import Callable

from django_reactor.queues import entry
from django_reactor.queues.base import Backend
from django_reactor.queues.selection import backend

__all__ = ["Backend", "backend", "install"]


def install(deliver: Callable[[str], None]) -> None:
    """Deliver by this function from now on, and let the chosen adapter prepare its library. Needs loaded apps; no
    input or output, no thread. An adapter that cannot be loaded is reported by the system checks, not here."""
    entry.deliver_by(deliver)
    backend.prepare()
