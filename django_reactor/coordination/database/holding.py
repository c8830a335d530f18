"""The statements of locks and semaphores, compiled once a connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reactor.coordination.database.patience import SHORT, waiting_at_most
from django_reactor.coordination.slots import Range, Slot
from django_reactor.core.keys import digest_of
from django_reactor.engine.coordination_ports import Hold, Wanted
from django_reactor.journal.statements import Adapter, Statement, Table, as_is, now_sql
from django_reactor.models import Holder

__all__ = ["Claim", "Holding"]

SKIP = {"postgresql": " FOR NO KEY UPDATE SKIP LOCKED", "mysql": " FOR UPDATE SKIP LOCKED", "sqlite": ""}

UNSYNCED = {
    "postgresql": " AND set_config('synchronous_commit', 'off', true) IS NOT NULL",
    "mysql": "",
    "sqlite": "",
}
"""Outside of a transaction, PostgreSQL need not wait for the disk to give a row up: what a crash of the server forgets
is free when its ttl is over. Whoever has taken the row since has waited for the disk, for both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who wants what."""

    wanted: Wanted
    digest: str
    owner: UUID
    epoch: int


class Holding:
    """The statements of one connection."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        holder = Table(Holder, connection)
        column, now, until = holder.column, now_sql(connection), now_sql(connection, plus_seconds=True)
        key, slot, owner, epoch, expires_at = map(column, ("key_digest", "slot", "owner", "epoch", "expires_at"))
        of_key = f"{key} = %s AND {column('kind')} = %s"
        free = f"({owner} IS NULL OR ({owner} <> %s AND {expires_at} <= {now}) OR ({owner} = %s AND {epoch} <= %s))"
        self._one_by_one = connection.vendor == "mysql"
        which = f"{slot} = %s" if self._one_by_one else f"{slot} BETWEEN %s AND %s"
        within = f"{of_key} AND {which} AND {free} ORDER BY {slot} LIMIT 1"
        ours = f"{of_key} AND {slot} = %s AND {owner} = %s AND {epoch} = %s"
        takes = f"{owner} = %s, {epoch} = %s, {expires_at} = {until}"
        named = holder.adapter("owner")
        self._owner = holder.reader("owner")
        takes_with = [named, as_is, as_is]
        within_of = [as_is] * (3 if self._one_by_one else 4) + [named, named, as_is]
        ours_of = [as_is] * 3 + [named, as_is]
        self.slots_of_key = Statement(
            f"SELECT {slot}, {owner}, {epoch}, {owner} IS NOT NULL AND {expires_at} > {now} FROM {holder.name} "
            f"WHERE {of_key}",
            [as_is] * 2,
        )
        self.taking = _Change(holder, takes, takes_with, within, within_of)
        self.extending = _Change(
            holder, f"{expires_at} = {until}", [as_is], f"{ours} AND {expires_at} > {now}", ours_of
        )
        given_up = f"{owner} = NULL, {expires_at} = {now}"
        self.releasing = _Change(holder, given_up, [], ours, ours_of)
        self._releasing_alone = _Change(holder, given_up, [], f"{ours}{UNSYNCED[connection.vendor]}", ours_of)
        self.ours = Statement(f"SELECT 1 FROM {holder.name} WHERE {ours}", ours_of)
        self.making = _made(holder, until)

    def slots(self, connection: BaseDatabaseWrapper, claim: Claim) -> Sequence[Slot]:
        rows = self.slots_of_key.fetch(connection, [claim.digest, claim.wanted.kind.value])
        return [
            Slot(number=number, owner=self._owner(owner), epoch=epoch, is_held=bool(is_held))
            for number, owner, epoch, is_held in rows
        ]

    def take(self, connection: BaseDatabaseWrapper, claim: Claim, within: Range, likely: Sequence[int]) -> int | None:
        """The number of the slot. `likely` are those that may have rows, the likeliest to be free first.

        MySQL, which goes over a range of slots, locks the row behind it too: that of another key. So there it is asked
        for one slot after another."""
        if not self._one_by_one:
            return self._take(connection, claim, within.first, within.last)
        taken = (self._take(connection, claim, number) for number in likely if within.first <= number <= within.last)
        return next((number for number in taken if number is not None), None)

    def _take(self, connection: BaseDatabaseWrapper, claim: Claim, *slots: int) -> int | None:
        takes = [claim.owner, claim.epoch, claim.wanted.ttl]
        where = [claim.digest, claim.wanted.kind.value, *slots]
        return self.taking.carry_out(connection, takes, [*where, claim.owner, claim.owner, claim.epoch])

    def make(self, connection: BaseDatabaseWrapper, claim: Claim, number: int) -> bool:
        """A new row that is ours; False if there is one already. Raises `TookTooLong` if another session has made one
        that it has not committed."""
        wanted = claim.wanted
        values = [claim.digest, wanted.kind.value, wanted.key, number, claim.owner, claim.epoch, wanted.ttl]
        with waiting_at_most(connection, SHORT):
            return self.making.execute(connection, values) == 1

    def extend(self, connection: BaseDatabaseWrapper, hold: Hold) -> bool:
        return self.extending.carry_out(connection, [hold.wanted.ttl], _ours(hold)) is not None

    def release(self, connection: BaseDatabaseWrapper, hold: Hold) -> bool:
        is_alone = connection.get_autocommit() and not connection.in_atomic_block
        releasing = self._releasing_alone if is_alone else self.releasing
        return releasing.carry_out(connection, [], _ours(hold)) is not None

    def is_still_held(self, connection: BaseDatabaseWrapper, hold: Hold) -> bool:
        """By this owner and epoch, whoever has the row locked."""
        return bool(self.ours.fetch(connection, _ours(hold)))

    def release_patiently(self, connection: BaseDatabaseWrapper, hold: Hold, seconds: float) -> bool:
        """Raises `TookTooLong` if the row stays locked."""
        with waiting_at_most(connection, seconds):
            return self.releasing.waiting.execute(connection, _ours(hold)) == 1


