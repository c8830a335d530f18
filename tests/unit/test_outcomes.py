"""The helpers that end a body, by themselves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_reactor import fail, halt, skip, snooze, succeed
from django_reactor.core.outcomes import (
    Failed,
    Halted,
    Outcome,
    SkippedOver,
    Snoozed,
    Succeeded,
    Unwinding,
    body_running,
)
from django_reactor.exceptions import DefinitionError, ReactorError, SignalInTransaction, StepFailed


class Blocks:
    def __init__(self, *, opened: bool = False) -> None:
        self.opened = opened

    def opened_by_body(self) -> bool:
        return self.opened


def left_by(helper: Callable[[], Any], *, inside_a_block: bool = False) -> Outcome:
    with body_running(Blocks(opened=inside_a_block)), pytest.raises(Unwinding) as left:
        helper()
    return left.value.outcome


HELPERS: dict[str, Callable[[], Any]] = {
    "succeed": lambda: succeed(1),
    "fail": lambda: fail("no"),
    "halt": lambda: halt("enough"),
    "skip": lambda: skip("not today"),
    "snooze": lambda: snooze(1),
}


def test_each_helper_carries_its_outcome_out_of_the_body() -> None:
    assert left_by(lambda: succeed(5)) == Succeeded(5)
    assert left_by(lambda: halt("enough")) == Halted("enough")
    assert left_by(lambda: skip("not today", value=5)) == SkippedOver(5, "not today")
    assert left_by(lambda: snooze(timedelta(minutes=1), "not ready")) == Snoozed(60.0, "not ready")


def test_helpers_without_arguments_say_nothing() -> None:
    assert left_by(lambda: succeed()) == Succeeded(None)
    assert left_by(lambda: halt()) == Halted("")
    assert left_by(lambda: skip()) == SkippedOver(None, "")


def test_fail_with_a_text_makes_an_error_of_it_and_forbids_a_retry_only_if_told_so() -> None:
    outcome = left_by(lambda: fail("declined"))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StepFailed)
    assert (str(outcome.error), outcome.error.retryable, outcome.vetoed, outcome.said) == (
        "declined",
        True,
        False,
        True,
    )
    vetoed = left_by(lambda: fail("declined", retry=False))
    assert isinstance(vetoed, Failed)
    assert vetoed.vetoed


def test_fail_with_an_exception_keeps_that_exception() -> None:
    error = ValueError("declined")
    assert left_by(lambda: fail(error)) == Failed(error, said=True)


@pytest.mark.parametrize("name", HELPERS)
def test_an_outcome_passes_by_except_exception(name: str) -> None:
    def body() -> None:
        try:
            HELPERS[name]()
        except Exception:  # noqa: BLE001  # that is the point
            pytest.fail("swallowed")

    left_by(body)


@pytest.mark.parametrize("name", HELPERS)
def test_a_helper_outside_of_a_body_is_refused_by_name(name: str) -> None:
    with pytest.raises(ReactorError, match=rf"{name}\(\) was called outside of a step body"):
        HELPERS[name]()


def test_a_helper_is_refused_again_when_the_body_is_over_and_works_in_the_outer_one_when_an_inner_one_is() -> None:
    with body_running(Blocks()):
        with body_running(Blocks()):
            pass
        with pytest.raises(Unwinding):
            succeed()
    with pytest.raises(ReactorError):
        succeed()


@pytest.mark.parametrize("name", ["succeed", "halt", "skip"])
def test_what_keeps_writes_is_refused_inside_a_block_that_the_body_opened(name: str) -> None:
    with body_running(Blocks(opened=True)), pytest.raises(SignalInTransaction, match=rf"{name}\(\)"):
        HELPERS[name]()


@pytest.mark.parametrize("name", ["fail", "snooze"])
def test_what_rolls_writes_back_may_leave_a_block_that_the_body_opened(name: str) -> None:
    assert isinstance(left_by(HELPERS[name], inside_a_block=True), Failed | Snoozed)


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), True, "soon"])
def test_a_snooze_takes_no_impossible_delay(delay: Any) -> None:
    with body_running(Blocks()), pytest.raises(DefinitionError, match="snooze"):
        snooze(delay)


def test_an_outcome_that_is_caught_all_the_same_says_what_it_is() -> None:
    assert "must not be caught" in str(Unwinding(Halted("x")))
