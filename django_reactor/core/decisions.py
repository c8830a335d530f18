"""What to do next: one pure function from plan, history and facts to a decision.

1. A stop that was asked for comes before everything but a rollback that has begun.
   Before any user code runs, forward or backward, what the execution coordinates by must be had.
2. A rollback goes on: the failed step's compensation, then the undos, newest first, a composed child that is open
   or a map, before all of them; then it ends.
3. After a retry, what could not be undone before is undone first.
4. A halt ends the execution; what its maps have not begun is withdrawn first. So it is where the last step has run, and
   something is open of one that is declared no more.
5. At the point that `Meta.background` names, its caller hands the execution to a worker, once: whoever takes it up past
   that point keeps it. So it does when a map has begun to fan out, and something else can be done meanwhile.
6. Otherwise the first ready step in declaration order runs, or is dispatched if it is a unit: readers of units after
   all others, and interrupts last, unless those readers have to wait. When all stand, the execution completes.
7. A composed child decides for itself, by the same function. While nothing in it can go on, its step counts as blocked,
   and the others come first.
8. An interrupt that has its answer goes on; one that was not asked yet is asked; when all that are ready wait, the
   execution pauses, also if a unit is waited for too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from uuid import UUID

from django_reactor.core.history import UNDO, History
from django_reactor.core.past import Child, Dispatch, FailedStep, Standing
from django_reactor.core.plan import Kind, Plan, PlanStep
from django_reactor.core.statuses import Action, Status, Stop
from django_reactor.core.waits import Wait, WaitState
from django_reactor.exceptions import InternalError

__all__ = [
    "ApplyAnswer",
    "Ask",
    "AwaitChild",
    "AwaitMap",
    "AwaitUnit",
    "Backoff",
    "Compensate",
    "Compose",
    "Decision",
    "DispatchUnit",
    "Enter",
    "Facts",
    "Finish",
    "HandOff",
    "LookAtWaits",
    "ObeyStop",
    "Pause",
    "RunMap",
    "RunStep",
    "Undo",
    "UndoChild",
    "Withdraw",
    "decide",
    "next_step",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the rows say now, beside the journal."""

    stop: Stop = Stop.NONE
    entered: bool = True
    """Whether its locks and semaphores, and those around it, are held here, and good by the local clock."""
    rolling_back: bool = False
    """Whether the row says so: then a stop comes too late."""
    in_worker: bool = False
    ended_units: frozenset[str] = frozenset()
    """Steps whose units are known to have ended."""
    blocked: frozenset[str] = frozenset()
    """Steps whose children cannot go on before something else happens."""
    fans_out: bool = False
    """Whether elements of a map run in workers."""
    withdrawn: bool = False
    """Whether the elements of open maps were told that no other will begin."""
    waits: Mapping[str, Wait] | None = None
    """By step. None: nobody has looked yet."""


@dataclass(frozen=True, slots=True)
class RunStep:
    step: PlanStep
    attempt: int


@dataclass(frozen=True, slots=True)
class Backoff:
    """The next attempt of this step is due in so many seconds."""

    step: PlanStep
    delay: float


@dataclass(frozen=True, slots=True)
class HandOff:
    """A worker does the rest."""


@dataclass(frozen=True, slots=True)
class Enter:
    """Ask for admission if that has not been given, and take locks and semaphores."""


@dataclass(frozen=True, slots=True)
class DispatchUnit:
    """Start this step as an execution of its own."""

    step: PlanStep


@dataclass(frozen=True, slots=True)
class Compose:
    """Open the child of this step, or let it go on."""

    step: PlanStep


@dataclass(frozen=True, slots=True)
class RunMap:
    """Store the elements of this map, or let the next one go on here, or see whether those in workers have ended."""

    step: PlanStep


@dataclass(frozen=True, slots=True)
class AwaitMap:
    """Nothing of this map can be done before its elements in workers have settled."""

    map_id: UUID


@dataclass(frozen=True, slots=True)
class AwaitChild:
    """Nothing else is ready than this step, and its child is blocked."""

    step: str


