"""What a Dramatiq broker must know to deliver executions: one actor, the queues, and our middleware."""

from __future__ import annotations

import os
import threading
from typing import Any

import dramatiq
from django.db import connections

from django_reactor.conf import settings
from django_reactor.queues import entry, names, processes

__all__ = ["ACTOR", "WorkerLife", "declare_queue", "deliver", "prepare"]

ACTOR = "django_reactor.deliver"

OPTIONS: dict[str, Any] = {
    "max_retries": 0,  # the journal says what is tried again, and when
    "time_limit": float("inf"),  # Dramatiq's default would end a delivery after ten minutes
    "max_age": None,  # a message is as true on the last day as on the first
    "notify_shutdown": False,  # a delivery ends by itself after the step that runs, see `processes`
}
"""Options of the actor, as far as the broker's middleware knows them: Dramatiq refuses the others."""

_lock = threading.Lock()


class WorkerLife(dramatiq.Middleware):
    """Tells the process that it is a worker, and when it was asked to stop.

    `after_process_boot` is called by Dramatiq's command only: a worker in a thread of another process, as in tests,
    starts nothing beside the deliveries."""

    def after_process_boot(self, broker: dramatiq.Broker) -> None:
        processes.booted()

    def before_worker_boot(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        processes.begin()

    def before_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        processes.stopping()

    def after_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        processes.stopped()


def prepare(broker: dramatiq.Broker) -> None:
    """Idempotent; asks the broker's server nothing. A worker listens to the queues that are declared here."""
    with _lock:
        if not any(isinstance(middleware, WorkerLife) for middleware in broker.middleware):
            broker.add_middleware(WorkerLife())
        if ACTOR not in broker.actors:
            known = {name: value for name, value in OPTIONS.items() if name in broker.actor_options}
            queue = settings.load().QUEUE_NAME
            dramatiq.actor(broker=broker, actor_name=ACTOR, queue_name=queue, **known)(deliver)
            for name in names.declared():
                broker.declare_queue(name)


def deliver(execution_id: str) -> None:
    """In a thread that runs the project's other actors too. One that was interrupted there may have left a block of
    Django's open: what a delivery wrote in it, nobody would commit."""
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            connection.close()
            connection.connect()
    entry.deliver(execution_id)


def declare_queue(broker: dramatiq.Broker, name: str) -> None:
    """Two threads that declare a queue of the in-process broker at once would make two, and lose what is in one."""
    if name not in broker.queues:
        with _lock:
            broker.declare_queue(name)


def _in_a_fork() -> None:
    """Whoever holds the lock may be a thread that only the parent has."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_fork)
