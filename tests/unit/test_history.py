"""What the engine remembers of a journal."""

from __future__ import annotations

from uuid import uuid4

import pytest

from django_reactor.core.decisions import Compensate, Undo
from django_reactor.core.history import FAILURE, UNDO, History, fold
from django_reactor.core.plan import Kind
from django_reactor.core.statuses import Action
from tests.engine_support import Story, a_plan, a_step, next_of

CHAIN = a_plan(
    a_step("a", undo=True),
    a_step("b", "a", undo=True, compensate=True),
    a_step("c", "b", undo=True, compensate=True),
)


def stands(history: History) -> list[str]:
    return list(history.standing)


def test_results_stand_in_the_order_in_which_they_came() -> None:
    plan = a_plan(a_step("late", "early"), a_step("early"))
    assert stands(Story().ran("early").ran("late").told_to(plan)) == ["early", "late"]


def test_the_next_entry_gets_the_next_number() -> None:
    assert History(CHAIN).next_seq == 1
    assert Story().ran("a").failed("b").told_to(CHAIN).next_seq == 3


def test_a_skipped_step_stands_but_is_not_enrolled_for_undo() -> None:
    history = Story().skipped("a").told_to(CHAIN)
    assert history.standing["a"].skipped
    assert history.undo_stack == []


def test_only_a_step_that_had_an_undo_when_it_completed_is_enrolled() -> None:
    history = Story().ran("a").ran("b", undoable=False).told_to(CHAIN)
    assert history.undo_stack == ["a"]


def test_attempts_are_counted_over_a_reload_and_start_anew_after_a_success_and_a_retry() -> None:
    story = Story().retrying("a").retrying("a", 2)
    assert story.told_to(CHAIN).attempts["a"] == 2
    assert story.ran("a", attempt=3).told_to(CHAIN).attempts["a"] == 0
    again = Story().retrying("a").failed("a", attempt=2).asked_to(Action.RETRY)
    assert again.told_to(CHAIN).attempts["a"] == 0


def test_attempts_go_on_when_an_interrupted_execution_is_retried() -> None:
    story = Story().retrying("a").cut_off("a").asked_to(Action.RETRY)
    assert story.told_to(CHAIN).attempts["a"] == 1


def test_a_failure_opens_a_rollback_and_is_to_be_compensated() -> None:
    history = Story().ran("a").failed("b", attempt=3).told_to(CHAIN)
    assert history.cause == FAILURE
    assert [(owed.step, owed.attempt) for owed in history.owed] == [("b", 3)]


def test_a_step_whose_body_never_began_is_not_to_be_compensated() -> None:
    assert Story().failed("b", began=False).told_to(CHAIN).owed == []


def test_what_was_undone_stands_no_more_but_its_value_can_still_be_read() -> None:
    history = Story().ran("a").ran("b").failed("c").compensated("c").undone("b").told_to(CHAIN)
    assert stands(history) == ["a"]
    assert history.last_result("b").seq == 2


def test_a_result_that_never_was_cannot_be_read() -> None:
    with pytest.raises(KeyError):
        History(CHAIN).last_result("a")


def test_an_undo_that_failed_is_listed_and_its_result_stands() -> None:
    history = Story().ran("a").failed("b").compensated("b").not_undone("a").told_to(CHAIN)
    assert list(history.listed) == [("a", Action.UNDO)]
    assert stands(history) == ["a"]
    assert history.undo_stack == []


def test_an_undo_that_was_skipped_reverses_the_result_and_leaves_its_key_as_it_was() -> None:
    history = Story().ran("a").failed("b").undo_skipped("a").told_to(CHAIN)
    assert stands(history) == []
    assert history.rolled_back["a"] == 0


@pytest.mark.parametrize("succeeds", [True, False])
def test_each_executed_undo_and_compensation_gives_the_step_a_new_key(succeeds: bool) -> None:
    story = Story().ran("a").failed("b")
    story = story.compensated("b").undone("a") if succeeds else story.not_compensated("b").not_undone("a")
    history = story.told_to(CHAIN)
    assert (history.rolled_back["a"], history.rolled_back["b"], history.rolled_back["c"]) == (1, 1, 0)


def test_attempts_interruptions_retries_and_cancels_leave_the_key_as_it_was() -> None:
    story = Story().retrying("a").cut_off("a").asked_to(Action.RETRY).failed("a", began=False).asked_to(Action.RETRY)
    story = story.retrying("a").cut_off("a").asked_to(Action.CANCEL)
    assert story.told_to(CHAIN).rolled_back["a"] == 0


def test_a_result_remembers_the_key_that_its_body_had() -> None:
    story = Story().ran("a").failed("b", began=False).undone("a").asked_to(Action.RETRY).ran("a")
    history = story.told_to(CHAIN)
    assert history.standing["a"].run_number == 1
    assert history.rolled_back["a"] == 1


def test_a_step_that_was_cut_off_counts_as_failed_once_an_undo_is_asked_for() -> None:
    story = Story().ran("a").cut_off("b")
    assert story.told_to(CHAIN).owed == []
    history = story.asked_to(Action.ROLLBACK).told_to(CHAIN)
    assert history.cause == UNDO
    assert [(owed.step, owed.cut_off) for owed in history.owed] == [("b", True)]


