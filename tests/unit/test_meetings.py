"""The judgement of the demo on who met whom, from what was written down."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from testproject.shop.meetings import Call, Stay, calls_over_quota, crowded, first_calls

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
A, B, C = uuid4(), uuid4(), uuid4()


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def stay(who: UUID, entered: float, left: float | None) -> Stay:
    return Stay(who, at(entered), None if left is None else at(left))


@pytest.mark.parametrize(
    ("stays", "limit", "expected"),
    [
        ([stay(A, 0, 1), stay(B, 1, 2)], 1, 0),
        ([stay(A, 0, 1), stay(B, 0.9, 2)], 1, 1),
        ([stay(B, 0.9, 2), stay(A, 0, 1)], 1, 1),
        ([stay(A, 0, 5), stay(B, 1, 2), stay(C, 3, 4)], 1, 2),
        ([stay(A, 0, 5), stay(B, 1, 2), stay(C, 3, 4)], 2, 0),
        ([stay(A, 0, 5), stay(B, 1, 4), stay(C, 3, 4)], 2, 1),
        ([stay(A, 0, None), stay(B, 1, 2)], 1, 0),
        ([stay(A, 0, 2), stay(B, 1, None)], 1, 1),
        ([stay(A, 0, 2), stay(A, 1, 3)], 1, 0),
        ([], 1, 0),
    ],
    ids=[
        "one leaves as the next comes",
        "two meet",
        "in whatever order they are listed",
        "one meets two",
        "two may be there",
        "three are too many for two",
        "nobody knows when one left who died",
        "one who died has come while another was there",
        "an execution does not meet itself",
        "nobody came",
    ],
)
def test_those_who_came_where_as_many_others_were_are_counted(stays: list[Stay], limit: int, expected: int) -> None:
    assert crowded(stays, limit) == expected


def calls(count: int, begin: float, span: float = 0.5, takes: float = 0.001) -> list[Call]:
    """Evenly over a span."""
    moments = (begin + span * number / count for number in range(count))
    return [Call(at(moment), at(moment + takes)) for moment in moments]


def test_as_many_calls_as_a_window_allows_are_within_the_quota() -> None:
    assert calls_over_quota(calls(10, 0) + calls(10, 1) + calls(3, 2), 10) == 0


def test_calls_beyond_it_are_counted_wherever_windows_begin() -> None:
    assert calls_over_quota(calls(25, 0), 10) >= 4
    assert calls_over_quota(calls(60, 0, span=3), 10) >= 15


def test_the_clock_that_counts_may_begin_its_seconds_at_another_time_than_ours() -> None:
    assert calls_over_quota(calls(10, 0.2) + calls(10, 0.8, span=0.19), 10) == 0


def test_a_call_that_was_on_its_way_for_long_may_have_been_counted_before() -> None:
    assert calls_over_quota(calls(10, 0.5, span=0.4) + calls(5, 0.9, span=0.05, takes=0.6), 10) == 0


def test_each_admission_is_for_the_next_call_of_its_execution_and_one_that_came_again_was_admitted_before() -> None:
    admitted = [(A, at(0)), (B, at(1)), (A, at(5)), (C, at(6))]
    came = [(A, at(0.1)), (A, at(3)), (A, at(5.2)), (B, at(1.1))]
    assert first_calls(admitted, came) == [Call(at(0), at(0.1)), Call(at(1), at(1.1)), Call(at(5), at(5.2))]
