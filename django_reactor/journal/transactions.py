"""Transaction scopes around user code, and around the engine's own statements, on Django's connections."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import ParamSpec, TypeVar

from django.db import DatabaseError, Error, IntegrityError, InterfaceError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reactor.engine.interruptions import is_interruption
from django_reactor.engine.ports import CommitRefused, Scope

__all__ = ["DjangoTransactions", "in_one_transaction", "is_reachable", "on_a_sound_connection", "retried"]

P = ParamSpec("P")
R = TypeVar("R")

TRIES = 4
"""The first one, and three more after a deadlock, a lock timeout, a serialisation failure or a locked SQLite file."""
PAUSE = 0.02
"""Seconds, at most, before a transaction is carried out again."""
TRANSIENT_SQLSTATES = ("40001", "40P01", "55P03")
TRANSIENT_MYSQL = (1205, 1213)
REFUSES_STATEMENTS = 3
"""libpq's PQTRANS_INERROR."""


def _is_transient(error: OperationalError) -> bool:
    cause = error.__cause__
    if getattr(cause, "sqlstate", None) in TRANSIENT_SQLSTATES:
        return True
    number = cause.args[0] if cause is not None and cause.args else None
    return number in TRANSIENT_MYSQL or "locked" in str(error)


def retried(connection: BaseDatabaseWrapper, statements: Callable[[], R]) -> R:
    """Carry one engine transaction out, again if the database broke it off for another's sake.

    Only outside of a caller's transaction: inside, the whole of it is lost, and the error is the caller's. The same
    holds for an interruption, which leaves no transaction open here.
    """
    in_callers_block = connection.in_atomic_block
    for remaining in reversed(range(TRIES)):
        try:
            return statements()
        except OperationalError as error:
            if not remaining or in_callers_block or not _is_transient(error):
                raise
            time.sleep(random.uniform(0, PAUSE))  # or the victim of a deadlock is back before the other has gone on
        except BaseException as error:
            if is_interruption(error) and not in_callers_block:
                _give_up(connection)
            raise
    raise AssertionError("unreachable")


def _give_up(connection: BaseDatabaseWrapper) -> None:
    """Whatever an interruption has left of it. One that strikes as a BEGIN returns, say after a wait for the lock of an
    SQLite file, leaves a transaction of which Django knows nothing, and its locks; one a little later a block that
    Django takes for open."""
    with suppress(Error), connection.wrap_database_errors:
        if connection.connection is not None:
            connection.connection.rollback()  # a database in memory is never closed
    with suppress(Error):
        connection.close()
    with suppress(Error):
        if connection.in_atomic_block:
            connection.connect()


def is_reachable(connection: BaseDatabaseWrapper) -> bool:
    """Whether the database answers, after one of its errors; on a new connection if the one that was there is broken.
    Not inside a transaction: it would end it."""
    if connection.connection is not None and connection.is_usable():
        return True
    with suppress(Error):  # PyMySQL objects to the end of a connection that was killed
        connection.close()
    try:
        connection.ensure_connection()
    except Error:
        return False
    return True


def on_a_sound_connection(connection: BaseDatabaseWrapper, statement: Callable[[], R]) -> R:
    """A delivery begins with this statement, so it is also how a connection that was kept is found to be broken: then
    it is carried out once more, on a new one. A claim whose answer was lost is not given twice: its lease lapses."""
    try:
        return statement()
    except (InterfaceError, OperationalError):
        if connection.in_atomic_block or not is_reachable(connection):
            raise
        return statement()


def _open_blocks() -> dict[str, int]:
    several = len(connections.settings) > 1  # a single one is there: to ask whether it is would cost as much again
    return {c.alias: len(c.atomic_blocks) for c in connections.all(initialized_only=several) if c.in_atomic_block}


def _is_broken(connection: BaseDatabaseWrapper) -> bool:
    """Django knows of what failed in the ORM, and PostgreSQL's driver of every statement."""
    if connection.needs_rollback:
        return True
    if connection.vendor != "postgresql" or connection.connection is None:
        return False
    in_error: bool = connection.connection.info.transaction_status == REFUSES_STATEMENTS
    return in_error


