"""All orders by one execution, and how far it is, from the tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from django.db.models import Count, Q
from rich.progress import Progress, TaskID

from django_reactor.models import Execution, MapRun
from testproject.shop.faults import Faults, injected
from testproject.shop.reactors import ImportOrders
from testproject.shop.reconcile import ENDS

__all__ = ["Import"]


@dataclass(frozen=True, slots=True)
class Import:
    progress: Progress
    bar: TaskID
    path: Path
    limit: int | None

    def start(self, faults: Faults) -> None:
        """Once for a file: what an earlier run has begun, workers go on with."""
        with injected(faults):
            ImportOrders.using(idempotency_key=self.path.stem).enqueue(path=str(self.path.resolve()), limit=self.limit)

    def look(self) -> None:
        """The number of orders is known once the whole file is read."""
        run = MapRun.objects.filter(execution__in=ImportOrders.executions.all(), step="orders").first()
        if run is None:
            return
        elements = Execution.objects.filter(parent=run.execution_id, parent_step="orders")
        seen = elements.aggregate(read=Count("pk"), ended=Count("pk", filter=Q(status__in=ENDS)))
        self.progress.update(self.bar, total=run.total or seen["read"] + 1, completed=seen["ended"])
