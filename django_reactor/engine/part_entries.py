"""What the journal of a whole says of its parts: how the step of a composed child, or of a map, ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import Action, EntryOutcome
from django_reactor.engine.run import Run

__all__ = ["failed", "of_the_step", "succeeded", "undone", "vanished"]

NOT_OF_THE_STEP = frozenset({"inputs", "reactor", "step", "execution_id", "rollback_failures"})
"""What a part's failure says of the part, and not of the step that ran it."""


def of_the_step(failure: Mapping[str, Any]) -> dict[str, Any]:
    """A part's failure (`Failure.as_dict()`) as far as it is its step's; `path` leads to where it happened."""
    kept = {name: value for name, value in failure.items() if name not in NOT_OF_THE_STEP}
    return kept | {"path": failure.get("step")}


def succeeded(run: Run, step: str, value: str | None, reason: str = "") -> Entry:
    return _entry(run, step, Action.RUN, EntryOutcome.SUCCESS, value=value, reason=reason, undoable=True)


def failed(run: Run, step: str, error: Mapping[str, Any], *, still_open: bool) -> Entry:
    """`still_open`: what the step's parts have done stands, and is to be undone with the rest."""
    return _entry(run, step, Action.RUN, EntryOutcome.FAILURE, error=error, undoable=still_open)


def undone(run: Run, step: str, failures: Sequence[Mapping[str, Any]]) -> Entry:
    """The parts have undone what they could; these are the rollback failures (`RollbackFailure.as_dict()`)."""
    if not failures:
        return _entry(run, step, Action.UNDO, EntryOutcome.SUCCESS)
    first = failures[0]
    error = {
        "reason": "raised",
        "message": first["message"],
        "exception_class": first.get("exception_class"),
        "rollback_failures": list(failures),
    }
    return _entry(run, step, Action.UNDO, EntryOutcome.FAILURE, error=error)


def vanished(run: Run, step: str) -> Entry:
    text = f"the reactor that {step!r} ran is not known here any more; what it has done is not reversed"
    error = {"reason": "vanished", "message": text, "exception_class": None}
    return _entry(run, step, Action.UNDO, EntryOutcome.FAILURE, error=error)


def _entry(
    run: Run,
    step: str,
    action: Action,
    outcome: EntryOutcome,
    *,
    value: str | None = None,
    error: Mapping[str, Any] | None = None,
    reason: str = "",
    undoable: bool = False,
) -> Entry:
    now = run.services.clock.now()
    return Entry(
        seq=run.history.next_seq,
        action=action,
        step=step,
        outcome=outcome,
        attempt=1,
        value=value,
        error=error,
        reason=reason,
        undoable=undoable,
        started_at=now,
        finished_at=now,
    )
