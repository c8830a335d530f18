"""What `run` returns, and what a step body may return: frozen siblings.

`Halt` and `Skipped` are no kinds of `Success`, so that `case Success(value)` matches neither. The first field is
positional, so that it matches; all others are keyword-only.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar
from uuid import UUID

from typing_extensions import TypeVar as TypeVarWithDefault

from django_reactor.exceptions import ExecutionFailed, NotFinished

__all__ = [
    "Dispatched",
    "Failure",
    "Halt",
    "MapResults",
    "OpenWait",
    "Paused",
    "Result",
    "RollbackFailure",
    "Skipped",
    "Success",
]

T = TypeVar("T")
V = TypeVar("V")


class _Predicates:
    """The questions that every result answers."""

    __slots__ = ()

    @property
    def is_success(self) -> bool:
        """Whether it ended as it was meant to: also of a `Halt`."""
        return isinstance(self, Success | Halt)

    @property
    def is_failure(self) -> bool:
        return isinstance(self, Failure)

    @property
    def is_halted(self) -> bool:
        return isinstance(self, Halt)

    @property
    def is_paused(self) -> bool:
        return isinstance(self, Paused)

    @property
    def is_dispatched(self) -> bool:
        return isinstance(self, Dispatched)


@dataclass(frozen=True, slots=True)
class Success(_Predicates, Generic[V]):
    """It completed. `value` is what `Meta.returns` names, or a dict of every step's result by stored name."""

    value: V = None  # type: ignore[assignment]  # Success() carries None
    execution_id: UUID | None = field(default=None, kw_only=True)

    def unwrap(self) -> V:
        """The value."""
        return self.value


@dataclass(frozen=True, slots=True)
class Halt(_Predicates):
    """The execution ended early, on purpose: nothing was undone and there is no value."""

    reason: str = ""
    execution_id: UUID | None = field(default=None, kw_only=True)

    def unwrap(self) -> None:
        """None: there is no value."""
        return None


