"""Ordered locks in the database of executions (PROTOCOL 8: ordered lock).

1. A number is drawn by updating the key's row, which stays locked until the transaction ends: numbers follow the order
   of commits, and a rollback takes the number back. What the draw must know of others is read after that.
2. Whose turn it is follows from the tickets: the live one with the lowest number. No lower one can come later.
3. The head is stamped when somebody first finds it so, in its own row: the key's is locked while others draw.
4. Places of one level are drawn together, so who has no others waits for nobody that waits for it. Who has the turn of
   an outer level, and waits for that of an inner one, may: it is passed over, too, when its time as the head is up.
5. A turn is passed over where the ticket's execution is gone, or has ended without it (it was cancelled before it
   began), or has had its time as the head and as long has given no sign of life. A ticket that was passed over may
   still run when it is delivered.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from django.db import connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce

from django_reactor import models
from django_reactor.coordination.database.fresh import fresh
from django_reactor.coordination.database.patience import TookTooLong, in_a_moment, waiting_at_most
from django_reactor.coordination.database.purging import purge, unlocked
from django_reactor.core.keys import digest_of
from django_reactor.core.statuses import ENDS
from django_reactor.engine.coordination_ports import Line, Ticket, TicketState, Turn, TurnState
from django_reactor.exceptions import LockUnavailable
from django_reactor.journal.due import runs_or_rests
from django_reactor.journal.fields import DbNow, storable
from django_reactor.journal.transactions import in_one_transaction, retried

__all__ = ["DatabaseTurns"]

LIVE = (TicketState.QUEUED, TicketState.RUNNING)
"""In the order in which a ticket has them: whoever looks for one state after the other misses none in between."""
NOT_ENDED = (*LIVE, TicketState.PASSED)
ENDED = (TicketState.DONE, TicketState.FAILED)
PATIENCE = 3.0
"""Seconds for a ticket that another transaction has locked, where a person waits."""
KEPT = timedelta(days=1)
"""How long ended tickets, and keys without tickets, are kept for people."""


class DatabaseTurns:
    """The port `Turns`. Thread-safe: each thread has its own connection."""

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[router.db_for_write(models.Ticket)]

    @property
    def _tickets(self) -> QuerySet[models.Ticket, models.Ticket]:
        return models.Ticket.objects.using(self.connection.alias)

    @property
    def _sequences(self) -> QuerySet[models.TicketSequence, models.TicketSequence]:
        return models.TicketSequence.objects.using(self.connection.alias)

    # -- for executions ------------------------------------------------------------------------------------------------

    @in_one_transaction
    def draw(self, key: str, execution_id: UUID, step: str = "") -> Ticket:
        own = self._own(key, execution_id, step)
        if own is not None and own.state in LIVE:
            return _ticket(own, key)
        sequence = self._next(key)
        in_line = fresh(self._tickets.filter(sequence=sequence.pk, state__in=LIVE), self.connection)
        if not in_line.values_list("pk", flat=True)[:1]:
            sequence.batch += 1
            self._sequences.filter(pk=sequence.pk).update(batch=sequence.batch)
        drawn = self._tickets.create(
            sequence_id=sequence.pk,
            number=sequence.last,
            batch=sequence.batch,
            execution_id=execution_id,
            step=step,
            state=TicketState.QUEUED,
        )
        return _ticket(drawn, key)

    def _next(self, key: str) -> models.TicketSequence:
        """The key's row with the next number, locked until the end of the transaction."""
        rows = self._sequences.filter(key_digest=digest_of(key))
        one_more = {"last": F("last") + 1, "drawn_at": DbNow()}
        if not rows.update(**one_more):
            self._make_sequence(key)
            rows.update(**one_more)
        return rows.get()

    def _make_sequence(self, key: str) -> None:
        """Waits for another that makes it. It is locked even if it is there: on MySQL whoever had only looked at it
        would wait for those who had too, and they for him."""
        connection = self.connection
        targets = connection.features.supports_update_conflicts_with_target
        self._sequences.bulk_create(
            [models.TicketSequence(key_digest=digest_of(key), key=storable(key), drawn_at=DbNow())],
            update_conflicts=True,
            update_fields=["key"],
            unique_fields=["key_digest"] if targets else None,
        )

    def turn(self, key: str, execution_id: UUID, step: str = "", *, strict: bool) -> Turn | None:
        return retried(self.connection, lambda: self._turn(key, execution_id, step, strict))

    def _turn(self, key: str, execution_id: UUID, step: str, strict: bool) -> Turn | None:
        while True:
            own = self._own(key, execution_id, step)
            if own is None:
                return None
            if own.turn_at is not None or own.state in ENDED:
                return Turn(state=TurnState.COME, ticket=_ticket(own, key))
            if own.state == TicketState.QUEUED:
                head = self._lowest(own.sequence_id)
                if head is not None and head.number < own.number:
                    self._stamp(head)
                    return Turn(state=TurnState.WAITS, ticket=_ticket(own, key), head=_ticket(head, key))
            if strict:
                failed = self._first_failed(own.sequence_id, own.batch, below=own.number)
                if failed is not None:
                    return Turn(state=TurnState.CHAIN_FAILED, ticket=_ticket(own, key), first_failed=failed)
            if self._come(own):
                return Turn(state=TurnState.COME, ticket=_ticket(own, key))

    def _come(self, own: models.Ticket) -> bool:
        """False if its state has changed meanwhile: then it is looked at again."""
        runs = TicketState.RUNNING if own.state == TicketState.QUEUED else TicketState(own.state)
        changes = {"state": runs, "turn_at": DbNow(), "head_since": Coalesce("head_since", DbNow())}
        won = self._tickets.filter(pk=own.pk, state=own.state, turn_at__isnull=True).update(**changes) == 1
        if won:
            own.state = runs
        return won

    @in_one_transaction
    def finish(self, execution_id: UUID, *, failed: bool, step: str | None = None) -> Sequence[str]:
        own = self._not_ended([execution_id]) if step is None else self._of_step(execution_id, step)
        return self._end(own, TicketState.FAILED if failed else TicketState.DONE)

    @in_one_transaction
    def finish_cancelled(self, owner: UUID) -> Sequence[str]:
        executions = models.Execution.objects.using(self.connection.alias)
        ended = executions.filter(parent__owner=owner, status__in=ENDS).values("pk")
        return self._end(self._tickets.filter(execution_id__in=ended, state__in=LIVE), TicketState.DONE)

    def _end(self, tickets: QuerySet[models.Ticket, models.Ticket], state: TicketState) -> Sequence[str]:
        """The keys in whose lines they were live."""
        found = list(tickets.order_by("pk").values_list("pk", "state", "sequence__key"))
        if not found:
            return []
        self._tickets.filter(pk__in=[pk for pk, *_ in found]).update(state=state, ended_at=DbNow())
        return list(dict.fromkeys(key for _, was, key in found if was in LIVE))

    def tickets_of(self, owners: Collection[UUID]) -> Sequence[Ticket]:
        found = fresh(self._not_ended(owners).order_by("pk"), self.connection)
        keys = dict(self._sequences.filter(pk__in={row.sequence_id for row in found}).values_list("pk", "key"))
        return [_ticket(row, keys[row.sequence_id]) for row in found]

    def _not_ended(self, owners: Collection[UUID]) -> QuerySet[models.Ticket, models.Ticket]:
        """Their own, and those of their parts."""
        executions = models.Execution.objects.using(self.connection.alias)
        parts = executions.filter(owner__in=owners).values_list("pk", flat=True)
        return self._tickets.filter(execution_id__in={*owners, *parts}, state__in=NOT_ENDED)

    def _of_step(self, execution_id: UUID, step: str) -> QuerySet[models.Ticket, models.Ticket]:
        return self._tickets.filter(execution_id=execution_id, step=step, state__in=NOT_ENDED)

    # -- the line ------------------------------------------------------------------------------------------------------

    def head(self, key: str) -> Ticket | None:
        return retried(self.connection, lambda: self._head(key))

    def _head(self, key: str) -> Ticket | None:
        sequence = self._sequence(key)
        head = None if sequence is None else self._lowest(sequence.pk)
        if head is None:
            return None
        self._stamp(head)
        return _ticket(head, key)

    @in_one_transaction
    def pass_over(self, key: str, poison_pill_timeout: float) -> bool:
        sequence = self._sequence(key)
        head = None if sequence is None else self._lowest(sequence.pk)
        if sequence is None or head is None:
            return False
        self._stamp(head)
        if not self._pass(self._tickets.filter(_has_had_its_time(poison_pill_timeout), pk=head.pk)):
            return False
        after = self._lowest(sequence.pk)
        if after is not None:
            self._stamp(after)
        return after is not None

    def line(self, key: str) -> Line | None:
        sequence = self._sequence(key)
        if sequence is None:
            return None
        head = self._lowest(sequence.pk)
        return Line(
            key=key,
            batch=sequence.batch,
            last=sequence.last,
            head=None if head is None else _ticket(head, key),
            head_since=None if head is None else head.head_since,
            first_failed=self._first_failed(sequence.pk, sequence.batch),
            live=self._tickets.filter(sequence=sequence.pk, state__in=LIVE).count(),
        )

    def skip(self, key: str, number: int) -> bool:
        return self._pass_by_hand(key, Q(number=number)) == 1

    def reset(self, key: str) -> int:
        return self._pass_by_hand(key, Q())

    def _pass_by_hand(self, key: str, which: Q) -> int:
        """Raises `LockUnavailable` where another transaction has one of them, and goes on having it."""
        connection, sequence = self.connection, self._sequence(key)
        if sequence is None:
            return 0
        live = self._tickets.filter(which, sequence=sequence.pk, state__in=LIVE)

        def statements() -> int:
            with waiting_at_most(connection, PATIENCE):
                return live.update(state=TicketState.PASSED, ended_at=DbNow())

        try:
            return retried(connection, lambda: in_a_moment(connection, statements))
        except TookTooLong as error:
            text = f"a ticket of the ordered lock {key!r} is being changed by a transaction that is still open"
            raise LockUnavailable(text, key) from error

    def purge(self, limit: int) -> int:
        """Ended tickets, but for those that a strict chain still asks about, and keys that have none any more."""
        before = DbNow() - KEPT
        gone = ~Exists(models.Execution.objects.filter(pk=OuterRef("execution_id")))
        others = self._tickets.filter(sequence=OuterRef("sequence"), batch=OuterRef("batch"))
        asked_about = Q(state=TicketState.FAILED) & Exists(others.filter(state__in=(*LIVE, TicketState.PASSED)))
        ended = self._tickets.filter(Q(state__in=ENDED) | Q(state=TicketState.PASSED) & gone, ended_at__lt=before)
        tickets = purge(self.connection, ended.exclude(asked_about), limit)
        empty = self._sequences.filter(~Exists(self._tickets.filter(sequence=OuterRef("pk"))), drawn_at__lt=before)
        return tickets + purge(self.connection, empty, limit - tickets)

    # -- reading and marking -------------------------------------------------------------------------------------------

    def _sequence(self, key: str) -> models.TicketSequence | None:
        return self._sequences.filter(key_digest=digest_of(key)).first()

    def _own(self, key: str, execution_id: UUID, step: str) -> models.Ticket | None:
        sequence = self._sequence(key)
        if sequence is None:
            return None
        own = self._tickets.filter(sequence=sequence.pk, execution_id=execution_id, step=step)
        return fresh(own.order_by("-number"), self.connection).first()

    def _lowest(self, sequence: int) -> models.Ticket | None:
        """The head. One look into the index for each state, since an index has no order over both."""
        in_line = self._tickets.filter(sequence=sequence).order_by("number")
        found = [fresh(in_line.filter(state=state), self.connection).first() for state in LIVE]
        return min((ticket for ticket in found if ticket is not None), key=lambda each: each.number, default=None)

    def _first_failed(self, sequence: int, batch: int, below: int | None = None) -> int | None:
        failed = self._tickets.filter(sequence=sequence, state=TicketState.FAILED, batch=batch)
        if below is not None:
            failed = failed.filter(number__lt=below)
        return fresh(failed.order_by("number"), self.connection).values_list("number", flat=True).first()

    def _stamp(self, head: models.Ticket) -> None:
        """If nobody has. Who has the row locked is about to end it."""
        if head.head_since is not None:
            return
        with transaction.atomic(using=self.connection.alias):
            unstamped = self._tickets.filter(pk=head.pk, head_since__isnull=True, state__in=LIVE)
            if unlocked(unstamped, self.connection).values_list("pk", flat=True)[:1]:
                self._tickets.filter(pk=head.pk).update(head_since=DbNow())

    def _pass(self, tickets: QuerySet[models.Ticket, models.Ticket]) -> int:
        live = tickets.filter(state__in=LIVE)
        pks = list(unlocked(live, self.connection).order_by("pk").values_list("pk", flat=True))
        return live.filter(pk__in=pks).update(state=TicketState.PASSED, ended_at=DbNow()) if pks else 0


