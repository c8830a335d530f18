"""The step that has begun and come to nothing so far: whom an undo has to compensate if it never runs again."""

from __future__ import annotations

from django_reactor.core.decisions import next_step
from django_reactor.core.entries import Entry
from django_reactor.core.statuses import Action
from django_reactor.engine.failures import qualified_name
from django_reactor.engine.parts import all_parts, begun_part
from django_reactor.engine.run import Run
from django_reactor.exceptions import Interrupted

__all__ = ["abort_entry", "cut_off_step", "note_cut_off", "note_what_began", "note_what_may_have_begun"]


def note_what_may_have_begun(run: Run) -> None:
    """In a process that died, or before it snoozed. While parts are open the journal does not tell in which of them, or
    in the run itself: what has come since, an answer or a unit's end, may let another one go on first. Each is named
    then, so that a rollback compensates it, if it does not run again before."""
    if not run.tenure.may_have_run or run.history.cause is not None or not run.history.open:
        return
    found, parts = _cut_off(run), list(all_parts(run))
    if len(found) == 1 and all(_holds(part, found[0][0]) for part in parts):
        return  # it is the next one
    for part, step in found:
        note_cut_off(part, step)


def _holds(whole: Run, part: Run | None) -> bool:
    """Whether the part is the whole, or one of its own."""
    return part is not None and (part is whole or _holds(whole, part.whole))


def note_what_began(owner: Run) -> None:
    """Before it rests, or ends, without running that again: all that has begun, or may have, in it and its parts."""
    for part, step in _cut_off(owner):
        note_cut_off(part, step)


def _cut_off(run: Run) -> list[tuple[Run, str]]:
    """What has begun, or may have, in the run and its parts, and is not named yet."""
    if run.tenure.body_at_work is not None:
        begun = begun_part(run)
        return [(begun, step)] if (step := cut_off_step(begun)) else []
    return [(each, step) for each in (run, *all_parts(run)) if (step := cut_off_step(each))]


def cut_off_step(run: Run) -> str:
    """The step that has begun, perhaps in a process that died, or failed and would be tried again; '' if none has, or
    if it is named already. Not one that waits for its part, an answer or a unit."""
    if run.tenure.body_at_work is not None:
        return run.tenure.body_at_work[1].name
    goes_forward = run.history.cause is None and run.history.mending is None
    waiting = run.history.open.keys() | run.history.asked
    step = next_step(run.history, waiting, run.ended_units) if goes_forward else None
    if step is None or step.name in waiting:
        return ""
    begun = run.history.begun.get(step.name)
    if begun is not None and begun.cut_off:
        return ""
    return step.name if run.tenure.may_have_run or run.history.attempts[step.name] else ""


def note_cut_off(run: Run, step: str) -> None:
    entry = abort_entry(run, step)
    run.history.add(entry)
    run.services.journal.reconsider(run.lease, entry)


def abort_entry(run: Run, step: str = "") -> Entry:
    now = run.services.clock.now()
    error = {"message": str(Interrupted(step)), "exception_class": qualified_name(Interrupted), "began": True}
    return Entry(
        seq=run.history.next_seq,
        action=Action.ABORT,
        step=step,
        error=error if step else None,
        started_at=now,
        finished_at=now,
    )