@dataclass(frozen=True, slots=True)
class AwaitUnit:
    """Nothing else is ready than this step, and the unit that it reads is not known to have ended."""

    step: PlanStep
    unit: Dispatch


@dataclass(frozen=True, slots=True)
class LookAtWaits:
    """Decide again, with the waits among the facts."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Open the wait of this interrupt, and run its function."""

    step: PlanStep


@dataclass(frozen=True, slots=True)
class ApplyAnswer:
    """This interrupt goes on, with its payload or by failing."""

    step: PlanStep
    wait: Wait


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing else is ready than interrupts that have all been asked, and none has an answer; and perhaps a reader of
    this unit, which is not known to have ended."""

    waits: tuple[Wait, ...]
    unit: Dispatch | None = None


@dataclass(frozen=True, slots=True)
class Compensate:
    """Compensate this failure. `step` is None when its compensation is declared no more, but was owed."""

    step: PlanStep | None
    failed: FailedStep


@dataclass(frozen=True, slots=True)
class Undo:
    """Undo this result. `step` is None when its undo is declared no more: that is listed, never ignored."""

    result: Standing
    step: PlanStep | None


@dataclass(frozen=True, slots=True)
class UndoChild:
    """Let this child undo what it has done."""

    child: Child


@dataclass(frozen=True, slots=True)
class ObeyStop:
    """End as cancelled, or begin a rollback."""

    stop: Stop


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Let nothing of open maps begin any more: the execution is about to end without their results."""


@dataclass(frozen=True, slots=True)
class Finish:
    status: Status


Decision = (
    RunStep
    | Compose
    | Enter
    | RunMap
    | AwaitMap
    | DispatchUnit
    | AwaitUnit
    | AwaitChild
    | LookAtWaits
    | Ask
    | ApplyAnswer
    | Pause
    | Backoff
    | HandOff
    | Compensate
    | Undo
    | UndoChild
    | ObeyStop
    | Withdraw
    | Finish
)

NO_FACTS = Facts()
RUNS_USER_CODE = (RunStep, Compose, RunMap, DispatchUnit, Ask, Compensate, Undo, UndoChild)


def decide(plan: Plan, history: History, facts: Facts = NO_FACTS) -> Decision:
    decision = _decide(plan, history, facts)
    return decision if facts.entered or not isinstance(decision, RUNS_USER_CODE) else Enter()


def _decide(plan: Plan, history: History, facts: Facts) -> Decision:
    if facts.stop and not facts.rolling_back:
        return ObeyStop(facts.stop)
    if history.cause is not None:
        return _roll_back(plan.by_name, history, facts)
    if history.mending is not None:
        return _mend(plan.by_name, history, facts, *history.mending)
    if history.halt_reason is not None:
        return _finish(Status.HALTED, history, facts)
    return _go_forward(plan, history, facts)


def _finish(status: Status, history: History, facts: Facts) -> Decision:
    return Withdraw() if history.open and not facts.withdrawn else Finish(status)


def _go_forward(plan: Plan, history: History, facts: Facts) -> Decision:
    step = next_step(history, facts.blocked, facts.ended_units)
    if step is None:
        done = history.standing.keys() | history.dispatched.keys()
        if missing := [s.name for s in plan.steps if s.name not in done]:
            raise InternalError(f"no step is ready but {', '.join(missing)} did not run")
        return _finish(Status.COMPLETED, history, facts)
    if not facts.in_worker and _is_hand_off_point(plan, history, facts, step):
        return HandOff()
    if (unit := _open_unit(history, facts.ended_units, step)) is not None:
        return AwaitUnit(step, unit)
    if step.kind.is_unit:
        return DispatchUnit(step)
    if step.name in facts.blocked:
        return AwaitChild(step.name)
    if step.kind is Kind.COMPOSE:
        return Compose(step)
    if step.kind is Kind.MAP:
        return RunMap(step)
    if step.kind is Kind.INTERRUPT:
        return _go_on_with_interrupts(plan, history, facts)
    if history.delay:
        return Backoff(step, history.delay)
    return RunStep(step, history.attempts[step.name] + 1)


