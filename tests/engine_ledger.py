"""A second reading of the protocol: which journals are right. As plain as can be, and built on none of the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from django_reactor.core.entries import Entry
from django_reactor.core.plan import Kind
from django_reactor.core.statuses import Action, EntryOutcome
from tests.engine_world import StepShape

__all__ = ["Ledger", "Stands"]


@dataclass(slots=True)
class Stands:
    seq: int
    run_number: int
    undoable: bool


@dataclass(slots=True)
class Ledger:
    """Reads a journal and objects to it."""

    shapes: Mapping[str, StepShape]
    standing: dict[str, Stands] = field(default_factory=dict)
    dispatched: dict[str, str] = field(default_factory=dict)
    """Ids of units, by the step that dispatched them."""
    handed_off: bool = False
    run_numbers: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    listed: dict[tuple[str, Action], Entry] = field(default_factory=dict)
    """Compensations and undos that failed, by step and action."""
    tried: set[tuple[str, Action]] = field(default_factory=set)
    """What was tried in this rollback."""
    attempts: dict[str, int] = field(default_factory=dict)
    last_run: dict[tuple[str, int], EntryOutcome | None] = field(default_factory=dict)
    """How the last attempt of a step with this run number that began ended; None if it was cut off."""
    wrote: set[tuple[str, int]] = field(default_factory=set)
    """Steps, with the run number, of which an attempt kept what it wrote."""
    halted: bool = False
    rolling_back: bool = False
    mending: bool = False
    before: Entry | None = None

    def read(self, entry: Entry) -> None:
        assert entry.seq == (self.before.seq + 1 if self.before else 1), "numbers have a gap"
        match entry.action:
            case Action.RUN:
                self._run(entry)
            case Action.DISPATCH:
                self._dispatch(entry)
            case Action.HAND_OFF:
                assert not self.handed_off, "handed off twice"
                self.handed_off = True
            case Action.UNDO | Action.COMPENSATE:
                self._reverse(entry)
            case Action.ROLLBACK:
                self.rolling_back, self.mending, self.tried = True, False, set()
            case Action.RETRY if entry.value is not None:
                self._forget_units(json.loads(entry.value))
            case Action.RETRY if self.before is not None and self.before.action is not Action.ABORT:
                self.halted, self.rolling_back, self.mending, self.tried = False, False, True, set()
                self.attempts.clear()
                self._forget_stale()
            case Action.ABORT if entry.step and not self.rolling_back and entry.step not in self.standing:
                self.last_run.setdefault((entry.step, self.run_numbers.get(entry.step, 0)), None)
            case _:
                pass
        self.before = entry

    def _run(self, entry: Entry) -> None:
        name, number = entry.step, self.run_numbers.get(entry.step, 0)
        assert not self.halted, "a step ran after a halt"
        assert not self.rolling_back, "a step ran in a rollback"
        assert not self.mending, "a step ran before what was listed is mended"
        assert name not in self.standing, "a step ran though its result stands"
        assert self.may_run(name), "not the first ready step in order of declaration"
        self.attempts[name] = self.attempts.get(name, 0) + 1
        assert entry.attempt == self.attempts[name] <= self.shapes[name].max_attempts, "attempts are miscounted"
        if (entry.error or {}).get("began", True) or (name, number) not in self.last_run:
            self.last_run[name, number] = entry.outcome
        if entry.outcome in (EntryOutcome.SUCCESS, EntryOutcome.SKIPPED, EntryOutcome.HALTED):
            self.wrote.add((name, number))
        match entry.outcome:
            case EntryOutcome.SUCCESS | EntryOutcome.SKIPPED:
                undoable = entry.undoable and entry.outcome is EntryOutcome.SUCCESS
                self.standing[name] = Stands(entry.seq, number, undoable)
                self.gone.discard(name)
                del self.attempts[name]
            case EntryOutcome.FAILURE:
                self.rolling_back, self.tried = True, set()
            case EntryOutcome.HALTED:
                self.halted = True
            case _:
                pass

    def may_run(self, name: str) -> bool:
        """Whether it is the first ready step in order of declaration; those that read units come after all others."""
        done = self.standing.keys() | self.dispatched.keys()
        ready = [other for other, shape in self.shapes.items() if other not in done and shape.needs <= done]
        return name == next((other for other in ready if not self.units_read_by(other)), ready[0] if ready else None)

    def units_read_by(self, name: str) -> list[str]:
        read = (f"s{position}" for position in sorted(self.shapes[name].reads))
        return [other for other in read if other in self.dispatched]

    def _dispatch(self, entry: Entry) -> None:
        name = entry.step
        assert not self.halted, "a unit was dispatched after a halt"
        assert not self.rolling_back, "a unit was dispatched in a rollback"
        assert not self.mending, "a unit was dispatched before what was listed is mended"
        assert name not in self.dispatched, "a unit was dispatched twice"
        assert self.may_run(name), "not the first ready step in order of declaration"
        assert self.shapes[name].kind is not Kind.STEP
        assert entry.value is not None
        self.dispatched[name] = entry.value
        self.gone.discard(name)

    def _forget_units(self, names: list[str]) -> None:
        """A retry dispatches them anew. Nobody who read them may keep an effect that nothing undoes."""
        assert not self.rolling_back, "units were forgotten in a rollback"
        for name in names:
            self.dispatched.pop(name, None)  # forgotten already, if an earlier retry could not mend
            self.gone.add(name)
        self._forget_stale()

    def _reverse(self, entry: Entry) -> None:
        assert self.rolling_back or self.mending, "something was reversed though nothing failed"
        key = entry.step, entry.action
        assert key not in self.tried, "tried twice in one rollback"
        if entry.action is Action.UNDO:
            assert entry.step == self.newest(), "undone out of order"
        else:
            assert not any(action is Action.UNDO for _, action in self.tried), "compensated after an undo"
        self.tried.add(key)
        if entry.outcome is not EntryOutcome.SKIPPED:
            self.run_numbers[entry.step] = self.run_numbers.get(entry.step, 0) + 1
        if entry.outcome is EntryOutcome.FAILURE:
            self.listed[key] = entry
            if self.mending:
                self.mending, self.rolling_back = False, True
                self.tried |= {(name, Action.UNDO) for name in self.standing}
        else:
            self.listed.pop(key, None)
            if entry.action is Action.UNDO:
                del self.standing[entry.step]
                self.gone.add(entry.step)
            self._forget_stale()

    def newest(self) -> str | None:
        open_ones = [
            (result.seq, name)
            for name, result in self.standing.items()
            if result.undoable
            and (name, Action.UNDO) not in self.tried
            and (not self.mending or (name, Action.UNDO) in self.listed)
        ]
        return max(open_ones)[1] if open_ones else None

    def _forget_stale(self) -> None:
        if self.rolling_back or self.listed:
            return
        self.mending = False
        while stale := [n for n in (*self.standing, *self.dispatched) if self.shapes[n].needs & self.gone]:
            for name in stale:
                if result := self.standing.pop(name, None):
                    assert not result.undoable, f"the result of {name} was forgotten, but not undone"
                self.dispatched.pop(name, None)
                self.gone.add(name)
