"""Two ports on the waits of interrupts (PROTOCOL 6): the runner's side, and that of those who answer.

Both change the row of the owner first, and the wait after it, each in one transaction. So a pause and an answer that
meet at the same instant come one after the other, whoever is first: a runner that pauses finds the answer, or the
answer finds the pause. Of all answers, a timeout and the last rejection exactly one finds the wait open.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from django_reactor.core.waits import Wait, WaitState
from django_reactor.engine.records import Lease, Message

__all__ = [
    "Accepted",
    "Address",
    "Answers",
    "Known",
    "NewWait",
    "NotForward",
    "NotOpen",
    "Outdated",
    "WaitKey",
    "Waits",
    "open_key",
]


def open_key(reactor: str, step: str, correlation_id: str) -> str:
    """What is unique among open waits: a correlation id belongs to one step of the reactor that declares it."""
    return hashlib.sha256("\x1f".join((reactor, step, correlation_id)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitKey:
    """One interrupt of one execution, asked once in each generation."""

    execution_id: UUID
    step: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWait:
    """`timeout` is in seconds from now, by the store's clock."""

    key: WaitKey
    owner_id: UUID
    reactor: str
    correlation_id: str | None = None
    payload_schema: Mapping[str, Any] | None = None
    timeout: float | None = None


class Waits(Protocol):
    """The runner's side. Each method but the first is one transaction under a lease: `Refused` if the lease is lost or
    a stop was asked for, and then nothing is changed."""

    def of(self, execution_id: UUID, generation: int) -> Mapping[str, Wait]:
        """By step. Read afresh, also inside a transaction."""

    def open(self, lease: Lease, new: NewWait) -> WaitState:
        """Have the wait open, also if it was closed before, unless an answer is there; its state then. Raises
        `CorrelationConflict` if another open wait has the correlation id."""

    def close(self, lease: Lease, key: WaitKey) -> bool:
        """Wait no more; False, and nothing is changed, if an answer was faster."""

    def pause(
        self,
        lease: Lease,
        keys: Sequence[WaitKey],
        *,
        waiting_for: str = "",
        has_come: Callable[[], bool] = lambda: False,
        with_parts: bool,
    ) -> bool:
        """Give the owner's lease up, as paused, and with it its open parts; False, and nothing is changed, if one of
        these has an answer, or what it is waiting for too, and would have been woken by, has come: that is asked in
        the same transaction, after the write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where an answer goes: a wait, and the owner of its execution, who is woken by it."""

    key: WaitKey
    owner_id: UUID

    @property
    def execution_id(self) -> UUID:
        """Of whom a sweep says that it concerned him."""
        return self.owner_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A wait as it stands, for those who answer. `reactor` is the one that declares it; `path` the steps that lead from
    the owner to the execution that has it."""

    address: Address
    reactor: str
    wait: Wait
    path: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return ".".join((*self.path, self.address.key.step))

    @property
    def is_open(self) -> bool:
        return self.wait.state is WaitState.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The answer is stored. A paused owner is due now (`message`), or held by this process (`lease`); any other finds
    the answer by itself."""

    lease: Lease | None = None
    message: Message | None = None


class NotForward(Exception):
    """The owner's status, or a stop that was asked for, forbids answers."""


class NotOpen(Exception):
    """The wait has an answer, or its time is over, or it was closed. Its state is None if there is no such wait."""

    def __init__(self, state: WaitState | None) -> None:
        self.state = state
        super().__init__(state)


class Outdated(Exception):
    """The execution has begun another generation meanwhile: look again."""


class Answers(Protocol):
    """The side of those who answer. Those that change something are one transaction each, and raise `NotForward` or
    `NotOpen` without any change. With a `token` a paused owner's lease is taken; without, it is made due."""

    def of_owner(self, owner_id: UUID) -> Sequence[Known]:
        """The waits of an execution and of its parts, of all generations, the newest last. Read afresh, also inside a
        transaction."""

    def correlated(self, reactor: str, correlation_id: str) -> Sequence[Known]:
        """Those of any execution, the newest last."""

    def accept(self, address: Address, payload: str, token: UUID | None) -> Accepted:
        """Store the payload of an open wait; or, where there is none yet, store it for when it comes (`Outdated` if
        the execution's generation is another one by now, `NotForward` if it is a part that has ended)."""

    def reject(
        self, address: Address, error: Mapping[str, Any], most: int | None, token: UUID | None
    ) -> Accepted | None:
        """Count an invalid payload. If it is the last of at most so many, the wait is answered by this error; None
        while others may follow."""

    def time_out(self, address: Address) -> Accepted:
        """Answer an open wait whose time is over, by the store's clock. `NotForward` also if somebody has the owner's
        row locked: it does not wait for that."""

    def overdue(self, limit: int) -> Sequence[Address]:
        """Open waits whose time is over and whose owner goes forward, the longest overdue first. No locks."""
