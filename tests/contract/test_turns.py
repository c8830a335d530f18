"""The contract of the port `Turns`: ordered locks."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from django_reactor.engine.coordination_ports import TicketState, Turns, TurnState
from tests.contract.coordination_stores import DatabaseStore

KEY = "account:1"
DAY_AND_MORE = 60 * 60 * 25


@pytest.fixture
def store(coordination_of_executions: DatabaseStore) -> DatabaseStore:
    return coordination_of_executions


@pytest.fixture
def turns(store: DatabaseStore) -> Turns:
    return store.turns


def drawn(store: DatabaseStore, count: int) -> list[UUID]:
    """Executions in the line, in order."""
    executions = [store.execution() for _ in range(count)]
    for execution_id in executions:
        store.turns.draw(KEY, execution_id)
    return executions


def state_of(turns: Turns, execution_id: UUID, *, strict: bool = True, key: str = KEY) -> TurnState | None:
    turn = turns.turn(key, execution_id, strict=strict)
    return None if turn is None else turn.state


def live(turns: Turns) -> int:
    line = turns.line(KEY)
    assert line is not None
    return line.live


# -- numbers and batches -----------------------------------------------------------------------------------------------


def test_numbers_are_drawn_in_order_and_each_key_has_its_own(turns: Turns) -> None:
    assert [turns.draw(KEY, uuid4()).number for _ in range(3)] == [1, 2, 3]
    assert turns.draw(KEY + " ", uuid4()).number == 1
    assert turns.draw(KEY.upper(), uuid4()).number == 1


def test_who_has_a_live_ticket_keeps_it(turns: Turns) -> None:
    execution_id = uuid4()
    first = turns.draw(KEY, execution_id)
    assert turns.draw(KEY, execution_id) == first
    assert turns.draw(KEY, execution_id, "charge").number == 2
    assert turns.draw(KEY, execution_id, "charge").number == 2
    assert turns.turn(KEY, execution_id, strict=True) is not None
    assert turns.draw(KEY, execution_id).number == 1


def test_who_has_ended_draws_a_new_number(turns: Turns) -> None:
    execution_id = uuid4()
    turns.draw(KEY, execution_id)
    turns.finish(execution_id, failed=True)
    again = turns.draw(KEY, execution_id)
    assert (again.number, again.batch) == (2, 2)
    assert state_of(turns, execution_id) is TurnState.COME


def test_who_has_drawn_again_stands_at_the_end_of_the_line(store: DatabaseStore, turns: Turns) -> None:
    first, second = drawn(store, 2)
    assert state_of(turns, first) is TurnState.COME
    turns.finish(first, failed=False)
    turns.draw(KEY, first)
    assert state_of(turns, first) is TurnState.WAITS
    turns.finish(second, failed=False)
    assert state_of(turns, first) is TurnState.COME


def test_a_batch_lasts_until_the_line_is_empty_and_numbers_go_on(store: DatabaseStore, turns: Turns) -> None:
    first, second = drawn(store, 2)
    turns.finish(first, failed=False)
    third = turns.draw(KEY, store.execution())
    assert (third.number, third.batch) == (3, 1)
    turns.finish(second, failed=False)
    turns.finish(third.execution_id, failed=False)
    fourth = turns.draw(KEY, store.execution())
    assert (fourth.number, fourth.batch) == (4, 2)


# -- turns -------------------------------------------------------------------------------------------------------------


def test_one_after_the_other_has_its_turn(store: DatabaseStore, turns: Turns) -> None:
    first, second, third = drawn(store, 3)
    waits = turns.turn(KEY, second, strict=True)
    assert waits is not None
    assert waits.state is TurnState.WAITS
    assert waits.head is not None
    assert (waits.head.execution_id, waits.ticket.execution_id) == (first, second)
    assert state_of(turns, first) is TurnState.COME
    assert state_of(turns, second) is TurnState.WAITS, "the first runs"
    assert turns.finish(first, failed=False) == [KEY]
    assert state_of(turns, third) is TurnState.WAITS
    assert state_of(turns, second) is TurnState.COME
    turns.finish(second, failed=False)
    assert state_of(turns, third) is TurnState.COME


def test_whose_turn_has_come_runs_and_may_ask_again(store: DatabaseStore, turns: Turns) -> None:
    (first,) = drawn(store, 1)
    for _ in range(2):
        turn = turns.turn(KEY, first, strict=True)
        assert turn is not None
        assert (turn.state, turn.ticket.state) == (TurnState.COME, TicketState.RUNNING)


def test_without_a_ticket_there_is_no_turn(store: DatabaseStore, turns: Turns) -> None:
    assert turns.turn(KEY, uuid4(), strict=True) is None
    (first,) = drawn(store, 1)
    assert turns.turn(KEY, uuid4(), strict=True) is None
    assert turns.turn(KEY, first, "charge", strict=True) is None
    assert turns.turn("another", first, strict=True) is None


def test_finishing_twice_or_without_a_ticket_wakes_nobody(store: DatabaseStore, turns: Turns) -> None:
    (first,) = drawn(store, 1)
    assert turns.finish(uuid4(), failed=False) == []
    assert turns.finish(first, failed=False) == [KEY]
    assert turns.finish(first, failed=True) == []
    line = turns.line(KEY)
    assert line is not None
    assert line.first_failed is None


def test_a_steps_ticket_is_finished_with_the_step_and_the_others_with_the_execution(turns: Turns) -> None:
    execution_id = uuid4()
    turns.draw(KEY, execution_id)
    turns.draw("a", execution_id, "charge")
    turns.draw("b", execution_id, "ship")
    assert turns.finish(execution_id, failed=False, step="charge") == ["a"]
    assert turns.finish(execution_id, failed=False, step="charge") == []
    assert sorted(turns.finish(execution_id, failed=False)) == [KEY, "b"]


def test_the_tickets_of_parts_are_finished_with_the_whole(store: DatabaseStore, turns: Turns) -> None:
    whole, other = store.execution(), store.execution()
    part = store.part(whole)
    turns.draw("a", whole)
    turns.draw("b", part, "charge")
    turns.draw("b", other)
    assert sorted((ticket.key, ticket.execution_id) for ticket in turns.tickets_of([whole])) == [
        ("a", whole),
        ("b", part),
    ]
    assert turns.finish(part, failed=False, step="") == []
    assert sorted(turns.finish(whole, failed=True)) == ["a", "b"]
    assert turns.tickets_of([whole]) == []
    assert [ticket.execution_id for ticket in turns.tickets_of([whole, other])] == [other]


def test_what_was_cancelled_below_an_execution_leaves_its_lines(store: DatabaseStore, turns: Turns) -> None:
    owner, other = store.execution(), store.execution()
    cancelled, queued = store.unit(owner), store.unit(owner)
    of_a_part, of_another = store.unit(store.part(owner)), store.unit(other)
    for execution_id in (cancelled, queued, of_a_part, of_another, owner):
        turns.draw(KEY, execution_id)
    turns.draw("another", of_a_part)
    for execution_id in (cancelled, of_a_part, of_another):
        store.change(execution_id, "ended")
    assert list(turns.finish_cancelled(store.execution())) == []
    assert set(turns.finish_cancelled(owner)) == {KEY, "another"}
    assert list(turns.finish_cancelled(owner)) == []
    assert live(turns) == 3
    line = turns.line(KEY)
    assert line is not None
    assert line.head is not None
    assert line.head.execution_id == queued
    assert line.first_failed is None, "a cancel breaks no chain"


# -- chains ------------------------------------------------------------------------------------------------------------


def test_after_a_failure_a_strict_chain_runs_no_more_of_its_batch(store: DatabaseStore, turns: Turns) -> None:
    first, second, third = drawn(store, 3)
    turns.turn(KEY, first, strict=True)
    turns.finish(first, failed=True)
    stopped = turns.turn(KEY, second, strict=True)
    assert stopped is not None
    assert (stopped.state, stopped.first_failed) == (TurnState.CHAIN_FAILED, 1)
    turns.finish(second, failed=False)
    assert state_of(turns, third) is TurnState.CHAIN_FAILED
    turns.finish(third, failed=False)
    (fourth,) = drawn(store, 1)
    assert state_of(turns, fourth) is TurnState.COME, "a new batch"


def test_a_chain_that_is_not_strict_goes_on_after_a_failure(store: DatabaseStore, turns: Turns) -> None:
    first, second = drawn(store, 2)
    turns.finish(first, failed=True)
    assert state_of(turns, second, strict=False) is TurnState.COME


def test_whose_turn_had_come_is_not_asked_about_the_chain_again(store: DatabaseStore, turns: Turns) -> None:
    """It was passed over while it ran, and what came before it fails only then."""
    first, second = drawn(store, 2)
    assert turns.skip(KEY, 1)
    assert state_of(turns, second) is TurnState.COME
    turns.finish(first, failed=True)
    assert state_of(turns, second) is TurnState.COME


def test_who_has_ended_is_not_asked_about_the_chain(store: DatabaseStore, turns: Turns) -> None:
    """It was cancelled before its turn had come."""
    first, second, _ = drawn(store, 3)
    turns.finish(first, failed=True)
    turns.finish(second, failed=False)
    turn = turns.turn(KEY, second, strict=True)
    assert turn is not None
    assert (turn.state, turn.ticket.state) == (TurnState.COME, TicketState.DONE)


def test_only_a_lower_number_of_the_same_batch_breaks_a_chain(store: DatabaseStore, turns: Turns) -> None:
    first, second, third = drawn(store, 3)
    turns.skip(KEY, 1)
    assert state_of(turns, second) is TurnState.COME
    turns.finish(second, failed=True)
    assert state_of(turns, first) is TurnState.COME, "the second comes after it"
    assert state_of(turns, third) is TurnState.CHAIN_FAILED


def test_the_lowest_number_that_failed_is_shown(store: DatabaseStore, turns: Turns) -> None:
    first, second, third, _ = drawn(store, 4)
    turns.finish(first, failed=False)
    turns.finish(third, failed=True)
    turns.finish(second, failed=True)
    line = turns.line(KEY)
    assert line is not None
    assert line.first_failed == 2


# -- the head ----------------------------------------------------------------------------------------------------------


def test_the_head_is_the_live_one_with_the_lowest_number(store: DatabaseStore, turns: Turns) -> None:
    assert turns.head(KEY) is None
    first, second = drawn(store, 2)
    head = turns.head(KEY)
    assert head is not None
    assert head.execution_id == first
    turns.finish(first, failed=False)
    head = turns.head(KEY)
    assert head is not None
    assert head.execution_id == second
    turns.finish(second, failed=False)
    assert turns.head(KEY) is None


@pytest.mark.parametrize("look", ["head", "its own turn", "turn of the next", "pass over"])
def test_it_counts_as_the_head_since_somebody_first_saw_it_there(store: DatabaseStore, turns: Turns, look: str) -> None:
    first, second = drawn(store, 2)

    def looked() -> None:
        if look == "head":
            turns.head(KEY)
        elif look == "its own turn":
            turns.turn(KEY, first, strict=True)
        elif look == "pass over":
            turns.pass_over(KEY, 600)
        else:
            turns.turn(KEY, second, strict=True)

    line = turns.line(KEY)
    assert line is not None
    assert line.head_since is None
    looked()
    line = turns.line(KEY)
    assert line is not None
    since = line.head_since
    assert since is not None
    looked()
    line = turns.line(KEY)
    assert line is not None
    assert line.head_since == since


@pytest.mark.parametrize("what", ["lapsed", "released"])
def test_a_head_without_a_live_lease_is_passed_over_when_its_time_is_up(
    store: DatabaseStore, turns: Turns, what: str
) -> None:
    first, second = drawn(store, 2)
    turns.head(KEY)
    store.after(601)
    assert not turns.pass_over(KEY, 600), "it runs"
    store.change(first, what)
    assert not turns.pass_over(KEY, 600), "it has just been seen"
    store.after(601)
    assert not turns.pass_over(KEY, 700), "its time is not up"
    assert turns.pass_over(KEY, 600)
    assert state_of(turns, second) is TurnState.COME
    assert state_of(turns, first) is TurnState.COME, "it may still run when it is delivered"
    assert turns.finish(first, failed=False) == [], "it kept nobody waiting any more"


@pytest.mark.parametrize("what", ["paused", "waiting", "in line"])
def test_a_head_that_rests_keeps_its_turn(store: DatabaseStore, turns: Turns, what: str) -> None:
    first, _ = drawn(store, 2)
    turns.head(KEY)
    store.change(first, what)
    store.after(10_000)
    assert not turns.pass_over(KEY, 600)


def test_a_head_that_has_the_turn_of_one_level_and_waits_for_anothers_is_passed_over(
    store: DatabaseStore, turns: Turns
) -> None:
    """Others may have them the other way round: then each waits for the other."""
    first, _ = drawn(store, 2)
    turns.draw("another", first, "charge")
    turns.head(KEY)
    store.change(first, "in line")
    assert not turns.pass_over(KEY, 600)
    store.after(601)
    store.change(first, "in line")  # it was woken in vain meanwhile
    assert turns.pass_over(KEY, 600)


def test_a_new_head_has_its_whole_time_however_long_it_waited(store: DatabaseStore, turns: Turns) -> None:
    first, second, _ = drawn(store, 3)
    for each in (first, second):
        store.change(each, "released")
    turns.head(KEY)
    store.after(601)
    assert turns.pass_over(KEY, 600)
    assert not turns.pass_over(KEY, 600)
    store.after(601)
    assert turns.pass_over(KEY, 600)


def test_whoever_passes_a_head_over_has_seen_the_next_one(store: DatabaseStore, turns: Turns) -> None:
    first, second, _ = drawn(store, 3)
    store.change(first, "gone")
    store.change(second, "released")
    assert turns.pass_over(KEY, 600)
    line = turns.line(KEY)
    assert line is not None
    assert line.head is not None
    assert line.head.execution_id == second
    assert line.head_since is not None


@pytest.mark.parametrize("what", ["gone", "ended"])
def test_a_head_whose_execution_is_no_more_is_passed_over_at_once(
    store: DatabaseStore, turns: Turns, what: str
) -> None:
    first, second = drawn(store, 2)
    store.change(first, what)
    assert turns.pass_over(KEY, 600)
    assert not turns.pass_over(KEY, 600)
    assert state_of(turns, second) is TurnState.COME


def test_when_the_last_is_passed_over_there_is_no_other_head(store: DatabaseStore, turns: Turns) -> None:
    (first,) = drawn(store, 1)
    store.change(first, "gone")
    assert not turns.pass_over(KEY, 600)
    assert turns.head(KEY) is None
    assert not turns.pass_over(KEY, 600)
    assert not turns.pass_over("unknown", 600)


def test_who_was_passed_over_before_it_began_still_belongs_to_its_chain(store: DatabaseStore, turns: Turns) -> None:
    first, second = drawn(store, 2)
    turns.finish(first, failed=True)
    turns.skip(KEY, 2)
    assert state_of(turns, second) is TurnState.CHAIN_FAILED


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_a_line_shows_who_is_where(store: DatabaseStore, turns: Turns) -> None:
    assert turns.line(KEY) is None
    first, second, _ = drawn(store, 3)
    turns.finish(first, failed=False)
    line = turns.line(KEY)
    assert line is not None
    assert (line.key, line.batch, line.last, line.live, line.first_failed) == (KEY, 1, 3, 2, None)
    assert line.head is not None
    assert line.head.execution_id == second


def test_one_number_is_skipped_by_hand(store: DatabaseStore, turns: Turns) -> None:
    first, second = drawn(store, 2)
    assert state_of(turns, first) is TurnState.COME
    assert turns.skip(KEY, 1)
    assert not turns.skip(KEY, 1)
    assert not turns.skip(KEY, 99)
    assert not turns.skip("unknown", 1)
    assert state_of(turns, second) is TurnState.COME


def test_a_reset_passes_all_over_and_what_comes_next_is_a_new_batch(store: DatabaseStore, turns: Turns) -> None:
    drawn(store, 3)
    assert turns.reset(KEY) == 3
    assert turns.reset(KEY) == 0
    assert turns.reset("unknown") == 0
    assert live(turns) == 0
    ticket = turns.draw(KEY, store.execution())
    assert (ticket.number, ticket.batch) == (4, 2)
    assert state_of(turns, ticket.execution_id) is TurnState.COME


# -- what is forgotten -------------------------------------------------------------------------------------------------


def test_ended_tickets_are_forgotten_a_few_at_a_time_and_then_their_keys(store: DatabaseStore, turns: Turns) -> None:
    for execution_id in drawn(store, 3):
        turns.finish(execution_id, failed=False)
    assert turns.purge(10) == 0
    store.after(DAY_AND_MORE)
    assert [turns.purge(2) for _ in range(4)] == [2, 2, 0, 0]
    assert turns.line(KEY) is None


def test_tickets_and_keys_together_are_no_more_than_a_few_at_a_time(store: DatabaseStore, turns: Turns) -> None:
    for execution_id in drawn(store, 3):
        turns.finish(execution_id, failed=False)
    store.after(DAY_AND_MORE)
    assert [turns.purge(3) for _ in range(3)] == [3, 1, 0]


def test_what_has_ended_within_a_day_is_kept(store: DatabaseStore, turns: Turns) -> None:
    for execution_id in drawn(store, 2):
        turns.finish(execution_id, failed=False)
    store.after(60 * 60 * 23)
    assert turns.purge(10) == 0
    store.after(60 * 60 * 2)
    assert turns.purge(10) == 3


def test_live_tickets_and_those_passed_over_that_may_still_run_are_kept(store: DatabaseStore, turns: Turns) -> None:
    first, _, gone = drawn(store, 3)
    turns.skip(KEY, 1)
    turns.skip(KEY, 3)
    store.change(gone, "gone")
    store.after(DAY_AND_MORE)
    assert turns.purge(10) == 1
    assert state_of(turns, first) is TurnState.COME
    assert live(turns) == 1


def test_what_a_strict_chain_still_asks_about_is_kept(store: DatabaseStore, turns: Turns) -> None:
    first, second = drawn(store, 2)
    turns.finish(first, failed=True)
    store.after(DAY_AND_MORE)
    assert turns.purge(10) == 0
    assert state_of(turns, second) is TurnState.CHAIN_FAILED
    turns.finish(second, failed=False)
    assert turns.purge(10) == 1


def test_it_is_kept_for_one_that_was_passed_over_too(store: DatabaseStore, turns: Turns) -> None:
    first, second = drawn(store, 2)
    turns.finish(first, failed=True)
    turns.skip(KEY, 2)
    store.after(DAY_AND_MORE)
    assert turns.purge(10) == 0
    assert state_of(turns, second) is TurnState.CHAIN_FAILED
    store.change(second, "gone")
    assert [turns.purge(10) for _ in range(3)] == [1, 2, 0], "nobody is left to ask then"


def test_nobody_asks_about_what_was_done_or_about_the_failures_of_an_earlier_batch(
    store: DatabaseStore, turns: Turns
) -> None:
    (failed,) = drawn(store, 1)
    turns.finish(failed, failed=True)
    done, last = drawn(store, 2)
    turns.finish(done, failed=False)
    store.after(DAY_AND_MORE)
    assert turns.purge(10) == 2
    assert state_of(turns, last) is TurnState.COME
