"""Workers, callers, people who answer, and a sweeper, on a reactor of parts, where anything may go wrong at any
instant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from django_reactor.core.plan import Definition
from django_reactor.core.statuses import FORWARD, Relation, Status
from django_reactor.core.waits import WaitState
from django_reactor.engine import acting, delivering, resuming, starting
from django_reactor.engine.services import Services
from django_reactor.engine.waits import WaitKey
from django_reactor.exceptions import CallerError
from tests.engine_support import LEASE_TTL
from tests.engine_world import Act
from tests.fleet import Process, Strike
from tests.fleet_of_parts import PARENTS, UNIT, PartsAuditor, PartsFleet, Script
from tests.property.test_fleet import may_undo, places, stalls, strikes

STEPS = ("leaf_first", "leaf_last", "child_first", "child_last", "parent_first", "parent_last", UNIT)
BODIES = (Act.FAIL_LATE, Act.FAIL_EARLY, Act.SKIP, Act.SNOOZE, Act.HALT)
RUNS = [(), (), (), *((each,) for each in BODIES)]
UNDOS = [(), (), (), (Act.FAIL_LATE,), (Act.FAIL_EARLY,)]


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """One number says what each body does."""
    found: dict[tuple[str, str], tuple[Act, ...]] = {}
    for role, acts in (("run", RUNS), ("undo", UNDOS), ("compensate", UNDOS)):
        number = draw(st.integers(0, len(acts) ** len(STEPS) - 1))
        for name in STEPS:
            number, which = divmod(number, len(acts))
            found[role, name] = acts[which]
    return found


class PartsMachine(RuleBasedStateMachine):
    fleet: PartsFleet
    auditor: PartsAuditor

    @initialize(parent=st.sampled_from(PARENTS), script=scripts(), in_worker=st.booleans(), strike=strikes)
    def begin(self, parent: Any, script: Script, in_worker: bool, strike: Strike | None) -> None:
        self.fleet = PartsFleet(parent, script)
        self.auditor = PartsAuditor(self.fleet)
        begin, call = starting.enqueue if in_worker else starting.start, starting.Call()
        self.run(lambda services: begin(services, self.fleet.parent, {}, call), strike, in_worker=False)

    def teardown(self) -> None:
        if not hasattr(self, "fleet"):
            return
        try:
            if self.fleet.is_sound:
                self.settle()
                self.undo_all()
        finally:
            self.fleet.close()

    # -- messages, clocks and fate -------------------------------------------------------------------------------------

    @precondition(lambda self: self.fleet.mail)
    @rule(place=places, strike=strikes, again=st.sampled_from((False, False, True)))
    def deliver(self, place: int, strike: Strike | None, again: bool) -> None:
        place %= len(self.fleet.mail)
        message, due = self.fleet.mail[place] if again else self.fleet.mail.pop(place)
        self.fleet.clock.time = max(self.fleet.clock.time, due)
        self.deliver_to(message.execution_id, strike)

    @precondition(lambda self: self.fleet.mail)
    @rule(place=places)
    def lose(self, place: int) -> None:
        self.fleet.mail.pop(place % len(self.fleet.mail))

    @rule(strike=strikes)
    def deliver_all(self, strike: Strike | None) -> None:
        self.deliver_what_is_due(strike)

    @rule(seconds=st.sampled_from((5, 16, 61, 61, 601)))
    def time_passes(self, seconds: int) -> None:
        self.fleet.clock.advance(seconds)

    @precondition(lambda self: self.fleet.stalled)
    @rule(place=places, strike=strikes)
    def wake(self, place: int, strike: Strike | None) -> None:
        self.fleet.stalled[place % len(self.fleet.stalled)].resume(strike)

    @precondition(lambda self: self.fleet.mail)
    @rule(place=places, stall=stalls, strike=strikes, wakes=st.booleans())
    def overtake(self, place: int, stall: Strike, strike: Strike | None, wakes: bool) -> None:
        """It stands still for so long that another one takes over; then it goes on."""
        message, _ = self.fleet.mail.pop(place % len(self.fleet.mail))
        process = self.deliver_to(message.execution_id, stall)
        if process not in self.fleet.stalled or process.lease is None:
            return
        self.fleet.clock.advance(LEASE_TTL + 1)
        self.deliver_to(process.lease.execution_id, strike)
        if wakes:
            process.resume()

    @precondition(lambda self: self.fleet.mail)
    @rule(place=places, stall=stalls)
    def let_others_end(self, place: int, stall: Strike) -> None:
        """Between any two instants of one delivery."""
        message, _ = self.fleet.mail.pop(place % len(self.fleet.mail))
        process = self.deliver_to(message.execution_id, stall)
        self.deliver_what_is_due()
        if process in self.fleet.stalled:
            process.resume()

    @rule(strike=strikes)
    def sweep(self, strike: Strike | None) -> None:
        self.run_sweep(strike)

    def run_sweep(self, strike: Strike | None = None) -> None:
        made: list[Process] = []
        made.append(Process(self.fleet, lambda services: made[0].recovery().sweep(), True, strike))
        made[0].run()

    # -- actions of users ----------------------------------------------------------------------------------------------

    @rule(place=places, payload=st.sampled_from((1, 1, 1, "none")), strike=strikes)
    def answer(self, place: int, payload: object, strike: Strike | None) -> None:
        keys = self.open_waits()
        if keys:
            self.answer_one(keys[place % len(keys)], payload, strike)

    def open_waits(self) -> list[WaitKey]:
        waits = self.fleet.store.waits.items()
        return [key for key, stored in waits if stored.wait.state is WaitState.OPEN]

    def answer_one(self, key: WaitKey, payload: object, strike: Strike | None = None) -> None:
        def answering(services: Services) -> Any:
            try:
                return resuming.resume(services, self.definition, key.execution_id, payload, key.step)
            except CallerError:
                return None

        self.run(answering, strike, in_worker=False)

    def definition(self, label: str) -> Definition:
        return self.fleet.definitions[label]

    @rule(strike=strikes)
    def cancel(self, strike: Strike | None) -> None:
        self.ask(lambda services, definition, pk: acting.cancel(services, definition, pk, ""), strike)

    @rule(strike=strikes)
    def undo(self, strike: Strike | None) -> None:
        self.ask(lambda services, definition, pk: acting.undo(services, definition, pk, ""), strike)

    @rule(strike=strikes)
    def retry(self, strike: Strike | None) -> None:
        self.ask(acting.retry, strike)

    def ask(self, action: Callable[[Services, Any, UUID], Any], strike: Strike | None) -> None:
        for pk in self.roots():
            self.run(lambda services: action(services, self.fleet.parent, pk), strike, in_worker=False)  # noqa: B023

    def roots(self) -> list[UUID]:
        return [pk for pk, row in self.fleet.store.rows.items() if row.record.relation is Relation.ROOT]

    # -- how things run ------------------------------------------------------------------------------------------------

    def run(self, action: Callable[[Services], Any], strike: Strike | None, *, in_worker: bool = True) -> Process:
        return Process(self.fleet, action, in_worker, strike).run()

    def deliver_to(self, pk: UUID, strike: Strike | None = None) -> Process:
        return self.run(lambda services: delivering.deliver(services, self.fleet.find, pk), strike)

    def deliver_what_is_due(self, strike: Strike | None = None) -> None:
        while due := [sent for sent in self.fleet.mail if sent[1] <= self.fleet.clock.time]:
            self.fleet.mail.remove(due[0])
            self.deliver_to(due[0][0].execution_id, strike)
            strike = None
            self.look()

    @invariant()
    def all_rules_hold(self) -> None:
        if hasattr(self, "fleet"):
            self.look()

    def look(self) -> None:
        try:
            self.auditor.look()
        except AssertionError:
            self.fleet.is_sound = False
            raise

    # -- the end -------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """No blow falls any more, everybody answers, and everything ends by messages and sweeps alone."""
        for _ in range(60):
            while self.fleet.stalled:
                self.fleet.stalled[0].resume()
            self.deliver_what_is_due()
            self.run_sweep()
            self.deliver_what_is_due()
            for key in self.open_waits():
                self.answer_one(key, 1)
            rows = self.fleet.store.rows.values()
            if all(row.record.status.is_end for row in rows):
                return
            if any(row.record.status is Status.ABORTED for row in rows):
                self.ask(acting.retry, None)
            self.fleet.clock.advance(LEASE_TTL + 1)
        open_ones = [row for row in self.fleet.store.rows.values() if not row.record.status.is_end]
        named = [(row.record.parent_name, row.record.status, row.waiting_for, row.wake_at) for row in open_ones]
        raise AssertionError(f"it does not end: {named}")

    def undo_all(self) -> None:
        """Whatever the end, an undo (again, as long as some fail) leaves nothing behind."""
        for pk in self.roots():
            for _ in range(20):
                row = self.fleet.store.rows[pk]
                if not may_undo(row.record.status, row.rollback_failures):
                    break
                self.ask(lambda services, definition, pk: acting.undo(services, definition, pk, ""), None)
                self.settle()
                self.look()
            assert self.fleet.store.rows[pk].record.status not in FORWARD
        self.auditor.nothing_is_left()


TestFleetOfParts = PartsMachine.TestCase
TestFleetOfParts.settings = settings(
    max_examples=80, stateful_step_count=25, suppress_health_check=list(HealthCheck), print_blob=False
)
