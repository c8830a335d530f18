"""The journal as a table: a bounded stretch of entries, in sections of going forward and of rolling back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Case, Count, F, QuerySet, TextField, Value, When
from django.db.models.functions import Length
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_reactor.admin.failures import FailureCard, failure_card
from django_reactor.admin.rendering import Shown, duration, shown, shown_tree
from django_reactor.core.plan import Plan, PlanStep
from django_reactor.core.redaction import Redactor
from django_reactor.core.statuses import Action, EntryOutcome
from django_reactor.journal.orm import alias
from django_reactor.models import Execution, JournalEntry

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

__all__ = ["PAGE_SIZE", "Row", "Section", "Trace", "trace_of"]

PAGE_SIZE = 500
"""Entries on one page."""
VALUE_LIMIT: Final = 50_000
"""Characters of a stored value that are read for the table; a longer one is only measured."""

ROLLBACK = frozenset({Action.COMPENSATE, Action.UNDO, Action.ROLLBACK})
ROLES: Mapping[str, StrOrPromise] = {
    "forward": _("Steps"),
    "rollback": _("Rollback"),
    "retry": _("Retry"),
}
SIGNS: Mapping[str, str] = {
    EntryOutcome.SUCCESS: "✓",
    EntryOutcome.FAILURE: "✕",
    EntryOutcome.RETRYING: "↻",
    EntryOutcome.SKIPPED: "–",
    EntryOutcome.HALTED: "■",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was dispatched has no value: its execution is in the list of children, for whoever may see it."""

    seq: int
    step: str
    action: str
    outcome: str
    outcome_label: str
    sign: str
    attempt: int
    started_at: datetime
    took: str
    arguments: Shown | None
    value: Shown | None
    reason: str
    error: FailureCard | None


@dataclass(frozen=True, slots=True)
class Section:
    """Entries of one kind in a row. `role` is forward, rollback or retry."""

    role: str
    rows: list[Row]

    @property
    def title(self) -> str:
        return str(ROLES[self.role])


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Entries `first` to `last` of `total`; `previous` and `next` are the numbers after which other pages begin."""

    sections: Sequence[Section]
    total: int
    first: int
    last: int
    previous: int | None
    next: int | None
    not_run: Sequence[PlanStep]


def trace_of(execution: Execution, plan: Plan | None, redactor: Redactor, after: int) -> Trace:
    """The stretch of the journal after entry number `after`. Two queries, whatever its length."""
    entries = JournalEntry.objects.using(alias()).filter(execution=execution.pk)
    counts = dict(entries.values_list("step").annotate(Count("seq")).order_by())
    found = list(_bounded(entries.filter(seq__gt=after)).order_by("seq")[: PAGE_SIZE + 1])
    rows, is_last = found[:PAGE_SIZE], len(found) <= PAGE_SIZE
    return Trace(
        sections=_sections(rows, redactor),
        total=sum(counts.values()),
        first=rows[0].seq if rows else 0,
        last=rows[-1].seq if rows else 0,
        previous=max(0, after - PAGE_SIZE) if after else None,
        next=None if is_last else rows[-1].seq,
        not_run=[step for step in plan.steps if step.name not in counts] if plan and is_last else [],
    )


def _bounded(entries: QuerySet[JournalEntry, JournalEntry]) -> QuerySet[JournalEntry, JournalEntry]:
    """Without texts that are too long to show: a thousand of them could be a gigabyte."""
    lengths = {f"{name}_length": Length(name) for name in ("arguments", "value")}
    short = {
        f"{name}_text": Case(
            When(**{f"{name}_length__lte": VALUE_LIMIT}, then=F(name)), default=Value(None), output_field=TextField()
        )
        for name in ("arguments", "value")
    }
    return entries.defer("arguments", "value").annotate(**lengths).annotate(**short)


def _sections(entries: Iterable[JournalEntry], redactor: Redactor) -> list[Section]:
    sections: list[Section] = []
    for entry in entries:
        role = _role(entry, sections[-1].role if sections else "forward")
        if not sections or sections[-1].role != role or entry.action == Action.RETRY:
            sections.append(Section(role, []))
        sections[-1].rows.append(_row(entry, redactor))
    return sections


def _role(entry: JournalEntry, before: str) -> str:
    """An abort or a cancel belongs to whatever it breaks off; a retry lasts until the next rollback."""
    if entry.action in ROLLBACK:
        return "rollback"
    if entry.action == Action.RETRY:
        return "retry"
    if entry.action in (Action.ABORT, Action.CANCEL):
        return before
    return "retry" if before == "retry" else "forward"


def _row(entry: JournalEntry, redactor: Redactor) -> Row:
    error = failure_card(entry.error, redactor) if entry.error else None
    return Row(
        seq=entry.seq,
        step=entry.step,
        action=entry.get_action_display(),
        outcome=entry.outcome,
        outcome_label=entry.get_outcome_display() if entry.outcome else "",
        sign=SIGNS.get(entry.outcome, ""),
        attempt=entry.attempt,
        started_at=entry.started_at,
        took=duration(entry.started_at, entry.finished_at),
        arguments=_stored(entry, "arguments", redactor) or _arguments_of(error),
        value=None if entry.action == Action.DISPATCH else _stored(entry, "value", redactor),
        reason=redactor.scrub(entry.reason),
        error=error,
    )


def _stored(entry: Any, name: str, redactor: Redactor) -> Shown | None:
    length, text = getattr(entry, f"{name}_length"), getattr(entry, f"{name}_text")
    if length is None:
        return None
    if text is None:
        return Shown(gettext("[%(length)s characters, too long to show]") % {"length": f"{length:,}"})
    return shown(text, redactor)


def _arguments_of(error: FailureCard | None) -> Shown | None:
    """Plain steps store none; a failure remembers with which ones it came about."""
    return shown_tree(error.arguments) if error and error.arguments else None
