"""Interruptions at every point at which Python lets one in: as a function is entered, and as a call of one that is not
written in Python returns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

__all__ = ["is_interrupted"]


class _Interrupting:
    def __init__(self, number: int, kind: type[BaseException]) -> None:
        self._left, self._kind = number, kind

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_return") and frame.f_globals.get("__name__") != __name__:
            self._left -= 1
            if self._left == 0:
                raise self._kind


def is_interrupted(what: Callable[[], object], number: int, kind: type[BaseException] = KeyboardInterrupt) -> bool:
    """Carry it out, interrupted at this point of it, from 1; False if it has not so many."""
    usual = sys.getprofile()
    try:
        sys.setprofile(_Interrupting(number, kind))
        what()
    except kind:
        return True
    finally:
        sys.setprofile(usual)
    return False
