"""The contract of the port `RateLimits`."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from django_reactor.engine.coordination_ports import RateLimits, Window
from tests.contract.coordination_stores import Store

DAY = 86400
A_MINUTE = timedelta(minutes=1)
"""Two clocks may differ by so much."""


@pytest.fixture
def rates(coordination: Store) -> RateLimits:
    return coordination.rate_limits


def day(limit: int) -> Window:
    """Long, so that none rolls while a test looks."""
    return Window(name="day", seconds=DAY, limit=limit)


def year(limit: int) -> Window:
    return Window(name="year", seconds=366 * DAY, limit=limit)


def test_as_many_start_in_a_window_as_its_limit_says(rates: RateLimits) -> None:
    assert [rates.charge("stripe", [day(3)]) is None for _ in range(5)] == [True, True, True, False, False]


def test_a_window_that_rolled_is_empty(coordination: Store, rates: RateLimits) -> None:
    assert rates.charge("stripe", [day(1)]) is None
    assert rates.charge("stripe", [day(1)]) is not None
    coordination.after(DAY)
    assert rates.charge("stripe", [day(1)]) is None
    assert rates.charge("stripe", [day(1)]) is not None


def test_a_refusal_says_which_window_is_full_and_when_it_rolls(rates: RateLimits) -> None:
    windows = [day(1), Window(name="hour", seconds=3600, limit=5)]
    assert rates.charge("stripe", windows) is None
    refused = rates.charge("stripe", windows)
    assert refused is not None
    assert refused.window == day(1)
    assert 0 < refused.retry_after <= DAY


def test_of_several_full_windows_the_shortest_is_named(rates: RateLimits) -> None:
    windows = [year(1), day(1)]
    assert rates.charge("stripe", windows) is None
    refused = rates.charge("stripe", windows)
    assert refused is not None
    assert refused.window == day(1)


@pytest.mark.parametrize("full", ["the shorter", "the longer"])
def test_if_one_window_is_full_none_is_charged(rates: RateLimits, full: str) -> None:
    small, large = (day(1), year(3)) if full == "the shorter" else (day(3), year(1))
    assert rates.charge("stripe", [small, large]) is None
    assert rates.charge("stripe", [small, large]) is not None
    assert rates.charge("stripe", [small, large]) is not None
    other = large if full == "the shorter" else small
    assert [rates.charge("stripe", [other]) is None for _ in range(3)] == [True, True, False]


def test_a_raised_or_lowered_limit_counts_what_was_there(rates: RateLimits) -> None:
    for _ in range(2):
        assert rates.charge("stripe", [day(2)]) is None
    assert rates.charge("stripe", [day(1)]) is not None
    assert rates.charge("stripe", [day(3)]) is None
    assert rates.charge("stripe", [day(3)]) is not None


def test_keys_are_counted_apart(rates: RateLimits) -> None:
    for key in ("a", "A", "a ", "é", "x" * 5000):
        assert rates.charge(key, [day(1)]) is None
        assert rates.charge(key, [day(1)]) is not None


def test_without_windows_nothing_is_limited(rates: RateLimits) -> None:
    assert rates.charge("stripe", []) is None


def test_counts_of_windows_that_are_over_are_forgotten_a_few_at_a_time(coordination: Store, rates: RateLimits) -> None:
    for number in range(3):
        assert rates.charge(f"key:{number}", [day(1)]) is None
    coordination.after(DAY)
    assert rates.charge("new", [day(1)]) is None
    assert [rates.purge(2) for _ in range(3)] in ([2, 1, 0], [0, 0, 0]), "a store may forget them by itself"
    assert rates.charge("new", [day(1)]) is not None


@pytest.mark.parametrize("charged", ["together", "apart"])
def test_a_count_is_kept_as_long_as_its_window_lasts(coordination: Store, rates: RateLimits, charged: str) -> None:
    """Whatever shorter windows of the key roll meanwhile."""
    second = Window(name="second", seconds=1, limit=1000)
    for windows in ([second, year(1)],) if charged == "together" else ([year(1)], [second]):
        assert rates.charge("stripe", windows) is None
    if getattr(coordination, "clock", None) is None:
        time.sleep(1.1)
    else:
        coordination.after(1.1)
    assert rates.charge("stripe", [year(1)]) is not None


def test_who_waits_as_long_as_it_is_told_starts_and_not_earlier(coordination: Store, rates: RateLimits) -> None:
    second = Window(name="second", seconds=1, limit=1)
    while rates.charge("stripe", [second]) is not None or (refused := rates.charge("stripe", [second])) is None:
        coordination.after(0.3)
    assert 0 < refused.retry_after <= 1
    if getattr(coordination, "clock", None) is None:
        time.sleep(refused.retry_after)
    else:
        coordination.after(refused.retry_after)
    assert rates.charge("stripe", [second]) is None


def test_it_is_told_to_the_moment_when_a_window_rolls(coordination: Store, rates: RateLimits) -> None:
    """And not to the second."""
    assert rates.charge("stripe", [year(1)]) is None

    def asked() -> tuple[float, float, float]:
        before = time.monotonic()
        refused = rates.charge("stripe", [year(1)])
        assert refused is not None
        return before, refused.retry_after, time.monotonic()

    first_before, first, first_after = asked()
    if getattr(coordination, "clock", None) is None:
        time.sleep(0.25)
    else:
        coordination.after(0.25)
        first_before, first_after = first_before - 0.25, first_after - 0.25
    then_before, then, then_after = asked()
    assert then_before - first_after - 0.005 <= first - then <= then_after - first_before + 0.005


def test_people_see_how_many_have_started_in_each_open_window_and_when_it_rolls(
    coordination: Store, rates: RateLimits
) -> None:
    assert list(rates.counted("stripe")) == list(rates.counted()) == []
    for _ in range(3):
        rates.charge("stripe", [day(2), year(9)])
    rates.charge("another", [day(2)])
    found = rates.counted("stripe", "another", "nobody's")
    assert [(each.key, each.seconds, each.count) for each in found] == [
        ("another", DAY, 1),
        ("stripe", DAY, 2),
        ("stripe", 366 * DAY, 2),
    ]
    full = rates.charge("stripe", [day(2)])
    assert full is not None
    left = found[1].rolls_at - found[0].rolls_at
    assert left.total_seconds() == 0, "windows of one length roll together"
    clock = getattr(coordination, "clock", None)
    now = datetime.now(UTC) if clock is None else clock()
    assert found[1].rolls_at - now == pytest.approx(timedelta(seconds=full.retry_after), abs=A_MINUTE)
    coordination.after(DAY)
    assert DAY not in [each.seconds for each in rates.counted("stripe")]