class _Scope:
    """Tells and undoes what one body did to the connections of this thread. `blocks` are those that were open before
    it, by alias."""

    def __init__(self, alias: Callable[[], str], blocks: Mapping[str, int], *, owns_transaction: bool) -> None:
        self._alias, self._blocks, self._owns_transaction = alias, blocks, owns_transaction

    def opened_by_body(self) -> bool:
        return any(depth > self._blocks.get(alias, 0) for alias, depth in _open_blocks().items())

    def roll_back(self) -> None:
        for alias in self._blocks:
            transaction.set_rollback(True, using=alias)

    def broken(self) -> BaseException | None:
        """A body may have swallowed a database error: then its transaction is broken, and so is the step. Its savepoint
        would be rolled back, and nobody would know."""
        if not any(_is_broken(connections[alias]) for alias in self._blocks):
            return None
        return transaction.TransactionManagementError(
            "the body went on after a database error inside a transaction; nothing it wrote there can be committed. "
            "Put what may fail into an atomic() block of its own"
        )

    def check(self) -> BaseException | None:
        """Deferred constraints are looked at while the step can still fail by them. A connection that was lost
        meanwhile says nothing about the step: its error is raised (PROTOCOL 2.5)."""
        if (broken := self.broken()) is not None:
            return broken
        connection = connections[self._alias()]
        if not self._owns_transaction or connection.vendor != "postgresql":
            return None  # MySQL checks at once; SQLite when it commits, and then refuses
        try:
            connection.check_constraints()
        except (InterfaceError, OperationalError):
            raise
        except DatabaseError as error:
            return error
        return None


class DjangoTransactions:
    """The port `Transactions` on Django's connections. `alias` is where executions are stored."""

    def __init__(self, alias: Callable[[], str]) -> None:
        self._alias = alias

    def in_callers_block(self) -> bool:
        return connections[self._alias()].in_atomic_block

    def callers_blocks(self) -> Collection[str]:
        return frozenset(_open_blocks())

    def reconnect(self, but: Collection[str]) -> None:
        for connection in connections.all(initialized_only=True):
            if connection.alias not in but:
                _give_up(connection)

    def around_body(self) -> AbstractContextManager[Scope]:
        blocks = _open_blocks()
        if blocks:
            return self._in_savepoints(blocks)
        return nullcontext(_Scope(self._alias, blocks, owns_transaction=False))

    @contextmanager
    def _in_savepoints(self, aliases: Iterable[str]) -> Iterator[Scope]:
        with ExitStack() as savepoints:
            for alias in aliases:
                savepoints.enter_context(transaction.atomic(using=alias))
            yield _Scope(self._alias, _open_blocks(), owns_transaction=False)

    def carried_out(self, statements: Callable[[], None]) -> None:
        connection = connections[self._alias()]

        def in_one() -> None:
            with transaction.atomic(using=connection.alias):
                statements()

        retried(connection, in_one)

    def after_commit(self, then: Callable[[], None]) -> None:
        transaction.on_commit(then, using=self._alias(), robust=True)

    @contextmanager
    def atomic(self) -> Iterator[Scope]:
        alias = self._alias()
        connection = connections[alias]
        outermost = not connection.in_atomic_block
        others = [each for each in _open_blocks() if each != alias]
        body_done = False
        try:
            with ExitStack() as blocks:
                for each in (*others, alias):  # the last one ends first: if it is refused, nothing of the others stays
                    blocks.enter_context(transaction.atomic(using=each))
                yield _Scope(self._alias, _open_blocks(), owns_transaction=outermost)
                body_done = True
        except IntegrityError as refused:
            if not body_done:
                raise
            raise CommitRefused from refused


def in_one_transaction(method: Callable[P, R]) -> Callable[P, R]:
    """Make a method of an adapter with a `connection` one transaction, retried."""

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        connection: BaseDatabaseWrapper = args[0].connection  # type: ignore[attr-defined]

        def once() -> R:
            with transaction.atomic(using=connection.alias):
                return method(*args, **kwargs)

        return retried(connection, once)

    return wrapper
