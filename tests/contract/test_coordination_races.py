"""The stores of coordination in the database with several sessions at once: what others have locked is passed, what
they have not committed does not count, and numbers follow the commits."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from uuid import uuid4

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_reactor.coordination.database.holds import DatabaseHolds
from django_reactor.coordination.database.rates import DatabaseRateLimits
from django_reactor.coordination.database.turns import DatabaseTurns
from django_reactor.engine.coordination_ports import Hold, HoldKind, TurnState, Wanted, Window
from django_reactor.models import Holder, RateCount, Ticket
from tests.contract.committed import PATIENCE, Between, another_session, together
from tests.contract.connections import default_connection_with
from tests.contract.coordination_stores import Database, lock, semaphore, take
from tests.contract.locks import session_id, until_blocked

AT_ONCE = 5.0
"""Seconds, of a machine that is busy: less than any server makes a statement wait for a lock."""
WEEK = Window(name="week", seconds=7 * 86400, limit=3)
KEY = "account:1"

WANTED = pytest.mark.parametrize("wanted", [lock(), semaphore(limit=1)], ids=["lock", "semaphore of one"])
pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture
def rows_are_locked(database: str) -> None:
    if database == "sqlite":
        pytest.skip("SQLite has one writer at a time, and no locks on rows")


@pytest.fixture
def holds() -> DatabaseHolds:
    return DatabaseHolds()


def in_time(seconds: float = AT_ONCE) -> Callable[[], bool]:
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() < deadline


# -- holds -------------------------------------------------------------------------------------------------------------


@WANTED
@pytest.mark.parametrize("known", [False, True], ids=["for the first time", "again"])
def test_of_many_takers_at_once_one_gets_it(holds: DatabaseHolds, wanted: Wanted, known: bool) -> None:
    if known:
        holds.release([take(holds, wanted)])
    taken = together(8, lambda _: holds.take(uuid4(), 1, wanted))
    assert sum(hold is not None for hold in taken) == 1
    assert len(holds.holders(wanted.kind, wanted.key)) == 1


@pytest.mark.parametrize("known", [False, True], ids=["for the first time", "again"])
def test_a_semaphore_is_never_overfull_and_each_holder_has_a_slot_of_its_own(holds: DatabaseHolds, known: bool) -> None:
    wanted = semaphore(limit=3)
    if known:
        holds.release([take(holds, wanted) for _ in range(3)])
    taken = [hold for hold in together(8, lambda _: holds.take(uuid4(), 1, wanted)) if hold is not None]
    assert 1 <= len(taken) <= 3
    assert len({hold.slot for hold in taken}) == len(taken)
    assert {h.owner for h in holds.holders(wanted.kind, wanted.key)} == {hold.owner for hold in taken}


def test_many_who_take_and_release_are_never_in_together(holds: DatabaseHolds) -> None:
    inside: list[int] = []
    most: list[int] = []

    def one(number: int) -> int:
        rounds, running = 0, in_time()
        while rounds < 5 and running():
            hold = holds.take(uuid4(), 1, lock())
            if hold is not None:
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)
                assert holds.release([hold]) == {hold}
                rounds += 1
        return rounds

    assert sum(together(4, one)) >= 5
    assert max(most) == 1


@WANTED
@pytest.mark.parametrize("known", [False, True], ids=["for the first time", "again"])
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_what_another_has_taken_and_not_committed_is_unavailable_at_once_and_free_after_a_rollback(
    holds: DatabaseHolds, wanted: Wanted, known: bool, ends: str, database: str
) -> None:
    if known:
        holds.release([take(holds, wanted)])
    running = in_time()
    with another_session() as other:
        with transaction.atomic():
            hold = take(holds, wanted)
            assert other(lambda: holds.take(uuid4(), 1, wanted)).result(PATIENCE) is None
            assert running(), "nobody waits for the end of another's transaction"
            transaction.set_rollback(ends == "rollback")
        after = other(lambda: holds.take(uuid4(), 1, wanted)).result(PATIENCE)
    assert (after is None) is (ends == "commit")
    assert holds.release([hold]) == ({hold} if ends == "commit" else set())


@pytest.mark.parametrize("number", range(1, 7))
def test_whose_slot_is_given_up_and_taken_by_another_while_it_asks_for_it_gets_a_free_one(
    holds: DatabaseHolds, number: int
) -> None:
    wanted = semaphore(limit=3)
    holds.release([take(holds, wanted) for _ in range(3)])
    earlier = take(holds, wanted)

    def hand_over() -> None:
        holds.release([earlier])
        holds.take(uuid4(), 1, wanted)

    handed_over = Between(number, hand_over)
    with connection.execute_wrapper(handed_over):
        assert holds.take(earlier.owner, 2, wanted) is not None


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_who_finds_a_semaphore_taken_keeps_no_other_key_from_others(
    holds: DatabaseHolds, limit: int, rows_are_locked: None
) -> None:
    """Though its transaction goes on, and rows of other keys are right behind those that it has looked at."""
    wanted, others = semaphore("many", limit=limit), [lock(f"beside {number}") for number in range(20)]
    holds.release([take(holds, each) for each in [*[wanted] * limit, *others]])

    def looks_in_vain() -> list[str]:
        with transaction.atomic(), another_session() as third:
            assert holds.take(uuid4(), 1, wanted) is None
            return third(lambda: [each.key for each in others if holds.take(uuid4(), 1, each) is None]).result(PATIENCE)

    with another_session() as second, transaction.atomic():
        for _ in range(limit):
            take(holds, wanted)
        assert second(looks_in_vain).result(PATIENCE) == []


@WANTED
@pytest.mark.parametrize("known", [False, True], ids=["for the first time", "again"])
def test_who_finds_it_taken_in_its_own_transaction_can_go_on_with_that(
    holds: DatabaseHolds, wanted: Wanted, known: bool, rows_are_locked: None
) -> None:
    """The statement that would wait is given up, and nothing else. (The keys are new: InnoDB locks what is beside a row
    that was deleted a moment ago, too.)"""
    wanted, mine, mine_too = replace(wanted, key=str(uuid4())), lock(str(uuid4())), lock(str(uuid4()))
    if known:
        holds.release([take(holds, wanted)])
    with another_session() as other, transaction.atomic():
        take(holds, wanted)

        def in_a_transaction() -> object:
            with transaction.atomic():
                other_hold = take(holds, mine)
                assert holds.take(uuid4(), 1, wanted) is None
                assert holds.take(uuid4(), 1, mine_too) is not None
                return other_hold.owner

        owner = other(in_a_transaction).result(PATIENCE)
    assert [holder.owner for holder in holds.holders(HoldKind.LOCK, mine.key)] == [owner]


@pytest.mark.parametrize(
    "act",
    [
        lambda key: take(DatabaseHolds(), lock(key)),
        lambda key: DatabaseRateLimits().charge(key, [WEEK]),
        lambda key: DatabaseRateLimits().charge(key, [Window(name="day", seconds=86400, limit=50), WEEK]),
    ],
    ids=["a first take", "a charge", "a charge of two"],
)
def test_the_patience_of_what_must_not_wait_is_not_the_transactions(
    act: Callable[[str], object], database: str
) -> None:
    setting = {
        "postgresql": "SELECT current_setting('lock_timeout')",
        "mysql": "SELECT @@SESSION.innodb_lock_wait_timeout",
        "sqlite": "PRAGMA busy_timeout",
    }[database]

    def patience() -> object:
        with connection.cursor() as cursor:
            cursor.execute(setting)
            return cursor.fetchone()[0]

    usual = patience()
    act("outside")
    assert patience() == usual
    with transaction.atomic():
        act("inside")
        assert patience() == usual


def test_a_row_that_somebody_has_locked_is_passed_by_takers_and_extenders_and_waited_for_by_a_release(
    holds: DatabaseHolds, rows_are_locked: None
) -> None:
    hold = take(holds, lock())
    with another_session() as other:
        other_id = other(session_id).result(PATIENCE)
        with transaction.atomic():
            Holder.objects.filter(kind=HoldKind.LOCK).select_for_update().get()
            assert other(lambda: holds.take(hold.owner, 2, lock())).result(PATIENCE) is None
            assert other(lambda: holds.extend([hold])).result(PATIENCE) == set()
            released = other(lambda: holds.release([hold]))
            until_blocked(other_id)
        assert released.result(PATIENCE) == {hold}
    take(holds, lock())


def test_a_release_does_not_wait_for_ever(
    holds: DatabaseHolds, rows_are_locked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_reactor.coordination.database.holds.PATIENCE_OF_A_RELEASE", 0.1)
    hold = take(holds, lock())
    with another_session() as other, transaction.atomic():
        Holder.objects.filter(kind=HoldKind.LOCK).select_for_update().get()
        assert other(lambda: holds.release([hold])).result(PATIENCE) == set()


@WANTED
def test_an_expired_hold_is_taken_by_one_of_many(holds: DatabaseHolds, wanted: Wanted) -> None:
    lapsed = take(holds, wanted)
    Database().after(61)
    taken = together(6, lambda _: holds.take(uuid4(), 1, wanted))
    assert sum(hold is not None for hold in taken) == 1
    assert holds.release([lapsed]) == set()


def test_a_zombie_and_its_successor_at_once(holds: DatabaseHolds) -> None:
    owner = uuid4()

    def one(number: int) -> Hold | None:
        return holds.take(owner, number + 1, lock())

    taken = together(4, one)
    (holder,) = holds.holders(HoldKind.LOCK, lock().key)
    got = [hold.epoch for hold in taken if hold is not None]
    assert holder.epoch == max(got), "the latest claim has it"


@pytest.mark.parametrize("isolation", ["repeatable read", "read committed"])
def test_a_take_inside_a_transaction_judges_by_what_is_true_now(
    holds: DatabaseHolds, database: str, isolation: str
) -> None:
    """On MySQL the snapshot may be older than what others have committed."""
    if database != "mysql":
        pytest.skip("an option of MySQL")
    with default_connection_with(isolation_level=isolation), another_session() as other, transaction.atomic():
        assert not Holder.objects.exists()
        other(lambda: take(holds, lock())).result(PATIENCE)
        assert holds.take(uuid4(), 1, lock()) is None
        other(lambda: take(holds, semaphore())).result(PATIENCE)
        assert holds.take(uuid4(), 1, semaphore()) is not None
    assert {h.slot for h in holds.holders(HoldKind.SEMAPHORE, "gateway")} == {0, 1}


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a transaction"])
def test_only_a_release_that_commits_alone_does_not_wait_for_the_disk(
    holds: DatabaseHolds, database: str, inside: bool
) -> None:
    """The caller's commit is the caller's matter, and so is the next one."""
    if database != "postgresql":
        pytest.skip("elsewhere every commit of a session is as lasting as the others")

    def setting() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW synchronous_commit")
            return str(cursor.fetchone()[0])

    hold = take(holds, lock())
    usual = setting()
    with transaction.atomic() if inside else nullcontext():
        assert holds.release([hold]) == {hold}
        assert setting() == usual
    assert setting() == usual


def test_taking_a_known_lock_is_one_statement_and_so_is_releasing_it(holds: DatabaseHolds, database: str) -> None:
    if database == "mysql":
        pytest.skip("an UPDATE returns nothing there, and waits for rows that are locked")
    hold = take(holds, lock())
    holds.release([hold])
    with CaptureQueriesContext(connection) as queries:
        hold = take(holds, lock())
        holds.extend([hold])
        holds.release([hold])
    assert [q["sql"].split()[0] for q in queries if not q["sql"].startswith("PRAGMA")] == ["UPDATE"] * 3


# -- rate limits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("windows", [[WEEK], [Window(name="day", seconds=86400, limit=50), WEEK]], ids=["one", "two"])
def test_of_many_starts_at_once_as_many_are_let_in_as_the_limit_says(windows: list[Window]) -> None:
    rates = DatabaseRateLimits()
    charged = together(8, lambda _: rates.charge("stripe", windows))
    assert sum(refused is None for refused in charged) == 3
    assert {refused.window for refused in charged if refused is not None} == {WEEK}
    assert set(RateCount.objects.values_list("count", flat=True)) == {3}


def test_a_charge_that_is_rolled_back_was_none() -> None:
    rates = DatabaseRateLimits()
    with transaction.atomic():
        for _ in range(3):
            assert rates.charge("stripe", [WEEK]) is None
        assert rates.charge("stripe", [WEEK]) is not None
        transaction.set_rollback(True)
    assert rates.charge("stripe", [WEEK]) is None


def test_a_refused_charge_leaves_its_transaction_usable() -> None:
    rates, day = DatabaseRateLimits(), Window(name="day", seconds=86400, limit=1)
    with transaction.atomic():
        assert rates.charge("stripe", [day, WEEK]) is None
        assert rates.charge("stripe", [day, WEEK]) is not None
        assert rates.charge("other", [day, WEEK]) is None
    assert sorted(RateCount.objects.values_list("key", "count")) == [("other", 1)] * 2 + [("stripe", 1)] * 2


def test_nobody_waits_long_for_a_charge_that_is_not_committed(rows_are_locked: None) -> None:
    rates, running = DatabaseRateLimits(), in_time()
    with another_session() as other, transaction.atomic():
        assert rates.charge("stripe", [WEEK]) is None
        refused = other(lambda: rates.charge("stripe", [WEEK])).result(PATIENCE)
        assert running()
    assert refused is not None
    assert (refused.window, 0 < refused.retry_after <= 5) == (WEEK, True), "the window is not full"
    assert rates.charge("stripe", [WEEK]) is None


def test_who_finds_a_charge_that_is_not_committed_can_go_on_with_its_own_transaction(rows_are_locked: None) -> None:
    """By keys of its own: beside a row that was just deleted, and is there again, InnoDB locks its neighbours too."""
    rates, (before, contested, after) = DatabaseRateLimits(), (str(uuid4()) for _ in range(3))

    def in_a_transaction() -> bool:
        with transaction.atomic():
            assert rates.charge(before, [WEEK]) is None
            assert rates.charge(contested, [WEEK]) is not None
            return rates.charge(after, [WEEK]) is None

    with another_session() as other, transaction.atomic():
        assert rates.charge(contested, [WEEK]) is None
        assert other(in_a_transaction).result(PATIENCE)
    assert dict(RateCount.objects.values_list("key", "count")) == {before: 1, contested: 1, after: 1}


# -- ordered locks -----------------------------------------------------------------------------------------------------


def test_numbers_follow_the_commits_and_a_rollback_leaves_no_gap(rows_are_locked: None) -> None:
    turns = DatabaseTurns()
    with another_session() as other:
        other_id = other(session_id).result(PATIENCE)
        for rolled_back in (True, False):
            with transaction.atomic():
                own = turns.draw(KEY, uuid4())
                later = other(lambda: turns.draw(KEY, uuid4()))
                until_blocked(other_id)
                transaction.set_rollback(rolled_back)
            assert later.result(PATIENCE).number == own.number + (not rolled_back)
    assert list(Ticket.objects.order_by("number").values_list("number", flat=True)) == [1, 2, 3]


def test_many_who_draw_at_once_get_numbers_without_gaps_in_one_batch() -> None:
    turns = DatabaseTurns()
    tickets = together(8, lambda _: turns.draw(KEY, uuid4()))
    assert sorted(ticket.number for ticket in tickets) == list(range(1, 9))
    assert {ticket.batch for ticket in tickets} == {1}


def test_who_draws_after_a_waiting_commit_is_of_its_batch(rows_are_locked: None) -> None:
    """What the draw must know of others is read after its wait, not before."""
    turns = DatabaseTurns()
    first = turns.draw(KEY, uuid4())
    turns.finish(first.execution_id, failed=False)
    with another_session() as other:
        other_id = other(session_id).result(PATIENCE)
        with transaction.atomic():
            second = turns.draw(KEY, uuid4())
            third = other(lambda: turns.draw(KEY, uuid4()))
            until_blocked(other_id)
        assert (second.batch, third.result(PATIENCE).batch) == (2, 2)


@pytest.mark.parametrize("isolation", ["repeatable read", "read committed"])
def test_who_draws_and_asks_in_a_transaction_sees_who_was_quicker(database: str, isolation: str) -> None:
    if database != "mysql":
        pytest.skip("an option of MySQL")
    turns, own = DatabaseTurns(), uuid4()
    with default_connection_with(isolation_level=isolation), another_session() as other, transaction.atomic():
        assert not Ticket.objects.exists()
        other(lambda: turns.draw(KEY, uuid4())).result(PATIENCE)
        ticket = turns.draw(KEY, own)
        assert (ticket.number, ticket.batch) == (2, 1)
        turn = turns.turn(KEY, own, strict=True)
        assert turn is not None
        assert turn.state is TurnState.WAITS


def test_a_snapshot_of_postgresql_that_is_too_old_is_the_callers_error(database: str) -> None:
    if database != "postgresql":
        pytest.skip("an option of PostgreSQL")
    from psycopg import IsolationLevel

    turns = DatabaseTurns()
    turns.draw(KEY, uuid4())
    repeatable = IsolationLevel.REPEATABLE_READ
    with default_connection_with(isolation_level=repeatable), another_session() as other, suppress(OperationalError):
        with transaction.atomic():
            assert Ticket.objects.exists()
            other(lambda: turns.draw(KEY, uuid4())).result(PATIENCE)
            turns.draw(KEY, uuid4())
        pytest.fail("a number was drawn from an old snapshot")
    assert Ticket.objects.count() == 2


def test_nobody_waits_for_a_draw_to_look_who_is_the_head(rows_are_locked: None) -> None:
    turns = DatabaseTurns()
    first, second = turns.draw(KEY, uuid4()), turns.draw(KEY, uuid4())
    with another_session() as other, transaction.atomic():
        turns.draw(KEY, uuid4())
        head = other(lambda: turns.head(KEY)).result(PATIENCE)
        assert head is not None
        assert head.number == first.number
        turn = other(lambda: turns.turn(KEY, second.execution_id, strict=True)).result(PATIENCE)
        assert turn is not None
        assert turn.state is TurnState.WAITS
        line = other(lambda: turns.line(KEY)).result(PATIENCE)
        assert line is not None
        assert isinstance(line.head_since, datetime)


def test_nobody_waits_for_a_head_that_is_ending(rows_are_locked: None) -> None:
    turns = DatabaseTurns()
    first, second = turns.draw(KEY, uuid4()), turns.draw(KEY, uuid4())
    with another_session() as other:
        with transaction.atomic():
            turns.finish(first.execution_id, failed=False)
            turn = other(lambda: turns.turn(KEY, second.execution_id, strict=True)).result(PATIENCE)
            assert turn is not None
            assert turn.state is TurnState.WAITS
            assert other(lambda: turns.pass_over(KEY, 0)).result(PATIENCE) is False
        turn = other(lambda: turns.turn(KEY, second.execution_id, strict=True)).result(PATIENCE)
        assert turn is not None
        assert turn.state is TurnState.COME


def test_of_many_in_the_line_one_has_its_turn() -> None:
    turns = DatabaseTurns()
    executions = [turns.draw(KEY, uuid4()).execution_id for _ in range(6)]

    def one(number: int) -> TurnState:
        turn = turns.turn(KEY, executions[number], strict=True)
        assert turn is not None
        return turn.state

    assert together(6, one) == [TurnState.COME] + [TurnState.WAITS] * 5


@pytest.mark.parametrize("number", range(1, 7))
def test_whose_number_is_passed_while_it_asks_for_its_turn_keeps_nobody_waiting(number: int) -> None:
    turns, first, second = DatabaseTurns(), uuid4(), uuid4()
    for execution_id in (first, second):
        turns.draw(KEY, execution_id)
    passing = Between(number, lambda: turns.skip(KEY, 1))
    with connection.execute_wrapper(passing):
        turn = turns.turn(KEY, first, strict=True)
    assert passing.number <= 0, "it was passed meanwhile"
    assert turn is not None
    assert turn.state is TurnState.COME
    head = turns.head(KEY)
    assert head is not None
    assert head.execution_id == second
