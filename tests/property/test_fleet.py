"""Workers, callers and a sweeper on random reactors with units, where anything may go wrong at any instant."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from django_reactor.core.statuses import FORWARD, Relation, Status
from django_reactor.engine import acting, delivering, starting
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.engine.services import Services
from tests.engine_support import LEASE_TTL
from tests.fleet import LIMITS, Blow, Fleet, Process, Strike
from tests.fleet_audit import Auditor
from tests.fleet_rules import look
from tests.fleet_shapes import FleetShape, fleets

BLOWS, POINTS = [*Blow, Blow.STALL], list(CrashPoint)


def strike_of(number: int) -> Strike | None:
    """A third is none, a third falls at some instant, a third at a named point."""
    number, which = divmod(number, 3)
    number, blow = divmod(number, len(BLOWS))
    if which == 1:
        return Strike(BLOWS[blow], 1 + number % 60)
    count, point = divmod(number, len(POINTS))
    return Strike(BLOWS[blow], 1 + count % 3, POINTS[point]) if which else None


strikes = st.integers(0, 3 * len(BLOWS) * 3 * len(POINTS) * 2 - 1).map(strike_of)
stalls = st.integers(1, 50).map(lambda count: Strike(Blow.STALL, count))
SKEWS = (0, 12 * 3600, 0, -7200, 90)
"""Seconds by which the wall clocks of one process after another are ahead."""
places = st.integers(0, 63)
"""Which of those that are there, counted round."""
MOST_EXECUTIONS = 12


class FleetMachine(RuleBasedStateMachine):
    """See the rules below: what users, brokers, clocks and fate do to a fleet."""

    fleet: Fleet
    auditor: Auditor

    @initialize(shape=fleets())
    def begin(self, shape: FleetShape) -> None:
        self.fleet = Fleet(shape)
        self.auditor = Auditor(self.fleet)
        self.skews = cycle(SKEWS)
        self.by_key: dict[str, UUID] = {}

    def teardown(self) -> None:
        if not hasattr(self, "fleet"):
            return
        try:
            if self.fleet.is_sound:
                self.settle()
                self.remove_all()
        finally:
            self.fleet.close()

    # -- starts --------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.fleet.store.rows) < MOST_EXECUTIONS)
    @rule(strike=strikes, key=st.sampled_from((None, None, "one", "two")), in_worker=st.booleans())
    def start(self, strike: Strike | None, key: str | None, in_worker: bool) -> None:
        call = starting.Call(idempotency_key=key)
        known = self.by_key.get(key) if key else None
        before = set(self.fleet.store.rows)
        calls = sum(self.fleet.calls.values())

        def action(services: Services) -> Any:
            begin = starting.enqueue if in_worker else starting.start
            return begin(services, self.fleet.parent, {"given": ""}, call)

        process = self.run(action, strike, in_worker=False)
        made = [pk for pk in self.fleet.store.rows if pk not in before and self._is_root(pk)]
        if known is not None:
            assert not made, "a second execution has the same idempotency key"
            assert sum(self.fleet.calls.values()) == calls, "a body ran though the key was taken"
            assert process.was_struck or process.stood_still or process.result.execution_id == known
        elif key and made:
            self.by_key[key] = made[0]

    def _is_root(self, pk: UUID) -> bool:
        return self.fleet.store.rows[pk].record.relation is Relation.ROOT

    # -- messages ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.fleet.mail)
    @rule(place=places, strike=strikes, again=st.sampled_from((False, False, True)))
    def deliver(self, place: int, strike: Strike | None, again: bool) -> None:
        """In any order, at any time, and perhaps not for the last time."""
        place %= len(self.fleet.mail)
        message, due = self.fleet.mail[place] if again else self.fleet.mail.pop(place)
        if due > self.fleet.clock.time and not again:
            self.auditor.cases[message.execution_id].orphaned = True
        self.deliver_to(message.execution_id, strike)

    @precondition(lambda self: self.fleet.mail)
    @rule(strike=strikes)
    def deliver_next(self, strike: Strike | None) -> None:
        """When it is due."""
        self.deliver_first(strike)

    def deliver_first(self, strike: Strike | None) -> Process:
        message, due = min(self.fleet.mail, key=lambda sent: sent[1])
        self.fleet.mail.remove((message, due))
        self.fleet.clock.time = max(self.fleet.clock.time, due)
        return self.deliver_to(message.execution_id, strike)

    @precondition(lambda self: self.fleet.mail)
    @rule(place=places)
    def lose(self, place: int) -> None:
        message, _ = self.fleet.mail.pop(place % len(self.fleet.mail))
        self.auditor.cases[message.execution_id].orphaned = True

    def deliver_to(self, pk: UUID, strike: Strike | None = None) -> Process:
        known = tuple(self.fleet.definitions)
        return self.run(
            lambda services: delivering.deliver(services, self.fleet.find, pk, known=known), strike, target=pk
        )

    # -- clocks and fate -----------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from((1, 5, 16, 61, 61, 300, 7 * 3600)))
    def time_passes(self, seconds: int) -> None:
        self.fleet.clock.advance(seconds)

    @precondition(lambda self: self.fleet.stalled)
    @rule(place=places, strike=strikes)
    def resume(self, place: int, strike: Strike | None) -> None:
        stalled = self.fleet.stalled
        stalled[place % len(stalled)].resume(strike)

    @rule(stall=stalls, begins=st.booleans(), strike=strikes, wakes=st.booleans())
    def overtake(self, stall: Strike, begins: bool, strike: Strike | None, wakes: bool) -> None:
        """It stands still for so long that another one takes over; then it goes on, perhaps before that one is done."""
        process = self.make_stall(stall, begins)
        if process is not None and process.lease is not None:
            self.fleet.clock.advance(LEASE_TTL + 1)
            self.deliver_to(process.lease.execution_id, strike)
            if wakes:
                process.resume()

    @rule(stall=stalls, begins=st.booleans(), strike=strikes)
    def cancel_what_runs(self, stall: Strike, begins: bool, strike: Strike | None) -> None:
        """Its runner finds out when it goes on."""
        process = self.make_stall(stall, begins)
        if process is not None and process.lease is not None:
            pk, cancel = process.lease.execution_id, self._cancel
            self.run(lambda services: cancel(services, self.fleet.definition_of(pk), pk), None, in_worker=False)
            process.resume(strike)

    @rule(stall=stalls, begins=st.booleans(), strike=strikes)
    def let_units_end(self, stall: Strike, begins: bool, strike: Strike | None) -> None:
        """Between any two instants of their parent."""
        process = self.make_stall(stall, begins)
        if process is not None and process.lease is not None:
            for pk, row in list(self.fleet.store.rows.items()):
                if row.record.parent_id == process.lease.execution_id:
                    self.deliver_to(pk)
            process.resume(strike)

    def make_stall(self, stall: Strike, begins: bool) -> Process | None:
        """One that stands still now, of a new execution or of the next delivery."""
        if begins and len(self.fleet.store.rows) < MOST_EXECUTIONS:
            start, call = starting.start, starting.Call()
            given = {"given": ""}
            process = self.run(lambda s: start(s, self.fleet.parent, given, call), stall, in_worker=False)
        elif self.fleet.mail:
            process = self.deliver_first(stall)
        else:
            return None
        return process if process in self.fleet.stalled else None

    @precondition(lambda self: self.fleet.store.rows)
    @rule(place=places, point=st.sampled_from(CrashPoint), deaths=st.integers(2, 2 * LIMITS.max_recoveries))
    def kill_each(self, place: int, point: CrashPoint, deaths: int) -> None:
        """One process after another dies at the same place."""
        rows = self.fleet.store.rows
        among = [pk for pk in rows if not rows[pk].record.status.is_end] or list(rows)
        pk = among[place % len(among)]
        for _ in range(deaths):
            self.fleet.clock.advance(LEASE_TTL + 1)
            self.deliver_to(pk, Strike(Blow.DEATH, 1, point))

    @precondition(lambda self: self.fleet.stalled)
    @rule(place=places)
    def renew(self, place: int) -> None:
        """A body that takes long: its process lives, and keeps its lease if it has it still."""
        process = self.fleet.stalled[place % len(self.fleet.stalled)]
        if process.lease is not None:
            process.renew()

    @precondition(lambda self: self.fleet.store.rows)
    @rule(strike=strikes)
    def sweep(self, strike: Strike | None) -> None:
        self.run_sweep(strike)

    def run_sweep(self, strike: Strike | None = None) -> None:
        made: list[Process] = []
        made.append(Process(self.fleet, lambda services: made[0].recovery().sweep(), True, strike))
        made[0].run()

    # -- actions of users ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.fleet.store.rows)
    @rule(place=places, strike=strikes)
    def cancel(self, place: int, strike: Strike | None) -> None:
        allowed = (*FORWARD, Status.ABORTED, Status.CANCELLED)
        self.ask(place, strike, lambda status, failures: status in allowed, self._cancel)

    @precondition(lambda self: self.fleet.store.rows)
    @rule(place=places, strike=strikes)
    def retry(self, place: int, strike: Strike | None) -> None:
        allowed = (Status.FAILED, Status.ABORTED)
        self.ask(place, strike, lambda status, failures: status in allowed, acting.retry)

    @precondition(lambda self: self.fleet.store.rows)
    @rule(place=places, strike=strikes)
    def undo(self, place: int, strike: Strike | None) -> None:
        self.ask(place, strike, may_undo, self._undo)

    @staticmethod
    def _cancel(services: Services, definition: Any, pk: UUID) -> None:
        acting.cancel(services, definition, pk, "asked for")

    @staticmethod
    def _undo(services: Services, definition: Any, pk: UUID) -> Any:
        return acting.undo(services, definition, pk, "")

    def ask(
        self,
        place: int,
        strike: Strike | None,
        allows: Callable[[Status, int], bool],
        action: Callable[[Services, Any, UUID], Any],
    ) -> None:
        rows = self.fleet.store.rows
        willing = [pk for pk in rows if allows(rows[pk].record.status, rows[pk].rollback_failures)]
        among = willing if willing and place % 4 else list(rows)
        pk = among[place // 4 % len(among)]
        row, definition = self.fleet.store.rows[pk], self.fleet.definition_of(pk)
        allowed = allows(row.record.status, row.rollback_failures)
        if row.record.relation is Relation.ASYNC_STEP and action is self._undo:
            allowed = False
        process = self.run(lambda services: action(services, definition, pk), strike, in_worker=False)
        if process.stood_still:
            return
        if process.refused is not None:
            assert not allowed, f"{action} of {row.record.status} was refused: {process.refused}"
        else:
            assert allowed or process.was_struck, f"{action} of {row.record.status} was not refused"

    # -- how things run ------------------------------------------------------------------------------------------------

    def run(
        self,
        action: Callable[[Services], Any],
        strike: Strike | None,
        *,
        in_worker: bool = True,
        target: UUID | None = None,
    ) -> Process:
        return Process(self.fleet, action, in_worker, strike, next(self.skews), target).run()

    @invariant()
    def all_rules_hold(self) -> None:
        if hasattr(self, "fleet"):
            self.look()

    def look(self) -> None:
        try:
            look(self.fleet, self.auditor)
        except AssertionError:
            self.fleet.is_sound = False
            raise

    # -- the end -------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """No blow falls any more, and everything ends by messages and sweeps alone."""
        for _ in range(150):
            while self.fleet.stalled:
                self.fleet.stalled[0].resume()
            while due := [sent for sent in self.fleet.mail if sent[1] <= self.fleet.clock.time]:
                self.fleet.mail.remove(due[0])
                self.deliver_to(due[0][0].execution_id)
                self.look()
            self.run_sweep()
            self._no_parked_reader_is_forgotten()
            rows = self.fleet.store.rows.values()
            if all(row.record.status.is_end for row in rows):
                return
            self.fleet.clock.advance(LEASE_TTL + 1)
        states = [(row.record.status, row.waiting_for, row.wake_at) for row in self.fleet.store.rows.values()]
        raise AssertionError(f"it does not end: {states}")

    def _no_parked_reader_is_forgotten(self) -> None:
        rows = self.fleet.store.rows
        for row in rows.values():
            asleep = row.wake_at is not None and row.wake_at > self.fleet.clock.time
            if asleep and row.waiting_for and row.record.status is Status.SCHEDULED:
                unit = UUID(row.waiting_for.removeprefix("unit:"))
                assert not rows[unit].record.status.is_end, "a sweep forgot a reader whose unit has ended"

    def remove_all(self) -> None:
        """Whatever the end, an undo (again, as long as some fail) leaves nothing behind."""
        for pk, row in list(self.fleet.store.rows.items()):
            definition = self.fleet.definition_of(pk)
            for _ in range(20):
                root = row.record.relation is not Relation.ASYNC_STEP
                row = self.fleet.store.rows[pk]
                if not root or not may_undo(row.record.status, row.rollback_failures):
                    break
                self.run(lambda services: self._undo(services, definition, pk), None, in_worker=False)  # noqa: B023
                self.settle()
                self.look()


def may_undo(status: Status, failures: int) -> bool:
    ended = (Status.COMPLETED, Status.HALTED, Status.CANCELLED, Status.ABORTED)
    return status in ended or (status is Status.FAILED and failures > 0)


TestFleet = FleetMachine.TestCase
TestFleet.settings = settings(
    max_examples=100, stateful_step_count=25, suppress_health_check=list(HealthCheck), print_blob=False
)
