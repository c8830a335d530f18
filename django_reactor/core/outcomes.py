"""How a body ends, as a value; and the helpers with which user code ends it from any call depth.

The helpers raise `Unwinding`, which derives from BaseException so that an `except Exception` in the body, or in a
library between, does not swallow it; `finally` blocks run. Outside of a body they are a mistake and say so.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from django_reactor.core.options import Duration, seconds
from django_reactor.exceptions import ReactorError, SignalInTransaction, StepFailed

__all__ = [
    "Failed",
    "Halted",
    "Outcome",
    "SkippedOver",
    "Snoozed",
    "Succeeded",
    "Unwinding",
    "as_text",
    "body_running",
    "fail",
    "halt",
    "skip",
    "snooze",
    "succeed",
]


@dataclass(frozen=True, slots=True)
class Succeeded:
    value: Any = None


@dataclass(frozen=True, slots=True)
class SkippedOver:
    value: Any = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Halted:
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Snoozed:
    delay: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """`began` is False when the body never started: then there is nothing to compensate. `vetoed` forbids a retry;
    `said` means that user code said so by `fail()`, which `Retry(on=…)` doesn't filter."""

    error: BaseException
    began: bool = True
    vetoed: bool = False
    said: bool = False


Outcome = Succeeded | SkippedOver | Halted | Snoozed | Failed


class Unwinding(BaseException):
    """Carries an outcome out of a body. Internal: user code neither raises nor catches it."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        super().__init__(f"{outcome!r} left a step body; it is no error and must not be caught")


class OpenBlocks(Protocol):
    """What tells whether the running body has opened a transaction block of its own."""

    def opened_by_body(self) -> bool: ...


_body: ContextVar[OpenBlocks | None] = ContextVar("django_reactor_body", default=None)


class body_running:
    """While this is open, the helpers may be called in this context."""

    __slots__ = ("_blocks", "_token")

    def __init__(self, blocks: OpenBlocks) -> None:
        self._blocks = blocks

    def __enter__(self) -> None:
        self._token = _body.set(self._blocks)

    def __exit__(self, *_: object) -> None:
        _body.reset(self._token)


def _leave(name: str, outcome: Outcome, *, rolls_back: bool) -> NoReturn:
    blocks = _body.get()
    if blocks is None:
        raise ReactorError(f"{name}() was called outside of a step body; return the result or raise an exception there")
    if not rolls_back and blocks.opened_by_body():
        raise SignalInTransaction(name)
    raise Unwinding(outcome)


def as_text(reason: object) -> str:
    """A reason as it is stored, whatever was given as one: a lazy translation is no `str`."""
    return "" if reason is None else str(reason)


def succeed(value: Any = None) -> NoReturn:
    """End the step here with this value, from any call depth.

    Inside an `atomic()` block that the body opened itself the step fails with `SignalInTransaction`: return instead.
    """
    _leave("succeed", Succeeded(value), rolls_back=False)


def fail(message: str | BaseException, retry: bool = True) -> NoReturn:
    """Fail the step here. `retry=False` forbids a retry; True leaves it to the step's `Retry`."""
    error = message if isinstance(message, BaseException) else StepFailed(str(message), retryable=retry)
    _leave("fail", Failed(error, vetoed=not retry, said=True), rolls_back=True)


def halt(reason: str = "") -> NoReturn:
    """End the whole execution here, on purpose: nothing is undone, the result is a `Halt`."""
    _leave("halt", Halted(as_text(reason)), rolls_back=False)


def skip(reason: str = "", value: Any = None) -> NoReturn:
    """Do not do this step's work: readers get `value`, and nothing is undone later."""
    _leave("skip", SkippedOver(value, as_text(reason)), rolls_back=False)


def snooze(delay: Duration, reason: str = "") -> NoReturn:
    """Run this step again after `delay` (seconds or timedelta): no failure, and no attempt is used up."""
    _leave("snooze", Snoozed(seconds(delay, "snooze(…)"), as_text(reason)), rolls_back=True)
