"""What the engine needs from outside beside the stores, one port per job.

The ports of the stores are in `execution_ports`, `map_ports`, `waits` and `coordination_ports`. Every adapter of a port
passes the same contract suite.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from django_reactor.core.redaction import Redactor
from django_reactor.engine.records import Message

__all__ = ["Carriers", "Clock", "Codec", "CommitRefused", "Messenger", "Observer", "Scope", "Transactions"]


class Messenger(Protocol):
    def send(self, message: Message) -> None:
        """Send it once the transaction that is open now is committed, or never. A broker that fails is logged, not
        raised: the sweeper sends again."""


class Carriers(Protocol):
    """What a delivery needs from where its execution was started: language, time zone."""

    def capture(self) -> Mapping[str, Any]: ...

    def restored(self, carried: Mapping[str, Any]) -> AbstractContextManager[None]: ...


class Codec(Protocol):
    """Values as text. One per run: it gives back the very model instances that passed through it."""

    def encode(self, value: object, *, at: str, redacted: bool = False) -> str:
        """Raises `SerializationError`; `at` begins the path in it. A redacted one is marked in the text itself."""

    def encode_arguments(self, values: Mapping[str, object], *, redacted: Collection[str], at: str) -> str: ...

    def decode(self, text: str) -> Any:
        """Raises `Gone`, or `SerializationError` if the text cannot be understood here."""

    def decode_arguments(self, text: str) -> Mapping[str, Any]:
        """A mapping that decodes a name when it is asked for."""

    def display(self, text: str, redactor: Redactor) -> Any:
        """A JSON-compatible rendering for people; never raises, never fetches."""

    def secrets(self, text: str) -> Sequence[object]:
        """The values that the text itself marks as secret."""


class Scope(Protocol):
    """The database blocks around one body."""

    def opened_by_body(self) -> bool:
        """Whether the body that runs now has a transaction block of its own open."""

    def roll_back(self) -> None:
        """Undo the body's writes when the scope ends."""

    def broken(self) -> BaseException | None:
        """Why a transaction around the body is of no use any more, if that is so. Asks nothing of the database."""

    def check(self) -> BaseException | None:
        """Why the body's writes cannot be committed, if they can't: it is broken, or a constraint forbids it."""


class CommitRefused(Exception):
    """The database refused to commit an atomic step, for a reason that lies in the step's own writes (its
    `__cause__`): a constraint. Nothing was written."""


class Transactions(Protocol):
    def in_callers_block(self) -> bool:
        """Whether the caller has a transaction open on the database of executions."""

    def callers_blocks(self) -> Collection[str]:
        """The databases on which this thread has a transaction open."""

    def around_body(self) -> AbstractContextManager[Scope]:
        """No transaction of our own; inside a caller's, a savepoint on each connection that has one open."""

    def reconnect(self, but: Collection[str]) -> None:
        """Give up this thread's connections to all databases but these: an interruption may have struck inside a
        statement, or between the begin of a transaction and the note of it."""

    def carried_out(self, statements: Callable[[], None]) -> None:
        """Carry statements of the engine out as one transaction, and again if the database broke it off for another's
        sake, as the journal does with each of its own. Not for bodies."""

    def after_commit(self, then: Callable[[], None]) -> None:
        """Call it once the caller's transaction is committed; if that is rolled back, forget it."""

    def atomic(self) -> AbstractContextManager[Scope]:
        """One transaction (in a caller's: a savepoint) around body and entry, and a savepoint on each other connection
        that has one open; `CommitRefused` from its exit."""


class Clock(Protocol):
    def now(self) -> datetime:
        """The time of day, aware, UTC: for display only; the database's clock decides leases and due times."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Sleep, but no longer than until this is set."""


class Observer(Protocol):
    """Told after the fact; cannot change or break a run."""

    def notice(self, event: str, reactor: type, execution_id: UUID, **details: Any) -> None: ...
