"""Queues for tests."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.checks import CheckMessage

__all__ = ["DownBroker", "LostMessages"]


class LostMessages:
    """Takes every message and brings none."""

    is_immediate = False
    supports_delay = True
    supports_priority = False
    max_delay = float("inf")

    def prepare(self) -> None:
        """Nothing is needed."""

    def enqueue(self, execution_id: str, *, queue_name: str, delay: float, priority: int | None) -> None:
        """It is lost."""

    def check(self) -> Sequence[CheckMessage]:
        return []


class DownBroker(LostMessages):
    """Its broker does not answer."""

    def enqueue(self, execution_id: str, *, queue_name: str, delay: float, priority: int | None) -> None:
        raise ConnectionError("the broker is down")
