"""What `run` returns."""

from __future__ import annotations

import json
import pickle
import threading
from typing import Any
from uuid import UUID

import pytest

from django_reactor import Dispatched, Failure, Halt, Paused, Skipped, Success
from django_reactor.exceptions import ExecutionFailed, NotFinished
from django_reactor.results import RollbackFailure

ID = UUID(int=7)
FAILURE = Failure(
    "declined",
    exception_class="shop.Declined",
    step="charge",
    reactor="shop.PlaceOrder",
    arguments={"amount": 5},
    inputs={"sku": "A-1"},
    field_errors={"sku": ["unknown"]},
    retryable=False,
    attempts=3,
    file="shop.py",
    line=7,
    snippet="> 7",
    backtrace=["shop.py:7"],
    rollback_failures=[RollbackFailure(step="reserve", kind="undo", reason="raised", message="gone")],
    execution_id=ID,
)
ALL: dict[str, Any] = {
    "success": Success(5, execution_id=ID),
    "halt": Halt("enough", execution_id=ID),
    "skipped": Skipped(5, "not today"),
    "failure": FAILURE,
    "dispatched": Dispatched(ID),
    "paused": Paused(ID),
}


@pytest.mark.parametrize(
    ("name", "true"),
    [
        ("success", {"is_success"}),
        ("halt", {"is_success", "is_halted"}),
        ("skipped", set()),
        ("failure", {"is_failure"}),
        ("dispatched", {"is_dispatched"}),
        ("paused", {"is_paused"}),
    ],
)
def test_every_result_answers_every_question(name: str, true: set[str]) -> None:
    questions = {"is_success", "is_failure", "is_halted", "is_paused", "is_dispatched"}
    assert {question for question in questions if getattr(ALL[name], question)} == true


@pytest.mark.parametrize("name", ["halt", "skipped", "failure", "dispatched", "paused"])
def test_no_other_result_matches_a_success(name: str) -> None:
    match ALL[name]:
        case Success(_):
            pytest.fail("it matched")


def test_the_first_field_matches_by_position() -> None:
    for result, first in ((Success(5), 5), (Halt("x"), "x"), (Skipped(5), 5), (FAILURE, "declined"), (Paused(ID), ID)):
        match result:
            case Success(value) | Halt(value) | Skipped(value) | Failure(value) | Paused(value):
                assert value == first


@pytest.mark.parametrize("name", ALL)
def test_results_cannot_be_changed(name: str) -> None:
    with pytest.raises(AttributeError):
        ALL[name].execution_id = None


def test_unwrap_gives_the_value_or_raises_from_the_original_exception() -> None:
    assert Success(5).unwrap() == 5
    assert Halt("enough").unwrap() is None  # type: ignore[func-returns-value]  # a halt has no value
    assert Skipped(5).unwrap() == 5
    cause = ValueError("declined")
    with pytest.raises(ExecutionFailed, match="declined") as failed:
        Failure("declined", cause=cause).unwrap()
    assert failed.value.__cause__ is cause
    assert failed.value.failure.message == "declined"


@pytest.mark.parametrize("name", ["dispatched", "paused"])
def test_unwrap_of_what_has_no_value_yet_says_so(name: str) -> None:
    with pytest.raises(NotFinished, match=str(ID)):
        ALL[name].unwrap()


def test_a_failure_goes_through_json_and_back() -> None:
    assert Failure.from_dict(json.loads(json.dumps(FAILURE.as_dict()))) == FAILURE


def test_a_failure_that_a_newer_version_stored_can_be_read() -> None:
    stored = FAILURE.as_dict() | {"mood": "bad"}
    stored["rollback_failures"][0]["mood"] = "bad"
    assert Failure.from_dict(stored) == FAILURE


def test_a_failure_prints_as_its_message_and_hides_long_texts() -> None:
    assert str(FAILURE) == "declined"
    assert "> 7" not in repr(FAILURE)


@pytest.mark.parametrize("name", ALL)
def test_results_survive_pickling(name: str) -> None:
    assert pickle.loads(pickle.dumps(ALL[name])) == ALL[name]


def test_a_pickled_failure_leaves_its_cause_in_the_process_that_raised_it() -> None:
    cause = ValueError("the secret", threading.Lock())  # could not be pickled anyway
    copy = pickle.loads(pickle.dumps(Failure("declined", cause=cause)))
    assert (copy.message, copy.cause) == ("declined", None)