def _has_had_its_time(poison_pill_timeout: float) -> Q:
    before = DbNow() - timedelta(seconds=poison_pill_timeout)
    executions = models.Execution.objects.filter(pk=OuterRef("execution_id")).exclude(status__in=ENDS)
    in_line = Q(owner__waiting_for__startswith="turn:")
    was_seen = Q(owner__lease_expires_at__gt=before) | (Q(owner__updated_at__gt=before) & ~in_line)
    waits_its_turn = in_line & ~Exists(_other_levels())
    alive = executions.filter(was_seen | waits_its_turn | runs_or_rests("owner__"))
    return ~Exists(executions) | (Q(head_since__lte=before) & ~Exists(alive))


def _other_levels() -> QuerySet[models.Ticket, models.Ticket]:
    """Of an execution whose ticket is looked at: what else its tree has, and another level of it has drawn."""
    tree = models.Execution.objects.filter(owner=OuterRef(OuterRef("owner"))).values("pk")
    ticket = OuterRef(OuterRef("step"))
    others = models.Ticket.objects.filter(execution_id__in=tree, state__in=NOT_ENDED)
    return others.exclude(execution_id=OuterRef("pk"), step=ticket)


def _ticket(row: models.Ticket, key: str) -> Ticket:
    return Ticket(
        key=key,
        number=row.number,
        batch=row.batch,
        execution_id=row.execution_id,
        step=row.step,
        state=TicketState(row.state),
    )
