"""Begin an execution: store it, and run it here or leave it to a worker. Where its idempotency key is taken nothing
begins, and the execution that has the key answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from django_reactor.core.history import History, fold
from django_reactor.core.plan import Definition
from django_reactor.engine.admission import demands_of_reactor, enter_at_start
from django_reactor.engine.advance import advance
from django_reactor.engine.buffered import BufferedJournal
from django_reactor.engine.conclusions import conclusion, open_waits
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.identifiers import uuid7
from django_reactor.engine.lines import store_in_line
from django_reactor.engine.ports import Codec
from django_reactor.engine.records import ExecutionRecord, Lease, Message, NewExecution
from django_reactor.engine.run import Run
from django_reactor.engine.services import Services
from django_reactor.engine.tenure import Tenure
from django_reactor.exceptions import InternalError
from django_reactor.results import Dispatched, Result

__all__ = ["Call", "enqueue", "start"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The options of one start. `wake_in` is in seconds."""

    idempotency_key: str | None = None
    tags: Sequence[str] = ()
    queue_name: str = "default"
    priority: int | None = None
    wake_in: float = 0.0


def start(services: Services, definition: Definition, inputs: Mapping[str, Any], call: Call) -> Result[Any]:
    """Store an execution with these validated inputs and run it here, up to its hand-off.

    Raises `SerializationError` for inputs that cannot be stored; nothing is stored then. If the idempotency key is
    taken, the execution that has it is answered with, as it stands now, and nothing runs.
    """
    codec = services.new_codec()
    new = _new(services, codec, definition, inputs, call, token=uuid4())
    has_place = bool(definition.coordination.ordered_lock)
    held_back = definition.durability == "exit" and call.idempotency_key is None and not has_place
    assert new.token is not None  # made above
    lease = Lease(new.id, new.token)
    run = Run(
        services=services if definition.durability == "step" else _buffering(services, new, stored=not held_back),
        definition=definition,
        record=ExecutionRecord.of(new),
        history=History(definition.plan),
        lease=lease,
        codec=codec,
        tenure=Tenure(lease=lease, stored=not held_back),
        begins=True,
    )

    def store() -> None:
        if not _is_stored(run, inputs, lambda: held_back or services.executions.start(new), call.idempotency_key):
            raise _KeyIsTaken
        reached(CrashPoint.STARTED)

    try:
        return advance(run, before=store)
    except _KeyIsTaken:
        return _answer_of(services, definition, call.idempotency_key)


class _KeyIsTaken(Exception):
    """Nothing is stored, and nothing runs."""


def _buffering(services: Services, new: NewExecution, *, stored: bool) -> Services:
    journal = BufferedJournal(
        services.journal, services.executions, services.transactions, new, ExecutionRecord.of(new), stored=stored
    )
    return replace(services, journal=journal)


def _is_stored(run: Run, inputs: Mapping[str, Any], store: Callable[[], bool], idempotency_key: str | None) -> bool:
    """False if the idempotency key is taken. Raises `ContentionError` if it is not let in; nothing is stored then."""
    if not run.definition.coordination:
        return store()
    demands = demands_of_reactor(run.services, run.definition, inputs)
    services, label = run.services, run.definition.label
    if idempotency_key is not None and services.executions.find(label, idempotency_key) is not None:
        return False  # whoever has it may well hold what this one would need
    return enter_at_start(run, demands, store)


def enqueue(services: Services, definition: Definition, inputs: Mapping[str, Any], call: Call) -> Result[Any]:
    """Store an execution for a worker; otherwise as `start`. Keys that cannot be made are refused here."""
    codec = services.new_codec()
    orders = demands_of_reactor(services, definition, inputs).orders if definition.coordination else ()
    new = _new(services, codec, definition, inputs, call, token=None)
    if not store_in_line(services, lambda: services.executions.start(new), orders, new.id):
        return _answer_of(services, definition, call.idempotency_key)
    reached(CrashPoint.STARTED)
    services.messenger.send(
        Message(execution_id=new.id, queue_name=new.queue_name, priority=new.priority, delay=new.wake_in)
    )
    return Dispatched(new.id)


def _new(
    services: Services,
    codec: Codec,
    definition: Definition,
    inputs: Mapping[str, Any],
    call: Call,
    token: UUID | None,
) -> NewExecution:
    return NewExecution(
        id=uuid7(),
        reactor=definition.label,
        fingerprint=definition.plan.fingerprint,
        inputs=codec.encode_arguments(inputs, redacted=definition.contract.redacted, at="inputs"),
        token=token,
        wake_in=call.wake_in,
        carried=services.carriers.capture(),
        idempotency_key=call.idempotency_key,
        tags=tuple(call.tags),
        queue_name=call.queue_name,
        priority=call.priority,
    )


def _answer_of(services: Services, definition: Definition, idempotency_key: str | None) -> Result[Any]:
    assert idempotency_key is not None  # only a key can be taken
    existing = services.executions.find(definition.label, idempotency_key)
    if existing is None:
        raise InternalError(f"the idempotency key {idempotency_key!r} is taken, but by no execution")
    record, entries = services.journal.load(existing)
    waits = open_waits(services, record)
    return conclusion(record, fold(definition.plan, entries), services.new_codec(), waits)