def test_a_step_that_was_cut_off_and_ran_again_is_cut_off_no_more() -> None:
    story = Story().cut_off("a").asked_to(Action.RETRY).ran("a").asked_to(Action.ROLLBACK)
    assert story.told_to(CHAIN).owed == []


def test_an_entry_that_was_stored_before_the_interruption_makes_its_step_not_cut_off() -> None:
    history = Story().ran("a").cut_off("a").asked_to(Action.ROLLBACK).told_to(CHAIN)
    assert history.owed == []
    assert history.undo_stack == ["a"]


def test_an_interruption_inside_a_rollback_cuts_no_step_off() -> None:
    history = Story().ran("a").failed("b").compensated("b").cut_off("a").told_to(CHAIN)
    assert history.begun == {}
    assert history.undo_stack == ["a"]


def test_a_retry_keeps_what_was_not_undone_and_rests_on_nothing_undone() -> None:
    plan = a_plan(a_step("free"), a_step("a", undo=True), a_step("b", "a"), a_step("c", "b"), a_step("d", "free"))
    story = Story().ran("free", undoable=False).ran("a").ran("b", undoable=False).skipped("c").ran("d", undoable=False)
    plan_with_end = a_plan(*(lambda at, step=step: step for step in plan.steps), a_step("end", "d"))
    history = story.failed("end").undone("a").asked_to(Action.RETRY).told_to(plan_with_end)
    assert stands(history) == ["free", "d"]


def test_what_a_retry_forgot_runs_again_only_once() -> None:
    plan = a_plan(a_step("a", undo=True), a_step("b", "a"), a_step("c", "b"))
    story = Story().ran("a").ran("b", undoable=False).failed("c").undone("a").asked_to(Action.RETRY)
    story = story.ran("a").ran("b", undoable=False).failed("c").undone("a").asked_to(Action.RETRY).ran("a")
    assert stands(story.told_to(plan)) == ["a"]


def test_a_result_is_forgotten_even_if_it_came_before_what_a_newer_definition_says_it_rests_on() -> None:
    """`reader` completed first; then a deployment made it depend on `middle`, and that on `base`."""
    plan = a_plan(a_step("base", undo=True), a_step("middle", "base"), a_step("reader", "middle"), a_step("end"))
    story = Story().ran("reader", undoable=False).ran("middle", undoable=False).ran("base").failed("end").undone("base")
    assert stands(story.asked_to(Action.RETRY).told_to(plan)) == []


def test_a_step_that_a_newer_definition_added_makes_no_result_stale() -> None:
    older = Story().ran("b", undoable=False).failed("c", began=False).asked_to(Action.RETRY)
    plan = a_plan(a_step("new"), a_step("b", "new"), a_step("c", "b"))
    assert stands(older.told_to(plan)) == ["b"]


def test_results_of_steps_that_vanished_are_kept_and_still_undone() -> None:
    plan = a_plan(a_step("a", undo=True))
    history = Story().ran("old").ran("a").asked_to(Action.ROLLBACK).told_to(plan)
    assert history.undo_stack == ["old", "a"]


def test_a_renamed_step_is_a_vanished_one_and_a_new_one() -> None:
    plan = a_plan(a_step("a_new_name"), a_step("b", "a_new_name"))
    history = Story().ran("a").told_to(plan)
    assert history.next_ready is not None
    assert history.next_ready.name == "a_new_name"


def test_a_delay_is_over_for_whoever_loads_the_execution() -> None:
    story = Story().retrying("a", retry_in=7.5)
    live = History(CHAIN)
    for entry in story.entries:
        live.add(entry)
    assert live.delay == 7.5
    assert fold(CHAIN, story.entries).delay == 0


def test_a_step_that_began_is_compensated_too_when_one_that_a_newer_definition_put_before_it_fails() -> None:
    newer = a_plan(a_step("new", compensate=True), a_step("a", undo=True), a_step("b", "a", compensate=True))
    story = Story().ran("a").cut_off("b").asked_to(Action.RETRY).failed("new")
    first = next_of(newer, story)
    assert isinstance(first, Compensate)
    assert first.failed.step == "new"
    second = next_of(newer, story.compensated("new"))
    assert isinstance(second, Compensate)
    assert (second.failed.step, second.failed.cut_off) == ("b", True)
    assert isinstance(next_of(newer, story.compensated("b")), Undo)


def test_a_step_between_two_attempts_is_compensated_when_an_undo_is_asked_for() -> None:
    story = Story().ran("a").retrying("b").asked_to(Action.CANCEL).asked_to(Action.ROLLBACK)
    assert [owed.step for owed in story.told_to(CHAIN).owed] == ["b"]


def test_a_unit_that_is_skipped_when_it_should_be_dispatched_anew_is_not_forgotten_again() -> None:
    plan = a_plan(a_step("unit", kind=Kind.ASYNC_REACTOR), a_step("reader", "unit"), a_step("last", "reader"))
    story = Story().add(Action.DISPATCH, "unit", value=str(uuid4())).failed("reader", began=False)
    story.asked_to(Action.RETRY).add(Action.RETRY, value='["unit"]')
    story.skipped("unit").ran("reader", undoable=False).failed("last").asked_to(Action.RETRY)
    assert story.told_to(plan).standing.keys() == {"unit", "reader"}
