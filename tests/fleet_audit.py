"""What may be written and called in a fleet, told from what was seen of it: no word of the engine's is believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django_reactor.core.entries import Entry
from django_reactor.core.plan import Kind
from django_reactor.core.statuses import Action, EntryOutcome, Relation, Status
from django_reactor.engine.context import Context
from django_reactor.engine.records import Lease
from django_reactor.engine.recovery import Overdue
from django_reactor.results import Failure, Halt
from tests.engine_ledger import Ledger
from tests.engine_support import LEASE_TTL
from tests.engine_world import Act
from tests.fleet import LIMITS, Call, Fleet, Process
from tests.fleet_shapes import Point

__all__ = ["Auditor", "Case"]

KEPT = (EntryOutcome.SUCCESS, EntryOutcome.SKIPPED, EntryOutcome.HALTED)
FAILED = frozenset({EntryOutcome.FAILURE, EntryOutcome.RETRYING})
ENTRIES_OF = {
    Act.SUCCEED: frozenset({EntryOutcome.SUCCESS, EntryOutcome.NONE}),  # without an outcome: a dispatch
    Act.FAIL_EARLY: FAILED,
    Act.FAIL_LATE: FAILED,
    Act.BREAK_COMMIT: FAILED,
    Act.VETO: frozenset({EntryOutcome.FAILURE}),
    Act.SKIP: frozenset({EntryOutcome.SKIPPED}),
    Act.HALT: frozenset({EntryOutcome.HALTED, EntryOutcome.FAILURE}),  # the latter in a rollback
}
"""What is journaled of a body that ended so. A snooze leaves no entry."""
WAITING = (Status.PENDING, Status.SCHEDULED, Status.ROLLING_BACK)


@dataclass(slots=True)
class Session:
    """From taking the lease of an execution until giving it up, or losing it."""

    execution_id: UUID
    call: Call | None = None
    """The last call of a body, until it is journaled."""
    begun_stopped: bool = False
    begun_past_point: bool = False
    """Whether what a worker was to do had begun before, wherever."""
    bodies_after_stop: int = 0


@dataclass(slots=True)
class Case:
    """What was seen of one execution."""

    ledger: Ledger
    holder: Process | None = None
    expires_at: datetime | None = None
    due_at: datetime | None = None
    claims: int = 0
    claims_in_vain: int = 0
    bodies_in_vain: int = 0
    stopped: bool = False
    lapsed: bool = False
    """A process died, was interrupted or overtaken here: the body that came next may have begun."""
    orphaned: bool = False
    """A message may have been lost."""
    left_by: Process | None = None
    """Who gave its lease up last."""
    dispatched_at: dict[str, datetime] = field(default_factory=dict)
    kept: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many entries say that a body kept what it wrote, by its key and role."""


Seen = dict[UUID, tuple[int, Status, UUID | None]]


