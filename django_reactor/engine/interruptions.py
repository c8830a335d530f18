"""What comes from outside and says nothing about the step (DESIGN 4, rule 7).

Python's own are known here. Libraries that run workers have theirs; who builds the runtime adds them by `extend`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["extend", "is_interruption", "is_shutdown"]

Kinds = tuple[type[BaseException], ...]

BUILT_IN: Kinds = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, asyncio.CancelledError)


def _none() -> Kinds:
    return ()


def _never(error: BaseException) -> bool:
    return False


_more: Callable[[], Kinds] = _none
_tells_shutdown: Callable[[BaseException], bool] = _never


def extend(kinds: Callable[[], Kinds], shutdown: Callable[[BaseException], bool]) -> None:
    """Know more kinds from now on, looked up whenever an exception is met; `shutdown` tells which of them say that the
    worker itself is ended."""
    global _more, _tells_shutdown
    _more, _tells_shutdown = kinds, shutdown


def is_interruption(error: BaseException) -> bool:
    return isinstance(error, (*BUILT_IN, *_more()))


def is_shutdown(error: BaseException) -> bool:
    return _tells_shutdown(error)
