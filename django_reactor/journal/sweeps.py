"""What a sweep reads and marks, on Django's ORM (PROTOCOL 9)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.db import IntegrityError, InterfaceError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Subquery, When
from django.db.models.lookups import IsNull

from django_reactor.core.statuses import ENDS, MapState, Status
from django_reactor.core.waits import WaitState
from django_reactor.engine.coordination_ports import TicketState
from django_reactor.engine.records import Message
from django_reactor.engine.recovery import MOST_DOUBLINGS, Moving, OutOfReach, Overdue, Pace, Waiting, patience
from django_reactor.journal.due import WAITING, due, expired, free_and_due, runs_or_rests
from django_reactor.journal.fields import DbNow
from django_reactor.journal.marking import marked
from django_reactor.journal.orm import alias
from django_reactor.journal.transactions import is_reachable, retried
from django_reactor.models import Execution, Leader, MapRun, Ticket, Wait

__all__ = ["OrmSweeps"]

SWEEP = "sweep"
UNIT = "unit:"
TURN = "turn:"
LIVE = [state for state in TicketState if state.is_live]
MOVING = (MapState.RUNNING, MapState.FAILING, MapState.UNDOING)


def _vacant(holder: UUID) -> Q:
    return Q(until__lte=DbNow()) | Q(holder=holder)


def _out_of_patience(interval: float) -> Q:
    """None was ever sent, or the last one has had its time. One branch for each number of sendings: arithmetic on
    intervals is another dialect on every database."""
    unanswered = Q(sent_at__isnull=True)
    for sends in range(MOST_DOUBLINGS + 1):
        counted = Q(sends__gte=sends) if sends == MOST_DOUBLINGS else Q(sends=sends)
        unanswered |= counted & _sent_before(patience(interval, sends))
    return unanswered


def _sent_before(seconds: float) -> Q:
    return Q(sent_at__lt=DbNow() - timedelta(seconds=seconds))


def _lowest(line: QuerySet[Ticket, Ticket]) -> list[UUID]:
    """The execution of the live one with the lowest number; none if there is none. One look into the index for each
    state."""
    rows = [row for state in LIVE for row in line.filter(state=state).values_list("number", "execution_id")[:1]]
    return [execution_id for _, execution_id in sorted(rows)[:1]]


class OrmSweeps:
    """The port `Sweeps`. Thread-safe: each thread has its own connection."""

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[alias()]

    @property
    def _rows(self) -> QuerySet[Execution, Execution]:
        return Execution.objects.using(self.connection.alias)

    def is_called_for(self, holder: UUID, pace: Pace) -> bool:
        """Where another leads the database looks at nothing else. Each part of the question has its index. That of the
        waits is asked for by its order: PostgreSQL would expect to meet an open one soon in a scan of them all."""
        leaders = Leader.objects.using(self.connection.alias).filter(task=SWEEP)
        unheld = Exists(self._free(pace)) | Exists(self._dead(pace))
        unanswered = IsNull(Subquery(self._unanswered().order_by("timeout_at").values("pk")[:1]), False)
        waiting = Exists(self._parked()) | Exists(self._in_line())
        found = unheld | waiting | Exists(self._moving()) | Q(unanswered)
        called_for = Case(When(_vacant(holder), then=Case(When(found, then=True), default=False)), default=False)
        answer = leaders.annotate(called_for=called_for).values_list("called_for", flat=True).first()
        return answer is None or bool(answer)  # nobody has ever led: the first who does makes the row

    def lead(self, holder: UUID, seconds: float, task: str = SWEEP) -> bool:
        connection = self.connection
        leaders = Leader.objects.using(connection.alias).filter(task=task)
        lead = {"holder": holder, "until": DbNow() + timedelta(seconds=seconds)}
        if retried(connection, lambda: leaders.filter(_vacant(holder)).update(**lead)):
            return True
        try:
            with transaction.atomic(using=connection.alias):
                leaders.create(task=task, **lead)
        except IntegrityError:  # another leads
            return False
        return True

    def _free(self, pace: Pace) -> QuerySet[Execution, Execution]:
        return self._rows.filter(_out_of_patience(pace.interval)).filter(free_and_due())

    def _dead(self, pace: Pace) -> QuerySet[Execution, Execution]:
        return self._rows.filter(_out_of_patience(pace.interval)).filter(expired())

    def _parked(self) -> QuerySet[Execution, Execution]:
        """That they wait at all is said, too: so PostgreSQL knows that the partial index has them all, also among very
        many that are paused for answers only."""
        later = Q(wake_at__gt=DbNow()) | Q(wake_at__isnull=True)  # the latter with a `PARK_TIMEOUT` without end
        not_due = Q(later, status__in=WAITING) | Q(status=Status.PAUSED)
        return self._rows.exclude(waiting_for="").filter(
            not_due, waiting_for__startswith=UNIT, lease_token__isnull=True
        )

    def _in_line(self) -> QuerySet[Execution, Execution]:
        waiting = self._rows.exclude(waiting_for="")  # as in `_parked`
        return waiting.filter(waiting_for__startswith=TURN, lease_token__isnull=True, wake_at__isnull=True)

    def _moving(self) -> QuerySet[MapRun, MapRun]:
        return MapRun.objects.using(self.connection.alias).filter(state__in=MOVING, fan_out__isnull=False)

    def _unanswered(self) -> QuerySet[Wait, Wait]:
        waits = Wait.objects.using(self.connection.alias)
        return waits.filter(state=WaitState.OPEN, timeout_at__lte=DbNow())

    def unheld(self, pace: Pace) -> Sequence[Overdue]:
        """Two reads, each in the order of its index, instead of one that sorts what an OR of both finds."""
        columns = ("pk", "queue_name", "priority", "sends")
        free = self._free(pace).order_by("wake_at").values_list("wake_at", *columns)
        dead = self._dead(pace).order_by("lease_expires_at").values_list("lease_expires_at", *columns)
        rows = sorted([*free[: pace.limit], *dead[: pace.limit]], key=lambda row: row[0])
        return [
            Overdue(message=Message(execution_id=pk, queue_name=queue_name, priority=priority), sends=sends)
            for _, pk, queue_name, priority, sends in rows[: pace.limit]
        ]

    def unwoken(self, pace: Pace) -> Sequence[Waiting]:
        return [*self._waiting_in_vain_for_units(pace.limit), *self._to_wake_in_line(pace.limit)]

    def _to_wake_in_line(self, limit: int) -> list[Waiting]:
        """A few looks into the index for each line in which somebody waits, however long it is."""
        lines = self._in_line().order_by("waiting_for").values_list("waiting_for", flat=True).distinct()
        found: list[Waiting] = []
        for waiting_for in lines[:limit]:
            owners = set(self._rows.filter(pk__in=self._may_go(waiting_for)).values_list("owner", flat=True))
            waiting = self._in_line().filter(waiting_for=waiting_for, pk__in=owners).order_by("pk")
            found += [Waiting(execution_id=pk, waiting_for=waiting_for) for pk in waiting.values_list("pk", flat=True)]
        return found

    def _may_go(self, waiting_for: str) -> list[UUID]:
        """The head of the line; if that does not run, the first who waits there, and sees what is dead before it; and
        those that were passed over."""
        tickets = Ticket.objects.using(self.connection.alias)
        line = tickets.filter(sequence__key_digest=waiting_for.removeprefix(TURN)).order_by("number")
        passed = line.filter(state=TicketState.PASSED).values_list("execution_id", flat=True)
        head = _lowest(line)
        runs = self._rows.filter(runs_or_rests("owner__"), pk__in=head).exclude(status__in=ENDS)
        if head and runs.exists():
            return [*head, *passed]
        owners = self._in_line().filter(waiting_for=waiting_for, pk=OuterRef("owner"))
        waits = Exists(self._rows.filter(Exists(owners), pk=OuterRef("execution_id")))
        return [*head, *_lowest(line.filter(waits)), *passed]

    def _waiting_in_vain_for_units(self, limit: int) -> list[Waiting]:
        """Two plain reads: who waits for units (through its index), and which of those have ended."""
        in_order = self._parked().order_by(F("wake_at").asc(nulls_last=True)).values_list("pk", "waiting_for")
        waiting = [
            (pk, UUID(word.removeprefix(UNIT)))
            for pk, waiting_for in in_order[:limit]
            for word in waiting_for.split()
            if word.startswith(UNIT)
        ]
        if not waiting:
            return []
        units = self._rows.filter(pk__in={unit for _, unit in waiting}, status__in=ENDS)
        ended = set(units.values_list("pk", flat=True))
        return [Waiting(execution_id=pk, waiting_for=f"{UNIT}{unit}") for pk, unit in waiting if unit in ended]

    def moving(self, pace: Pace) -> Sequence[Moving]:
        """By chance, so that none is passed over for ever where there are more than the limit."""
        found = self._moving().order_by("?").values_list("execution", "pk")[: pace.limit]
        return [Moving(execution_id=execution_id, map_id=pk) for execution_id, pk in found]

    def mark_sent(self, overdue: Overdue, interval: float) -> bool:
        """The condition is not `sent_at = :old`: SQLite keeps times as text, in which what was read is not found
        again."""
        connection = self.connection
        row = self._rows.filter(pk=overdue.message.execution_id)
        unanswered = Q(sent_at__isnull=True) | _sent_before(patience(interval, overdue.sends))
        to_send = due() & unanswered & Q(sends=overdue.sends)
        try:
            return marked(connection, row, to_send, sent_at=DbNow(), sends=F("sends") + 1)
        except (InterfaceError, OperationalError) as error:
            if connection.in_atomic_block or is_reachable(connection):  # one that broke costs one row
                raise
            raise OutOfReach from error
