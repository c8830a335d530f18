"""How far the orders are, from the table of executions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from django.core.management.base import CommandError
from django.db.models import Count, Q
from rich.progress import Progress, TaskID

from django_reactor.models import Execution
from testproject.shop.demo.workers import Workers
from testproject.shop.reconcile import ENDS

__all__ = ["Watch"]

INTERVAL = 0.25
"""Seconds between two looks."""
PATIENCE = 180.0
"""Seconds without a change, after which what has not ended is taken for stuck."""


@dataclass(slots=True)
class Watch:
    """Shows it in a bar, and sees to the workers meanwhile."""

    progress: Progress
    bar: TaskID
    workers: Workers
    meanwhile: list[Callable[[], object]] = field(default_factory=list)
    """Done at each look."""
    _next_look: float = 0.0
    _changed: float = field(default_factory=monotonic)
    _seen: tuple[int, int] = (0, 0)

    def look(self) -> bool:
        """Whether all have ended. Looks no more often than `INTERVAL` allows, and says no in between."""
        if monotonic() < self._next_look:
            return False
        seen = Execution.objects.aggregate(every=Count("pk"), ended=Count("pk", filter=Q(status__in=ENDS)))
        every, ended = seen["every"], seen["ended"]
        self._next_look = monotonic() + INTERVAL
        self._notice_a_standstill(every, ended)
        self.progress.update(self.bar, total=every, completed=ended)
        self.workers.tend(ended)
        for each in self.meanwhile:
            each()
        return bool(every == ended)

    def wait(self) -> None:
        """Until all have ended."""
        while not self.look():
            time.sleep(INTERVAL)

    def _notice_a_standstill(self, every: int, ended: int) -> None:
        if (every, ended) != self._seen:
            self._seen, self._changed = (every, ended), monotonic()
        elif every > ended and monotonic() - self._changed > PATIENCE:
            stuck = Execution.objects.exclude(status__in=ENDS).values_list("pk", "status")
            named = ", ".join(f"{pk} ({status})" for pk, status in stuck[:5])
            raise CommandError(f"{every - ended} executions have not moved for {PATIENCE:.0f} seconds: {named}")
