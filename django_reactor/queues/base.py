"""The port of a queue: what an adapter does, and what it says it can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from django.core.checks import CheckMessage

__all__ = ["Backend"]


class Backend(Protocol):
    """An adapter of one queue library. One instance a process, used by all its threads."""

    @property
    def is_immediate(self) -> bool:
        """Whether `enqueue` delivers before it returns, in the same thread."""

    @property
    def supports_delay(self) -> bool:
        """Whether the library keeps a message until it is due. Without it a message with a delay is not sent: the
        sweeper delivers what is due."""

    @property
    def max_delay(self) -> float:
        """In seconds. A longer delay is better left to the sweeper, though `enqueue` takes it."""

    @property
    def supports_priority(self) -> bool:
        """Whether messages that wait in one queue are taken by priority. Without it the priority is not used: give
        what is urgent a queue and workers of its own."""

    def prepare(self) -> None:
        """Tell the library what it must know in every process, before the first message. Idempotent; no input or
        output, no thread."""

    def enqueue(self, execution_id: str, *, queue_name: str, delay: float, priority: int | None) -> None:
        """Give the broker one message that holds this id and nothing else, to be delivered `delay` seconds from now
        or later; a higher priority comes first.

        It takes effect at once, whatever database transaction is open. It blocks for one exchange with the broker,
        and raises the library's error if the broker does not take the message, after the library's own timeouts.
        Enqueued twice is delivered twice."""

    def check(self) -> Sequence[CheckMessage]:
        """What `manage.py check` should say about the library's settings. It asks no broker."""