class _Change:
    """An UPDATE of the row that a condition finds, which passes a row that another session has locked.

    Where an UPDATE can return what it has written (PostgreSQL, SQLite), it also finds its row: one statement. Elsewhere
    the row is found and locked first, in one transaction.
    """

    def __init__(
        self, holder: Table, sets: str, sets_with: Sequence[Adapter], condition: str, of: Sequence[Adapter]
    ) -> None:
        connection = holder.connection
        pk, slot = holder.column("id"), holder.column("slot")
        update, found = (
            f"UPDATE {holder.name} SET {sets} WHERE",
            f"FROM {holder.name} WHERE {condition}{SKIP[connection.vendor]}",
        )
        self.waiting = Statement(f"{update} {condition}", [*sets_with, *of])
        self._at_once: Statement | None = None
        if connection.vendor != "mysql" and connection.features.can_return_columns_from_insert:
            self._at_once = Statement(f"{update} {pk} = (SELECT {pk} {found}) RETURNING {slot}", [*sets_with, *of])
        self._find = Statement(f"SELECT {pk}, {slot} {found}", of)
        self._update = Statement(f"{update} {pk} = %s", [*sets_with, as_is])

    def carry_out(self, connection: BaseDatabaseWrapper, sets: Sequence[Any], where: Sequence[Any]) -> int | None:
        """The number of the slot that was changed."""
        if self._at_once is not None:
            rows = self._at_once.fetch(connection, [*sets, *where])
            return rows[0][0] if rows else None
        with transaction.atomic(using=connection.alias):
            found = self._find.fetch(connection, where)
            if not found:
                return None
            pk, slot = found[0]
            self._update.execute(connection, [*sets, pk])
            return int(slot)


def _made(holder: Table, until: str) -> Statement:
    fields = ("key_digest", "kind", "key", "slot", "owner", "epoch")
    ignore, conflict = ("IGNORE ", "") if holder.connection.vendor == "mysql" else ("", " ON CONFLICT DO NOTHING")
    insert = holder.insert(fields, {"expires_at": until}, conflict)
    return Statement(insert.sql.replace("INSERT INTO", f"INSERT {ignore}INTO", 1), insert.adapters)


def _ours(hold: Hold) -> list[Any]:
    return [digest_of(hold.wanted.key), hold.wanted.kind.value, hold.slot, hold.owner, hold.epoch]
