"""From an exception to what people are shown: message, the user's line, a snippet, a folded backtrace; all redacted."""

from __future__ import annotations

import inspect
import linecache
import os
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django_reactor.core.outcomes import Unwinding
from django_reactor.core.redaction import Redactor
from django_reactor.exceptions import ReactorError, StepFailed

__all__ = ["allows_retry", "describe", "qualified_name"]

FRAMEWORK = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
"""Not resolved: a frame names its file as it was imported, through whatever links."""
LIBRARIES = tuple(
    {os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
FOLDED = "… frames of django_reactor …"
MAX_FRAMES = 100
SNIPPET_LINES = 3
"""Lines shown before and after the one that failed."""


def qualified_name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def describe(
    error: BaseException,
    redactor: Redactor,
    raised_from: BaseException | None = None,
    function: Callable[..., Any] | None = None,
) -> dict[str, Any]:
    """JSON-compatible fields of `Failure` for this exception. `raised_from` has the traceback where the error itself
    was never raised (a `fail("text")`); `function` is what the user wrote, for an error that none of his lines raised
    (a result that cannot be stored)."""
    frames = _frames(error.__traceback__ or getattr(raised_from, "__traceback__", None))
    location = _location(frames) or _definition(function)
    return {
        "message": redactor.brief(_message(error)),
        "exception_class": _class_name(error),
        "field_errors": {
            redactor.scrub(name): [redactor.brief(text) for text in texts]
            for name, texts in _field_errors(error).items()
        },
        "file": location.filename if location else None,
        "line": location.lineno if location else None,
        "snippet": redactor.brief(_snippet(location)) if location else "",
        "backtrace": [redactor.brief(line) for line in [*_fold(frames), *_causes(error, raised_from)]],
    }


def _class_name(error: BaseException) -> str | None:
    if isinstance(error, StepFailed):
        return error.exception_class
    return qualified_name(type(error))


def _field_errors(error: BaseException) -> Mapping[str, Sequence[str]]:
    """Of our own errors: what another's attribute of this name holds is not known."""
    return getattr(error, "field_errors", {}) if isinstance(error, ReactorError) else {}


def allows_retry(error: BaseException) -> bool:
    """Whether the error doesn't say `retryable = False`."""
    try:
        return getattr(error, "retryable", True) is not False
    except Exception:  # noqa: BLE001  # user code: a property of the exception's own
        return True


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as unprintable:  # noqa: BLE001  # user code again: an exception's own __str__
        text = f"its message could not be read ({type(unprintable).__name__})"
    return text or type(error).__name__


def _frames(tb: Any) -> Sequence[traceback.FrameSummary]:
    return traceback.extract_tb(tb) if tb is not None else ()


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith(FRAMEWORK)


def _location(frames: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """The innermost line of the user's own; one of a library if there is none."""
    others = [frame for frame in frames if not _is_ours(frame) and not frame.filename.startswith("<")]
    users = [frame for frame in others if not frame.filename.startswith(LIBRARIES)]
    found = users or others
    return found[-1] if found else None


def _definition(function: Callable[..., Any] | None) -> traceback.FrameSummary | None:
    code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
    return traceback.FrameSummary(code.co_filename, code.co_firstlineno, code.co_name) if code is not None else None


def _snippet(location: traceback.FrameSummary) -> str:
    line = location.lineno or 1
    first, last = max(1, line - SNIPPET_LINES), line + SNIPPET_LINES
    shown = [
        f"{'>' if number == line else ' '} {number:>5}  {text.rstrip()}"
        for number in range(first, last + 1)
        if (text := linecache.getline(location.filename, number))
    ]
    return "\n".join(shown)


def _fold(frames: Iterable[traceback.FrameSummary]) -> list[str]:
    lines: list[str] = []
    for frame in frames:
        if _is_ours(frame):
            if not lines or lines[-1] != FOLDED:
                lines.append(FOLDED)
        else:
            lines.append(f"{frame.filename}:{frame.lineno} in {frame.name}")
    if len(lines) > MAX_FRAMES:
        half = MAX_FRAMES // 2
        lines[half:-half] = [f"… {len(lines) - MAX_FRAMES} more frames …"]
    return lines


def _causes(error: BaseException, raised_from: BaseException | None) -> list[str]:
    """One line for each exception behind this one, nearest first. What `fail("text")` makes was never raised: then
    they stand behind what left the body instead."""
    lines: list[str] = []
    seen = {id(error)}
    cause = _behind(error)
    if cause is None and error.__traceback__ is None and raised_from is not None:
        cause = _behind(raised_from)
    while cause is not None and id(cause) not in seen and len(lines) < 10:
        seen.add(id(cause))
        if not isinstance(cause, Unwinding):
            lines.append(f"caused by {qualified_name(type(cause))}: {_message(cause)}")
        cause = _behind(cause)
    return lines


def _behind(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def recorded_error(error: Mapping[str, Any]) -> StepFailed:
    """The exception for user code when the original one is known from the journal only."""
    return StepFailed(
        str(error.get("message", "")),
        exception_class=error.get("exception_class"),
        retryable=bool(error.get("retryable", True)),
    )
