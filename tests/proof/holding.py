"""What must hold of locks and semaphores.

An attempt asks, is answered, perhaps asks for more time, leaves, and has left. It *surely* holds from the answer until
it leaves, or until the ttl is over, counted from before it asked (the last time that this was confirmed), or until a
later claim of the same owner asks for the key: that claim has the right to take it over. So a process that was stopped
may find itself expired: from then on it holds no longer, whatever it believes. It *may* hold from before it asked until
it has left, or until the ttl is over, counted from the last moment at which the store may have granted it.

1. No more surely hold at once than the limit says; and whoever is given one with a lower limit finds fewer than that.
2. Two at once never have the same slot.
3. An earlier claim of an owner gets, extends and frees nothing while a later one surely holds.
4. Whoever is refused can be shown somebody who may hold, or who asks at the same time: nothing is kept by nobody, and
   nobody's for longer than the ttl.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from tests.proof.events import FOREVER, Event, ends_of_processes, grouped

__all__ = ["Attempt", "attempts_of", "faults_of_holds"]

CLOCKS = 0.003
"""Seconds by which the store's clock, which may count in milliseconds, and ours may differ."""
MOMENT = 0.9
"""Seconds after which a store that had to wait for others may take anything for taken."""
CELL = 0.05
"""Seconds."""


@dataclass(slots=True, kw_only=True)
class Attempt:
    key: str
    owner: str
    epoch: int
    limit: int
    let_in_by: int
    """The limit by which it came in: what an earlier claim may have had is taken over whatever the limit is now."""
    ttl: float
    asked: float
    process: int
    granted: float = FOREVER
    refused: float = FOREVER
    confirmed: float = FOREVER
    """Before the last question that was answered yes."""
    last_grant: float = FOREVER
    """After the last question that may have been answered yes."""
    leaves: float = FOREVER
    left: float = FOREVER
    freed: bool = True
    slot: int = 0
    overtaken: float = FOREVER
    may_re_enter: bool = False
    """An earlier claim may have had it still."""
    is_zombie: bool = False
    """A later claim had asked before it was answered."""
    more: list[tuple[float, float]] = field(default_factory=list)
    """When it asked for more time, and was answered yes."""

    @property
    def answered(self) -> float:
        return min(self.granted, self.refused)

    @property
    def surely_until(self) -> float:
        return min(self.leaves, self.confirmed + self.ttl - CLOCKS, self.overtaken)

    @property
    def may_until(self) -> float:
        if self.refused < FOREVER:
            return self.refused
        lapses = self.last_grant + self.ttl + CLOCKS
        return min(self.left, lapses) if self.freed else lapses

    def surely(self, moment: float) -> bool:
        return self.granted <= moment < self.surely_until

    def surely_throughout(self, begin: float, end: float) -> bool:
        return self.granted <= begin and end < self.surely_until

    def may_within(self, begin: float, end: float) -> bool:
        return self.asked <= end and begin <= self.may_until

    def is_leaving_within(self, begin: float, end: float) -> bool:
        """It has asked to be freed, and got its answer."""
        return self.leaves <= end and begin <= self.left < FOREVER

    def __str__(self) -> str:
        return f"{self.owner[-3:]}/{self.epoch} of {self.key} at {self.asked:.4f}"


def attempts_of(events: Sequence[Event]) -> dict[str, list[Attempt]]:
    """By key."""
    dead = ends_of_processes(events)
    found: dict[str, list[Attempt]] = {}
    for group in grouped(events, "asks").values():
        attempt = _attempt(group, dead)
        found.setdefault(attempt.key, []).append(attempt)
    for attempts in found.values():
        for of_owner in _by_owner(attempts).values():
            of_owner.sort(key=lambda each: each.asked)
            for attempt in of_owner:
                _compare(attempt, of_owner)
    return found


def _compare(attempt: Attempt, of_owner: Sequence[Attempt]) -> None:
    """With those of the same owner, the first that asked first."""
    for other in of_owner:
        goes_on = other.epoch == attempt.epoch and other.asked > attempt.asked
        came_back = other.epoch == attempt.epoch and other.asked < attempt.asked
        if (other.epoch > attempt.epoch or goes_on) and other.answered >= attempt.asked:
            attempt.overtaken = min(attempt.overtaken, other.asked)
        if other.epoch > attempt.epoch and other.asked <= attempt.answered:
            attempt.is_zombie = True
        if (other.epoch < attempt.epoch or came_back) and other.may_within(attempt.asked, attempt.answered):
            attempt.let_in_by = max(attempt.let_in_by, other.let_in_by)
            attempt.may_re_enter = True


def _by_owner(attempts: Sequence[Attempt]) -> dict[str, list[Attempt]]:
    found: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        found.setdefault(attempt.owner, []).append(attempt)
    return found


