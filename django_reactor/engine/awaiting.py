"""Wait for what others do: units, and maps whose elements are at work elsewhere (PROTOCOL 4 and 5).

1. An execution that can only wait waits for everything that it and its parts wait for, and is woken by whatever comes
   first: what rests on that goes on, while the rest is at work.
2. A worker parks: it gives the lease up, and looks at all of it once more in the same transaction, after its own write,
   and again once that is committed. Each of it wakes the execution after its own end is committed. So none is
   overlooked, whichever is first.
3. A caller looks at a unit again and again, up to its timeout, but not inside its own transaction, where the unit's
   message has not even left. Where a map is waited for too, a worker does the rest.
4. What a crash leaves asleep the sweeper wakes. A wake is only a hint: who is woken looks at the rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from django_reactor.core.decisions import AwaitMap, AwaitUnit, Decision, Pause
from django_reactor.core.entries import Entry
from django_reactor.core.past import Dispatch
from django_reactor.core.statuses import Status
from django_reactor.engine import logs
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.recording import next_decision, reconsider, record, release_of
from django_reactor.engine.records import AND_MORE
from django_reactor.engine.run import Run
from django_reactor.engine.step_bodies import not_started
from django_reactor.engine.steps import run_entry
from django_reactor.engine.tenure import UNTIL_WOKEN
from django_reactor.exceptions import ExecutionError, WaitTimeout, WouldDeadlock

__all__ = ["Awaited", "all_awaited", "await_any", "look_after_commit", "waiting_for"]

POLL = 0.05, 1.0
"""Seconds between a caller's first looks at a unit, and at most."""
MOST_WORDS = 6
"""What the row has room for. Of more it names the first ones, and says that there are others."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """Something that wakes who waits for it: the word for it in the row, and whether it has come."""

    word: str
    has_come: Callable[[], bool]


def waiting_for(awaited: Sequence[Awaited]) -> str:
    """As it stands in the row."""
    words = list(dict.fromkeys(each.word for each in awaited))
    return " ".join(words) if len(words) <= MOST_WORDS else " ".join(words[: MOST_WORDS - 1]) + AND_MORE


def all_awaited(run: Run, decision: Decision) -> Sequence[Awaited]:
    """What an owner that can only wait, and its parts, wait for beside answers. Units come first: the sweeper finds who
    waits for some by how the row begins."""
    return [*_units(run, decision), *_maps(run)]


def _units(run: Run, decision: Decision) -> Iterator[Awaited]:
    unit = decision.unit if isinstance(decision, Pause | AwaitUnit) else None
    if unit is not None:
        yield Awaited(f"unit:{unit.unit}", partial(_has_ended, run, unit))
    for each in run.blocked_parts:
        yield from _units(each.part, each.decision)


def _has_ended(run: Run, unit: Dispatch) -> bool:
    ended = run.services.deliveries.has_ended(unit.unit)
    if ended:
        run.ended_units.add(unit.step)
    return ended


def _maps(run: Run) -> Iterator[Awaited]:
    elements = run.services.elements
    for each in run.blocked.values():
        if each.part is not run:
            yield from _maps(each.part)
        elif isinstance(each.decision, AwaitMap) and (found := elements.find(each.decision.map_id)) is not None:
            yield Awaited(found.waiting_for, partial(elements.is_settled, found.id))


# -- waiting -----------------------------------------------------------------------------------------------------------


def await_any(run: Run, decision: Decision) -> Decision:
    """Of an owner that can only wait, for no answer among others."""
    readers, maps = list(_readers(run, decision)), list(_maps(run))
    parks = run.tenure.in_worker or bool(maps)
    left = UNTIL_WOKEN
    for reader, reading in readers:
        rest = _time_left(reader, reading, parks=parks)
        if rest is None:
            return _look_again(run)
        left = min(left, rest)
    if parks:
        return _park(run, decision, left)
    if run.services.transactions.in_callers_block():
        return _would_deadlock(run, *readers[0])
    first, most = POLL
    run.services.clock.sleep(min(left, most, first * 2 ** min(run.tenure.looks, 6)))
    run.tenure.looks += 1
    return _look_again(run)


def _readers(run: Run, decision: Decision) -> Iterator[tuple[Run, AwaitUnit]]:
    if isinstance(decision, AwaitUnit):
        yield run, decision
    for each in run.blocked_parts:
        yield from _readers(each.part, each.decision)


def _time_left(reader: Run, reading: AwaitUnit, *, parks: bool) -> float | None:
    """Seconds. Who parks counts from the dispatch, by the store's clock; a caller from when it began to wait for this
    unit. None if that has ended, or the reader has failed, since it was not to wait any longer."""
    unit, services, tenure = reading.unit, reader.services, reader.tenure
    open_for = services.deliveries.open_for(unit.unit)
    if open_for is None:
        reader.ended_units.add(unit.step)
        return None
    if parks:
        left = services.limits().park_timeout - open_for
    else:
        now = services.clock.monotonic()
        if unit.unit not in tenure.waits_since:
            tenure.waits_since[unit.unit], tenure.looks = now, 0
        left = services.limits().read_timeout - (now - tenure.waits_since[unit.unit])
    if left > 0:
        return left
    record(reader, _gave_up(reader, reading, WaitTimeout(f"unit {unit.step!r} has not ended in time")))
    return None


def _would_deadlock(run: Run, reader: Run, reading: AwaitUnit) -> Decision:
    error = WouldDeadlock(
        f"unit {reading.unit.step!r} starts once this transaction is committed, and that waits for it; read it "
        "afterwards"
    )
    record(reader, _gave_up(reader, reading, error))
    return _look_again(run)


def _gave_up(reader: Run, reading: AwaitUnit, error: ExecutionError) -> Entry:
    return run_entry(reader, reading.step, 1, not_started(error), reader.services.clock.now())


def _look_again(run: Run) -> Decision:
    """Whatever was blocked gets another chance."""
    run.unblock()
    return next_decision(run)


def _park(run: Run, decision: Decision, left: float) -> Decision:
    """Give the lease up until something of it has come. A caller hands the rest over by that."""
    awaited = all_awaited(run, decision)
    wake_in = None if left == UNTIL_WOKEN else left
    release = release_of(run, Status.SCHEDULED, wake_in=wake_in, waiting_for=waiting_for(awaited))
    try:
        at_once = run.services.deliveries.park(run.lease, release, lambda: any(each.has_come() for each in awaited))
    except Refused:
        return reconsider(run, None)
    run.tenure.released = 0.0 if at_once else left
    if not at_once:
        logs.parked(run, release.waiting_for)
        look_after_commit(run, awaited)
    return decision


def look_after_commit(run: Run, awaited: Sequence[Awaited]) -> None:
    """Of an owner that has given its lease up to wait. Whatever came between its last look and its commit may have
    found nobody who waits: PostgreSQL's UPDATE passes over a row of which only the version that is not committed yet
    would match."""
    transactions = run.services.transactions
    if transactions.in_callers_block():
        transactions.after_commit(lambda: _wake_if_come(run, awaited))
    else:
        _wake_if_come(run, awaited)


def _wake_if_come(run: Run, awaited: Sequence[Awaited]) -> None:
    come = next((each for each in awaited if each.has_come()), None)
    message = None if come is None else run.services.deliveries.wake(run.id, come.word)
    if message is not None:
        run.services.messenger.send(message)
