"""Store the elements of a map: its source is read once, and nothing starts before it is stored whole (PROTOCOL 5).

1. The step's function gives the source: any iterable of dicts. It is read in chunks, by user code, outside of our
   transactions. Each element is validated and encoded there.
2. Each chunk is stored in one transaction. No more than one of them is in memory. Where a database cannot write while
   a query is read, they are all read first, and kept on disk.
3. What goes wrong in the source fails the step before anything has begun: what was stored is discarded. Inputs that the
   target refuses do that too in a map that fails fast; otherwise they fail their element alone.
4. The map is opened, and journaled, in one transaction. A process that dies before that leaves a map that is loading:
   the next runner discards it, whatever it goes on with, and reads the source again if that is what comes next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from django_reactor.core.decisions import Decision
from django_reactor.core.entries import Entry
from django_reactor.core.options import Coordination
from django_reactor.core.outcomes import Failed, Snoozed, Succeeded
from django_reactor.core.plan import Definition, PlanStep
from django_reactor.core.redaction import Redactor
from django_reactor.core.statuses import Action, Relation
from django_reactor.core.targets import definition_of_target
from django_reactor.engine.bodies import Ended, call, keeps_writes
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.demands import orders_of
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.failures import describe
from django_reactor.engine.guards import check_dispatch
from django_reactor.engine.identifiers import uuid7
from django_reactor.engine.lines import draw
from django_reactor.engine.map_ports import CHUNK, Kinship, MapKey, MapRecord, NewElement, NewMap
from django_reactor.engine.performing import with_carried
from django_reactor.engine.ports import Scope
from django_reactor.engine.recording import next_decision, reconsider, record, recorded
from django_reactor.engine.run import Run
from django_reactor.engine.spooled import Source, Spooled
from django_reactor.engine.step_bodies import call_function, finished, not_started, resolve
from django_reactor.engine.steps import run_entry
from django_reactor.engine.withdrawing import discard
from django_reactor.exceptions import ArgumentError, ExecutionError, InputError, SerializationError

__all__ = ["load"]

CHUNK_BYTES = 1_000_000
"""No chunk grows after its inputs have so many bytes."""


def load(run: Run, step: PlanStep) -> Decision | Snoozed:
    run.notice("step_started", step=step.name, attempt=1)
    started = run.services.clock.now()
    source: Source = _Source(run, step)
    if not run.services.maps.reads_beside_writes:
        source = Spooled(source)
    elements = source.read()
    try:
        if isinstance(elements, Ended):
            return _not_opened(run, step, elements, started)
        run.services.journal.flush()
        run.tenure.stored = True
        run.tenure.keep(run.services.leases)
        loading = _begun(run, step)
        kinship = _kinship(run, source.target, loading)
        while True:
            _add(run, loading, kinship, source.target, elements)
            reached(CrashPoint.LOADED)
            if source.is_exhausted:
                return _opened(run, step, loading, source.count)
            elements = source.read()
            if isinstance(elements, Ended):
                discard(run, loading)
                return _not_opened(run, step, elements, started)
    except Refused:
        return reconsider(run, None)


def _add(run: Run, loading: MapRecord, kinship: Kinship, target: Definition, elements: Sequence[NewElement]) -> None:
    """With their places in lines, in their order, where each is an execution of its own."""
    step, coordination = _coordination_of(target)
    if loading.fan_out is None or not coordination.ordered_lock:
        run.services.maps.add(run.lease, loading, kinship, elements)
        return
    lines = [
        (element.id, orders_of(coordination, run.codec.decode_arguments(element.inputs), target.label))
        for element in elements
        if element.failure is None
    ]

    def statements() -> None:
        run.services.maps.add(run.lease, loading, kinship, elements)
        for execution_id, orders in lines:
            draw(run.services, orders, execution_id, step)

    run.services.transactions.carried_out(statements)


def _coordination_of(target: Definition) -> tuple[str, Coordination]:
    """Of a reactor; or of the only step of a Step class, and its name."""
    if not hasattr(target.cls, "__step__"):
        return "", target.coordination
    only = target.plan.steps[0]
    return only.name, only.coordination


def _begun(run: Run, step: PlanStep) -> MapRecord:
    """A new map, in the place of one that was never opened."""
    fan_out = None if _is_inside_element(run) else step.fan_out
    key = MapKey(run.id, step.name, run.record.generation)
    while True:
        new = NewMap(id=uuid7(), key=key, fan_out=fan_out, fail_fast=step.fail_fast)
        loading = run.services.maps.begin(run.lease, new)
        if loading.id == new.id:
            return loading
        discard(run, loading)


def _is_inside_element(run: Run | None) -> bool:
    """Then its own elements run where it runs: a window inside each element of a window would be no window."""
    while run is not None:
        if run.record.relation is Relation.ELEMENT:
            return True
        run = run.whole
    return False


def _kinship(run: Run, target: Definition, loading: MapRecord) -> Kinship:
    return Kinship(
        root_id=run.record.root_id,
        owner_id=run.lease.owner if loading.fan_out is None else None,
        reactor=target.label,
        fingerprint=target.plan.fingerprint,
        carried=run.record.carried,
        tags=run.record.tags,
        queue_name=target.queue_name or run.record.queue_name,
        priority=run.record.priority,
    )


def _not_opened(run: Run, step: PlanStep, ended: Ended, started: datetime) -> Decision | Snoozed:
    if isinstance(ended.outcome, Snoozed):
        return ended.outcome
    return record(run, run_entry(run, step, 1, ended, started))


def _opened(run: Run, step: PlanStep, loading: MapRecord, total: int) -> Decision:
    now = run.services.clock.now()
    entry = Entry(
        seq=run.history.next_seq,
        action=Action.DISPATCH,
        step=step.name,
        value=loading.waiting_for,
        undoable=True,
        started_at=now,
        finished_at=now,
    )
    messages = run.services.maps.open(run.lease, loading, total, entry)
    run.history.add(entry)
    run.maps.pop(step.name, None)  # of an earlier generation, which was undone before this one
    run.elements.pop(step.name, None)
    run.tenure.fans_out |= loading.fan_out is not None
    reached(CrashPoint.DISPATCHED)
    for message in messages:
        run.services.messenger.send(message)
    return recorded(run, entry, next_decision(run))


class _Source:
    """What the step's function gives, read in chunks. `count` is how many elements it has given."""

    def __init__(self, run: Run, step: PlanStep) -> None:
        self.target = definition_of_target(step.target)
        self.count = 0
        self.is_exhausted = False
        self._run, self._step = run, step
        self._items: Iterator[Any] | None = None

    def read(self) -> list[NewElement] | Ended:
        """The next chunk; or how it ended instead: it failed, was skipped, halted or snoozed."""
        self._run.services.leases.check(self._run.tenure.lease)
        body = with_carried(self._run, self._read)
        with self._run.services.transactions.around_body() as scope:
            ended = body(scope)
            if not keeps_writes(ended.outcome):
                scope.roll_back()
        outcome = ended.outcome
        return outcome.value if isinstance(outcome, Succeeded) else ended

    def _read(self, scope: Scope) -> Ended:
        if self._items is None:
            ended = self._begin(scope)
            if not isinstance(ended.outcome, Succeeded):
                return ended
            try:
                self._items = _items_of(self._step, ended.outcome.value)
            except ArgumentError as error:
                return not_started(error)
        items = self._items
        outcome, raised = call(lambda: self._chunk(items), scope)
        if isinstance(outcome, Failed):
            return not_started(outcome.error)
        ended = Ended(outcome=outcome, raised=raised)
        return ended if isinstance(outcome, Succeeded) else finished(self._run, self._step, ended)

    def _begin(self, scope: Scope) -> Ended:
        run, step = self._run, self._step
        try:
            inputs = run.inputs()
            arguments = {name: resolve(run, inputs, step, name) for name in step.sources}
        except ExecutionError as error:
            return not_started(error)
        assert step.body is not None  # a map is declared with a function
        key = run.idempotency_key(step.name, run.history.rolled_back[step.name])
        ended = call_function(run, step.body, arguments, run.context(step.name, 1, key), scope)
        if isinstance(ended.outcome, Failed):
            return not_started(ended.outcome.error)
        return ended if isinstance(ended.outcome, Succeeded) else finished(run, step, ended)

    def _chunk(self, items: Iterator[Any]) -> list[NewElement]:
        codec = self._run.services.new_codec()  # one for each chunk: it keeps the model instances that it has met
        elements: list[NewElement] = []
        size = 0
        for item in items:
            element = self._element(item, codec)
            elements.append(element)
            size += len(element.inputs)
            if len(elements) == CHUNK or size >= CHUNK_BYTES:
                return elements
        self.is_exhausted = True
        return elements

    def _element(self, item: object, codec: Any) -> NewElement:
        index, self.count = self.count, self.count + 1
        if not isinstance(item, Mapping):
            raise ArgumentError(
                f"element {index} is of type {type(item).__name__}: {self._step.attribute}() must give a dict of "
                f"{self.target.label}'s inputs for each (of a query set: .values(…))"
            )
        try:
            inputs = self._encoded(item, codec, index)
        except (InputError, SerializationError) as error:
            return self._refused(item, codec, index, error)
        return NewElement(id=uuid7(), index=index, inputs=inputs)

    def _encoded(self, item: Mapping[str, Any], codec: Any, index: int) -> str:
        values = self._run.services.validate(self.target, item)
        self._check_keys(values)
        redacted = self.target.contract.redacted | self._run.redactor.held_by(values)
        text: str = codec.encode_arguments(values, redacted=redacted, at=f"elements[{index}]")
        return text

    def _check_keys(self, values: Mapping[str, Any]) -> None:
        """An element that is delivered on its own is an execution of its own. Raises `WouldDeadlock`."""
        target = self.target
        _, declared = _coordination_of(target)
        if declared and self._step.fan_out is not None and not _is_inside_element(self._run):
            check_dispatch(self._run, target.label, declared, values)

    def _refused(
        self, item: Mapping[str, Any], codec: Any, index: int, error: InputError | SerializationError
    ) -> NewElement:
        redactor = Redactor.of(item[name] for name in self.target.contract.redacted if name in item)
        text = redactor.brief(str(error))
        field_errors = error.field_errors if isinstance(error, InputError) else {}
        if self._step.fail_fast:
            raise ArgumentError(f"element {index}: {text}", field_errors)
        described = describe(ArgumentError(text, field_errors), redactor)
        failure = described | {"reactor": self.target.label, "retryable": False, "began": False}
        return NewElement(id=uuid7(), index=index, inputs=self._as_given(item, codec), failure=failure)

    def _as_given(self, item: Mapping[str, Any], codec: Any) -> str:
        """For people to look at. Nothing runs with it."""
        try:
            redacted = self.target.contract.redacted | self._run.redactor.held_by(item)
            text: str = codec.encode_arguments(item, redacted=redacted, at="inputs")
        except SerializationError:
            return "{}"
        return text


def _items_of(step: PlanStep, source: object) -> Iterator[Any]:
    """A query set (anything with its `iterator`) is streamed, too."""
    given = f"{step.attribute}() returned {'None' if source is None else type(source).__name__}"
    if source is None or isinstance(source, str | bytes | Mapping) or not isinstance(source, Iterable):
        raise ArgumentError(f"{given}; a map needs an iterable of dicts, one for each element")
    streamed = getattr(source, "iterator", None)
    return streamed(chunk_size=CHUNK) if callable(streamed) else iter(source)
