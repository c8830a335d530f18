"""An interruption that strikes while a transaction is being opened leaves none open: not one that holds locks behind
Django's back, and not a block that Django takes for open, whose later writes nobody would commit.

Ctrl-C mostly strikes there where many write to one SQLite file: whoever begins a transaction waits, and notices the
signal as the wait is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from django_reactor import Reactor, Success, step
from django_reactor.core.statuses import Status
from django_reactor.runtime import services
from tests.contract.committed import another_session
from tests.contract.sessions import kill_session, session_id
from tests.crash.processes import only_execution
from tests.crash.reactors import TABLE, effects, leave

PATIENCE = 5.0
MOST_TRANSACTIONS = 20


class Transfer(Reactor[str]):
    class Meta:
        app_label = "interrupted_transactions"
        returns = "pay"

    @step(atomic=True)
    def book(self) -> None:
        leave("book")

    @step
    def pay(self, book: None) -> str:
        with transaction.atomic():
            leave("pay")
        return "paid"


class Interrupted(Reactor[Any]):
    class Meta:
        app_label = "interrupted_transactions"

    @step(atomic=True)
    def book(self) -> None:
        leave("book")
        raise KeyboardInterrupt


class Interrupting:
    """Interrupts the transaction of this number, as it is opened."""

    def __init__(self, number: int) -> None:
        self.number, self.begun = number, 0

    def begin(self) -> None:
        self.begun += 1
        if self.begun == self.number:
            raise KeyboardInterrupt

    def as_it_begins(self, patch: pytest.MonkeyPatch) -> None:
        """The database has begun it, and Django has not noted it."""
        set_autocommit = connection.set_autocommit

        def interrupted(autocommit: bool, *args: Any, **kwargs: Any) -> None:
            set_autocommit(autocommit, *args, **kwargs)
            if not autocommit:
                self.begin()

        patch.setattr(connection, "set_autocommit", interrupted)

    def as_its_block_is_entered(self, patch: pytest.MonkeyPatch) -> None:
        """Django has noted it, and the block has not begun."""
        enter = transaction.Atomic.__enter__

        def interrupted(block: transaction.Atomic) -> None:
            is_outermost = not connection.in_atomic_block
            enter(block)
            if is_outermost:
                self.begin()

        patch.setattr(transaction.Atomic, "__enter__", interrupted)


MOMENTS = [Interrupting.as_it_begins, Interrupting.as_its_block_is_entered]


def forget_effects() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {TABLE}")


def interruptible(run: Callable[[], object], moment: Callable[..., None], number: int) -> bool:
    """Interrupt this transaction of it; whether there is one."""
    interrupting = Interrupting(number)
    with pytest.MonkeyPatch.context() as patch:
        moment(interrupting, patch)
        try:
            run()
        except KeyboardInterrupt:
            return True
    return False


@pytest.mark.parametrize("moment", MOMENTS)
def test_whichever_transaction_is_interrupted_none_stays_open_and_a_retry_goes_on(moment: Callable[..., None]) -> None:
    number = 1
    while interruptible(Transfer.run, moment, number):
        assert number < MOST_TRANSACTIONS
        assert connection.get_autocommit()
        assert not connection.in_atomic_block
        with another_session() as session:
            session(lambda: leave("elsewhere")).result(PATIENCE)
        execution = only_execution()
        assert execution.status == Status.ABORTED
        assert execution.retry() == Success("paid", execution_id=execution.pk)
        done = effects()
        assert done.keys() == {"elsewhere", "book", "pay"}
        assert (done["elsewhere"], done["book"]) == (1, 1), "the step in flight ran again, an atomic one never twice"
        execution.delete()
        forget_effects()
        number += 1
    assert number > 2, "those of the atomic step and of the body were interrupted"


def test_a_callers_transaction_is_left_to_the_caller() -> None:
    with transaction.atomic():
        leave("caller")
        with pytest.raises(KeyboardInterrupt):
            Interrupted.run()
    assert effects() == Counter(["caller"])
    assert only_execution().status == Status.ABORTED


# -- where the connection itself is broken -----------------------------------------------------------------------------


def session_that_has_ended() -> None:
    kill_session(session_id())


def statement_that_has_no_answer_yet() -> None:
    """Dramatiq's interruptions strike psycopg in its wait for an answer, and are none of those that it looks for."""
    connection.connection.pgconn.send_query(b"SELECT pg_sleep(0.2)")


BREAKS = [
    pytest.param(
        session_that_has_ended,
        marks=pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no session that could be lost"),
    ),
    pytest.param(
        statement_that_has_no_answer_yet,
        marks=pytest.mark.skipif(connection.vendor != "postgresql", reason="what psycopg does"),
    ),
]


@pytest.mark.parametrize("breaks", BREAKS)
@pytest.mark.parametrize("is_in_block", [False, True])
def test_a_connection_that_cannot_even_be_rolled_back_is_replaced(
    breaks: Callable[[], None], is_in_block: bool
) -> None:
    connection.ensure_connection()
    if is_in_block:
        transaction.atomic().__enter__()
    breaks()
    services().transactions.reconnect(but=())
    assert not connection.in_atomic_block
    leave("afterwards")
    with another_session() as session:
        assert session(effects).result(PATIENCE) == Counter(["afterwards"])
