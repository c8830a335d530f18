"""Every error a user can meet, sorted by who must act.

    ReactorError
    ├── DefinitionError        the author of a reactor: its declaration is wrong
    ├── CallerError            whoever called: this call cannot be carried out
    │   ├── InputError             inputs or a payload are invalid
    │   ├── ExecutionFailed        unwrap() of a failure
    │   ├── NotFinished            unwrap() of what has no value yet
    │   ├── ExecutionNotFound      no execution has this id
    │   ├── InvalidTransition      the execution's status does not allow this action
    │   ├── AlreadyResumed         the interrupt was answered before
    │   ├── InterruptTimedOut      the interrupt's time is over
    │   └── CorrelationConflict    an open interrupt has this correlation id already
    ├── ExecutionError         the step: its execution fails
    │   ├── ArgumentError          a step's arguments could not be made or are invalid
    │   ├── OutputError            a step's result is not of its declared type
    │   ├── StepFailed             the step said fail(), or its error is known from the journal only
    │   ├── SerializationError     a value cannot be stored
    │   ├── Gone                   a stored model instance does not exist any more
    │   ├── SignalInTransaction    succeed(), skip() or halt() inside an open atomic() of the body
    │   ├── Interrupted            the step was cut off from outside
    │   ├── WaitTimeout            a unit did not end in time
    │   ├── PoisonExecution        the execution was recovered too often without progress
    │   └── WouldDeadlock          waiting would never end
    ├── ConfigurationError     the operator: settings or installation
    ├── ContentionError        nobody: try again later
    │   ├── LockUnavailable
    │   ├── SemaphoreUnavailable
    │   ├── RateLimited
    │   ├── OutOfTurn
    │   └── StoreUnavailable
    └── InternalError          us: please report

All of them survive pickling and keep their data as attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from django_reactor.results import Failure

__all__ = [
    "AlreadyResumed",
    "ArgumentError",
    "CallerError",
    "ConfigurationError",
    "ContentionError",
    "CorrelationConflict",
    "DefinitionError",
    "ExecutionError",
    "ExecutionFailed",
    "ExecutionNotFound",
    "Gone",
    "InputError",
    "InternalError",
    "Interrupted",
    "InterruptTimedOut",
    "InvalidTransition",
    "LockUnavailable",
    "NotFinished",
    "OutOfTurn",
    "OutputError",
    "PoisonExecution",
    "RateLimited",
    "ReactorError",
    "SemaphoreUnavailable",
    "SerializationError",
    "SignalInTransaction",
    "StepFailed",
    "StoreUnavailable",
    "WaitTimeout",
    "WouldDeadlock",
]


def _rebuild(cls: type[ReactorError], message: str, attributes: dict[str, Any]) -> ReactorError:
    error = cls.__new__(cls, message)
    error.__dict__.update(attributes)
    return error


def _listed(field_errors: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(
        " ".join(texts) if name == "__all__" else f"{name}: {' '.join(texts)}" for name, texts in field_errors.items()
    )


class ReactorError(Exception):
    """The root of all errors of django_reactor."""

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), str(self), dict(self.__dict__))


class DefinitionError(ReactorError):
    """A declaration is wrong. Raised while the class is created, or by `manage.py check`."""


class CallerError(ReactorError):
    """This call cannot be carried out."""


class InputError(CallerError):
    """Inputs or a payload are invalid. `field_errors` maps dotted paths to messages; `"__all__"` holds what
    concerns no single field. No message contains a value of a redacted input."""

    def __init__(self, subject: str, field_errors: Mapping[str, Sequence[str]]) -> None:
        self.subject = subject
        self.field_errors: dict[str, list[str]] = {name: list(texts) for name, texts in field_errors.items()}
        super().__init__(f"{subject}: {_listed(self.field_errors)}")


class ExecutionFailed(CallerError):
    """`unwrap()` of a `Failure`, which is `.failure`; chained from the original exception where it is known."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


class NotFinished(CallerError):
    """`unwrap()` of a result that has no value yet: handed off, paused or still running."""

    def __init__(self, execution_id: UUID | None, state: str) -> None:
        self.execution_id = execution_id
        super().__init__(f"execution {execution_id} has no value yet: it is {state}")


class ExecutionNotFound(CallerError):
    """No execution has this id; or none has, or had, an interrupt with this correlation id."""

    def __init__(self, execution_id: UUID | str | None = None, *, correlation_id: str = "", reactor: str = "") -> None:
        self.execution_id, self.correlation_id, self.reactor = execution_id, correlation_id, reactor
        super().__init__(
            f"no execution has the id {execution_id}"
            if execution_id is not None
            else f"no interrupt of {reactor} has, or had, the correlation id {correlation_id!r}"
        )


class InvalidTransition(CallerError):
    """The execution's status does not allow this action; nothing was changed."""

    def __init__(self, execution_id: UUID, status: str, action: str, advice: str = "") -> None:
        self.execution_id, self.status, self.action, self.advice = execution_id, status, action, advice
        super().__init__(
            f"cannot {action} execution {execution_id}: it is {status}" + (f" ({advice})" if advice else "")
        )


