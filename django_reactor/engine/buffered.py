"""`Meta.durability = "exit"`: what a run writes is kept in memory and stored in one transaction at its end.

A process that dies on the way leaves nothing, or only the row that claimed an idempotency key: such a reactor must be
one that can simply run again. An atomic step's entry must commit with its body, so before the first one everything is
stored, and from then on every entry is stored at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import FORWARD, Status, Stop
from django_reactor.engine.execution_ports import Executions, Journal
from django_reactor.engine.ports import Transactions
from django_reactor.engine.records import ExecutionRecord, Lease, Move, NewExecution, Release
from django_reactor.exceptions import InternalError

__all__ = ["BufferedJournal"]


class BufferedJournal:
    """The port `Journal` over another one. Of one run, and as little thread-safe as that."""

    def __init__(
        self,
        journal: Journal,
        executions: Executions,
        transactions: Transactions,
        new: NewExecution,
        record: ExecutionRecord,
        *,
        stored: bool,
    ) -> None:
        self._journal, self._executions, self._transactions = journal, executions, transactions
        assert new.token is not None  # it runs here
        self._new, self._record, self._lease = new, record, Lease(new.id, new.token)
        self._row_is_stored = stored
        self._buffering = True
        self._rolling_back = False
        self._entries: list[Entry] = []

    def load(self, execution_id: UUID) -> tuple[ExecutionRecord, Sequence[Entry]]:
        if not self._buffering:
            return self._journal.load(execution_id)
        record = self._journal.load(execution_id)[0] if self._row_is_stored else self._record
        return record, tuple(self._entries)

    def append(self, lease: Lease, entry: Entry) -> None:
        if not self._buffering:
            self._journal.append(lease, entry)
            return
        if self._entries and self._entries[-1].seq == entry.seq:  # a transaction that is carried out again
            del self._entries[-1]
        self._entries.append(entry)

    def reconsider(self, lease: Lease, entry: Entry | None) -> tuple[Stop, str]:
        """Only a stored row can be asked to stop: what happened before is stored now, whatever stop was asked for."""
        if self._buffering and self._row_is_stored:
            self._transactions.carried_out(self._store_in_spite_of_a_stop)
            self._buffering = False
        return self._journal.reconsider(lease, entry)

    def move(self, lease: Lease, move: Move, entry: Entry | None = None) -> None:
        if not self._buffering:
            self._journal.move(lease, move, entry)
        elif move.to.is_end:
            last = replace(move, ignores_stop=move.ignores_stop or self._rolling_back)
            self._transactions.carried_out(lambda: self._store_with(lambda: self._journal.move(lease, last, entry)))
            self._buffering = False
        elif entry is not None:  # the start of a rollback: the end will tell
            self._rolling_back = True
            self._entries.append(entry)

    def release(self, lease: Lease, release: Release, entry: Entry | None = None) -> None:
        if not self._buffering:
            self._journal.release(lease, release, entry)
            return
        last = replace(release, ignores_stop=release.ignores_stop or self._rolling_back)
        self._transactions.carried_out(lambda: self._store_with(lambda: self._journal.release(lease, last, entry)))
        self._buffering = False

    def dispatch(self, lease: Lease, child: NewExecution, entry: Entry) -> None:
        self.flush()
        self._journal.dispatch(lease, child, entry)

    def flush(self) -> None:
        if self._buffering:
            self._transactions.carried_out(lambda: self._store_with(self._tell_the_rollback))
            self._buffering = False

    def _tell_the_rollback(self) -> None:
        """The row has to say by itself what nobody holds back any more."""
        if self._rolling_back:
            begins = Move(to=Status.ROLLING_BACK, expected=FORWARD, ignores_stop=True)
            self._journal.move(self._lease, begins)

    def _store_with(self, last: Callable[[], None]) -> None:
        """Inside a transaction, which may be carried out again: nothing is changed here."""
        self._store()
        last()

    def _store(self) -> None:
        if not self._row_is_stored and not self._executions.start(self._new):
            raise InternalError(f"execution {self._new.id} has no idempotency key, and yet it is taken")
        if self._rolling_back and self._row_is_stored:
            self._store_in_spite_of_a_stop()
            return
        for entry in self._entries:
            self._journal.append(self._lease, entry)

    def _store_in_spite_of_a_stop(self) -> None:
        """The row does not say that a rollback has begun, so a stop may have been accepted that came too late."""
        for entry in self._entries:
            self._journal.reconsider(self._lease, entry)
