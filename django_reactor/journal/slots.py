"""The rows of elements for the readers of a map's results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Count

from django_reactor.core.statuses import Action, EntryOutcome, Status
from django_reactor.engine.map_ports import MapKey, Slot
from django_reactor.journal.element_rows import of_map
from django_reactor.journal.orm import alias, locking
from django_reactor.models import JournalEntry, MapRun

__all__ = ["OrmSlots"]


class OrmSlots:
    """The port `Slots`. Thread-safe, as `OrmJournal` is."""

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[alias()]

    def counts(self, key: MapKey) -> Mapping[Status, int]:
        rows = locking(of_map(self.connection, key), self.connection)
        counted = rows.values_list("status").annotate(number=Count("pk")).order_by("status")
        return {Status(status): number for status, number in counted}

    def slots(
        self,
        key: MapKey,
        *,
        statuses: Collection[Status] | None = None,
        after: int = -1,
        skip: int = 0,
        limit: int,
        backwards: bool = False,
    ) -> Sequence[Slot]:
        rows = of_map(self.connection, key).order_by("-element_index" if backwards else "element_index")
        if statuses is not None:
            rows = rows.filter(status__in=statuses)
        if after >= 0 and not backwards:
            rows = rows.filter(element_index__gt=after)
        found = locking(rows, self.connection).values(
            "pk", "element_index", "status", "output", "failure", "stop_reason", "started_at"
        )[skip : skip + limit]
        return self._slots(list(found))

    def _slots(self, found: Sequence[Mapping[str, Any]]) -> list[Slot]:
        reasons = self._halts([row["pk"] for row in found if row["status"] == Status.HALTED])
        results = self._results(
            [row["pk"] for row in found if row["status"] == Status.COMPLETED and row["output"] is None]
        )
        return [
            Slot(
                index=row["element_index"],
                execution_id=row["pk"],
                status=Status(row["status"]),
                output=row["output"],
                results=results.get(row["pk"], {}),
                has_begun=row["started_at"] is not None,
                failure=row["failure"],
                reason=reasons.get(row["pk"], row["stop_reason"]),
            )
            for row in found
        ]

    def _halts(self, pks: Collection[UUID]) -> Mapping[UUID, str]:
        if not pks:
            return {}
        entries = JournalEntry.objects.using(self.connection.alias)
        halts = entries.filter(execution__in=pks, outcome=EntryOutcome.HALTED).order_by("seq")
        return dict(halts.values_list("execution", "reason"))

    def _results(self, pks: Collection[UUID]) -> Mapping[UUID, Mapping[str, str | None]]:
        """Of elements whose target declares no result: all that stands, which is in their journals."""
        results: dict[UUID, dict[str, str | None]] = defaultdict(dict)
        if not pks:
            return results
        entries = JournalEntry.objects.using(self.connection.alias)
        stands = entries.filter(
            execution__in=pks, action=Action.RUN, outcome__in=(EntryOutcome.SUCCESS, EntryOutcome.SKIPPED)
        )
        for execution_id, step, value in stands.order_by("seq").values_list("execution", "step", "value"):
            results[execution_id][step] = value
        return results

    def summary(self, key: MapKey) -> Mapping[str, Any] | None:
        rows = MapRun.objects.using(self.connection.alias).filter(
            execution=key.execution_id, step=key.step, generation=key.generation
        )
        found: Mapping[str, Any] | None = locking(rows, self.connection).values_list("summary", flat=True).first()
        return found
