"""Where an execution asks for coordination: as a whole, and at the step that it runs, waits at or undoes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from django.db.models import Case, F, Q, TextField, Value, When

from django_reactor.core.entries import Entry
from django_reactor.core.history import History, fold
from django_reactor.core.keys import key_names
from django_reactor.core.options import Coordination
from django_reactor.core.plan import Definition, Plan, PlanStep
from django_reactor.core.statuses import FORWARD, Action, EntryOutcome, Relation, Status
from django_reactor.core.targets import resolve_target
from django_reactor.engine.units import definition_of_unit
from django_reactor.exceptions import DefinitionError
from django_reactor.journal.orm import alias
from django_reactor.models import Execution, JournalEntry
from django_reactor.runtime import services

__all__ = ["Level", "levels_of"]

NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""When entries were made says nothing of how it goes on."""
UNREAD = Value(None, output_field=TextField())
WITH_VALUES = (Action.DISPATCH, Action.RETRY)
"""Entries whose values (ids, names of steps) say how it goes on; those of all others may be large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """`step` is '' for the whole execution. `values` are what its keys may name."""

    step: str
    coordination: Coordination
    values: Mapping[str, Any]


def levels_of(execution: Execution, definition: Definition) -> list[Level]:
    """Those that declare anything. Without such a declaration, no query; for the step, two at most, beside those of the
    objects that its keys name."""
    unit = definition
    if execution.relation == Relation.ASYNC_STEP:
        found = definition_of_unit(definition, execution.parent_step)
        if found is None:
            return []
        unit = found
    inputs = services().new_codec().decode_arguments
    levels = []
    if unit.coordination:
        levels.append(Level(step="", coordination=unit.coordination, values=inputs(execution.inputs)))
    if _may_be_at_a_step(execution, unit):
        levels.extend(_level_of_step(execution, unit))
    return levels


def _may_be_at_a_step(execution: Execution, definition: Definition) -> bool:
    if execution.status not in FORWARD and execution.status != Status.ROLLING_BACK:
        return False
    return any(_resolved(step).coordination for step in definition.plan.steps)


def _resolved(step: PlanStep) -> PlanStep:
    try:
        return resolve_target(step)
    except DefinitionError:
        return step


def _level_of_step(execution: Execution, definition: Definition) -> Iterator[Level]:
    history = fold(definition.plan, _entries_of(execution))
    step, coordination = _current(definition, history)
    if step is not None and coordination:
        yield Level(step=step.name, coordination=coordination, values=_Known(execution, history, step, coordination))


def _current(definition: Definition, history: History) -> tuple[PlanStep | None, Coordination]:
    """A rollback asks for what is held, no more."""
    if history.cause is None and history.mending is None:
        found = history.next_unasked
        step = None if found is None else _resolved(found)
        return step, step.coordination if step else Coordination()
    name = history.mending[0] if history.mending else _to_be_undone(definition.plan, history)
    found = definition.plan.by_name.get(name)
    step = None if found is None else _resolved(found)
    return step, step.coordination.holds_only() if step else Coordination()


def _to_be_undone(plan: Plan, history: History) -> str:
    """The next one in the rollback: what began is compensated first."""
    compensating = (plan.by_name[each.step] for each in reversed(history.owed) if each.step in plan.by_name)
    first = next((step.name for step in compensating if step.compensates), None)
    return first or (history.undo_stack[-1] if history.undo_stack else "")


def _entries_of(execution: Execution) -> Iterator[Entry]:
    """Without what may be large and says nothing of how it goes on."""
    values = Case(When(action__in=WITH_VALUES, then=F("value")), default=UNREAD, output_field=TextField())
    errors = Case(When(outcome=EntryOutcome.FAILURE, then=F("error")), default=UNREAD, output_field=TextField())
    rows = JournalEntry.objects.using(alias()).filter(execution=execution.pk).annotate(short=values, failed_by=errors)
    columns = ("seq", "action", "step", "outcome", "attempt", "undoable", "short", "failed_by")
    for seq, action, step, outcome, attempt, undoable, value, error in rows.order_by("seq").values_list(*columns):
        yield Entry(
            seq=seq,
            action=Action(action),
            step=step,
            outcome=EntryOutcome(outcome),
            attempt=attempt,
            undoable=undoable,
            value=value,
            error=None if error is None else json.loads(error),
            started_at=NO_TIME,
            finished_at=NO_TIME,
        )


class _Known(Mapping[str, Any]):
    """What the keys of a step may name, as far as it is stored: results, inputs, and what its attempts were given.

    What a function makes for a Step class is not known before the step's first attempt has ended."""

    def __init__(self, execution: Execution, history: History, step: PlanStep, coordination: Coordination) -> None:
        self._codec, self._step, self._execution = services().new_codec(), step, execution
        self._texts, arguments = _stored(execution, history, step, _names_in(coordination))
        self._arguments: Mapping[str, Any] = {} if arguments is None else self._codec.decode_arguments(arguments)
        self._inputs = self._codec.decode_arguments(execution.inputs)

    def __getitem__(self, name: str) -> Any:
        target = self._step.step_target
        if name in self._arguments:
            return self._arguments[name]
        if target is not None and self._step.body is not None:
            raise LookupError("what a function makes for the step is known once an attempt has ended")
        source = self._step.sources.get(name)
        if source is not None and not source.is_input:
            return self._result(source.name)
        own = name if source is None else source.name
        if own in self._inputs:
            return self._inputs[own]
        return self._surroundings[own] if target is None else target.contract.default(name)

    def _result(self, step: str) -> Any:
        if step not in self._texts:
            raise LookupError(f"there is no result of {step!r}")
        return self._codec.decode(self._texts[step])

    @cached_property
    def _surroundings(self) -> Mapping[str, Any]:
        """What `self` shows to an `async_step` beside its own inputs: those of the execution that has dispatched it."""
        if self._execution.relation != Relation.ASYNC_STEP:
            return {}
        parents = Execution.objects.using(alias()).filter(children=self._execution.pk)
        found: Mapping[str, Any] = self._codec.decode_arguments(
            parents.values_list("inputs", flat=True).first() or "{}"
        )
        return found

    def __iter__(self) -> Iterator[str]:
        return iter({*self._inputs, *self._arguments, *self._step.sources})

    def __len__(self) -> int:
        return len({*self._inputs, *self._arguments, *self._step.sources})


def _names_in(coordination: Coordination) -> set[str]:
    primitives: Iterable[Any] = (
        *coordination.ordered_lock,
        *coordination.period,
        *coordination.rate_limit,
        *coordination.lock,
        *coordination.semaphore,
    )
    return {name for each in primitives for name in key_names(each.key, "the key")}


def _stored(
    execution: Execution, history: History, step: PlanStep, names: set[str]
) -> tuple[Mapping[str, str], str | None]:
    """The results that these names stand for, and what the last attempt was given."""
    sources = [step.sources[name].name for name in names if name in step.sources and not step.sources[name].is_input]
    results = [history.standing[name].seq for name in sources if name in history.standing]
    attempts = Q(step=step.name, action=Action.RUN, arguments__isnull=False)
    entries = JournalEntry.objects.using(alias()).filter(Q(seq__in=results) | attempts, execution=execution.pk)
    texts: dict[str, str] = {}
    arguments: str | None = None
    for seq, name, value, given in entries.order_by("seq").values_list("seq", "step", "value", "arguments"):
        if seq in results and value is not None:
            texts[name] = value
        if name == step.name:
            arguments = given
    return texts, arguments
