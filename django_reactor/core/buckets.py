"""Spans of time that are counted: windows of a rate limit, calendar buckets of a period.

A window is so many seconds of the clock, counted from the epoch, the same everywhere. A bucket follows the calendar of
a time zone: a day may have 23 or 25 hours, and an hour that the clocks show twice in autumn is two buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

__all__ = ["SECONDS", "Bucket", "bucket_at", "rolls_in", "seconds_of", "shown_window", "window_at"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SECONDS: Mapping[str, int] = {
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86400,
    "week": 7 * 86400,
    "month": 31 * 86400,
    "year": 366 * 86400,
}
"""How long the named windows of a rate limit are: no calendar has a part in them."""


def seconds_of(window: str | int) -> int:
    return SECONDS[window] if isinstance(window, str) else window


def shown_window(window: str | int) -> str:
    """What follows "in this"."""
    return window if isinstance(window, str) else f"window of {window} s"


def window_at(now: datetime, seconds: int) -> int:
    """The number of the window that an aware time is in."""
    return (now - EPOCH) // timedelta(seconds=seconds)


def rolls_in(now: datetime, seconds: int) -> float:
    """Seconds until the next window begins; never 0."""
    return (EPOCH + (window_at(now, seconds) + 1) * timedelta(seconds=seconds) - now).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """`name` tells it from all others of the same kind; it is over at `until` (aware)."""

    name: str
    until: datetime


def bucket_at(now: datetime, every: str | int, tz: tzinfo) -> Bucket:
    """The bucket that an aware time is in: of a calendar unit, or of so many seconds (whatever the time zone)."""
    if isinstance(every, int):
        index = window_at(now, every)
        return Bucket(name=f"i{index}", until=EPOCH + (index + 1) * timedelta(seconds=every))
    local = now.astimezone(tz)
    if every in CLOCK:
        return _of_the_clock(local, *CLOCK[every])
    name, next_day = CALENDAR[every](local.date())
    return Bucket(name=name, until=_begins(next_day, tz))


CLOCK: Mapping[str, tuple[str, timedelta]] = {
    "minute": ("%Y-%m-%dT%H-%M", timedelta(minutes=1)),
    "hour": ("%Y-%m-%dT%H", timedelta(hours=1)),
}


def _of_the_clock(local: datetime, form: str, length: timedelta) -> Bucket:
    """The second of two that the clocks show alike says so in its name."""
    into = timedelta(minutes=local.minute if length > timedelta(minutes=1) else 0, seconds=local.second)
    begun = local.astimezone(UTC) - into - timedelta(microseconds=local.microsecond)
    return Bucket(name=local.strftime(form) + ("/2" if local.fold else ""), until=begun + length)


def _begins(day: date, tz: tzinfo) -> datetime:
    """The midnight from which on it is this day: the later one where the clocks show two, or none."""
    midnight = datetime.combine(day, time(), tz)
    return max(midnight.replace(fold=fold).astimezone(UTC) for fold in (0, 1))


def _day(today: date) -> tuple[str, date]:
    return f"{today:%Y-%m-%d}", today + DAY


def _week(today: date) -> tuple[str, date]:
    year, week, weekday = today.isocalendar()
    return f"{year:04d}-W{week:02d}", today + (8 - weekday) * DAY


def _month(today: date) -> tuple[str, date]:
    return f"{today:%Y-%m}", _first_of_month(today, 1)


def _quarter(today: date) -> tuple[str, date]:
    past = (today.month - 1) % 3
    return f"{today:%Y}-Q{(today.month + 2) // 3}", _first_of_month(today, 3 - past)


def _year(today: date) -> tuple[str, date]:
    return f"{today:%Y}", date(today.year + 1, 1, 1)


def _first_of_month(today: date, later: int) -> date:
    years, month = divmod(today.month - 1 + later, 12)
    return date(today.year + years, month + 1, 1)


CALENDAR: Mapping[str, Callable[[date], tuple[str, date]]] = {
    "day": _day,
    "week": _week,
    "month": _month,
    "quarter": _quarter,
    "year": _year,
}
