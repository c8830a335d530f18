"""The rules find what is wrong, and nothing else: records that were made up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.proof.events import Event
from tests.proof.holding import faults_of_holds
from tests.proof.lining import faults_of_lines
from tests.proof.starting import faults_of_starts

TTL = 10.0


def event(what: str, stamp: float, name: str = "", **more: Any) -> Event:
    return {"what": what, "name": name, "process": 1, "stamp": stamp, "wall": stamp, **more}


def attempt(
    name: str,
    *answers: tuple[str, float],
    at: float,
    owner: str = "",
    epoch: int = 1,
    limit: int = 1,
    process: int = 1,
    slot: int = 0,
) -> list[Event]:
    about = {"key": "lock:one", "owner": owner or name, "epoch": epoch, "limit": limit, "ttl": TTL, "process": process}
    more: dict[str, dict[str, Any]] = {"has": {"slot": slot}, "left": {"freed": True}, "kept": {"freed": False}}
    names = {"kept": "left"}
    rest = [event(names.get(what, what), stamp, name, **more.get(what, {})) for what, stamp in answers]
    return [event("asks", at, name, **about), *rest]


def whole(name: str, begin: float, end: float, **more: Any) -> list[Event]:
    return attempt(name, ("has", begin + 0.1), ("leaves", end - 0.1), ("left", end), at=begin, **more)


def extended(name: str, begin: float, asks: float, has: float, **more: Any) -> list[Event]:
    return attempt(name, ("has", begin + 0.1), ("asks more", asks), ("has more", has), at=begin, **more)


def of_two(*names: str) -> list[Event]:
    return [event for slot, name in enumerate(names) for event in whole(name, 1, 9, limit=2, slot=slot)]


KILLED = event("killed", 3, victim=2)
HELD: Sequence[tuple[str, list[Event]]] = [
    ("one after the other", [*whole("a", 1, 2), *whole("b", 1.95, 3)]),
    ("two beside each other, of two", [*whole("a", 1, 3, limit=2), *whole("b", 2, 4, limit=2, slot=1)]),
    ("refused while another has it", [*whole("a", 1, 3), *attempt("b", ("refused", 2.1), at=2)]),
    ("refused while another asks", [*attempt("a", ("refused", 1.5), at=1), *attempt("b", ("refused", 1.6), at=1.4)]),
    ("expired, and does not know", [*whole("a", 1, 30), *whole("b", 11.1, 12)]),
    ("expired, and refused a release", [*attempt("a", ("has", 2), ("kept", 20), at=1), *whole("b", 11.1, 12)]),
    ("extended", [*extended("a", 1, 9, 12), *attempt("b", ("refused", 21), at=20)]),
    ("killed as it asked", [KILLED, *attempt("a", at=1, process=2), *attempt("b", ("refused", 12), at=11)]),
    ("taken over", [*whole("a", 1, 30, owner="o"), *whole("b", 2, 3, owner="o", epoch=2)]),
    ("a zombie", [*whole("a", 1, 2, owner="o", epoch=2), *attempt("b", ("refused", 4), at=3, owner="o")]),
    ("taken over under a lower limit", [*of_two("a", "x"), *whole("b", 5, 6, owner="a", epoch=2, limit=1)]),
]
NOT_HELD: Sequence[tuple[str, str, list[Event]]] = [
    ("two", "the limit is 1", [*whole("a", 1, 3), *whole("b", 2, 4)]),
    ("a slot twice", "has the slot 0 of another", [*whole("a", 1, 3, limit=2), *whole("b", 2, 4, limit=2)]),
    ("three of two", "the limit is 2", [*of_two("a", "b"), *whole("c", 2, 4, limit=2, slot=2)]),
    ("in spite of a lower limit", "held all along", [*whole("a", 1, 5, limit=2), *whole("b", 2, 4, slot=1)]),
    ("of the dead", "the limit is 1", [KILLED, *attempt("a", ("has", 2), at=1, process=2), *whole("b", 9, 10)]),
    ("of one who had it extended", "the limit is 1", [*extended("a", 1, 9, 9.5), *whole("b", 12, 13)]),
    ("stuck", "nobody can have held it", [*whole("a", 1, 3), *attempt("b", ("refused", 4), at=3.5)]),
    ("stuck after a ttl", "nobody can", [*attempt("a", ("has", 2), at=1), *attempt("b", ("refused", 12.5), at=12.2)]),
    ("a zombie takes", "has taken", [*whole("b", 1, 6, owner="o", epoch=2), *whole("a", 2, 3, owner="o")]),
    ("a zombie extends", "extended", [*extended("a", 1, 4, 4.1, owner="o"), *whole("b", 2, 6, owner="o", epoch=2)]),
    ("a zombie frees", "has freed", [*whole("a", 1, 5, owner="o"), *whole("b", 2, 6, owner="o", epoch=2)]),
]


@pytest.mark.parametrize("events", [events for _, events in HELD], ids=[name for name, _ in HELD])
def test_what_locks_may_do(events: list[Event]) -> None:
    assert faults_of_holds(events) == []


@pytest.mark.parametrize(("case", "fault", "events"), NOT_HELD, ids=[case for case, *_ in NOT_HELD])
def test_what_locks_must_not_do(case: str, fault: str, events: list[Event]) -> None:
    found = faults_of_holds(events)
    assert any(fault in each for each in found), found


def test_a_store_that_was_started_again_may_refuse_for_a_while() -> None:
    refused = attempt("a", ("refused", 4), at=3.5)
    assert faults_of_holds(refused)
    assert not faults_of_holds([event("excused", 3, until=5), *refused])


def test_a_store_that_locks_what_it_sees_may_refuse_while_what_has_lapsed_is_given_up() -> None:
    """By a process that was stopped in the middle of it."""
    lapsed = attempt("a", ("has", 1.1), ("leaves", 1.2), ("left", 30), at=1)
    meanwhile, afterwards = attempt("b", ("refused", 25.1), at=25), attempt("b", ("refused", 31.1), at=31)
    assert faults_of_holds([*lapsed, *meanwhile])
    assert not faults_of_holds([*lapsed, *meanwhile], locks_what_it_sees=True)
    assert faults_of_holds([*lapsed, *afterwards], locks_what_it_sees=True)


# -- starts ------------------------------------------------------------------------------------------------------------


def start(name: str, begin: float, end: float | None, **refused: Any) -> list[Event]:
    asks = event("charges", begin, name, key="api", windows={"1": 2, "60": 5})
    return [asks] if end is None else [asks, event("refused" if refused else "counted", end, name, **refused)]


def starts(*begins: float) -> list[Event]:
    return [each for number, begin in enumerate(begins) for each in start(str(number), begin, begin + 0.05)]


FULL = {"full": 1, "retry_after": 0.4}


@pytest.mark.parametrize(
    "events",
    [
        starts(60.1, 60.2, 61.1, 61.2),
        starts(60.1, 60.2, 60.98),
        [*starts(60.1, 60.2), *start("r", 60.4, 60.5, **FULL)],
        [*starts(60.1), *start("d", 60.2, None), *start("r", 60.4, 60.5, **FULL)],
        start("r", 60.0, 61.0, **FULL),
    ],
    ids=["within", "perhaps in the next", "refused", "perhaps counted by the dead", "waited too long"],
)
def test_what_rate_limits_may_do(events: list[Event]) -> None:
    assert faults_of_starts(events) == []


@pytest.mark.parametrize(
    ("fault", "events"),
    [
        ("3 starts of api within 1 windows of 1 s", starts(60.1, 60.2, 60.3)),
        ("5 starts of api within 2 windows of 1 s", starts(60.1, 60.2, 60.97, 61.1, 61.2)),
        ("6 starts of api within 1 windows of 60 s", starts(60.1, 61.1, 62.1, 63.1, 64.1, 65.1)),
        ("refused for 1 s, in which 1 can", [*starts(60.1), *start("r", 60.4, 60.5, **FULL)]),
        ("refused for 1 s, in which 0 can", [*starts(60.1, 60.2), *start("r", 61.4, 61.5, **FULL)]),
        ("to come again in 0", [*starts(60.1, 60.2), *start("r", 60.4, 60.5, full=1, retry_after=0)]),
    ],
)
def test_what_rate_limits_must_not_do(fault: str, events: list[Event]) -> None:
    assert any(fault in each for each in faults_of_starts(events)), faults_of_starts(events)


# -- lines -------------------------------------------------------------------------------------------------------------


def place(name: str, number: int, *times: float | None, passed: bool = False) -> list[Event]:
    """When it begins to draw, enters, and goes."""
    draws, enters, goes = times
    assert draws is not None
    events = [event("draws", draws, name, key="k", patience=5.0), event("drew", draws + 0.1, name, number=number)]
    if enters is not None:
        events += [event("lives", enters, name, since=enters - 0.1), event("enters", enters, name, passed=passed)]
    return events if goes is None else [*events, event("goes", goes, name)]


A = place("a", 1, 1, 2, 3)


@pytest.mark.parametrize(
    ("events", "passed"),
    [
        ([*A, *place("b", 2, 1.05, 3, 4)], []),
        ([*place("a", 2, 1, 3, 4), *place("b", 1, 1.05, 1.5, 2.9)], []),
        ([*place("a", 1, 1, 2, None), *place("b", 2, 1.5, 7.1, 8)], [1]),
        ([*place("a", 1, 1, 20, 21, passed=True), *place("b", 2, 2, 19, 22)], []),
    ],
    ids=["in turn", "drawn at once", "a dead one was passed over", "one that was passed over runs beside"],
)
def test_what_lines_may_do(events: list[Event], passed: list[int]) -> None:
    assert faults_of_lines(events, {"k": passed}) == []


@pytest.mark.parametrize(
    ("fault", "events", "passed"),
    [
        ("2 entered while 1 had its turn", [*A, *place("b", 2, 2, 2.5, 4)], []),
        ("2 entered while 1 had", [*place("a", 1, 1, 2, 9), *place("b", 2, 2, 5, 6)], [1]),
        ("2 entered before 1 had left", [*place("a", 1, 1, 5, 6), *place("b", 2, 2, 3, 4)], []),
        ("2 entered before 1 had left", [*place("a", 1, 1, None, None), *place("b", 2, 2, 3, 4)], []),
        ("1 was drawn twice", [*A, *place("b", 1, 1, 3, 4)], []),
        ("2 was drawn before a lower one", [*place("a", 2, 1, 3, 4), *place("b", 1, 2, 2.2, 2.5)], []),
    ],
)
def test_what_lines_must_not_do(fault: str, events: list[Event], passed: list[int]) -> None:
    found = faults_of_lines(events, {"k": passed})
    assert any(fault in each for each in found), found
