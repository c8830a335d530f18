"""What an execution costs, in statements and commits (DESIGN 8, PROTOCOL 3).

Statements are those that Django sees. Commits are counted twice: from the statements (each one outside a transaction
commits itself, and each COMMIT does), and, where the database tells, by the database: PostgreSQL writes into each row
which transaction did it (`xmin`), MariaDB counts the commits of a session (`Handler_commit`).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from types import FrameType
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_reactor import Reactor, compose, fail, step
from django_reactor.core.options import Retry
from django_reactor.core.statuses import Status
from django_reactor.journal.orm import OrmJournal
from django_reactor.models import Execution, JournalEntry
from tests.contract.committed import transactional_db

__all__ = ["transactional_db"]

pytestmark = pytest.mark.usefixtures("transactional_db")

WRITES = {"INSERT": 1, "UPDATE": 1, "WITH": 2}
"""How many writes a statement is: PostgreSQL takes the end and its entry together, WITH … UPDATE … INSERT."""
BRACKETS = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")


class Chain:
    """Reactors of n steps, each of which reads the one before it."""

    def __init__(self, n: int, *, fails: bool = False, undo: bool = False, **meta: Any) -> None:
        body: dict[str, Any] = {"__module__": __name__, "__qualname__": f"Chain.<locals>.Chain{n}"}
        for number in range(1, n + 1):
            declared = step(self.last if fails and number == n else self.link(number))
            body[f"s{number}"] = declared
            if undo:
                body[f"u{number}"] = declared.undo(undo_of(number))
        if meta:
            body["Meta"] = type("Meta", (), meta)
        self.reactor: Any = types.new_class(f"Chain{n}", (Reactor,), exec_body=lambda names: names.update(body))

    @staticmethod
    def link(number: int) -> Callable[..., Any]:
        before = f", s{number - 1}" if number > 1 else ""
        scope: dict[str, Any] = {}
        exec(f"def s{number}(self{before}): return {number}", scope)  # parameters are what makes it a chain
        found: Callable[..., Any] = scope[f"s{number}"]
        return found

    @staticmethod
    def last(self: Any) -> None:
        fail("no stock", retry=False)


def undo_of(number: int) -> Callable[..., Any]:
    def undo(self: Any, result: int) -> None:
        return None

    undo.__name__ = undo.__qualname__ = f"u{number}"
    return undo


class Cost:
    """What the statements of a block were."""

    def __init__(self, captured: CaptureQueriesContext) -> None:
        self.statements = [query["sql"].split()[0].upper().rstrip(";") for query in captured.captured_queries]

    @property
    def writes(self) -> int:
        return sum(WRITES.get(word, 0) for word in self.statements)

    @property
    def others(self) -> list[str]:
        return [word for word in self.statements if word not in WRITES and word not in BRACKETS]

    @property
    def commits(self) -> int:
        commits, in_transaction = 0, False
        for word in self.statements:
            match word:
                case "BEGIN":
                    in_transaction = True
                case "COMMIT":
                    commits, in_transaction = commits + 1, False
                case "ROLLBACK":
                    in_transaction = False
                case _ if not in_transaction:
                    commits += 1
        return commits


def cost_of(action: Callable[[], Any]) -> Cost:
    connection.ensure_connection()
    with CaptureQueriesContext(connection) as captured:
        action()
    return Cost(captured)


# -- running -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 5, 20])
def test_n_steps_cost_n_plus_two_writes_in_n_plus_one_commits_and_nothing_else(n: int) -> None:
    """The row; an entry a step; the last one's transaction also updates the row."""
    chain = Chain(n)
    cost = cost_of(chain.reactor.run)
    assert (cost.writes, cost.commits, cost.others) == (n + 2, n + 1, [])
    assert Execution.objects.get().status == Status.COMPLETED


def test_a_failing_step_costs_what_a_succeeding_one_does_if_nothing_is_to_be_undone() -> None:
    cost = cost_of(Chain(5, fails=True).reactor.run)
    assert (cost.writes, cost.commits, cost.others) == (7, 6, [])
    assert Execution.objects.get().status == Status.FAILED


@pytest.mark.parametrize("k", [1, 5])
def test_a_rollback_costs_an_update_at_its_start_and_an_entry_an_undo(k: int) -> None:
    """The row; k successes; the failure, together with the status rolling_back; k undos; the last one's transaction
    also updates the row."""
    cost = cost_of(Chain(k + 1, fails=True, undo=True).reactor.run)
    assert (cost.writes, cost.commits, cost.others) == (1 + k + 2 + k + 1, 1 + k + 1 + k, [])
    assert JournalEntry.objects.filter(action="undo").count() == k


class Stubborn(Reactor):
    class Meta:
        app_label = "budget"

    @step(retry=Retry(max_attempts=3, delay=0))
    def only(self) -> str:
        if self.context.attempt < 3:
            raise ValueError("not yet")
        return "done"


def test_a_retry_costs_one_entry_in_one_commit() -> None:
    cost = cost_of(Stubborn.run)
    assert (cost.writes, cost.commits, cost.others) == (3 + 2, 2 + 2, [])


class Atomic(Reactor):
    class Meta:
        app_label = "budget"

    @step(atomic=True)
    def first(self) -> int:
        return 1

    @step(atomic=True)
    def second(self, first: int) -> int:
        return 2


