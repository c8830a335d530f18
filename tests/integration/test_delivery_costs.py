"""What it costs to enqueue an execution and to deliver it, in statements and commits (PROTOCOL 3, claim)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.checks import CheckMessage
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_reactor import Reactor, async_step, runtime, step
from django_reactor.core.options import Retry
from django_reactor.core.statuses import Relation, Status
from django_reactor.journal.deliveries import OrmDeliveries
from django_reactor.journal.executions import OrmExecutions
from django_reactor.journal.fields import DbNow
from django_reactor.models import Execution
from django_reactor.worker import deliver, known
from tests.contract.committed import another_session, together, transactional_db
from tests.contract.sessions import kill_session, session_id
from tests.integration.test_statements import Chain

__all__ = ["transactional_db"]

pytestmark = pytest.mark.usefixtures("transactional_db", "outbox")

WRITES = ("INSERT", "UPDATE", "WITH")


class Outbox:
    """A queue that keeps what it is given."""

    sent: list[str] = []
    is_immediate = False
    supports_delay = True
    max_delay = float("inf")
    supports_priority = False

    def prepare(self) -> None:
        return None

    def enqueue(self, execution_id: str, *, queue_name: str, delay: float, priority: int | None) -> None:
        self.sent.append(execution_id)

    def check(self) -> Sequence[CheckMessage]:
        return []


@pytest.fixture
def outbox() -> Iterator[list[str]]:
    with override_settings(DJANGO_REACTOR={"BACKEND": f"{__name__}.Outbox"}):
        Outbox.sent.clear()
        yield Outbox.sent


@pytest.fixture(autouse=True)
def kept_connection() -> Iterator[None]:
    """As docs/workers recommends it for workers."""
    with connections_kept():
        yield


@contextmanager
def connections_kept() -> Iterator[None]:
    settings = connections[DEFAULT_DB_ALIAS].settings_dict
    before = settings["CONN_MAX_AGE"]
    settings["CONN_MAX_AGE"] = None
    connection.close()  # it knows when it is to be closed from when it was opened
    try:
        yield
    finally:
        settings["CONN_MAX_AGE"] = before
        connection.close()


def words(action: Callable[[], Any]) -> list[str]:
    """The statements of the action, each by its first word."""
    connection.ensure_connection()
    with CaptureQueriesContext(connection) as captured:
        action()
    return [query["sql"].split()[0].upper().rstrip(";") for query in captured.captured_queries]


def commits(statements: Sequence[str]) -> int:
    """How often something was committed: reads commit nothing."""
    count, in_transaction, wrote = 0, False, False
    for word in statements:
        match word:
            case "BEGIN":
                in_transaction, wrote = True, False
            case "COMMIT":
                in_transaction, count = False, count + wrote
            case _ if word in WRITES:
                wrote, count = True, count + (not in_transaction)
    return count


def enqueued(chain: Chain) -> UUID:
    execution_id = chain.reactor.enqueue().execution_id
    assert isinstance(execution_id, UUID)
    return execution_id


def is_completed(execution_id: UUID) -> bool:
    return Execution.objects.get(pk=execution_id).status == Status.COMPLETED


# -- statements and commits --------------------------------------------------------------------------------------------


def test_to_enqueue_is_one_statement(outbox: list[str]) -> None:
    assert words(Chain(5).reactor.enqueue) == ["INSERT"]
    assert len(outbox) == 1


def test_a_claim_is_one_commit_and_one_statement_where_an_update_returns_its_row(database: str) -> None:
    execution_id = enqueued(Chain(1))
    statements = words(lambda: runtime.services().executions.claim(execution_id, uuid4()))
    expected = {"mysql": ["BEGIN", "SELECT", "UPDATE", "SELECT", "COMMIT"]}
    assert statements == expected.get(database, ["UPDATE"])


def test_a_claim_that_another_was_faster_with_writes_nothing(database: str) -> None:
    execution_id = enqueued(Chain(1))
    assert runtime.services().executions.claim(execution_id, uuid4()) is not None
    statements = words(lambda: runtime.services().executions.claim(execution_id, uuid4()))
    assert statements == {"mysql": ["BEGIN", "SELECT", "COMMIT"]}.get(database, ["UPDATE"])


@pytest.mark.parametrize("n", [1, 5, 20])
def test_a_delivery_of_n_steps_commits_the_claim_and_each_step_the_last_with_the_end(n: int, database: str) -> None:
    """Where one statement claims what is known here and returns the row, nothing is read at all: the journal of an
    execution that nobody ran before is empty. Elsewhere it reads where the execution belongs, and the row."""
    execution_id = enqueued(Chain(n))
    statements = words(lambda: deliver(execution_id))
    assert is_completed(execution_id)
    assert commits(statements) == 1 + n
    assert statements.count("SELECT") == (3 if database == "mysql" else 0)
    assert statements.count("INSERT") + statements.count("WITH") == n


class Patient(Reactor):
    """Its step is tried again in another delivery."""

    class Meta:
        app_label = "budget"

    @step(retry=Retry(max_attempts=2, delay=60))
    def only(self) -> str:
        if self.context.attempt == 1:
            raise ValueError("not yet")
        return "done"


def test_a_later_delivery_also_reads_the_journal(database: str) -> None:
    execution_id = Patient.enqueue().execution_id
    assert execution_id is not None
    deliver(execution_id)
    assert Execution.objects.filter(pk=execution_id, status=Status.SCHEDULED).update(wake_at=DbNow()) == 1
    statements = words(lambda: deliver(execution_id))
    assert is_completed(execution_id)
    assert commits(statements) == 2
    assert statements.count("SELECT") == (4 if database == "mysql" else 1)


def test_a_second_message_changes_nothing() -> None:
    execution_id = enqueued(Chain(1))
    deliver(execution_id)
    before = Execution.objects.values().get(pk=execution_id)
    statements = words(lambda: deliver(execution_id))
    assert Execution.objects.values().get(pk=execution_id) == before
    assert len(statements) <= 5  # the claim in vain, where it belongs, the claim again, whether it is due soon


class WithUnit(Reactor):
    class Meta:
        app_label = "budget"

    @async_step
    def mail(self) -> str:
        return "sent"


def test_a_unit_is_claimed_without_a_look_at_where_it_belongs(database: str) -> None:
    deliver(str(WithUnit.enqueue().execution_id))
    unit = Execution.objects.get(relation=Relation.ASYNC_STEP)
    statements = words(lambda: deliver(unit.pk))
    assert is_completed(unit.pk)
    assert statements[0] == ("SELECT" if database == "mysql" else "UPDATE")


def test_what_is_not_known_here_is_put_back_and_its_row_says_when_its_message_comes_and_nothing_else(
    outbox: list[str],
) -> None:
    """Another version of the project is at work beside this one."""
    execution_id = enqueued(Chain(1))
    Execution.objects.filter(pk=execution_id).update(reactor="budget.Newer")
    before = Execution.objects.values().get(pk=execution_id)
    outbox.clear()
    deliver(execution_id)
    after = Execution.objects.values().get(pk=execution_id)
    assert {name for name, value in after.items() if (name, value) not in before.items()} == {"sent_at"}
    assert outbox == [str(execution_id)]


def test_a_reactor_that_is_declared_later_is_known_to_the_next_delivery(database: str) -> None:
    deliver(enqueued(Chain(1)))
    execution_id = enqueued(Chain(13))
    statements = words(lambda: deliver(execution_id))
    assert is_completed(execution_id)
    assert statements[0] == ("SELECT" if database == "mysql" else "UPDATE")


# -- connections -------------------------------------------------------------------------------------------------------


def test_deliveries_keep_the_connection_where_the_project_says_so() -> None:
    first = session_id()
    for _ in range(3):
        deliver(enqueued(Chain(1)))
        assert session_id() == first


def test_a_delivery_on_a_connection_that_has_broken_is_made_on_a_new_one() -> None:
    """The server was restarted, or a proxy forgot an idle connection: the message must not wait for a sweep."""
    execution_id = enqueued(Chain(2))
    broken = session_id()
    kill_session(broken)
    deliver(execution_id)
    assert is_completed(execution_id)
    assert session_id() != broken


@pytest.mark.parametrize(
    "first_statement",
    [OrmDeliveries().route, lambda execution_id: OrmExecutions().claim(execution_id, uuid4(), known())],
    ids=["where it belongs", "claim"],
)
def test_inside_a_transaction_a_broken_connection_is_an_error(first_statement: Callable[[UUID], Any]) -> None:
    """A new one would not be in it."""
    execution_id = enqueued(Chain(1))
    broken = session_id()
    with pytest.raises(Exception, match=r".*"), transaction.atomic():
        kill_session(broken)
        first_statement(execution_id)
    connection.close()
    assert Execution.objects.get(pk=execution_id).status == Status.PENDING


# -- the adapters of a process -----------------------------------------------------------------------------------------


def test_threads_that_begin_at_once_share_their_adapters() -> None:
    """Each set would renew leases by a thread of its own."""
    made = dict(runtime._made)
    runtime._made.clear()
    try:
        found = together(8, lambda _: runtime.services())
        assert {id(one) for one in found} == {id(runtime.services())}
    finally:
        runtime._made.update(made)


def test_a_thread_gets_what_the_others_have() -> None:
    with another_session() as session:
        assert session(runtime.services).result(20) is runtime.services()