class Auditor:
    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.store = fleet, fleet.store
        self.cases: dict[UUID, Case] = {}
        self.sessions: dict[Process, dict[UUID, Session]] = {}
        self.touched: dict[Process, set[UUID]] = {}
        self.begun: set[str] = set()
        """Keys under which a body was called."""
        fleet.audit = self

    # -- writes --------------------------------------------------------------------------------------------------------

    def before(self) -> Seen:
        rows = self.store.rows
        return {pk: (len(self.store.entries[pk]), rows[pk].record.status, rows[pk].token) for pk in rows}

    def after(self, process: Process, method: str, args: tuple[Any, ...], result: Any, seen: Seen) -> None:
        self._touch(process, args)
        for pk in self.store.rows.keys() - seen.keys():
            assert method in ("start", "dispatch")
            self._open(process, pk)
        if method in ("claim", "take") and result is not None:
            self._take(process, args[0], seen[args[0]][2], method)
        if method == "renew":
            for pk in result[0]:
                assert self.cases[pk].holder is process, "a lease that is lost was renewed"
                self.cases[pk].expires_at = self.fleet.clock.time + timedelta(seconds=LEASE_TTL)
        if (method == "wake" and result is not None) or (method == "request_stop" and result):
            self._hasten(args[0], method)
        for pk, (length, _, _) in seen.items():
            self._read(process, pk, self.store.entries[pk][length:])
        for pk, (_, status, token) in seen.items():
            self._follow(process, pk, status, token)
        if method in ("release", "park"):
            wake_in = 0 if method == "park" and result else args[1].wake_in
            self.cases[args[0].execution_id].due_at = self.fleet.clock.time + timedelta(seconds=wake_in)

    def _touch(self, process: Process, args: tuple[Any, ...]) -> None:
        touched = self.touched.setdefault(process, set())
        for arg in args:
            match arg:
                case UUID():
                    touched.add(arg)
                case Lease():
                    touched.add(arg.execution_id)
                case Overdue():
                    touched.add(arg.message.execution_id)

    def _open(self, process: Process, pk: UUID) -> None:
        case = self.cases[pk] = Case(Ledger(self.fleet.shapes_of(pk)))
        row = self.store.rows[pk]
        self.touched[process].add(pk)
        if row.token is None:
            case.due_at = row.wake_at
        else:
            self._take(process, pk, None, "start")
        if row.record.parent_id is not None:
            dispatching = self.cases[row.record.parent_id]
            assert dispatching.holder is process, "a unit was dispatched by somebody else"
            dispatching.dispatched_at[row.record.parent_step] = self.fleet.clock.time

    def _take(self, process: Process, pk: UUID, token: UUID | None, method: str) -> None:
        case, now = self.cases[pk], self.fleet.clock.time
        if token is not None:
            assert case.expires_at is not None
            assert case.expires_at < now, "a lease was taken that is live"
            assert method == "claim"
            case.lapsed = True
        elif method == "claim":
            assert case.due_at is not None
            assert case.due_at <= now, "it was claimed before it was due"
        case.holder, case.expires_at = process, now + timedelta(seconds=LEASE_TTL)
        case.claims += 1
        case.claims_in_vain = case.claims_in_vain + 1 if method == "claim" else 1
        if method == "take":
            case.bodies_in_vain = 0
        sessions = self.sessions.setdefault(process, {})
        sessions[pk] = Session(pk, begun_stopped=case.stopped, begun_past_point=self._is_past_point(pk))

    def _hasten(self, pk: UUID, method: str) -> None:
        case = self.cases[pk]
        if method == "request_stop":
            case.stopped = True
            if self.store.rows[pk].token is not None:
                return
        case.due_at = self.fleet.clock.time

    def _read(self, process: Process, pk: UUID, entries: list[Entry]) -> None:
        if not entries:
            return
        case = self.cases[pk]
        assert case.holder is process, "somebody else wrote to a journal"
        assert len(entries) == 1
        (entry,) = entries
        session = self.sessions[process][pk]
        self._explain(process, case, session, entry)
        case.ledger.read(entry)
        if entry.action is not Action.ABORT:
            case.claims_in_vain = case.bodies_in_vain = 0

    def _follow(self, process: Process, pk: UUID, status: Status, token: UUID | None) -> None:
        row, case = self.store.rows[pk], self.cases[pk]
        if row.token == token and row.record.status is status:
            return
        if case.holder is not process:
            self._look_at_cancelled_unit(process, pk, status)
        if row.token is None and token is not None:
            self._give_up(process, pk)
        if row.record.status.is_end and not status.is_end:
            if case.stopped:
                stopped_by = (Status.CANCELLED, Status.ABORTED)
                assert row.record.status in stopped_by, f"a cancel was answered by {row.record.status}"
            case.stopped = False

    def _look_at_cancelled_unit(self, process: Process, pk: UUID, status: Status) -> None:
        row, case = self.store.rows[pk], self.cases[pk]
        assert status is Status.PENDING, f"{status} became {row.record.status} by somebody else"
        assert row.record.status is Status.CANCELLED
        assert not case.claims, "a unit that had started was cancelled"
        assert row.record.parent_id is not None
        parent = self.cases[row.record.parent_id]
        assert parent.holder is process or row.record.parent_id in self.sessions[process]

    def _give_up(self, process: Process, pk: UUID) -> None:
        case, session = self.cases[pk], self.sessions[process][pk]
        assert case.holder is process, "somebody else gave up a lease"
        if session.call is not None:
            snoozed = session.call.outcome is Act.SNOOZE
            assert snoozed or case.stopped or process.was_interrupted, "what a body came to was not journaled"
        case.holder, case.left_by = None, process
        if not process.was_interrupted:
            case.claims_in_vain = case.bodies_in_vain = 0

    # -- what entries must rest on -------------------------------------------------------------------------------------

    def _explain(self, process: Process, case: Case, session: Session, entry: Entry) -> None:
        call = session.call
        match entry.action:
            case Action.RUN | Action.UNDO | Action.COMPENSATE | Action.DISPATCH if call is not None:
                role = "run" if entry.action is Action.DISPATCH else entry.action.value
                assert (call.role, call.step) == (role, entry.step), "another body was called than is journaled"
                assert call.outcome is not None
                if not self._is_refused_argument(entry):
                    assert entry.outcome in ENTRIES_OF[call.outcome], f"{call.outcome} became {entry.outcome}"
                if entry.outcome in KEPT:
                    case.kept[call.key, call.role] += 1
                session.call = None
            case Action.RUN | Action.UNDO | Action.COMPENSATE:
                assert entry.outcome is EntryOutcome.FAILURE, f"{entry.step} has an outcome, but no body was called"
                self._explain_failure(process, case, entry)
            case Action.ABORT:
                assert process.was_interrupted or case.stopped or process.stopping, "something was cut off by nobody"
                if entry.step and (call is None or call.role != "run"):
                    assert case.lapsed or self._key(session, case, entry.step) in self.begun, "it never began"
                if call is not None and call.role == "run" and case.ledger.shapes[call.step].kind is Kind.STEP:
                    assert entry.step == call.step, "another step was cut off"
                session.call = None
            case Action.HAND_OFF:
                assert not process.in_worker, "a worker handed off"
                assert not session.begun_past_point, "it was handed off after its point"
            case _:
                pass

    def _key(self, session: Session, case: Case, step: str) -> str:
        return f"{session.execution_id}:{step}:{case.ledger.run_numbers.get(step, 0)}"

    def _is_refused_argument(self, entry: Entry) -> bool:
        return entry.outcome is EntryOutcome.FAILURE and not (entry.error or {}).get("began", True)

    def _explain_failure(self, process: Process, case: Case, entry: Entry) -> None:
        error = entry.error or {}
        if error.get("reason") == "poison":
            assert case.claims_in_vain > LIMITS.max_recoveries, "it is no poison"
            return
        assert entry.action is Action.RUN, "a rollback's body was not called"
        assert not error.get("began", True), "a body that began was not called"
        units = case.ledger.units_read_by(entry.step)
        ended = [self.store.rows[UUID(case.ledger.dispatched[unit])].record.status for unit in units]
        if any(status.is_end and status not in (Status.COMPLETED, Status.HALTED) for status in ended):
            return
        if str(error.get("exception_class")).endswith(".WaitTimeout"):
            assert any(self._waited_long(process, case, unit) for unit in units), "it did not wait long enough"
        else:
            assert process.stood_still, f"{entry.step} failed, but no unit that it reads did"

    def _waited_long(self, process: Process, case: Case, unit: str) -> bool:
        if not process.in_worker:
            return process.stood_still or process.slept >= LIMITS.read_timeout - 0.01
        waited = self.fleet.clock.time - case.dispatched_at[unit]
        return waited >= timedelta(seconds=LIMITS.park_timeout)

    # -- bodies --------------------------------------------------------------------------------------------------------

    def begins(self, process: Process, call: Call, context: Context, arguments: Any) -> None:
        case, session = self.cases[call.execution_id], self.sessions[process][call.execution_id]
        assert session.call is None, "a body was called before the last one was journaled"
        session.call = call
        if case.stopped:
            session.bodies_after_stop += 1
            assert session.bodies_after_stop == 1, "two bodies began after a cancel was accepted"
            assert not session.begun_stopped, "a body began in a session that began after a cancel was accepted"
        if case.holder is process:
            case.bodies_in_vain += 1
            assert case.bodies_in_vain <= LIMITS.max_recoveries + 1, "poison is tried again and again"
            self._look_at_call(process, case, call, context, arguments)
        self.begun.add(call.key)

    def _look_at_call(self, process: Process, case: Case, call: Call, context: Context, arguments: Any) -> None:
        ledger, key = case.ledger, f"{call.execution_id}:{call.step}"
        match call.role:
            case "run":
                reversing = ledger.rolling_back or ledger.mending or ledger.halted
                assert not reversing, "a step began in a rollback"
                assert ledger.may_run(call.step), "a step began before its turn"
                assert call.key == f"{key}:{ledger.run_numbers.get(call.step, 0)}" == context.idempotency_key
                if ledger.shapes[call.step].kind is Kind.STEP:
                    assert context.attempt == ledger.attempts.get(call.step, 0) + 1
                if not process.stood_still:
                    self._look_at_arguments(call.execution_id, case, call.step, arguments)
                may_go_on = process.in_worker or self.sessions[process][call.execution_id].begun_past_point
                assert may_go_on or not self._is_handed_off(call), "a caller went on after the hand-off"
            case "undo":
                assert (call.step, Action.UNDO) not in ledger.tried, "an undo began twice in a rollback"
                assert call.step == ledger.newest(), "an undo began out of order"
                assert call.key == f"{key}:{ledger.standing[call.step].run_number}"
            case _:
                assert (call.step, Action.COMPENSATE) not in ledger.tried, "compensated twice"
                assert call.key in self.begun or case.lapsed, "compensated though it never began"
        if call.role != "run":
            assert ledger.rolling_back or ledger.mending, "something is reversed though nothing failed"
            self._no_unit_waits_to_start(call.execution_id)

    def _point_of(self, pk: UUID) -> Point | None:
        record, shape = self.store.rows[pk].record, self.fleet.shape
        if record.relation is Relation.ASYNC_STEP:
            return None
        return shape.point if record.reactor == self.fleet.parent.label else shape.child_point

    def _is_handed_off(self, call: Call) -> bool:
        point, ledger = self._point_of(call.execution_id), self.cases[call.execution_id].ledger
        if point is None or ledger.handed_off:
            return False
        if point.before is not None:
            return call.step == f"s{point.before}"
        return point.after is None or f"s{point.after}" in ledger.standing.keys() | ledger.dispatched.keys()

    def _is_past_point(self, pk: UUID) -> bool:
        point, entries = self._point_of(pk), self.store.entries[pk]
        if point is None:
            return False
        if point.after is not None:
            done = {(Action.RUN, EntryOutcome.SUCCESS), (Action.RUN, EntryOutcome.SKIPPED)}
            done.add((Action.DISPATCH, EntryOutcome.NONE))
            return any((entry.action, entry.outcome) in done for entry in entries if entry.step == f"s{point.after}")
        return any(point.before is None or entry.step == f"s{point.before}" for entry in entries)

    def _look_at_arguments(self, pk: UUID, case: Case, step: str, arguments: Mapping[str, Any]) -> None:
        ledger = case.ledger
        for name, value in arguments.items():
            if name in ledger.dispatched:
                self._look_at_unit(UUID(ledger.dispatched[name]), value, tolerated=ledger.shapes[step].tolerates)
            elif name in ledger.standing:
                assert value == self._value(pk, ledger, name), f"{step} got a wrong result of {name}"

    @staticmethod
    def _value(pk: UUID, ledger: Ledger, name: str) -> str | None:
        """Each body returns the key that it was called with."""
        number = ledger.standing[name].run_number
        return None if ledger.last_run[name, number] is EntryOutcome.SKIPPED else f"{pk}:{name}:{number}"

    def _look_at_unit(self, unit: UUID, value: Any, *, tolerated: bool) -> None:
        status, ledger = self.store.rows[unit].record.status, self.cases[unit].ledger
        assert status.is_end, "a reader began before its unit had ended"
        match status:
            case Status.COMPLETED if isinstance(value, Mapping):
                assert value.keys() == ledger.standing.keys()
            case Status.COMPLETED:
                (name,) = ledger.standing
                assert value == self._value(unit, ledger, name)
            case Status.HALTED:
                assert isinstance(value, Halt)
            case _:
                assert isinstance(value, Failure)
                assert tolerated, "a reader got a failure that it does not tolerate"

    def _no_unit_waits_to_start(self, pk: UUID) -> None:
        for unit, row in self.store.rows.items():
            waits = row.record.status is Status.PENDING and not self.cases[unit].claims
            assert not (waits and row.record.parent_id == pk), "its parent rolls back, and a unit may still start"

    def holds(self, process: Process) -> bool:
        """What it took last but to let it go on elsewhere."""
        assert process.lease is not None
        return self.cases[process.lease.execution_id].holder is process

    # -- strikes -------------------------------------------------------------------------------------------------------

    def struck(self, process: Process) -> None:
        """Whatever it meant to send, or to wake, may be lost."""
        for taken in self.sessions.get(process, ()):
            self.cases[taken].lapsed = True
        for pk in {*self.touched.get(process, ()), process.target}:
            if pk in self.cases:
                self.cases[pk].orphaned = True
                parent = self.store.rows[pk].record.parent_id
                if parent is not None:
                    self.cases[parent].orphaned = True
