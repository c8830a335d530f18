"""What must hold of rate limits.

A start asks, and is counted or refused. It was counted between the two stamps, by the same wall clock as the store's,
since all are on one machine; one whose process died in between may have been counted.

1. In any run of windows no more starts lie wholly than the limits of these windows let in.
2. Whoever is refused for a window can be shown as many that may have been counted in it: what is refused for one window
   is counted in no other, and what nobody has counted keeps nobody out.
3. A refusal says when the window rolls: soon enough, and never at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.proof.events import FOREVER, Event, grouped

__all__ = ["Start", "crowded", "faults_of_starts"]

CLOCKS = 0.003
MOMENT = 0.9
"""Seconds after which a store that had to wait for others may take a window for full."""
LONGEST = 30.0
"""Seconds in which an unanswered start was counted, or never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    key: str
    windows: dict[int, int]
    """Seconds: limit."""
    asked: float
    answered: float
    counted: bool | None
    """None: nobody knows."""
    full: int = 0
    retry_after: float = 0


def faults_of_starts(events: Sequence[Event]) -> list[str]:
    starts = [_start(group) for group in grouped(events, "charges").values()]
    by_key: dict[str, list[Start]] = {}
    for start in starts:
        by_key.setdefault(start.key, []).append(start)
    return [fault for of_key in by_key.values() for fault in _faults(of_key)]


def _start(group: Sequence[Event]) -> Start:
    first, last = group[0], group[-1]
    answer = last["what"] if len(group) > 1 else ""
    return Start(
        key=first["key"],
        windows={int(seconds): limit for seconds, limit in first["windows"].items()},
        asked=first["wall"],
        answered=last["wall"] if answer else FOREVER,
        counted={"counted": True, "refused": False}.get(answer),
        full=last.get("full", 0),
        retry_after=last.get("retry_after", 0),
    )


def _faults(starts: Sequence[Start]) -> Iterator[str]:
    counted = [start for start in starts if start.counted]
    for seconds, limit in starts[0].windows.items():
        yield from crowded([(start.asked, start.answered) for start in counted], seconds, limit, starts[0].key)
    may = _may_be_counted(starts)
    for start in starts:
        if start.counted is False:
            yield from _faults_of_refusal(start, may)


def _may_be_counted(starts: Sequence[Start]) -> Counter[tuple[int, int]]:
    """By seconds of a window, and its number."""
    return Counter(
        (seconds, number)
        for start in starts
        if start.counted is not False
        for seconds in start.windows
        for number in _numbers(start.asked, min(start.answered, start.asked + LONGEST), seconds)
    )


def _numbers(begin: float, end: float, seconds: int) -> range:
    return range(int((begin - CLOCKS) // seconds), int((end + CLOCKS) // seconds) + 1)


def crowded(spans: Sequence[tuple[float, float]], seconds: int, limit: int, key: str) -> Iterator[str]:
    """Runs of windows in which more lie wholly than they let in."""
    numbers = [(span.start, span.stop - 1) for span in (_numbers(begin, end, seconds) for begin, end in spans)]
    for first in {begin for begin, _ in numbers}:
        inside = sorted(end for begin, end in numbers if begin >= first)
        for count, last in enumerate(inside, 1):
            if count > limit * (last - first + 1):
                yield f"{count} starts of {key} within {last - first + 1} windows of {seconds} s, of {limit} each"
                break


def _faults_of_refusal(refused: Start, may_be_counted: Counter[tuple[int, int]]) -> Iterator[str]:
    full = refused.full
    if not 0 < refused.retry_after <= full:
        yield f"a start of {refused.key} is told to come again in {refused.retry_after} s, for {full} s"
    if refused.answered - refused.asked >= MOMENT:
        return
    may = max(may_be_counted[full, number] for number in _numbers(refused.asked, refused.answered, full))
    if may < refused.windows[full]:
        yield f"a start of {refused.key} was refused for {full} s, in which {may} can have been counted"
