"""From coroutines to synchronous code: everything that asks the database runs in a thread of Django's."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from asgiref.sync import sync_to_async

__all__ = ["in_thread"]

P = ParamSpec("P")
R = TypeVar("R")


async def in_thread(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run it in Django's thread for synchronous code. A connection that it opened there is closed again: nobody else
    would."""
    return await sync_to_async(_closing, thread_sensitive=True)(lambda: function(*args, **kwargs))


def _closing(function: Callable[[], R]) -> R:
    from django.db import connections

    before = {c.alias for c in connections.all(initialized_only=True) if c.connection is not None}
    try:
        return function()
    finally:
        for connection in connections.all(initialized_only=True):
            if connection.alias not in before and not connection.in_atomic_block:
                connection.close()
