"""Answer an interrupt from outside (PROTOCOL 6, resume).

1. Find the wait that is meant: by the id of its execution, or by its correlation id.
2. Validate the payload here, before anything is written. An invalid one is counted, and the last allowed one is an
   answer too: the interrupt fails.
3. Store the answer. One transaction says whether it was the first, and whether the execution goes on by it.
4. Go on: here, if it was paused and that is how it is declared, else in whatever process has it or gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from django_reactor.core.history import fold
from django_reactor.core.naming import is_storable, suggestion
from django_reactor.core.plan import Definition, Kind, PlanStep
from django_reactor.core.statuses import FORWARD, Stop
from django_reactor.core.waits import WaitState
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.failures import describe
from django_reactor.engine.payloads import payload_text, shown_payload
from django_reactor.engine.records import ExecutionRecord
from django_reactor.engine.redactors import redactor_of
from django_reactor.engine.services import Services
from django_reactor.engine.taking_up import go_on
from django_reactor.engine.waits import Accepted, Address, Known, NotForward, NotOpen, Outdated, WaitKey
from django_reactor.exceptions import (
    AlreadyResumed,
    ExecutionNotFound,
    InputError,
    InterruptTimedOut,
    InvalidTransition,
)
from django_reactor.results import Dispatched, Result

__all__ = ["Find", "resume", "resume_correlated"]

Find = Callable[[str], Definition]
"""The definition of a reactor by its label; raises if it is not known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a payload is for. `owner` is what goes on by it, `declaring` has the interrupt."""

    address: Address
    owner: Definition
    declaring: Definition
    step: PlanStep
    in_background: bool = False
    """Whether nothing goes on here by the answer, not even by the last one that is invalid."""

    @property
    def subject(self) -> str:
        return f"{self.declaring.label}.{self.step.name}"


def resume(
    services: Services,
    find: Find,
    execution_id: UUID,
    payload: object,
    step: str | None,
    *,
    in_background: bool = False,
) -> Result[Any]:
    """Answer an interrupt of this execution: the open one, or the one of this step, also before it is asked. In the
    background a worker goes on with it, whatever the interrupt says."""
    while True:
        try:
            question = _asked_by(services, find, execution_id, step)
            return _answer(services, replace(question, in_background=in_background), payload)
        except Outdated:
            continue


def resume_correlated(
    services: Services, find: Find, declaring: Definition, payload: object, correlation_id: str, step: str | None
) -> Result[Any]:
    """Answer the open interrupt of this reactor that has this correlation id."""
    found = services.answers.correlated(declaring.label, correlation_id) if is_storable(correlation_id) else ()
    if step is not None:
        name = _known_interrupt(declaring, step).name
        found = [known for known in found if known.address.key.step == name]
    if not found:
        raise ExecutionNotFound(correlation_id=correlation_id, reactor=declaring.label)
    return _answer(services, _about(services, find, _open_one(declaring, found) or found[-1]), payload)


# -- which interrupt is meant ------------------------------------------------------------------------------------------


def _asked_by(services: Services, find: Find, execution_id: UUID, step: str | None) -> Question:
    record, entries = services.journal.load(execution_id)
    declaring, waits = find(record.reactor), _current(services, record)
    if step is None:
        return _about(services, find, _only(declaring, record, waits))
    interrupt = _interrupt(declaring, step)
    if interrupt is None:
        return _about(services, find, _of_a_part(declaring, waits, step))
    key = WaitKey(execution_id=execution_id, step=interrupt.name, generation=record.generation)
    is_new = all(known.address.key != key for known in waits)
    if is_new and interrupt.name in fold(declaring.plan, entries).standing:
        raise AlreadyResumed(execution_id, interrupt.name)
    return _question(services, find, declaring, interrupt, Address(key=key, owner_id=record.owner))


def _current(services: Services, record: ExecutionRecord) -> Sequence[Known]:
    """The waits of an owner and its parts, or of a part. What a failed execution asked before its retry is over."""
    found = services.answers.of_owner(record.owner)
    own = [
        k for k in found if k.address.key.execution_id == record.id and k.address.key.generation == record.generation
    ]
    parts = [k for k in found if k.address.key.execution_id != record.id and record.owner == record.id]
    return [*parts, *own]


def _only(declaring: Definition, record: ExecutionRecord, waits: Sequence[Known]) -> Known:
    if (known := _open_one(declaring, waits)) is not None:
        return known
    goes_forward = record.status in FORWARD and record.stop is Stop.NONE
    answered = [known for known in waits if known.wait.state is not WaitState.CLOSED]
    if answered and goes_forward:
        last = answered[-1]
        raise _too_late(last.address, last.wait.state, record.status)
    advice = "no interrupt is open; name its step to answer it before it asks" if goes_forward else ""
    raise InvalidTransition(record.id, record.status, "resume", advice)


def _of_a_part(declaring: Definition, waits: Sequence[Known], step: str) -> Known:
    """By its path, or by the step alone."""
    named = [known for known in waits if step in (known.name, known.address.key.step)]
    if not named:
        names = [*(interrupt.name for interrupt in _interrupts(declaring)), *(known.name for known in waits)]
        raise _unknown(declaring, step, names)
    return _open_one(declaring, named) or named[-1]


def _open_one(declaring: Definition, waits: Sequence[Known]) -> Known | None:
    open_ones = [known for known in waits if known.is_open]
    if len(open_ones) > 1:
        names = ", ".join(repr(known.name) for known in open_ones)
        raise InputError(declaring.label, {"step": [f"several interrupts are open: {names}; say which by step=…"]})
    return open_ones[0] if open_ones else None


def _about(services: Services, find: Find, known: Known) -> Question:
    declaring = find(known.reactor)
    interrupt = _known_interrupt(declaring, known.address.key.step)
    return _question(services, find, declaring, interrupt, known.address)


def _question(services: Services, find: Find, declaring: Definition, interrupt: PlanStep, address: Address) -> Question:
    owner = declaring
    if address.owner_id != address.key.execution_id:
        owner = find(services.journal.load(address.owner_id)[0].reactor)
    return Question(address=address, owner=owner, declaring=declaring, step=interrupt)


def _interrupts(declaring: Definition) -> Sequence[PlanStep]:
    return [step for step in declaring.plan.steps if step.kind is Kind.INTERRUPT]


def _interrupt(declaring: Definition, name: str) -> PlanStep | None:
    """By its stored name, or else by its Python name."""
    for attribute in ("name", "attribute"):
        for step in _interrupts(declaring):
            if getattr(step, attribute) == name:
                return step
    return None


def _known_interrupt(declaring: Definition, name: str) -> PlanStep:
    interrupt = _interrupt(declaring, name)
    if interrupt is None:
        raise _unknown(declaring, name, [step.name for step in _interrupts(declaring)])
    return interrupt


def _unknown(declaring: Definition, name: str, names: Sequence[str]) -> InputError:
    known = suggestion(name, sorted(set(names)))
    return InputError(declaring.label, {"step": [f"{name!r} is no interrupt{known}"]})


# -- the answer --------------------------------------------------------------------------------------------------------


def _answer(services: Services, question: Question, payload: object) -> Result[Any]:
    """Raises `Outdated`."""
    try:
        text = payload_text(services.new_codec(), question.step, payload, question.subject)
    except InputError as invalid:
        accepted = _reject(services, question, payload, invalid)
        if accepted is None:
            raise
    else:
        accepted = _accept(services, question, text)
    reached(CrashPoint.ANSWERED)
    if accepted.lease is not None:
        return go_on(services, question.owner, accepted.lease)
    if accepted.message is not None:
        services.messenger.send(accepted.message)
    return Dispatched(question.address.owner_id)


def _accept(services: Services, question: Question, text: str) -> Accepted:
    token = None if question.in_background or question.step.resume_in_background else uuid4()
    try:
        return services.answers.accept(question.address, text, token)
    except NotForward:
        raise _invalid(services, question.address) from None
    except NotOpen as refused:
        raise _refusal(services, question.address, refused.state) from None


def _reject(services: Services, question: Question, payload: object, invalid: InputError) -> Accepted | None:
    """The last allowed one is an answer, and what follows from it happens here."""
    error = _described(services, question, payload, invalid)
    try:
        token = None if question.in_background else uuid4()
        return services.answers.reject(question.address, error, question.step.max_attempts, token)
    except NotForward:
        raise _invalid(services, question.address) from None
    except NotOpen as refused:
        if refused.state is None:  # it came early, and is not counted
            return None
        raise _refusal(services, question.address, refused.state) from None


def _described(services: Services, question: Question, payload: object, invalid: InputError) -> Mapping[str, Any]:
    codec = services.new_codec()
    redactor = redactor_of(services, codec, question.address.key.execution_id)
    shown = shown_payload(codec, question.step, payload, redactor)
    described = describe(invalid.with_traceback(None), redactor)
    return described | {"began": False, "retryable": False, "arguments": {"payload": shown}}


def _refusal(services: Services, address: Address, state: WaitState | None) -> Exception:
    record, _ = services.journal.load(address.owner_id)
    return _too_late(address, state, record.status)


def _too_late(address: Address, state: WaitState | None, status: str) -> Exception:
    step = address.key.step
    match state:
        case WaitState.ACCEPTED | WaitState.APPLIED:
            return AlreadyResumed(address.key.execution_id, step)
        case WaitState.OPEN | WaitState.TIMED_OUT:
            return InterruptTimedOut(address.key.execution_id, step)
        case _:
            return InvalidTransition(address.owner_id, status, "resume", f"interrupt {step!r} waits no more")


def _invalid(services: Services, address: Address) -> InvalidTransition:
    record, _ = services.journal.load(address.owner_id)
    advice = f"a {record.stop} is requested" if record.stop and record.status in FORWARD else ""
    return InvalidTransition(address.owner_id, record.status, "resume", advice)