def test_an_atomic_step_costs_one_transaction_with_its_entry(database: str) -> None:
    """PostgreSQL is also asked to look at deferred constraints (SET CONSTRAINTS … IMMEDIATE, … DEFERRED)."""
    cost = cost_of(Atomic.run)
    assert (cost.writes, cost.commits) == (4, 3)
    assert cost.others == (["SET"] * 4 if database == "postgresql" else [])


@pytest.mark.parametrize("n", [1, 5, 20])
def test_durability_exit_writes_everything_in_one_commit(n: int) -> None:
    chain = Chain(n, durability="exit")
    cost = cost_of(chain.reactor.run)
    assert (cost.writes, cost.commits, cost.others) == (n + 2, 1, [])


def test_in_a_callers_transaction_only_what_writes_two_things_has_a_savepoint() -> None:
    def in_a_transaction() -> None:
        with transaction.atomic():
            Chain(5).reactor.run()

    cost = cost_of(in_a_transaction)
    assert (cost.writes, cost.commits, cost.others) == (7, 1, [])


@pytest.mark.parametrize("n", [1, 5])
def test_a_composed_child_costs_its_opening_its_end_and_an_entry_of_its_parent(n: int) -> None:
    """Opening: the fence, its row and the parent's entry. Its end shares the transaction of its last entry; there the
    fence is an UPDATE of its own. Nothing is read."""
    composed = types.new_class(
        f"Composed{n}", (Reactor,), exec_body=lambda names: names.update(child=compose(Chain(n).reactor))
    )
    cost = cost_of(composed.run)  # type: ignore[attr-defined]
    assert (cost.writes, cost.commits, cost.others) == (1 + 3 + (n + 2) + 2, 1 + 1 + n + 1, [])


# -- by the database's own account -------------------------------------------------------------------------------------


@pytest.fixture
def session_commits(database: str) -> Callable[[], int]:
    if database != "mysql":
        pytest.skip("counted by the session on MariaDB and MySQL only")

    def read() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_commit'")
            return int(cursor.fetchone()[1])

    return read


@pytest.mark.parametrize("n", [1, 5, 20])
def test_mariadb_counts_n_plus_one_commits(session_commits: Callable[[], int], n: int) -> None:
    """Its counter goes up with each COMMIT and with the end of each statement, which outside a transaction is the
    commit: the two statements in the last transaction count once more than they commit."""
    chain = Chain(n)
    before = session_commits()
    chain.reactor.run()
    assert session_commits() - before - 2 == n + 1


def writers(table: str, column: str, execution_id: UUID) -> list[str]:
    """The transaction that wrote each row, in the order of the journal."""
    order = "seq" if column == "execution_id" else "id"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT xmin::text FROM {table} WHERE {column} = %s ORDER BY {order}", [execution_id])
        return [xmin for (xmin,) in cursor.fetchall()]


@pytest.mark.parametrize("n", [1, 5, 20])
def test_postgres_shows_a_transaction_for_each_entry_and_the_end_in_the_last(database: str, n: int) -> None:
    if database != "postgresql":
        pytest.skip("a column of PostgreSQL")
    execution_id = Chain(n).reactor.run().execution_id
    entries = writers("django_reactor_journalentry", "execution_id", execution_id)
    row = writers("django_reactor_execution", "id", execution_id)
    assert len(set(entries)) == n
    assert row == entries[-1:]


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 20])
def test_an_execution_is_loaded_by_two_queries(n: int) -> None:
    Chain(n).reactor.run()
    execution = Execution.objects.get()
    assert cost_of(lambda: OrmJournal().load(execution.pk)).statements == ["SELECT", "SELECT"]
    assert cost_of(execution.result).statements == ["SELECT", "SELECT"]
    assert cost_of(lambda: execution.results).statements == ["SELECT", "SELECT"]


def work_of(action: Callable[[], Any]) -> int:
    """How many instructions Python executes: what a time would tell, without the noise of the machine. What C does in
    one of them is not seen."""
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return counted

    before = sys.gettrace()
    sys.settrace(counted)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def work_per_step(n: int, measured: Callable[[Any], Callable[[], Any]]) -> float:
    """Of the steps between the n-th and the 2n-th, once everything is compiled and cached."""
    chains = Chain(n).reactor, Chain(2 * n).reactor
    for chain in chains:
        measured(chain)()
    shorter, longer = (work_of(measured(chain)) for chain in chains)
    return (longer - shorter) / n


def reading(reactor: Any) -> Callable[[], Any]:
    execution = Execution.objects.get(pk=reactor.run().execution_id)
    return lambda: dict(execution.results)


@pytest.mark.parametrize("measured", [lambda reactor: reactor.run, reading], ids=["run", "read"])
def test_the_work_for_a_step_does_not_grow_with_the_steps_before_it(measured: Callable[[Any], Any]) -> None:
    assert work_per_step(60, measured) == pytest.approx(work_per_step(10, measured), rel=0.05)


def test_the_cost_of_a_step_does_not_grow_with_the_steps_before_it() -> None:
    per_step = [cost_of(Chain(n).reactor.run).writes - n for n in (1, 10, 40)]
    assert per_step == [2, 2, 2]