def _attempt(group: Sequence[Event], dead: dict[int, float]) -> Attempt:
    first, asked_more = group[0], FOREVER
    named = {name: first[name] for name in ("key", "owner", "epoch", "limit", "ttl", "process")}
    attempt = Attempt(let_in_by=first["limit"], asked=first["stamp"], **named)
    is_open = True
    """A question has no answer yet."""
    for event in group[1:]:
        stamp = event["stamp"]
        is_open = event["what"] in ("asks more", "leaves")
        match event["what"]:
            case "has":
                attempt.granted, attempt.slot = stamp, event["slot"]
                attempt.confirmed, attempt.last_grant = attempt.asked, stamp
            case "refused":
                attempt.refused = stamp
            case "asks more":
                asked_more = stamp
            case "has more":
                attempt.confirmed, attempt.last_grant = event.get("since", asked_more), stamp
                if "since" not in event:  # it was asked by whoever writes this down
                    attempt.more.append((asked_more, stamp))
            case "leaves":
                attempt.leaves = stamp
            case "left":
                attempt.left, attempt.freed = stamp, event["freed"]
            case "failed":  # nobody knows what the store has done
                attempt.last_grant = stamp
    if is_open:
        attempt.last_grant = dead.get(attempt.process, FOREVER)
    return attempt


def faults_of_holds(events: Sequence[Event], *, locks_what_it_sees: bool = False) -> list[str]:
    """Between the stamps of an event "excused" the store may refuse whom it likes: it was started again. A store that
    `locks_what_it_sees` refuses whoever looks while another does, or while it gives up what has lapsed: a process that
    is stopped in the middle of that keeps the row locked until it goes on."""
    excused = [(event["stamp"], event["until"]) for event in events if event["what"] == "excused"]
    return [
        fault for attempts in attempts_of(events).values() for fault in _faults(attempts, excused, locks_what_it_sees)
    ]


class _Near:
    """Finds the attempts that may hold within a short time, without looking at all."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        self._cells: dict[int, list[Attempt]] = {}
        stamps = (stamp for each in attempts for stamp in (each.asked, each.granted, each.refused))
        end = max(stamp for stamp in stamps if stamp < FOREVER) + CELL
        for attempt in attempts:
            for cell in _cells(attempt.asked, min(attempt.may_until, end)):
                self._cells.setdefault(cell, []).append(attempt)

    def within(self, begin: float, end: float) -> list[Attempt]:
        found = {id(each): each for cell in _cells(begin, end) for each in self._cells.get(cell, ())}
        return [each for each in found.values() if each.may_within(begin, end)]


def _cells(begin: float, end: float) -> range:
    return range(int(begin / CELL), int(end / CELL) + 1)


def _faults(attempts: Sequence[Attempt], excused: Collection[tuple[float, float]], locks: bool) -> Iterator[str]:
    near = _Near(attempts)
    granted = [attempt for attempt in attempts if attempt.granted < FOREVER]
    for attempt in granted:
        if attempt.granted < attempt.surely_until:
            yield from _crowd(attempt, near)
    yield from _zombies(granted)
    for attempt in attempts:
        if attempt.refused == FOREVER or _is_explained(attempt, near, excused, locks):
            continue
        if not locks or not any(each.is_leaving_within(attempt.asked, attempt.refused) for each in granted):
            yield f"{attempt} was refused at {attempt.refused:.4f}, and nobody can have held it"


def _crowd(attempt: Attempt, near: _Near) -> Iterator[str]:
    around = near.within(attempt.granted, attempt.granted)
    beside = [each for each in around if each is not attempt and each.surely(attempt.granted)]
    most = max(each.let_in_by for each in (attempt, *beside))
    if len(beside) >= most:
        yield f"{attempt} was let in beside {', '.join(map(str, beside))}: the limit is {most}"
    if any(each.slot == attempt.slot for each in beside):
        yield f"{attempt} has the slot {attempt.slot} of another"
    throughout = [each for each in beside if each.surely_throughout(attempt.asked, attempt.granted)]
    if not attempt.may_re_enter and len(throughout) >= attempt.limit:
        yield f"{attempt} was let in although {', '.join(map(str, throughout))} held all along"


def _zombies(granted: Sequence[Attempt]) -> Iterator[str]:
    for later, earlier in _successors(granted):
        spans = [("taken", earlier.asked, earlier.granted), *(("extended", *span) for span in earlier.more)]
        if earlier.left < FOREVER and earlier.freed:
            spans.append(("freed", earlier.leaves, earlier.left))
        for did, begin, end in spans:
            is_of_later = did == "taken" or earlier.slot == later.slot  # who asked at once may have got one each
            if is_of_later and later.surely_throughout(begin, end):
                yield f"{earlier} has {did} what {later} held"


def _successors(granted: Sequence[Attempt]) -> Iterator[tuple[Attempt, Attempt]]:
    for of_owner in _by_owner(granted).values():
        yield from ((later, earlier) for later in of_owner for earlier in of_owner if later.epoch > earlier.epoch)


def _is_explained(refused: Attempt, near: _Near, excused: Collection[tuple[float, float]], locks: bool) -> bool:
    begin, end = refused.asked, refused.refused
    if end - begin >= MOMENT or any(since <= end and begin <= until for since, until in excused):
        return True
    others = [each for each in near.within(begin, end) if each is not refused]
    return len(others) >= (1 if locks else refused.limit) or refused.is_zombie