class AlreadyResumed(CallerError):
    """The interrupt has its answer; the first one counts. `execution_id` is of the execution that asked."""

    def __init__(self, execution_id: UUID, step: str) -> None:
        self.execution_id, self.step = execution_id, step
        super().__init__(f"interrupt {step!r} of execution {execution_id} was answered before")


class InterruptTimedOut(CallerError):
    """No answer came in time: raised for one that is late, and what the interrupt fails with."""

    def __init__(self, execution_id: UUID, step: str) -> None:
        self.execution_id, self.step = execution_id, step
        super().__init__(f"interrupt {step!r} of execution {execution_id} was not answered in time")


class CorrelationConflict(CallerError):
    """Another open interrupt of the same step has this correlation id; this one fails."""

    def __init__(self, step: str, correlation_id: str) -> None:
        self.step, self.correlation_id = step, correlation_id
        super().__init__(f"another open interrupt {step!r} has the correlation id {correlation_id!r}")


class ExecutionError(ReactorError):
    """Fails the step in which it happens. Never retried, but for a `StepFailed` that says `retryable`."""

    retryable = False


class ArgumentError(ExecutionError):
    """A step's arguments could not be made, or do not fulfil its contract; its body did not start."""

    def __init__(self, message: str, field_errors: Mapping[str, Sequence[str]] | None = None) -> None:
        self.field_errors: dict[str, list[str]] = {k: list(v) for k, v in (field_errors or {}).items()}
        super().__init__(message)


class OutputError(ExecutionError):
    """A step's result is not of its declared type; its body has run."""

    def __init__(self, field_errors: Mapping[str, Sequence[str]]) -> None:
        self.field_errors: dict[str, list[str]] = {k: list(v) for k, v in field_errors.items()}
        super().__init__(f"the result is invalid: {_listed(self.field_errors)}")


class StepFailed(ExecutionError):
    """What `compensate` gets as `error` after `fail("text")`, and after a crash, when the original exception is
    known from the journal only; `exception_class` is then its qualified name."""

    def __init__(self, message: str, exception_class: str | None = None, retryable: bool = True) -> None:
        self.exception_class, self.retryable = exception_class, retryable
        super().__init__(message)


class SerializationError(ExecutionError):
    """A value cannot be stored. `path` leads to it (`result.items[3].handle`)."""

    def __init__(self, path: str, problem: str, step: str | None = None) -> None:
        self.path, self.problem, self.step = path, problem, step
        super().__init__((f"step {step!r}: " if step else "") + f"{path}: {problem}")

    def in_step(self, step: str) -> SerializationError:
        return SerializationError(self.path, self.problem, step)


class Gone(ExecutionError):
    """A model instance that an input or a result refers to does not exist any more."""

    def __init__(self, model: str, pk: object) -> None:
        self.model, self.pk = model, pk
        super().__init__(f"{model} with primary key {pk!r} does not exist any more")


class SignalInTransaction(ExecutionError):
    """`succeed()`, `skip()` or `halt()` was called inside an `atomic()` block that the body itself opened: leaving
    it by an exception would roll the block's writes back silently."""

    def __init__(self, signal: str) -> None:
        self.signal = signal
        super().__init__(
            f"{signal}() inside a transaction.atomic() block of the body would roll the block back; "
            "leave the block first and return the value"
        )


class Interrupted(ExecutionError):
    """The step was cut off from outside (signal, exit, shutdown, death of its process) and did not run again."""

    def __init__(self, step: str, reason: str = "its process was interrupted or died") -> None:
        self.step, self.reason = step, reason
        super().__init__(f"step {step!r} was cut off: {reason}")


class WaitTimeout(ExecutionError):
    """A unit had not ended after `READ_TIMEOUT` seconds in a caller, or `PARK_TIMEOUT` from its start in a worker: its
    reader fails, and its body did not start. Also raised by `Execution.join`, which changes nothing."""


class PoisonExecution(ExecutionError):
    """The execution was claimed more than `MAX_RECOVERIES` times without progress, so a step of it probably ends its
    process each time. It fails, and what was completed is undone."""


class WouldDeadlock(ExecutionError):
    """What it would wait for may wait for it: a unit that is read inside the transaction that started it, or one that
    is dispatched with a key that this execution, or one above it, holds. Nothing was dispatched, no body started."""


class ConfigurationError(ReactorError):
    """Settings or installation do not allow this; or a reactor is abstract, or not known in this process."""


class ContentionError(ReactorError):
    """Not now. `key` names what is taken; `retry_after` is in seconds where it is known. Raised by `run`, and by
    `Step.call`, before any body has run; `run` has stored nothing then. In a worker the execution tries again
    instead."""

    def __init__(self, message: str, key: str, retry_after: float | None = None) -> None:
        self.key, self.retry_after = key, retry_after
        super().__init__(message)


class LockUnavailable(ContentionError):
    """Another execution holds the lock."""


class SemaphoreUnavailable(ContentionError):
    """Others hold all slots of the semaphore."""


class RateLimited(ContentionError):
    """A window is used up; `retry_after` is when it rolls, in seconds from now."""


class OutOfTurn(ContentionError):
    """Others stand in the line of the ordered lock."""


class StoreUnavailable(ContentionError):
    """A store outside of the database (Redis) does not answer, or refuses. Nothing is known of the key, so it counts as
    taken."""


class InternalError(ReactorError):
    """A fault of django_reactor itself: please report it."""