@dataclass(frozen=True, slots=True)
class Skipped(_Predicates):
    """A step did not do its work, on purpose: readers get `value`, and nothing is undone later. What a body may return,
    and what `Step.call` returns of one; no execution ends so."""

    value: Any = None
    reason: str = ""
    execution_id: UUID | None = field(default=None, kw_only=True)

    def unwrap(self) -> Any:
        """The value."""
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackFailure:
    """One undo or compensation that did not succeed. `kind` is `undo` or `compensate`; `reason` is one of `raised`
    (its body failed), `vanished` (its declaration is gone), `poison` (it ended its process again and again),
    `coordination_unavailable` (the lock or semaphore `key` could not be had). `step` is a path where it was in a child;
    `element_index` is there for an element of a map. It stands until an `undo()` or a `retry()` has tried it again."""

    step: str
    kind: str
    reason: str
    message: str
    exception_class: str | None = None
    key: str | None = None
    element_index: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Failure(_Predicates):
    """Why an execution, or a step, failed; also the result of one that was cancelled, undone or aborted. Every text in
    it is redacted; `cause` is the exception itself, unredacted and only in the process that raised it.

    `exception_class` is its qualified name, without `builtins.`; None after `fail("text")`. `step` is a path where a
    child failed. `inputs` are the execution's and `arguments` the step's, for people. `field_errors` has texts by
    input, those of no single one under `"__all__"`. `attempts` counts from 1, 0 if no step failed. `execution_id` is
    None where nothing was stored. Survives pickling, without its `cause`.
    """

    message: str
    exception_class: str | None = field(default=None, kw_only=True)
    step: str | None = field(default=None, kw_only=True)
    reactor: str | None = field(default=None, kw_only=True)
    arguments: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    inputs: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    field_errors: Mapping[str, Sequence[str]] = field(default_factory=dict, kw_only=True)
    retryable: bool = field(default=True, kw_only=True)
    attempts: int = field(default=0, kw_only=True)
    file: str | None = field(default=None, kw_only=True)
    line: int | None = field(default=None, kw_only=True)
    snippet: str = field(default="", kw_only=True, repr=False)
    backtrace: Sequence[str] = field(default=(), kw_only=True, repr=False)
    rollback_failures: Sequence[RollbackFailure] = field(default_factory=list, kw_only=True)
    execution_id: UUID | None = field(default=None, kw_only=True)
    cause: BaseException | None = field(default=None, kw_only=True, repr=False, compare=False)

    def unwrap(self) -> NoReturn:
        """Raises `ExecutionFailed`, from the exception itself where it is known."""
        raise ExecutionFailed(self) from self.cause

    def __reduce__(self) -> Any:
        """A pickle goes to another process, and `cause` stays in this one."""
        return _failure, ({name: getattr(self, name) for name in self.__dataclass_fields__ if name != "cause"},)

    def __str__(self) -> str:
        return self.message

    def as_dict(self) -> dict[str, Any]:
        """Everything but `cause`, JSON-compatible."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "cause"}
        return fields | {
            "arguments": dict(self.arguments),
            "inputs": dict(self.inputs),
            "field_errors": {name: list(texts) for name, texts in self.field_errors.items()},
            "backtrace": list(self.backtrace),
            "rollback_failures": [failed.as_dict() for failed in self.rollback_failures],
            "execution_id": str(self.execution_id) if self.execution_id else None,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], **changes: Any) -> Failure:
        """The reverse of `as_dict`; unknown keys, as a newer version may have stored them, are passed over."""
        known = {name: stored[name] for name in cls.__dataclass_fields__ if name in stored and name != "cause"}
        known["rollback_failures"] = [
            RollbackFailure(**{k: v for k, v in item.items() if k in RollbackFailure.__dataclass_fields__})
            for item in known.get("rollback_failures", ())
        ]
        if known.get("execution_id"):
            known["execution_id"] = UUID(known["execution_id"])
        return cls(**(known | changes))


def _failure(fields: Mapping[str, Any]) -> Failure:
    return Failure(**fields)


class _Unfinished(_Predicates):
    __slots__ = ()

    execution_id: UUID | None

    def unwrap(self) -> NoReturn:
        """Raises `NotFinished`."""
        raise NotFinished(self.execution_id, "paused" if self.is_paused else "running elsewhere")


@dataclass(frozen=True, slots=True)
class Dispatched(_Unfinished):
    """The rest runs elsewhere: in a worker, once the transaction that is open now is committed. `results` holds, by
    stored name, what was done when this was returned; `Execution.join` waits for the end."""

    execution_id: UUID | None
    results: Mapping[str, Any] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWait:
    """An interrupt that waits for its payload. `step` is what `resume` takes as such: in a composed child, the path to
    it from the execution. `attempts` counts the invalid payloads so far; `timeout_at` is aware, by the database's
    clock."""

    step: str
    correlation_id: str | None = None
    timeout_at: datetime | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Paused(_Unfinished):
    """The execution waits for payloads; `waits` are the open interrupts. No process holds it, and it has given up its
    locks. `results` holds, by stored name, what is done."""

    execution_id: UUID | None
    waits: Sequence[OpenWait] = field(default=(), kw_only=True)
    results: Mapping[str, Any] = field(default_factory=dict, kw_only=True)


Result: TypeAlias = Success[T] | Failure | Halt | Skipped | Dispatched | Paused
"""What a call returns: any of them. `Result[Order]` has an `Order` in its `Success`."""


# -- of maps -----------------------------------------------------------------------------------------------------------

E = TypeVarWithDefault("E", default=Any)
R = TypeVarWithDefault("R", default=Success[E] | Failure | Halt)


class MapResults(Sequence[R], Generic[E, R]):
    """What a step gets of a map: a `Success`, a `Failure` or a `Halt` for each element, in the order of the source.
    Annotate it with the type of an element's value: `imported: MapResults[Row]`.

    It reads what is asked for from the database, in pages, each time anew. `successes` and `failures` are parts of it
    that are read in the same way. Thread-safe.
    """

    @property
    @abstractmethod
    def successes(self) -> MapResults[E, Success[E] | Halt]:
        """Of the elements that completed or halted."""

    @property
    @abstractmethod
    def failures(self) -> MapResults[E, Failure]:
        """Of all others."""

    @abstractmethod
    def values(self) -> Iterator[E]:
        """The value of each element that succeeded, in order; None for one that halted."""

    @abstractmethod
    def indexed(self) -> Iterator[tuple[int, R]]:
        """Each result with the index of its element in the source."""

    @abstractmethod
    def summary(self) -> Mapping[str, Any]:
        """Counts, and at most 25 failures, as JSON-compatible data: `total`, `succeeded`, `halted`, `failed`,
        `failures` (as `Failure.as_dict()` with the element's `index` and at most 10 lines of its backtrace) and
        `failures_truncated`."""
