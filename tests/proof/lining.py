"""What must hold of ordered locks.

Whoever stands in a line draws a number, enters when its turn has come, leaves and ends. It *surely* has its turn from
the answer until it leaves, or until it could be passed over for dead: so long after it has shown the last sign of life.
Who enters after it was passed over knows that, by its ticket, and is in nobody's way.

1. Numbers are drawn once each; who began to draw after another had drawn has a higher one.
2. Two never surely have the turn at once.
3. Whoever enters with its turn finds that all before it have left, or were passed over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.proof.events import FOREVER, Event, grouped

__all__ = ["Place", "faults_of_line", "faults_of_lines", "places_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    number: int
    draws: float
    drew: float
    entered: float = FOREVER
    leaves: float = FOREVER
    seen: float = FOREVER
    """The last sign of life before it entered, or within."""
    patience: float = FOREVER
    """Seconds without a sign of life after which it may be passed over."""
    is_passed: bool = False

    @property
    def surely_until(self) -> float:
        return min(self.leaves, self.seen + self.patience)


def places_of(events: Sequence[Event]) -> dict[str, list[Place]]:
    """By key, those whose draw was committed."""
    found: dict[str, list[Place]] = {}
    for group in grouped(events, "draws").values():
        by_name = {event["what"]: event for event in reversed(group)}  # of a body that ran again, what it did first
        by_name |= {event["what"]: event for event in group if event["what"] == "lives"}
        if "drew" in by_name:
            found.setdefault(by_name["draws"]["key"], []).append(_place(by_name))
    return found


def _place(events: dict[str, Event]) -> Place:
    def stamp(name: str) -> float:
        return float(events[name]["stamp"]) if name in events else FOREVER

    entered = events.get("enters", {})
    return Place(
        number=events["drew"]["number"],
        draws=stamp("draws"),
        drew=stamp("drew"),
        entered=stamp("enters"),
        leaves=stamp("goes"),
        seen=events["lives"]["since"] if "lives" in events else FOREVER,
        patience=events["draws"]["patience"],
        is_passed=entered.get("passed", False),
    )


def faults_of_lines(events: Sequence[Event], passed: Mapping[str, Collection[int]]) -> list[str]:
    """`passed` are the numbers of a key that stand as such in the store when all is over."""
    return [fault for key, places in places_of(events).items() for fault in faults_of_line(key, places, passed[key])]


def faults_of_line(key: str, places: Sequence[Place], passed: Collection[int]) -> Iterator[str]:
    in_order = sorted(places, key=lambda place: place.number)
    latest = 0.0
    for before, place in zip([None, *in_order], in_order, strict=False):
        if before is not None and before.number == place.number:
            yield f"{key}: number {place.number} was drawn twice"
        if before is not None:
            latest = max(latest, before.draws)
        if place.drew < latest:
            yield f"{key}: number {place.number} was drawn before a lower one was asked for"
    entered = [place for place in in_order if place.entered < FOREVER and not place.is_passed]
    for place in entered:
        for other in entered:
            if other is not place and other.entered <= place.entered < min(other.surely_until, place.surely_until):
                yield f"{key}: {place.number} entered while {other.number} had its turn"
        for other in in_order:
            is_over = other.leaves <= place.entered or other.is_passed or other.number in passed
            if other.number < place.number and not is_over:
                yield f"{key}: {place.number} entered before {other.number} had left"
