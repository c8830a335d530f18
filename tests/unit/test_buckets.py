"""Windows of rate limits and calendar buckets of periods."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_reactor.core.buckets import CALENDAR, CLOCK, bucket_at, rolls_in, window_at
from django_reactor.core.options import BUCKETS

PARIS = ZoneInfo("Europe/Paris")
ZONES = [
    ZoneInfo(name)
    for name in (
        "UTC",
        "Europe/Paris",
        "America/Sao_Paulo",
        "Atlantic/Azores",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
        "Pacific/Apia",
    )
]
INSTANT = datetime(2026, 5, 15, 14, 30, 15, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("every", "name", "until"),
    [
        ("minute", "2026-05-15T14-30", datetime(2026, 5, 15, 14, 31, tzinfo=UTC)),
        ("hour", "2026-05-15T14", datetime(2026, 5, 15, 15, tzinfo=UTC)),
        ("day", "2026-05-15", datetime(2026, 5, 16, tzinfo=UTC)),
        ("week", "2026-W20", datetime(2026, 5, 18, tzinfo=UTC)),
        ("month", "2026-05", datetime(2026, 6, 1, tzinfo=UTC)),
        ("quarter", "2026-Q2", datetime(2026, 7, 1, tzinfo=UTC)),
        ("year", "2026", datetime(2027, 1, 1, tzinfo=UTC)),
        (90, "i19765060", datetime(2026, 5, 15, 14, 31, 30, tzinfo=UTC)),
    ],
)
def test_each_bucket_has_a_name_and_an_end(every: str | int, name: str, until: datetime) -> None:
    bucket = bucket_at(INSTANT, every, UTC)
    assert (bucket.name, bucket.until) == (name, until)


def test_every_bucket_that_may_be_declared_is_known() -> None:
    assert set(BUCKETS) == set(CALENDAR) | set(CLOCK)


@pytest.mark.parametrize(
    ("instant", "name"),
    [
        (datetime(2026, 12, 31, 22, 59, 59, tzinfo=UTC), "2026-12-31"),
        (datetime(2026, 12, 31, 23, tzinfo=UTC), "2027-01-01"),
    ],
)
def test_a_day_is_the_time_zones(instant: datetime, name: str) -> None:
    assert bucket_at(instant, "day", PARIS).name == name


def test_a_week_is_isos_also_at_new_year() -> None:
    assert bucket_at(datetime(2027, 1, 3, 12, tzinfo=UTC), "week", UTC).name == "2026-W53"
    assert bucket_at(datetime(2027, 1, 4, 12, tzinfo=UTC), "week", UTC).name == "2027-W01"
    assert bucket_at(datetime(2024, 12, 30, 12, tzinfo=UTC), "week", UTC).name == "2025-W01"


@pytest.mark.parametrize(("day", "hours"), [((2026, 3, 29), 23), ((2026, 10, 25), 25), ((2026, 6, 1), 24)])
def test_a_day_of_23_or_25_hours_is_one_bucket(day: tuple[int, int, int], hours: int) -> None:
    begins = datetime(*day, tzinfo=PARIS).astimezone(UTC)
    buckets = {bucket_at(begins + timedelta(hours=n), "day", PARIS) for n in range(hours)}
    assert len(buckets) == 1
    assert buckets.pop().until == begins + timedelta(hours=hours)
    assert bucket_at(begins + timedelta(hours=hours), "day", PARIS).name != bucket_at(begins, "day", PARIS).name


@pytest.mark.parametrize(
    ("zone", "instant", "until"),
    [
        ("America/Sao_Paulo", datetime(2018, 11, 4, 2, 30, tzinfo=UTC), datetime(2018, 11, 4, 3, tzinfo=UTC)),
        ("Pacific/Apia", datetime(2011, 12, 29, 22, tzinfo=UTC), datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ],
    ids=["clocks that show no midnight", "a day that was left out"],
)
def test_a_day_ends_where_the_next_one_begins(zone: str, instant: datetime, until: datetime) -> None:
    tz = ZoneInfo(zone)
    today = bucket_at(instant, "day", tz)
    assert today.until == until
    assert bucket_at(until - timedelta(microseconds=1), "day", tz).name == today.name
    assert bucket_at(until, "day", tz).name != today.name


def test_a_day_to_which_the_clocks_go_back_is_not_over_before() -> None:
    """At one minute past midnight, as they did there."""
    goose_bay = ZoneInfo("America/Goose_Bay")
    again = datetime(2005, 10, 30, 3, 30, tzinfo=UTC)
    today = bucket_at(again - timedelta(hours=1), "day", goose_bay)
    assert bucket_at(again - timedelta(minutes=29, seconds=30), "day", goose_bay).name != today.name
    assert bucket_at(again, "day", goose_bay).name == today.name
    assert today.until > again


@pytest.mark.parametrize("every", ["hour", "minute"])
def test_what_the_clocks_show_twice_is_two_buckets(every: str) -> None:
    first = bucket_at(datetime(2026, 10, 25, 0, 30, tzinfo=UTC), every, PARIS)
    second = bucket_at(datetime(2026, 10, 25, 1, 30, tzinfo=UTC), every, PARIS)
    assert first.name != second.name
    assert second.name.startswith(first.name)
    assert first.until <= datetime(2026, 10, 25, 1, tzinfo=UTC)


@given(
    now=st.datetimes(datetime(1990, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC)),
    every=st.one_of(st.sampled_from(BUCKETS), st.integers(1, 10_000_000)),
    tz=st.sampled_from(ZONES),
)
def test_a_bucket_lasts_until_its_end_and_not_longer(now: datetime, every: str | int, tz: ZoneInfo) -> None:
    bucket = bucket_at(now, every, tz)
    assert bucket.until > now
    assert bucket_at(bucket.until, every, tz).name != bucket.name
    assert len(bucket.name) <= 32


@given(
    now=st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.sampled_from([UTC, *ZONES])),
    seconds=st.integers(1, 10_000_000),
)
def test_a_window_rolls_when_its_seconds_are_over(now: datetime, seconds: int) -> None:
    left = rolls_in(now, seconds)
    assert 0 < left <= seconds
    instant = now.astimezone(UTC)
    assert window_at(instant, seconds) * seconds <= instant.timestamp() + 1e-3
    assert window_at(instant + timedelta(seconds=left), seconds) == window_at(now, seconds) + 1
