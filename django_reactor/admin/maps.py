"""The maps of an execution, as its page shows them: in two queries, however many there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.db.models import Count
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_reactor.admin.badges import badge
from django_reactor.core.redaction import Redactor
from django_reactor.core.statuses import MapState, Status
from django_reactor.journal.orm import alias
from django_reactor.models import Execution, MapRun

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

__all__ = ["Counted", "ShownMap", "maps_of"]

STATES = {
    MapState.LOADING: _("loading: its source is read"),
    MapState.RUNNING: _("running"),
    MapState.FAILING: _("failed: no other element begins"),
    MapState.WITHDRAWN: _("withdrawn: no other element begins"),
    MapState.DONE: _("done"),
    MapState.UNDOING: _("its elements are being undone"),
    MapState.UNDONE: _("undone"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    badge: SafeString
    number: int
    query: str
    """Of the list of these elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMap:
    step: str
    generation: int
    state: StrOrPromise
    total: int | None
    ended: int
    fan_out: int | None
    fail_fast: bool
    counts: Sequence[Counted]
    query: str
    """Of the list of all its elements."""


Key = tuple[str, int]


def maps_of(execution: Execution, redactor: Redactor) -> Sequence[ShownMap]:
    runs = list(MapRun.objects.using(alias()).filter(execution=execution.pk).order_by("generation", "step"))
    counts = _counts(execution) if runs else {}
    return [_shown(execution, run, counts.get((run.step, run.generation), {}), redactor) for run in runs]


def _counts(execution: Execution) -> Mapping[Key, Mapping[str, int]]:
    """By one pass over the index of this execution's children."""
    counts: dict[Key, dict[str, int]] = defaultdict(dict)
    elements = Execution.objects.using(alias()).filter(parent=execution.pk, element_index__gte=0)
    by_status = elements.values_list("parent_step", "parent_generation", "status").annotate(number=Count("*"))
    for step, generation, status, number in by_status.order_by():
        counts[step, generation][status] = number
    return counts


def _shown(execution: Execution, run: MapRun, counts: Mapping[str, int], redactor: Redactor) -> ShownMap:
    statuses = [status for status in Status if status in counts]
    return ShownMap(
        step=redactor.scrub(run.step),
        generation=run.generation,
        state=STATES[MapState(run.state)],
        total=run.total,
        ended=sum(counts[status] for status in statuses if status.is_end),
        fan_out=run.fan_out,
        fail_fast=run.fail_fast,
        counts=[
            Counted(badge=badge(status), number=counts[status], query=_query(execution, run, status))
            for status in statuses
        ],
        query=_query(execution, run),
    )


def _query(execution: Execution, run: MapRun, status: Status | None = None) -> str:
    asked = {
        "relation": "element",
        "parent__exact": str(execution.pk),
        "parent_step__exact": run.step,
        "parent_generation__exact": run.generation,
    }
    return urlencode(asked if status is None else {**asked, "status__exact": status.value})
