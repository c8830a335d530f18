"""The `self` of a body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

__all__ = ["Run", "begin"]


class Run:
    """What reactors and Step classes are instances of while a body runs: inputs as attributes, engine data under
    `context`, and nothing that could be set. Every call of a body gets a fresh one."""

    __slots__ = ("_context", "_inputs")

    _inputs: Mapping[str, Any]
    _context: Any

    @property
    def context(self) -> Any:
        return self._context

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"cannot set {type(self).__name__}.{name}: self is read-only and lives for one call; "
            "return the value, and take it as a parameter where it is needed"
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"cannot delete {type(self).__name__}.{name}: self is read-only")


R = TypeVar("R", bound=Run)


def begin(cls: type[R], inputs: Mapping[str, Any], context: Any) -> R:
    """A fresh `self`. Inputs are looked up in the mapping when a body reads them, each time anew."""
    run = object.__new__(cls)
    object.__setattr__(run, "_inputs", inputs)
    object.__setattr__(run, "_context", context)
    return run
