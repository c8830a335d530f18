"""Messages leave after commit (DESIGN 4, rule 2)."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

from django_reactor import queues
from django_reactor.engine.records import Message

__all__ = ["OnCommitMessenger"]


class OnCommitMessenger:
    """The engine's port `Messenger`, over the configured queue. Django logs a broker that fails: what is committed is
    not failed by it, and the sweeper sends again."""

    def __init__(self, alias: Callable[[], str]) -> None:
        self._alias = alias

    def send(self, message: Message) -> None:
        def send() -> None:  # a function: Django's log of one that fails asks for its name
            _enqueue(message)

        transaction.on_commit(send, using=self._alias(), robust=True)


def _enqueue(message: Message) -> None:
    backend = queues.backend()
    if message.delay > backend.max_delay:
        return  # the broker could not keep it so long; the sweeper delivers what is due
    backend.enqueue(
        str(message.execution_id),
        queue_name=message.queue_name,
        delay=message.delay,
        priority=message.priority,
    )
