"""The contract of the port `Transactions`, and what the ORM's adds to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from django.db import IntegrityError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_reactor.engine.execution_ports import Journal, Refused
from django_reactor.engine.ports import CommitRefused, Scope, Transactions
from django_reactor.engine.records import Lease
from django_reactor.models import JournalEntry
from tests.contract.committed import another_session
from tests.contract.stores import Orm, Store, entry, lease_of, new_execution

Opened = AbstractContextManager[Scope]


@pytest.fixture(params=["around_body", "atomic"])
def scope(request: pytest.FixtureRequest, transactions: Transactions) -> Opened:
    opened: Opened = getattr(transactions, request.param)()
    return opened


def test_a_scope_lets_what_happens_in_it_pass(store: Store, scope: Opened, journal: Journal, lease: Lease) -> None:
    with scope as opened:
        assert not opened.opened_by_body()
        assert opened.broken() is None
        assert opened.check() is None
        journal.append(lease, entry(1))
    assert store.row(lease.execution_id).entries == (entry(1),)


def test_a_scope_lets_exceptions_pass(scope: Opened) -> None:
    with pytest.raises(KeyboardInterrupt), scope:
        raise KeyboardInterrupt


def test_a_refused_entry_leaves_an_atomic_scope_as_it_is(
    store: Store, transactions: Transactions, journal: Journal, lease: Lease
) -> None:
    journal.append(lease, entry(1))
    with pytest.raises(Refused), transactions.atomic():
        journal.append(lease, entry(1, value='"late"'))
    journal.append(lease, entry(2))
    assert [e.seq for e in store.row(lease.execution_id).entries] == [1, 2]


# -- on Django's connections -------------------------------------------------------------------------------------------


@pytest.fixture
def row(orm: Orm) -> Lease:
    new = new_execution()
    assert orm.executions.start(new)
    return lease_of(new)


@pytest.fixture(params=["no transaction", "a caller's transaction"])
def caller(request: pytest.FixtureRequest, row: Lease) -> Iterator[bool]:
    """Whether the caller has a transaction open; it is committed in the end."""
    if request.param == "no transaction":
        yield False
    else:
        with transaction.atomic():
            yield True


def write(lease: Lease, seq: int) -> None:
    """As a step's body writes to a table of its own."""
    e = entry(seq)
    JournalEntry.objects.create(
        execution_id=lease.execution_id, seq=seq, action=e.action, started_at=e.started_at, finished_at=e.finished_at
    )


def written() -> list[int]:
    return list(JournalEntry.objects.order_by("seq").values_list("seq", flat=True))


def test_a_callers_transaction_is_noticed(orm: Orm, caller: bool) -> None:
    assert orm.transactions.in_callers_block() is caller


def test_around_a_body_there_is_no_transaction_of_ours(orm: Orm, row: Lease) -> None:
    with orm.transactions.around_body():
        assert not connection.in_atomic_block
        write(row, 1)
        with another_session() as session:
            assert session(written).result(10) == [1]


def test_a_failing_body_leaves_a_callers_transaction_usable(orm: Orm, row: Lease) -> None:
    with transaction.atomic():
        write(row, 1)
        with orm.transactions.around_body() as scope:
            with pytest.raises(IntegrityError):
                write(row, 1)
            scope.roll_back()
        write(row, 2)
    assert written() == [1, 2]


def test_a_body_that_is_rolled_back_leaves_nothing_in_a_callers_transaction(orm: Orm, row: Lease) -> None:
    with transaction.atomic():
        with orm.transactions.around_body() as scope:
            write(row, 1)
            scope.roll_back()
        write(row, 2)
    assert written() == [2]


def test_rolling_back_without_a_transaction_keeps_what_was_committed(orm: Orm, row: Lease) -> None:
    with orm.transactions.around_body() as scope:
        write(row, 1)
        scope.roll_back()
    assert written() == [1]


def test_an_atomic_scope_commits_or_rolls_back_as_a_whole(orm: Orm, row: Lease, caller: bool) -> None:
    with orm.transactions.atomic() as scope:
        write(row, 1)
        scope.roll_back()
    with pytest.raises(KeyboardInterrupt), orm.transactions.atomic():
        write(row, 2)
        raise KeyboardInterrupt
    with orm.transactions.atomic():
        write(row, 3)
    assert written() == [3]


@pytest.mark.parametrize("name", ["around_body", "atomic"])
def test_a_block_that_the_body_opened_is_noticed_and_no_other(orm: Orm, caller: bool, name: str) -> None:
    with getattr(orm.transactions, name)() as scope:
        assert not scope.opened_by_body()
        with transaction.atomic():
            assert scope.opened_by_body()
        assert not scope.opened_by_body()


@pytest.fixture(params=["atomic", "atomic in a caller's transaction", "around_body in a caller's transaction"])
def in_transaction(request: pytest.FixtureRequest, orm: Orm, row: Lease) -> Iterator[Opened]:
    """A scope inside of a transaction, whoever opened that."""
    name, _, of_caller = request.param.partition(" ")
    with transaction.atomic() if of_caller else nullcontext():
        yield getattr(orm.transactions, name)()


def test_a_swallowed_database_error_is_found(row: Lease, in_transaction: Opened) -> None:
    with in_transaction as scope:
        write(row, 1)
        with pytest.raises(IntegrityError), transaction.atomic(savepoint=False):
            write(row, 1)
        problems = scope.broken(), scope.check()
        scope.roll_back()
    assert [type(problem) for problem in problems] == [transaction.TransactionManagementError] * 2
    assert written() == []


