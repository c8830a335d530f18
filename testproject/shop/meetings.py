"""Did any meet who must not, or come too often, or out of turn? Judged afterwards, from what was written down."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from uuid import UUID

__all__ = ["Call", "Stay", "calls_over_quota", "crowded", "first_calls"]

SECOND = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Stay:
    """In one place. `left` is None for whoever died there: nobody knows when."""

    execution: UUID | None
    entered: datetime
    left: datetime | None


def crowded(stays: Iterable[Stay], limit: int) -> int:
    """How many came to a place in which so many others, each of another execution, were at that time."""
    count, present = 0, list[Stay]()
    for stay in sorted(stays, key=lambda each: each.entered):
        present = [each for each in present if each.left is not None and each.left > stay.entered]
        count += len({each.execution for each in present} - {stay.execution}) >= limit
        present.append(stay)
    return count


@dataclass(frozen=True, slots=True)
class Call:
    """It was counted at some time from `asked` on, and came at `came`."""

    asked: datetime
    came: datetime


def calls_over_quota(calls: Sequence[Call], a_second: int) -> int:
    """How many calls came beyond a quota for each second.

    A call was counted in a window that began before it came and ended after it asked: those that asked and came within
    one are in it for certain. Windows begin where the clock that counts says so, which may be another than ours: so
    they are laid where they fit best."""
    beginnings = chain([EPOCH], (call.came for call in calls))
    least = len(calls)
    for beginning in beginnings:
        least = min(least, _over(calls, a_second, beginning))
        if not least:
            break
    return least


def _over(calls: Iterable[Call], a_second: int, beginning: datetime) -> int:
    within = Counter(_windows(calls, beginning))
    return sum(max(0, count - a_second) for count in within.values())


def _windows(calls: Iterable[Call], beginning: datetime) -> Iterator[int]:
    for call in calls:
        asked, came = (call.asked - beginning) // SECOND, (call.came - beginning) // SECOND
        if asked == came:
            yield came


def first_calls(admitted: Iterable[tuple[UUID, datetime]], came: Iterable[tuple[UUID, datetime]]) -> list[Call]:
    """The call that each admission was for. Whoever died, and comes again, was admitted before."""
    times = defaultdict[UUID, list[datetime]](list)
    for execution, moment in sorted(came, key=lambda each: each[1]):
        times[execution].append(moment)
    found = ((asked, next((each for each in times[execution] if each >= asked), None)) for execution, asked in admitted)
    return [Call(asked, first) for asked, first in found if first is not None]