def next_step(history: History, blocked: Set[str] = frozenset(), ended: Set[str] = frozenset()) -> PlanStep | None:
    """Of those that are ready, those that read units come last, in their order, also when the units have ended: after
    a crash the journal alone must tell which step had begun. Only interrupts come before a reader that has to wait."""
    step = history.next_ready
    if step is None or not (history.dispatched or blocked):
        return step
    ready = [each for each in history.all_ready() if each.name not in blocked] or [step]
    others = [each for each in ready if each.kind is not Kind.INTERRUPT]
    reader = others[0] if others else None
    for each in others:
        if not any(_units_read(history, each)):
            return each
    if reader is not None and _open_unit(history, ended, reader) is None:
        return reader
    interrupts = (each for each in ready if each.kind is Kind.INTERRUPT)
    return next((each for each in interrupts if _open_unit(history, ended, each) is None), ready[0])


def _go_on_with_interrupts(plan: Plan, history: History, facts: Facts) -> Decision:
    """Once nothing else is ready."""
    if facts.waits is None:
        return LookAtWaits()
    units = {step.name: _open_unit(history, facts.ended_units, step) for step in history.all_ready()}
    ready = [step for step in history.all_ready() if step.kind is Kind.INTERRUPT and units[step.name] is None]
    waits = [facts.waits.get(step.name) for step in ready]
    for step, wait in zip(ready, waits, strict=True):
        if wait is not None and wait.is_answered:
            return ApplyAnswer(step, wait)
    for step, wait in zip(ready, waits, strict=True):
        if wait is None or wait.state is not WaitState.OPEN or step.name not in history.asked:
            return Ask(step)
    unit = next((unit for unit in units.values() if unit is not None), None)
    return Pause(tuple(wait for wait in waits if wait is not None), unit)


def _open_unit(history: History, ended: Set[str], step: PlanStep) -> Dispatch | None:
    """The first unit that the step reads and that is not known to have ended. An order without data waits for none."""
    return next((unit for unit in _units_read(history, step) if unit.step not in ended), None)


def _units_read(history: History, step: PlanStep) -> Iterator[Dispatch]:
    """What has read its units already does not wait for them again."""
    if not history.dispatched or step.name in history.open or step.name in history.asked:
        return
    for source in (*step.sources.values(), *step.correlation_sources.values()):
        unit = None if source.is_input else history.dispatched.get(source.name)
        if unit is not None:
            yield unit


def _is_hand_off_point(plan: Plan, history: History, facts: Facts, following: PlanStep) -> bool:
    if facts.fans_out:
        return following.name not in facts.blocked and following.name not in history.open
    point = plan.background
    if point is None or history.handed_off:
        return False
    if point.before is not None:
        return following.name == point.before
    return point.after is None or point.after in history.done()


def _roll_back(by_name: Mapping[str, PlanStep], history: History, facts: Facts) -> Decision:
    for failed in reversed(history.owed):
        step = _compensating(by_name, failed.step)
        if step is not None or failed.listed:
            return Compensate(step, failed)
    if history.open:
        return _undo(by_name, history, facts, next(reversed(history.open)))
    if history.undo_stack:
        return _undo(by_name, history, facts, history.undo_stack[-1])
    undone = history.cause == UNDO and not history.listed
    return Finish(Status.UNDONE if undone else Status.FAILED)


def _mend(by_name: Mapping[str, PlanStep], history: History, facts: Facts, name: str, action: Action) -> Decision:
    if action is Action.COMPENSATE:
        return Compensate(_compensating(by_name, name), history.failure_of(name))
    return _undo(by_name, history, facts, name)


def _compensating(by_name: Mapping[str, PlanStep], name: str) -> PlanStep | None:
    step = by_name.get(name)
    return step if step is not None and step.compensates else None


def _undo(by_name: Mapping[str, PlanStep], history: History, facts: Facts, name: str) -> Decision:
    if name in history.children:
        return AwaitChild(name) if name in facts.blocked else UndoChild(history.children[name])
    step = by_name.get(name)
    return Undo(history.standing[name], step if step is not None and step.undoable else None)
