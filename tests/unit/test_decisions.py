"""What comes next, by plan, journal and request."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from django_reactor.core.decisions import (
    ApplyAnswer,
    Ask,
    Backoff,
    Compensate,
    Facts,
    Finish,
    LookAtWaits,
    ObeyStop,
    Pause,
    RunStep,
    Undo,
    decide,
)
from django_reactor.core.entries import Entry
from django_reactor.core.history import History
from django_reactor.core.plan import Kind, Plan
from django_reactor.core.statuses import Action, Stop
from django_reactor.core.waits import ANSWERED, Wait, WaitState
from tests.engine_support import Story, a_plan, a_step, next_of

CHAIN = a_plan(
    a_step("a", undo=True),
    a_step("b", "a", undo=True, compensate=True),
    a_step("c", "b", undo=True, compensate=True),
)


def said(plan: Plan, story: Story, facts: Facts | None = None) -> str:
    """The decision in short."""
    match next_of(plan, story, facts):
        case RunStep(step, attempt):
            return f"run {step.name} {attempt}"
        case Backoff(step, delay):
            return f"wait {delay} for {step.name}"
        case Compensate(declared, failed):
            return f"compensate {failed.step}" + ("" if declared else ", vanished")
        case Undo(result, declared):
            return f"undo {result.step}" + ("" if declared else ", vanished")
        case ObeyStop(stop):
            return f"obey {stop}"
        case Finish(status):
            return status.value
        case LookAtWaits():
            return "look at the waits"
        case Ask(step):
            return f"ask {step.name}"
        case ApplyAnswer(step, wait):
            return f"go on with {step.name}, {wait.state}"
        case Pause(waits):
            return f"pause for {', '.join(wait.step for wait in waits)}"
        case other:
            return repr(other)


# -- forward -----------------------------------------------------------------------------------------------------------


def test_the_first_ready_step_in_order_of_declaration_runs() -> None:
    plan = a_plan(a_step("reader", "last"), a_step("first"), a_step("last"))
    assert said(plan, Story()) == "run first 1"
    assert said(plan, Story().ran("first")) == "run last 1"


def test_ready_steps_are_looked_for_again_after_each_step() -> None:
    plan = a_plan(a_step("early"), a_step("made_ready", "early"), a_step("waiting_since_the_start"))
    assert said(plan, Story().ran("early")) == "run made_ready 1"


def test_interrupts_come_when_nothing_else_is_ready() -> None:
    plan = a_plan(a_step("ask", kind=Kind.INTERRUPT), a_step("work"), a_step("more", "work"))
    assert said(plan, Story()) == "run work 1"
    assert said(plan, Story().ran("work")) == "run more 1"
    assert said(plan, Story().ran("work").ran("more")) == "look at the waits"
    assert said(plan, Story().ran("work").ran("more"), waiting()) == "ask ask"


def waiting(**states: WaitState) -> Facts:
    return Facts(waits={step: Wait(step=step, state=state) for step, state in states.items()})


ASKING = a_plan(
    a_step("left", kind=Kind.INTERRUPT), a_step("right", kind=Kind.INTERRUPT), a_step("after", "left", "right")
)
OPEN, ACCEPTED = WaitState.OPEN, WaitState.ACCEPTED


def test_every_ready_interrupt_is_asked_before_the_execution_pauses() -> None:
    assert said(ASKING, Story(), waiting()) == "ask left"
    asked = Story().asked("left")
    assert said(ASKING, asked, waiting(left=OPEN)) == "ask right"
    assert said(ASKING, asked.asked("right"), waiting(left=OPEN, right=OPEN)) == "pause for left, right"


def test_an_open_wait_without_its_entry_is_asked_again() -> None:
    assert said(ASKING, Story(), waiting(left=OPEN)) == "ask left"


@pytest.mark.parametrize("state", sorted(ANSWERED))
def test_an_answer_comes_before_questions_and_pauses_also_if_nobody_was_asked(state: WaitState) -> None:
    assert said(ASKING, Story(), waiting(right=state)) == f"go on with right, {state}"
    asked = Story().asked("left").asked("right")
    assert said(ASKING, asked, waiting(left=OPEN, right=state)) == f"go on with right, {state}"


def test_the_readers_of_an_answer_run() -> None:
    story = Story().asked("left").asked("right").resumed("left").resumed("right")
    assert said(ASKING, story) == "run after 1"


def test_an_answer_that_failed_begins_a_rollback() -> None:
    plan = a_plan(a_step("work", undo=True), a_step("ask", "work", kind=Kind.INTERRUPT))
    assert said(plan, Story().ran("work").asked("ask").not_resumed("ask")) == "undo work"


def test_a_retry_asks_again_and_an_interrupted_execution_does_not() -> None:
    plan = a_plan(a_step("ask", kind=Kind.INTERRUPT), a_step("work", compensate=True))
    failed = Story().asked("ask").failed("work").compensated("work").asked_to(Action.RETRY).ran("work")
    assert said(plan, failed, waiting(ask=OPEN)) == "ask ask"
    aborted = Story().asked("ask").cut_off().asked_to(Action.RETRY).ran("work")
    assert said(plan, aborted, waiting(ask=OPEN)) == "pause for ask"


def test_a_skipped_step_lets_its_readers_run() -> None:
    assert said(CHAIN, Story().skipped("a")) == "run b 1"


def test_an_execution_is_complete_when_every_step_of_its_plan_stands() -> None:
    assert said(CHAIN, Story().ran("a").ran("b").ran("c")) == "completed"


def test_a_halt_ends_the_execution_whatever_is_ready() -> None:
    assert said(CHAIN, Story().halted("a")) == "halted"


def test_the_next_attempt_follows_the_last_one_also_after_a_recovery() -> None:
    assert said(CHAIN, Story().retrying("a", 1).retrying("a", 2)) == "run a 3"


def test_a_process_that_saw_the_attempt_fail_waits_before_the_next() -> None:
    history = History(CHAIN)
    history.add(Story().retrying("a", retry_in=3.5).entries[0])
    assert decide(CHAIN, history) == Backoff(CHAIN.steps[0], 3.5)


def test_steps_of_a_newer_definition_run_too_and_those_that_vanished_do_not_matter() -> None:
    plan = a_plan(a_step("new"), a_step("a", undo=True))
    assert said(plan, Story().ran("old").ran("a")) == "run new 1"
    assert said(plan, Story().ran("old").ran("a").ran("new")) == "completed"


# -- rollback ----------------------------------------------------------------------------------------------------------


def test_a_failure_is_compensated_once_and_then_the_newest_is_undone_first() -> None:
    story = Story().ran("a").ran("b").failed("c")
    assert said(CHAIN, story) == "compensate c"
    assert said(CHAIN, story.compensated("c")) == "undo b"
    assert said(CHAIN, story.undone("b")) == "undo a"
    assert said(CHAIN, story.undone("a")) == "failed"


def test_undos_go_by_completion_and_not_by_declaration() -> None:
    plan = a_plan(a_step("x", "y", undo=True), a_step("y", undo=True), a_step("end", "x"))
    story = Story().ran("y").ran("x").failed("end")
    assert said(plan, story) == "undo x"


def test_a_step_that_never_began_or_has_no_compensation_is_not_compensated() -> None:
    assert said(CHAIN, Story().ran("a").failed("b", began=False)) == "undo a"
    assert said(a_plan(a_step("a", undo=True), a_step("b")), Story().ran("a").failed("b")) == "undo a"


@pytest.mark.parametrize("listed", ["compensation", "undo"])
def test_what_failed_is_not_tried_again_in_the_same_rollback(listed: str) -> None:
    story = Story().ran("a").ran("b").failed("c")
    if listed == "compensation":
        assert said(CHAIN, story.not_compensated("c")) == "undo b"
    else:
        assert said(CHAIN, story.compensated("c").not_undone("b")) == "undo a"
    story = story.undone("b", "a") if listed == "compensation" else story.undone("a")
    assert said(CHAIN, story) == "failed"


def test_skipped_steps_and_steps_without_undo_are_passed_over() -> None:
    assert said(CHAIN, Story().ran("a").skipped("b").failed("c", began=False)) == "undo a"
    assert said(CHAIN, Story().ran("a").ran("b", undoable=False).failed("c", began=False)) == "undo a"


def test_an_undo_that_is_declared_no_more_is_reported_and_not_forgotten() -> None:
    without_undo = a_plan(a_step("a"), a_step("b", "a"))
    assert said(without_undo, Story().ran("a").failed("b")) == "undo a, vanished"
    without_step = a_plan(a_step("b"))
    assert said(without_step, Story().ran("a").failed("b")) == "undo a, vanished"


def test_a_rollback_goes_on_where_it_was_interrupted() -> None:
    story = Story().ran("a").ran("b").failed("c").compensated("c").undone("b").cut_off()
    assert said(CHAIN, story.asked_to(Action.RETRY)) == "undo a"
    assert said(CHAIN, story.undone("a")) == "failed"


def test_a_rollback_that_was_interrupted_at_its_very_end_still_ends_as_failed() -> None:
    story = Story().ran("a").failed("b").compensated("b").undone("a").cut_off().asked_to(Action.RETRY)
    assert said(CHAIN, story) == "failed"


# -- requests ----------------------------------------------------------------------------------------------------------

CANCEL = Facts(stop=Stop.CANCEL)


def test_a_stop_comes_before_the_next_step_but_not_into_a_rollback_that_has_begun() -> None:
    assert said(CHAIN, Story().ran("a"), CANCEL) == "obey cancel"
    late = Facts(stop=Stop.CANCEL, rolling_back=True)
    assert said(CHAIN, Story().ran("a").failed("b").compensated("b"), late) == "undo a"


def test_undo_of_a_completed_execution_undoes_all_of_it() -> None:
    story = Story().ran("a").ran("b").ran("c").asked_to(Action.ROLLBACK)
    assert said(CHAIN, story) == "undo c"
    assert said(CHAIN, story.undone("c", "b", "a")) == "undone"


def test_undo_of_a_halted_execution_undoes_what_was_done_before_the_halt() -> None:
    story = Story().ran("a").halted("b").asked_to(Action.ROLLBACK)
    assert said(CHAIN, story) == "undo a"
    assert said(CHAIN, story.undone("a")) == "undone"


@pytest.mark.parametrize("ended", [Action.CANCEL, Action.ABORT])
def test_undo_of_a_stopped_execution_compensates_the_step_that_was_cut_off(ended: Action) -> None:
    story = Story().ran("a").cut_off("b")
    if ended is Action.CANCEL:
        story = story.asked_to(Action.CANCEL)
    story = story.asked_to(Action.ROLLBACK)
    assert said(CHAIN, story) == "compensate b"
    assert said(CHAIN, story.compensated("b")) == "undo a"


def test_undo_after_a_cancel_that_came_with_a_failure_compensates_the_failed_step() -> None:
    story = Story().ran("a").failed("b").asked_to(Action.CANCEL).asked_to(Action.ROLLBACK)
    assert said(CHAIN, story) == "compensate b"


def test_undo_of_a_failed_execution_tries_again_only_what_is_listed() -> None:
    story = Story().ran("a").ran("b").failed("c").not_compensated("c").not_undone("b").undone("a")
    story = story.asked_to(Action.ROLLBACK)
    assert said(CHAIN, story) == "compensate c"
    assert said(CHAIN, story.compensated("c")) == "undo b"
    assert said(CHAIN, story.undone("b")) == "undone"


def test_undo_that_fails_again_leaves_the_execution_failed() -> None:
    story = Story().ran("a").failed("b").compensated("b").not_undone("a").asked_to(Action.ROLLBACK).not_undone("a")
    assert said(CHAIN, story) == "failed"


def test_a_listed_compensation_that_is_declared_no_more_stays_reported() -> None:
    story = Story().ran("a").failed("b").not_compensated("b").undone("a")
    for plan in (a_plan(a_step("a", undo=True)), a_plan(a_step("a", undo=True), a_step("b", "a"))):
        for request in (Action.ROLLBACK, Action.RETRY):
            asked = Story(list(story.entries)).asked_to(request)
            assert said(plan, asked) == "compensate b, vanished"
            assert said(plan, asked.not_compensated("b")) == "failed"


# -- retry -------------------------------------------------------------------------------------------------------------


def test_a_retry_runs_the_failed_step_again_with_or_without_compensation() -> None:
    assert said(CHAIN, Story().failed("a").asked_to(Action.RETRY)) == "run a 1"
    story = Story().ran("a").failed("b").compensated("b").undone("a").asked_to(Action.RETRY)
    assert said(CHAIN, story) == "run a 1"


def test_a_retry_undoes_first_what_could_not_be_undone_newest_first() -> None:
    story = Story().ran("a").ran("b").failed("c").not_compensated("c").not_undone("b").not_undone("a")
    story = story.asked_to(Action.RETRY)
    assert said(CHAIN, story) == "compensate c"
    assert said(CHAIN, story.compensated("c")) == "undo b"
    assert said(CHAIN, story.undone("b")) == "undo a"
    assert said(CHAIN, story.undone("a")) == "run a 1"


def test_a_retry_that_cannot_mend_fails_again_with_the_same_list_and_can_be_retried() -> None:
    story = Story().ran("a").ran("b").failed("c", began=False).not_undone("b").not_undone("a").asked_to(Action.RETRY)
    story = story.not_undone("b")
    assert said(CHAIN, story) == "failed"
    assert list(story.told_to(CHAIN).listed) == [("b", Action.UNDO), ("a", Action.UNDO)]
    assert said(CHAIN, story.asked_to(Action.RETRY)) == "undo b"


def test_a_retry_that_was_interrupted_while_mending_goes_on_mending() -> None:
    story = Story().ran("a").ran("b").failed("c", began=False).not_undone("b").not_undone("a").asked_to(Action.RETRY)
    story = story.undone("b").cut_off().asked_to(Action.RETRY)
    assert said(CHAIN, story) == "undo a"


def test_a_retry_keeps_results_without_undo_that_rest_on_nothing_undone() -> None:
    plan = a_plan(a_step("price"), a_step("charge", undo=True), a_step("ship", "charge"))
    story = Story().ran("price", undoable=False).ran("charge").failed("ship").undone("charge").asked_to(Action.RETRY)
    assert said(plan, story) == "run charge 1"


def test_a_retry_after_a_halt_could_not_be_undone_runs_forward_again() -> None:
    story = Story().ran("a").halted("b").asked_to(Action.ROLLBACK).not_undone("a").asked_to(Action.RETRY)
    assert said(CHAIN, story) == "undo a"
    assert said(CHAIN, story.undone("a")) == "run a 1"


def test_a_retry_of_an_interrupted_execution_keeps_all_results() -> None:
    assert said(CHAIN, Story().ran("a").cut_off("b").asked_to(Action.RETRY)) == "run b 1"


# -- cost --------------------------------------------------------------------------------------------------------------


def calls_of_adding(entry: Entry, plan: Plan, history: History) -> int:
    """How many functions are called to add an entry and to decide: the same on every machine."""
    count = 0

    def on_event(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        history.add(entry)
        decide(plan, history)
    finally:
        sys.setprofile(None)
    return count


def half_done(steps: int) -> tuple[Plan, Story]:
    """A chain of so many steps, of which one more than half are done."""
    names = [f"s{number}" for number in range(steps)]
    first, *others = names
    plan = a_plan(a_step(first, undo=True), *(a_step(n, p, undo=True) for p, n in zip(names, others, strict=False)))
    story = Story()
    for name in names[: steps // 2 + 1]:
        story.ran(name)
    return plan, story


def cost_of_a_step(steps: int, *, rolling_back: bool) -> int:
    plan, story = half_done(steps)
    last = story.entries.pop().step
    if rolling_back:
        story.failed(last).undone(story.entries[-2].step)
        history = Story(story.entries[:-1]).told_to(plan)
    else:
        history = story.told_to(plan)
        story.ran(last)
    decide(plan, history)  # what a plan works out once does not count
    return calls_of_adding(story.entries[-1], plan, history)


@pytest.mark.parametrize("rolling_back", [False, True], ids=["forward", "rolling back"])
def test_a_decision_costs_the_same_after_a_thousand_steps_as_after_fifty(rolling_back: bool) -> None:
    few, many = (cost_of_a_step(steps, rolling_back=rolling_back) for steps in (100, 2_000))
    assert many == few


def test_taking_a_ready_step_does_not_look_at_all_that_are_ready() -> None:
    def cost(steps: int) -> int:
        plan = a_plan(*(a_step(f"s{number}") for number in range(steps)))
        story = Story()
        for number in range(steps // 2):
            story.ran(f"s{number}")
        entry = story.entries.pop()
        history = story.told_to(plan)
        decide(plan, history)
        return calls_of_adding(entry, plan, history)

    assert cost(2_000) == cost(100)
