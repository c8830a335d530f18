"""The journal of one execution, folded once and then kept up to date in memory: all that `decide` knows of the past.

1. `run` entries make results stand, in completion order; those with an undo also go on the undo stack.
2. A failure opens a rollback. `compensate` and `undo` entries take things off; what fails is listed and stays listed
   until a later `undo()` or `retry()` tries it again.
3. `retry` closes the rollback. What was listed is mended first (its undo runs again); then every result that was
   undone, or rests on one that was, is forgotten, and what is ready is found anew.
4. A composed child is a part of what its step has done. It is opened by a `dispatch` entry that says `undoable`, and
   closed by the step's `run` entry. A child that failed has rolled itself back; what it could not undo is listed here
   too, under its step. The elements of a map are one child of this kind; a map that failed stays open until they are
   undone.
5. An `admit` entry says that coordination has let the execution in, or the next attempt of a step; or that it has not,
   and the execution is halted or has failed by that.
6. A `pause` entry says that an interrupt was asked, a `resume` entry how it went on. A retry of what failed asks again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import replace

from django_reactor.core.entries import Entry
from django_reactor.core.frontier import Frontier
from django_reactor.core.options import Background
from django_reactor.core.past import Child, Dispatch, FailedStep, Standing
from django_reactor.core.plan import Plan, PlanStep
from django_reactor.core.statuses import Action, EntryOutcome

__all__ = ["FAILURE", "UNDO", "Cause", "History", "fold"]

FAILURE, UNDO = "failure", "undo"
AT_WORK = frozenset({Action.RUN, Action.COMPENSATE, Action.UNDO, Action.DISPATCH, Action.PAUSE, Action.RESUME})
"""Entries that tell of user code."""
Cause = str
"""Why a rollback runs: FAILURE of a step, or UNDO that was asked for."""


class History:
    """See the module. Not thread-safe; one per run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.next_seq = 1
        self.standing: dict[str, Standing] = {}
        self.dispatched: dict[str, Dispatch] = {}
        """Units, by the step that dispatched them. Their outcomes are in their own executions."""
        self.children: dict[str, Child] = {}
        """Composed children that have effects, or may have, by step."""
        self.open: dict[str, Child] = {}
        """Those whose step has not ended, the newest last."""
        self.rollbacks = 0
        """How often a rollback was asked for."""
        self.asked: set[str] = set()
        """Interrupts whose wait is open and whose function has run."""
        self.undo_stack: list[str] = []
        self.attempts: Counter[str] = Counter()
        self.rolled_back: Counter[str] = Counter()
        """Executed (not skipped) compensations and undos of each step so far, for its idempotency key."""
        self.failed: FailedStep | None = None
        self.cause: Cause | None = None
        self.begun: dict[str, FailedStep] = {}
        """Steps whose body began and came to nothing so far: cut off, or between two attempts."""
        self.owed: list[FailedStep] = []
        """What a rollback still has to compensate; the next one is last."""
        self.listed: dict[tuple[str, Action], Entry] = {}
        """Compensations and undos that failed and still stand, in the order in which they were tried."""
        self.to_mend: list[tuple[str, Action]] = []
        """What a retry must undo again before anything runs forward; the next one is last."""
        self.halt_reason: str | None = None
        self.admitted: dict[str, str | None] = {}
        """Whom coordination has let in: '' for the execution, a step for its next attempt. And what the entry says."""
        self.has_begun = False
        """Whether any user code has run, as far as the journal knows."""
        self.interrupted = False
        """Whether a process was ever interrupted in it."""
        self.handed_off = False
        """Whether its caller has handed it to a worker, or it was taken up past the point: that happens once."""
        self.delay: float = 0.0
        """Seconds that the last entry asks to wait before the next attempt; 0 once folded from the store."""
        self._failed_steps: dict[str, FailedStep] = {}
        self.keeps_all = False
        """Whether the last retry only went on from an interruption."""
        self._undone: dict[str, Standing] = {}
        self._forgotten: set[str] = set()
        """Units that are to be dispatched anew."""
        self._aborted = False
        self._frontier = Frontier(plan)
        self._frontier.begin()

    # -- what decide asks ------------------------------------------------------------------------------------------

    @property
    def next_ready(self) -> PlanStep | None:
        return self._frontier.first(self.done())

    @property
    def next_unasked(self) -> PlanStep | None:
        """The next ready step, past the interrupts that have been asked and only wait."""
        step = self.next_ready
        if step is None or step.name not in self.asked:
            return step
        return next((step for step in self.all_ready() if step.name not in self.asked), None)

    def all_ready(self) -> list[PlanStep]:
        return self._frontier.all(self.done())

    def done(self) -> Container[str]:
        """Steps whose results stand, and units that were started."""
        return self.standing.keys() | self.dispatched.keys() if self.dispatched else self.standing

    @property
    def mending(self) -> tuple[str, Action] | None:
        return self.to_mend[-1] if self.to_mend else None

    def last_result(self, step: str) -> Standing:
        """The result that stands, or that was undone last: an undo that is tried again may still need it."""
        return self.standing.get(step) or self._undone[step]

    def failure_of(self, step: str) -> FailedStep:
        """The failure that a compensation of this step gets."""
        return self._failed_steps[step]

    # -- adding entries --------------------------------------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        self.next_seq = entry.seq + 1
        self.delay = 0.0
        if not self.has_begun:
            self.has_begun = entry.action in AT_WORK or (entry.action is Action.ABORT and entry.step != "")
        self._carry_in(entry)
        self._aborted = entry.action is Action.ABORT

    def _carry_in(self, entry: Entry) -> None:
        match entry.action:
            case Action.RUN | Action.RESUME:
                self._add_run(entry)
            case Action.ADMIT:
                self._admit(entry)
            case Action.PAUSE:
                self._ask(entry)
            case Action.COMPENSATE:
                self._add_compensation(entry)
            case Action.UNDO:
                self._add_undo(entry)
            case Action.ABORT:
                self.interrupted = True
                self._cut_off(entry)
            case Action.ROLLBACK:
                self.rollbacks += 1
                self._begin_rollback(UNDO)
            case Action.RETRY if entry.value is not None:
                self._forget_units(json.loads(entry.value))
            case Action.RETRY:
                self._begin_again()
            case Action.DISPATCH if entry.undoable:
                self._open(entry)
            case Action.DISPATCH:
                self._dispatch(entry)
            case Action.HAND_OFF:
                self.handed_off = True
            case _:
                pass

    def _admit(self, entry: Entry) -> None:
        match entry.outcome:
            case EntryOutcome.SUCCESS:
                self.admitted[entry.step] = entry.value
            case EntryOutcome.HALTED:
                self.halt_reason = entry.reason
            case EntryOutcome.FAILURE:
                self._fail(entry)
            case _:
                pass

    def _ask(self, entry: Entry) -> None:
        self.begun.pop(entry.step, None)
        self.asked.add(entry.step)

    def _add_run(self, entry: Entry) -> None:
        if self.admitted:
            self.admitted.pop(entry.step, None)
        if entry.outcome is not EntryOutcome.RETRYING:
            self.begun.pop(entry.step, None)
        match entry.outcome:
            case EntryOutcome.SUCCESS | EntryOutcome.SKIPPED:
                self._stand(entry)
            case EntryOutcome.RETRYING:
                self.attempts[entry.step] = entry.attempt
                self._begin(entry)
                self.delay = float((entry.error or {}).get("retry_in", 0.0))
            case EntryOutcome.HALTED:
                self.halt_reason = entry.reason
            case EntryOutcome.FAILURE:
                self._fail(entry)
            case _:
                pass

    def _stand(self, entry: Entry) -> None:
        name = entry.step
        self.attempts.pop(name, None)
        self._undone.pop(name, None)
        self._forgotten.discard(name)
        self.open.pop(name, None)
        result = self.standing[name] = Standing.of(entry, self.rolled_back[name])
        if result.undoable:
            self.undo_stack.append(name)
        self._frontier.done(name)

    def _dispatch(self, entry: Entry) -> None:
        self._forgotten.discard(entry.step)
        self.dispatched[entry.step] = Dispatch.of(entry)
        self._frontier.done(entry.step)

    def _open(self, entry: Entry) -> None:
        self.children[entry.step] = self.open[entry.step] = Child.of(entry)

    def _fail(self, entry: Entry) -> None:
        self.failed = self._failed(entry)
        if entry.step in self.children and not entry.undoable:
            self._close_failed_child(entry)
        # Another step may have begun too, if a newer definition put this one before it: it will not run again either.
        self.owed = list(reversed(self.begun.values()))
        self.begun = {}
        if self.failed.began:
            self.owed.append(self.failed)
        self.cause = FAILURE

    def _close_failed_child(self, entry: Entry) -> None:
        """It has rolled itself back."""
        self.open.pop(entry.step, None)
        if (entry.error or {}).get("rollback_failures"):
            self.listed[entry.step, Action.UNDO] = entry
        else:
            del self.children[entry.step]

    def _failed(self, entry: Entry, *, cut_off: bool = False) -> FailedStep:
        failed = self._failed_steps[entry.step] = FailedStep.of(entry, self.rolled_back[entry.step], cut_off=cut_off)
        return failed

    def _begin(self, entry: Entry, *, cut_off: bool = False) -> None:
        self.begun[entry.step] = self._failed(entry, cut_off=cut_off)

    def _cut_off(self, entry: Entry) -> None:
        """Its process was interrupted or died in this step. Inside a rollback the rollback goes on by itself."""
        if self.cause is not None or not entry.step or entry.step in self.standing:
            return
        self._begin(entry, cut_off=True)

    def _begin_rollback(self, cause: Cause) -> None:
        """`undo()`: what was listed is tried again, and a step that began counts as failed."""
        self.cause = cause
        self.to_mend = []
        self.undo_stack = [name for name, result in self.standing.items() if result.undoable]
        self.open |= {s: self.children[s] for s, a in self.listed if a is Action.UNDO and s not in self.standing}
        listed = [replace(self._failed_steps[s], listed=True) for s, a in self.listed if a is Action.COMPENSATE]
        again = {failed.step for failed in listed}
        self.owed = [*(failed for failed in self.owed if failed.step not in again), *reversed(listed)]
        self.owed += reversed(self.begun.values())
        self.begun = {}
        self.listed = {}

    def _add_compensation(self, entry: Entry) -> None:
        self._count(entry)
        self.owed = [failed for failed in self.owed if failed.step != entry.step]
        if self._settle(entry):
            self._forget_stale_once_mended()

    def _add_undo(self, entry: Entry) -> None:
        self._count(entry)
        if self.undo_stack and self.undo_stack[-1] == entry.step:  # while mending it holds nothing
            self.undo_stack.pop()
        if entry.step in self.children:
            self._undo_child(entry)
        if self._settle(entry):
            if (result := self.standing.pop(entry.step, None)) is not None:
                self._undone[entry.step] = result
            self._forget_stale_once_mended()

    def _undo_child(self, entry: Entry) -> None:
        self.open.pop(entry.step, None)
        child = self.children.pop(entry.step)
        if entry.outcome is EntryOutcome.FAILURE:
            self.children[entry.step] = replace(child, undos=child.undos + 1)

    def _count(self, entry: Entry) -> None:
        if entry.outcome is not EntryOutcome.SKIPPED:
            self.rolled_back[entry.step] += 1

    def _settle(self, entry: Entry) -> bool:
        """Note whether an undo or a compensation succeeded; True if it did."""
        key = (entry.step, entry.action)
        if key in self.to_mend:
            self.to_mend.remove(key)
        if entry.outcome is not EntryOutcome.FAILURE:
            self.listed.pop(key, None)
            return True
        self.listed[key] = entry
        if self.cause is None:  # a retry could not mend it: the execution fails again, with the same list
            self.cause = FAILURE
            self.owed = []
            self.undo_stack = []
        return False

    def _forget_units(self, steps: Iterable[str]) -> None:
        """Units that came to nothing are dispatched anew by a retry, and what rests on them runs again, once what could
        not be undone is mended."""
        self._forgotten.update(steps)
        self._forget_stale_once_mended()

    def _begin_again(self) -> None:
        """`retry()`. An interrupted execution goes on where it stopped, also inside its rollback."""
        self.keeps_all = self._aborted
        if self.keeps_all:
            return
        self.halt_reason = None
        self.failed = None
        self.cause = None
        self.owed = []
        self.asked.clear()
        self.attempts.clear()
        self.to_mend = list(reversed(self.listed))
        self._forget_stale_once_mended()

    def _forget_stale_once_mended(self) -> None:
        """Drop the results that rest on something undone. A dependency that a newer definition added, and that never
        ran, makes no result stale."""
        if self.cause is not None or self.to_mend:
            return
        for unit in self._forgotten:
            self.dispatched.pop(unit, None)
        gone = [*self._undone, *self._forgotten]
        while gone:
            for reader in self.plan.dependents.get(gone.pop(), ()):
                if self.dispatched.pop(reader.name, None) is not None:
                    gone.append(reader.name)
                if (result := self.standing.pop(reader.name, None)) is not None:
                    self._undone[reader.name] = result
                    gone.append(reader.name)
        self.undo_stack = [name for name, result in self.standing.items() if result.undoable]
        self._frontier.reset(self.standing.keys() | self.dispatched.keys())


def fold(plan: Plan, entries: Iterable[Entry]) -> History:
    history, point = History(plan), plan.background
    for entry in entries:
        history.add(entry)
        history.handed_off = history.handed_off or (point is not None and _is_past(point, entry))
    history.delay = 0.0  # whoever loads an execution does so when it is due
    return history


def _is_past(point: Background, entry: Entry) -> bool:
    """Whether an execution with this entry has its hand-off behind it, also one that was enqueued."""
    if point.is_everything:
        return True
    if point.before is not None:
        return entry.step == point.before
    ran = entry.action is Action.RUN and entry.outcome in (EntryOutcome.SUCCESS, EntryOutcome.SKIPPED)
    return entry.step == point.after and (ran or (entry.action is Action.DISPATCH and not entry.undoable))
