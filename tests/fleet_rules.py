"""What must be true of a whole fleet between two deeds, and of executions that have ended."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django_reactor.core.plan import Kind
from django_reactor.core.statuses import Action, EntryOutcome, Status
from tests.engine_ledger import Ledger
from tests.engine_world import Effect
from tests.fleet import Fleet
from tests.fleet_audit import WAITING, Auditor

__all__ = ["look"]

SUCCEEDED, SKIPPED, HALTED = EntryOutcome.SUCCESS, EntryOutcome.SKIPPED, EntryOutcome.HALTED


def look(fleet: Fleet, auditor: Auditor) -> None:
    atomic_effects_are_what_the_journal_says(auditor)
    units_are_dispatched_once(auditor)
    for pk, row in fleet.store.rows.items():
        if row.record.status.is_end:
            Ending(auditor, pk).look()
        elif row.token is None and not fleet.stalled:
            is_underway_or_was_lost(fleet, auditor, pk)


def atomic_effects_are_what_the_journal_says(auditor: Auditor) -> None:
    for key, effect in auditor.fleet.effects.items():
        pk, name, _ = key.split(":")
        case = auditor.cases[UUID(pk)]
        done, removed = case.kept[key, "run"], case.kept[key, "undo"] + case.kept[key, "compensate"]
        if case.ledger.shapes[name].atomic:
            assert (effect.done, effect.removed) == (done, removed), f"an atomic step wrote {effect} as {done, removed}"
        elif case.ledger.shapes[name].kind is Kind.STEP:
            assert effect.done >= done, "a result stands without its effect"
            assert effect.removed >= removed, "an undo is journaled that did nothing"


def units_are_dispatched_once(auditor: Auditor) -> None:
    for pk, row in auditor.store.rows.items():
        record = row.record
        if record.parent_id is not None:
            told = [
                entry.step
                for entry in auditor.store.entries[record.parent_id]
                if entry.action is Action.DISPATCH and entry.value == str(pk)
            ]
            assert told == [record.parent_step], "a unit that its parent's journal does not know"


def is_underway_or_was_lost(fleet: Fleet, auditor: Auditor, pk: UUID) -> None:
    """A message will come in time, unless one was lost, came too early, or died with its sender."""
    row, case = fleet.store.rows[pk], auditor.cases[pk]
    assert row.record.status in WAITING
    assert row.wake_at is not None, "it is held for ever"
    if row.waiting_for:
        unit = UUID(row.waiting_for.removeprefix("unit:"))
        asleep = row.wake_at > fleet.clock.time and row.record.status is Status.SCHEDULED
        lost = case.orphaned or auditor.cases[unit].orphaned
        assert lost or not (asleep and fleet.store.rows[unit].record.status.is_end), "a wake-up was lost"
    underway = [due for message, due in fleet.mail if message.execution_id == pk]
    late = max(row.wake_at, fleet.clock.time) + timedelta(seconds=1)
    dallied = case.left_by is not None and case.left_by.stood_still  # between giving it up and sending
    assert case.orphaned or any(due <= late or dallied for due in underway), "nobody will deliver it"


class Ending:
    """One execution that has ended."""

    def __init__(self, auditor: Auditor, pk: UUID) -> None:
        self.auditor, self.fleet, self.pk = auditor, auditor.fleet, pk
        self.row, self.case = auditor.store.rows[pk], auditor.cases[pk]
        self.status, self.ledger = self.row.record.status, self.case.ledger

    def look(self) -> None:
        assert self.row.token is None
        assert self.row.wake_at is None
        assert not self.row.record.stop, "an end has no stop"
        if self.status in (Status.FAILED, Status.CANCELLED, Status.UNDONE):
            self.auditor._no_unit_waits_to_start(self.pk)
        if self.status in (Status.COMPLETED, Status.HALTED, Status.CANCELLED):
            self._all_results_are_true()
        if self.status is Status.COMPLETED:
            assert self.ledger.standing.keys() | self.ledger.dispatched.keys() == self.ledger.shapes.keys()
            assert not self.ledger.listed
            assert not self.ledger.rolling_back
        if self.status in (Status.FAILED, Status.UNDONE):
            assert self.row.rollback_failures == len(self.ledger.listed)
            assert (self.status is Status.FAILED) >= bool(self.ledger.listed)
            assert self.ledger.rolling_back
        if self.status not in (Status.ABORTED, Status.CANCELLED, Status.HALTED):
            self._nothing_else_stands()

    def _effects(self) -> dict[tuple[str, int], Effect]:
        found = {}
        for key, effect in self.fleet.effects.items():
            pk, name, number = key.split(":")
            if pk == str(self.pk):
                found[name, int(number)] = effect
        return found

    def _all_results_are_true(self) -> None:
        for name, result in self.ledger.standing.items():
            ran = self.ledger.last_run.get((name, result.run_number))
            if ran is SUCCEEDED and not self._was_reversed(name):
                assert self._effects()[name, result.run_number].stands, f"the result of {name} stands without an effect"

    def _was_reversed(self, name: str) -> bool:
        """Perhaps: an undo failed, or its process was interrupted before it was journaled."""
        entries = self.fleet.store.entries[self.pk]
        journaled = sum((entry.action, entry.step) == (Action.UNDO, name) for entry in entries)
        return (name, Action.UNDO) in self.ledger.listed or self.fleet.calls[self.pk, "undo", name] > journaled

    def _nothing_else_stands(self) -> None:
        for (name, number), effect in self._effects().items():
            result = self.ledger.standing.get(name)
            holds = self.status is Status.COMPLETED and result is not None and result.run_number == number
            stray = f"{self.pk}:{name}:{number}" in self.fleet.strays
            if effect.stands and not holds and not stray:
                assert self._may_stand(self.ledger, name, number), f"the effect {name}:{number} was forgotten"

    def _may_stand(self, ledger: Ledger, name: str, number: int) -> bool:
        shape, outcome = ledger.shapes[name], ledger.last_run.get((name, number))
        if shape.kind is Kind.ASYNC_REACTOR:
            return True  # what its function does is not reversed
        if shape.atomic and (name, number) not in ledger.wrote:
            return False
        if outcome is SUCCEEDED:
            return not shape.undo or (name, Action.UNDO) in ledger.listed
        if outcome in (SKIPPED, HALTED):
            return True
        return not shape.compensate or (name, Action.COMPENSATE) in ledger.listed