def test_a_statement_that_postgres_refused_without_django_noticing_is_found(
    row: Lease, in_transaction: Opened, database: str
) -> None:
    if database != "postgresql":
        pytest.skip("elsewhere a failed statement breaks nothing but itself")
    with in_transaction as scope:
        with pytest.raises(IntegrityError), connection.cursor() as cursor:
            cursor.execute("INSERT INTO django_reactor_journalentry (id) VALUES (1)")
        problems = scope.broken(), scope.check()
        scope.roll_back()
    assert None not in problems
    write(row, 1)  # a caller's transaction is usable


def test_whether_a_transaction_is_broken_is_known_without_asking(row: Lease, in_transaction: Opened) -> None:
    with in_transaction as scope:
        write(row, 1)
        with CaptureQueriesContext(connection) as asked:
            assert scope.broken() is None
        assert not asked.captured_queries


# -- a caller's transaction on another database ------------------------------------------------------------------------

OTHER = "other"


class Elsewhere:
    """A table of one column on another database, where the caller has a transaction open."""

    def add(self, name: str) -> None:
        with connections[OTHER].cursor() as cursor:
            cursor.execute("INSERT INTO elsewhere VALUES (%s)", [name])

    def names(self) -> list[str]:
        with connections[OTHER].cursor() as cursor:
            cursor.execute("SELECT name FROM elsewhere ORDER BY name")
            return [name for (name,) in cursor.fetchall()]


@pytest.fixture
def elsewhere(orm: Orm, tmp_path: Path) -> Iterator[Elsewhere]:
    chosen = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "other.sqlite3")}}
    connections.settings[OTHER] = connections.configure_settings(chosen)["default"]
    try:
        with connections[OTHER].cursor() as cursor:
            cursor.execute("CREATE TABLE elsewhere (name text UNIQUE)")
        yield Elsewhere()
    finally:
        connections[OTHER].close()
        del connections[OTHER], connections.settings[OTHER]


@pytest.mark.parametrize("name", ["around_body", "atomic"])
def test_a_failing_body_takes_back_what_it_wrote_in_a_callers_transaction_elsewhere_and_no_more(
    orm: Orm, elsewhere: Elsewhere, name: str
) -> None:
    with transaction.atomic(using=OTHER):
        elsewhere.add("the caller's")
        with getattr(orm.transactions, name)() as scope:
            elsewhere.add("the body's")
            assert not scope.opened_by_body()
            with transaction.atomic(using=OTHER):
                assert scope.opened_by_body()
            scope.roll_back()
        with pytest.raises(KeyboardInterrupt), getattr(orm.transactions, name)():
            elsewhere.add("of one that was cut off")
            raise KeyboardInterrupt
        with getattr(orm.transactions, name)():
            elsewhere.add("of another that went well")
    assert elsewhere.names() == ["of another that went well", "the caller's"]


@pytest.mark.parametrize("name", ["around_body", "atomic"])
def test_an_error_that_a_body_swallowed_in_a_callers_transaction_elsewhere_is_found(
    orm: Orm, elsewhere: Elsewhere, name: str
) -> None:
    with transaction.atomic(using=OTHER):
        with getattr(orm.transactions, name)() as scope:
            elsewhere.add("twice")
            with pytest.raises(IntegrityError), transaction.atomic(using=OTHER, savepoint=False):
                elsewhere.add("twice")
            assert scope.broken() is not None
            scope.roll_back()
        elsewhere.add("after")
    assert elsewhere.names() == ["after"]


DEFERRED = {
    "sqlite": "CREATE TABLE store_contract (parent char(32) REFERENCES django_reactor_execution (id) "
    "DEFERRABLE INITIALLY DEFERRED)",
    "postgresql": "CREATE TABLE store_contract (parent uuid REFERENCES django_reactor_execution (id) "
    "DEFERRABLE INITIALLY DEFERRED)",
}


@pytest.fixture
def deferred_constraint(row: Lease, database: str) -> Iterator[None]:
    """A table whose foreign key is looked at when a transaction commits."""
    if database not in DEFERRED:
        pytest.skip("the database checks foreign keys at once")
    with connection.cursor() as cursor:
        cursor.execute(DEFERRED[database])
        yield
        cursor.execute("DROP TABLE store_contract")


def test_a_violated_deferred_constraint_fails_the_step_and_not_the_engine(
    orm: Orm, deferred_constraint: None, database: str
) -> None:
    """PostgreSQL is asked before the commit, SQLite refuses the commit: either way the step learns of it."""
    unknown = new_execution().id
    problem: BaseException | None = None
    try:
        with orm.transactions.atomic() as scope:
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO store_contract VALUES (%s)", [unknown.hex])
            problem = scope.check()
            if problem is not None:
                scope.roll_back()
    except CommitRefused as refused:
        problem = refused.__cause__
    assert isinstance(problem, IntegrityError)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM store_contract")
        assert cursor.fetchone() == (0,)


def test_a_refused_commit_leaves_nothing_in_a_callers_transaction_elsewhere(
    orm: Orm, deferred_constraint: None, elsewhere: Elsewhere
) -> None:
    with transaction.atomic(using=OTHER):
        with pytest.raises(CommitRefused), orm.transactions.atomic():
            elsewhere.add("the body's")
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO store_contract VALUES (%s)", [new_execution().id.hex])
        elsewhere.add("after")
    assert elsewhere.names() == ["after"]


def test_an_error_of_the_body_is_not_taken_for_a_refused_commit(orm: Orm, row: Lease, caller: bool) -> None:
    with pytest.raises(IntegrityError), orm.transactions.atomic():
        write(row, 1)
        write(row, 1)
    assert written() == []
