"""The waits of interrupts on Django's ORM (PROTOCOL 6).

Every transaction begins with an UPDATE of the owner's row, so a pause and an answer come one after the other, and what
is read after it is fresh; inside a caller's transaction MySQL has to be asked for that by locking reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.db import IntegrityError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Q, QuerySet

from django_reactor.core.statuses import FORWARD, Status, Stop
from django_reactor.core.waits import ANSWERED, Wait, WaitState
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.records import Lease, Message
from django_reactor.engine.waits import (
    Accepted,
    Address,
    Known,
    NewWait,
    NotForward,
    NotOpen,
    Outdated,
    WaitKey,
    open_key,
)
from django_reactor.exceptions import CorrelationConflict
from django_reactor.journal.executions import leased
from django_reactor.journal.fields import DbNow
from django_reactor.journal.orm import alias, locking
from django_reactor.journal.transactions import retried
from django_reactor.journal.trees import give_parts
from django_reactor.models import Execution
from django_reactor.models import Wait as Row
from django_reactor.models.executions import NO_ELEMENT

__all__ = ["OrmAnswers", "OrmWaits"]

R = TypeVar("R")

IN_TIME = Q(timeout_at__isnull=True) | Q(timeout_at__gt=DbNow())
WAIT_FIELDS = ("step", "state", "correlation_id", "payload", "attempts", "error", "timeout_at")


def wait_of(values: Mapping[str, Any]) -> Wait:
    return Wait(**{name: values[name] for name in WAIT_FIELDS} | {"state": WaitState(values["state"])})


def _columns(key: WaitKey) -> dict[str, Any]:
    return {"execution_id": key.execution_id, "step": key.step, "generation": key.generation}


class _Place(NamedTuple):
    """Where an execution stands in the tree of its owner."""

    id: UUID
    reactor: str
    owner_id: UUID
    parent_id: UUID | None
    parent_step: str
    element_index: int

    @property
    def is_part(self) -> bool:
        return self.owner_id != self.id

    @property
    def name(self) -> str:
        return self.parent_step if self.element_index == NO_ELEMENT else f"{self.parent_step}[{self.element_index}]"


def _path(places: Mapping[UUID, _Place], execution_id: UUID) -> tuple[str, ...]:
    place = places.get(execution_id)
    if place is None or not place.is_part or place.parent_id is None:
        return ()
    return (*_path(places, place.parent_id), place.name)


class _Rows:
    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[alias()]

    @property
    def _waits(self) -> QuerySet[Row, Row]:
        return Row.objects.using(self.connection.alias)

    @property
    def _executions(self) -> QuerySet[Execution, Execution]:
        return Execution.objects.using(self.connection.alias)

    def _row(self, key: WaitKey) -> QuerySet[Row, Row]:
        return self._waits.filter(execution=key.execution_id, step=key.step, generation=key.generation)

    def _state(self, key: WaitKey) -> WaitState | None:
        """After our own write, in its transaction."""
        state = locking(self._row(key), self.connection, 1).values_list("state", flat=True).first()
        return None if state is None else WaitState(state)

    def _in_transaction(self, statements: Callable[[], R]) -> R:
        connection = self.connection

        def once() -> R:
            with transaction.atomic(using=connection.alias):
                return statements()

        return retried(connection, once)


class OrmWaits(_Rows):
    """The port `Waits`. Thread-safe: each thread has its own connection."""

    def of(self, execution_id: UUID, generation: int) -> Mapping[str, Wait]:
        rows = self._waits.filter(execution=execution_id, generation=generation)
        return {row["step"]: wait_of(row) for row in locking(rows, self.connection).values(*WAIT_FIELDS)}

    def open(self, lease: Lease, new: NewWait) -> WaitState:
        def statements() -> WaitState:
            self._touch(lease)
            state = self._state(new.key)
            if state is None or state is WaitState.CLOSED:
                self._store(new, is_new=state is None)
                return WaitState.OPEN
            return state

        return self._in_transaction(statements)

    def _touch(self, lease: Lease) -> None:
        if not self._held(lease).update(updated_at=DbNow()):
            raise Refused

    def _held(self, lease: Lease) -> QuerySet[Execution, Execution]:
        return self._executions.filter(pk=lease.owner, lease_token=lease.token, stop=Stop.NONE)

    def _store(self, new: NewWait, *, is_new: bool) -> None:
        key, correlation_id = new.key, new.correlation_id
        values: dict[str, Any] = {
            "state": WaitState.OPEN,
            "correlation_id": correlation_id,
            "open_key": None if correlation_id is None else open_key(new.reactor, key.step, correlation_id),
            "payload_schema": new.payload_schema,
            "timeout_at": None if new.timeout is None else DbNow() + timedelta(seconds=new.timeout),
            "created_at": DbNow(),
        }
        try:
            with transaction.atomic(using=self.connection.alias):
                if is_new:
                    self._waits.create(owner_id=new.owner_id, **_columns(key), **values)
                else:
                    self._row(key).update(**values)
        except IntegrityError as error:  # the other unique key is ours alone, by the lock on the owner's row
            if correlation_id is None:
                raise
            raise CorrelationConflict(key.step, correlation_id) from error

    def close(self, lease: Lease, key: WaitKey) -> bool:
        def statements() -> bool:
            self._touch(lease)
            rows = self._row(key).filter(state=WaitState.OPEN)
            return rows.update(state=WaitState.CLOSED, open_key=None) == 1

        return self._in_transaction(statements)

    def pause(
        self,
        lease: Lease,
        keys: Sequence[WaitKey],
        *,
        waiting_for: str = "",
        has_come: Callable[[], bool] = lambda: False,
        with_parts: bool,
    ) -> bool:
        changes = {
            "wake_at": None,
            "sent_at": None,
            "sends": 0,
            "recoveries": 0,
            "snooze_reason": "",
            "contentions": 0,
            "waiting_for": waiting_for,
            "lease_token": None,
            "lease_expires_at": None,
            "updated_at": DbNow(),
            "status": Status.PAUSED,
        }
        any_of = Q()
        for key in keys:
            any_of |= Q(execution=key.execution_id, step=key.step, generation=key.generation)

        def statements() -> bool:
            if not self._held(lease).filter(status=Status.RUNNING).update(**changes):
                raise Refused
            answered = self._waits.filter(any_of, state__in=ANSWERED)
            if locking(answered, self.connection, 1).exists() or has_come():
                transaction.set_rollback(True, using=self.connection.alias)
                return False
            if with_parts:
                give_parts(self.connection, lease.owner, Status.PAUSED)
            return True

        return self._in_transaction(statements)


class OrmAnswers(_Rows):
    """The port `Answers`. Thread-safe, as `OrmWaits` is."""

    def of_owner(self, owner_id: UUID) -> Sequence[Known]:
        return self._known(self._waits.filter(owner=owner_id))

    def correlated(self, reactor: str, correlation_id: str) -> Sequence[Known]:
        """The second, locking look is for what was committed after the snapshot of a caller's transaction. The first
        one locks nothing: whoever answers locks the owner's row before the wait."""
        rows = self._waits.filter(correlation_id=correlation_id, execution__reactor=reactor)
        found = self._known(rows, fresh=False)
        if not any(known.is_open for known in found):
            found = self._known(rows)
        return found

    def _known(self, rows: QuerySet[Row, Row], *, fresh: bool = True) -> Sequence[Known]:
        ordered = rows.order_by("pk")
        read = locking(ordered, self.connection) if fresh else ordered
        found = list(read.values("execution_id", "owner_id", "generation", *WAIT_FIELDS))
        places = self._places({row["execution_id"] for row in found})
        return [
            Known(
                address=Address(
                    key=WaitKey(execution_id=row["execution_id"], step=row["step"], generation=row["generation"]),
                    owner_id=row["owner_id"],
                ),
                reactor=places[row["execution_id"]].reactor,
                wait=wait_of(row),
                path=_path(places, row["execution_id"]),
            )
            for row in found
            if row["execution_id"] in places
        ]

    def _places(self, wanted: set[UUID]) -> dict[UUID, _Place]:
        """Of these executions, and of all between them and their owners: one query for each depth."""
        places: dict[UUID, _Place] = {}
        while wanted:
            rows = self._executions.filter(pk__in=wanted).values_list(*_Place._fields)
            found = list(rows)
            if len(found) < len(wanted):  # of a row that is newer than a caller's snapshot
                found = list(locking(rows, self.connection))
            places |= {row[0]: _Place(*row) for row in found}
            wanted = {place.parent_id for place in places.values() if place.is_part and place.parent_id} - places.keys()
        return places

    def accept(self, address: Address, payload: str, token: UUID | None) -> Accepted:
        def statements() -> Accepted:
            self._touch(address.owner_id)
            open_wait = self._row(address.key).filter(IN_TIME, state=WaitState.OPEN)
            if not open_wait.update(state=WaitState.ACCEPTED, payload=payload, open_key=None):
                self._store_early(address, payload)
            return self._wake(address.owner_id, token)

        return self._in_transaction(statements)

    def _store_early(self, address: Address, payload: str) -> None:
        key = address.key
        state = self._state(key)
        if state is not None:
            raise NotOpen(state)
        execution = locking(self._executions.filter(pk=key.execution_id), self.connection, 1)
        generation, status = execution.values_list("generation", "status").get()
        if status not in FORWARD:
            raise NotForward
        if generation != key.generation:
            raise Outdated
        early = {"state": WaitState.ACCEPTED, "payload": payload, "created_at": DbNow()}
        self._waits.create(owner_id=address.owner_id, **_columns(key), **early)

    def reject(
        self, address: Address, error: Mapping[str, Any], most: int | None, token: UUID | None
    ) -> Accepted | None:
        wait = self._row(address.key).filter(IN_TIME, state=WaitState.OPEN)

        def statements() -> Accepted | None:
            self._touch(address.owner_id)
            if not wait.update(attempts=F("attempts") + 1):
                raise NotOpen(self._state(address.key))
            rejected = {"state": WaitState.REJECTED, "error": dict(error), "open_key": None}
            if most is None or not wait.filter(attempts__gte=most).update(**rejected):
                return None
            return self._wake(address.owner_id, token)

        return self._in_transaction(statements)

    def time_out(self, address: Address) -> Accepted:
        overdue = self._row(address.key).filter(state=WaitState.OPEN, timeout_at__lte=DbNow())

        def statements() -> Accepted:
            self._touch(address.owner_id, skip_locked=True)
            if not overdue.update(state=WaitState.TIMED_OUT, open_key=None):
                raise NotOpen(self._state(address.key))
            return self._wake(address.owner_id, None)

        return self._in_transaction(statements)

    def overdue(self, limit: int) -> Sequence[Address]:
        rows = self._waits.filter(
            state=WaitState.OPEN,
            timeout_at__lte=DbNow(),
            owner__status__in=FORWARD,
            owner__stop=Stop.NONE,
        )
        fields = ("execution_id", "owner_id", "step", "generation")
        return [
            Address(
                key=WaitKey(execution_id=execution_id, step=step, generation=generation),
                owner_id=owner_id,
            )
            for execution_id, owner_id, step, generation in rows.order_by("timeout_at").values_list(*fields)[:limit]
        ]

    def _touch(self, owner_id: UUID, *, skip_locked: bool = False) -> None:
        """The first statement of every answer, also where it changes nothing: it comes before or after the one with
        which the owner pauses, never beside it. A sweep does not wait for who has the row."""
        forward = self._executions.filter(pk=owner_id, status__in=FORWARD, stop=Stop.NONE)
        if skip_locked and self.connection.vendor != "sqlite":
            no_key = self.connection.vendor == "postgresql"
            if not forward.select_for_update(skip_locked=True, no_key=no_key).values("pk"):
                raise NotForward
        if not forward.update(updated_at=DbNow()):
            raise NotForward

    def _wake(self, owner_id: UUID, token: UUID | None) -> Accepted:
        """Under the lock of `_touch`."""
        paused = self._executions.filter(pk=owner_id, status=Status.PAUSED)
        if token is None:
            if not paused.update(wake_at=DbNow(), sent_at=DbNow(), sends=0, status=Status.PENDING):
                return Accepted()
            give_parts(self.connection, owner_id, Status.PENDING)
            row = locking(self._executions.filter(pk=owner_id), self.connection, 1).values("queue_name", "priority")
            return Accepted(message=Message(execution_id=owner_id, **row.get()))
        if not paused.update(**leased(token) | {"recoveries": 1, "status": Status.RUNNING}):
            return Accepted()
        give_parts(self.connection, owner_id, Status.RUNNING)
        owner = locking(self._executions.filter(pk=owner_id), self.connection, 1)
        return Accepted(lease=Lease(owner_id, token, owner.values_list("epoch", flat=True).get()))
