"""What the workers of queue libraries import by name. Dramatiq's actor is declared when the apps are loaded, on
whatever broker the project has (`queues.actor`)."""

from __future__ import annotations

from django_reactor.queues import entry

__all__ = ["deliver_job"]


def deliver_job(execution_id: str) -> None:
    """RQ's job: deliver this execution."""
    entry.deliver(execution_id)
