"""Everything that one execution's page shows, in a constant number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import F, Q, QuerySet
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from django_reactor.admin.answering import Question, Typed, question_of
from django_reactor.admin.badges import badge
from django_reactor.admin.coordination import Panel, panel_of
from django_reactor.admin.failures import FailureCard, failure_card
from django_reactor.admin.known import definition_of
from django_reactor.admin.maps import ShownMap, maps_of
from django_reactor.admin.redactors import redactor_of
from django_reactor.admin.rendering import Shown, duration, shown, shown_tree
from django_reactor.admin.sight import Sight
from django_reactor.admin.trace import Trace, trace_of
from django_reactor.core.plan import Definition
from django_reactor.core.redaction import Redactor
from django_reactor.core.statuses import FORWARD, Status, Stop
from django_reactor.core.waits import WaitState
from django_reactor.journal.display import display
from django_reactor.journal.orm import alias
from django_reactor.models import Execution, Wait
from django_reactor.models.executions import NO_ELEMENT

__all__ = ["Page", "page_of", "waits_of"]

MAX_CHILDREN = 100
MAX_WAITS = 100
INPUT_LIMIT = 1_000
"""Characters of one text, and items of one container, inside an input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    id: UUID
    reactor: str
    relation: str
    step: str
    badge: SafeString


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedWait:
    """An interrupt that was asked, or answered before that. `of_child` is the part that asked, where one did that may
    be seen.
    `question` is there for who may answer it now."""

    id: int
    step: str
    of_child: UUID | None
    state: str
    state_label: str
    correlation_id: str
    since: datetime
    timeout_at: datetime | None
    attempts: int
    question: Question | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`execution` gives ids, numbers and times; every text that a user's code or data wrote is in the other fields."""

    execution: Execution
    verbose_name: str
    badge: SafeString
    is_known: bool
    definition_changed: bool
    took: str
    idempotency_key: str
    tags: Sequence[str]
    relation: str
    stop: str
    stop_reason: str
    snooze_reason: str
    lease: str
    inputs: Mapping[str, Shown]
    result: Shown | None
    result_is_in_trace: bool
    failure: FailureCard | None
    failure_arguments: Mapping[str, Shown]
    trace: Trace
    coordination: Panel | None
    waits: Sequence[AskedWait]
    maps: Sequence[ShownMap]
    children: Sequence[Child]
    """Without the elements of maps, and without those that may not be seen."""
    has_hidden_children: bool
    has_more_children: bool


def page_of(
    execution: Execution, after: int, sight: Sight, *, may_answer: bool = False, typed: Typed | None = None
) -> Page:
    """`after` is the number of the entry after which the trace begins. `typed` is an answer that was refused."""
    definition = definition_of(execution.reactor)
    redactor = redactor_of(execution)
    children, hidden = sight.divide(_children_of(execution)[: MAX_CHILDREN + 1])
    completed = execution.status == Status.COMPLETED
    failure = failure_card(execution.failure, redactor) if execution.failure else None
    return Page(
        execution=execution,
        verbose_name=_verbose_name(execution, definition),
        badge=badge(execution.status),
        is_known=definition is not None,
        definition_changed=definition is not None and definition.plan.fingerprint != execution.fingerprint,
        took=duration(execution.started_at, execution.finished_at or timezone.now()),
        idempotency_key=redactor.scrub(execution.idempotency_key or ""),
        tags=[redactor.scrub(str(tag)) for tag in execution.tags],
        relation=execution.get_relation_display(),
        stop=_stop(execution),
        stop_reason=redactor.scrub(execution.stop_reason),
        snooze_reason=redactor.scrub(execution.snooze_reason),
        lease=_lease(execution),
        inputs=_inputs(execution, redactor),
        result=shown(execution.output, redactor) if completed and execution.output is not None else None,
        result_is_in_trace=completed and execution.output is None,
        failure=failure,
        failure_arguments={name: shown_tree(value) for name, value in failure.arguments.items()} if failure else {},
        trace=trace_of(execution, definition.plan if definition else None, redactor, after),
        coordination=panel_of(execution, definition, redactor, sight),
        waits=_waits_of(execution, redactor, sight, typed, may_answer=may_answer),
        maps=maps_of(execution, redactor),
        children=_shown_children(children[:MAX_CHILDREN]),
        has_hidden_children=bool(hidden),
        has_more_children=len(children) + len(hidden) > MAX_CHILDREN,
    )


def _verbose_name(execution: Execution, definition: Definition | None) -> str:
    """The declared name, or the class's own name from the label."""
    if definition is not None and definition.verbose_name:
        return str(definition.verbose_name)
    return execution.reactor.rpartition(".")[2]


def _inputs(execution: Execution, redactor: Redactor) -> Mapping[str, Shown]:
    tree = display(execution.inputs, redactor, limit=INPUT_LIMIT)
    if isinstance(tree, dict):
        return {name: shown_tree(value) for name, value in tree.items()}
    return {"": shown_tree(tree)}


def _stop(execution: Execution) -> str:
    if execution.stop == Stop.NONE or Status(execution.status).is_end:
        return ""
    if execution.stop == Stop.UNDO:
        return gettext("an undo is requested; it is obeyed at the next step")
    return gettext("a cancel is requested; it is obeyed at the next step")


def _lease(execution: Execution) -> str:
    """Whether a process runs it. The web server's clock is good enough to say so."""
    if execution.lease_token is None or execution.lease_expires_at is None:
        return ""
    left = execution.lease_expires_at - timezone.now()
    if left.total_seconds() < 0:
        return gettext("expired %(ago)s ago: its process has died or is stuck; it may be continued elsewhere") % {
            "ago": duration(execution.lease_expires_at, timezone.now())
        }
    return gettext("held by a process, for another %(time)s unless renewed") % {
        "time": duration(timezone.now(), execution.lease_expires_at)
    }


def waits_of(execution: Execution) -> Q:
    """Its own and those of its parts."""
    return Q(execution=execution.pk) | Q(owner=execution.pk)


def _waits_of(
    execution: Execution, redactor: Redactor, sight: Sight, typed: Typed | None, *, may_answer: bool
) -> list[AskedWait]:
    """The latest first."""
    waits = Wait.objects.using(alias()).filter(waits_of(execution))
    waits = waits.annotate(reactor=F("execution__reactor"), is_seen=sight.within("execution"))
    may_answer = may_answer and execution.status in FORWARD and execution.stop == Stop.NONE
    return [
        AskedWait(
            id=wait.pk,
            step=wait.step,
            of_child=wait.execution_id if wait.is_seen and wait.execution_id != execution.pk else None,
            state=wait.state,
            state_label=wait.get_state_display(),
            correlation_id=redactor.scrub(wait.correlation_id or ""),
            since=wait.created_at,
            timeout_at=wait.timeout_at,
            attempts=wait.attempts,
            question=question_of(wait, wait.reactor, typed) if may_answer and wait.state == WaitState.OPEN else None,
        )
        for wait in waits.defer("payload", "payload_schema", "error").order_by("-pk")[:MAX_WAITS]
    ]


def _children_of(execution: Execution) -> QuerySet[Execution, Execution]:
    children = Execution.objects.using(alias()).filter(parent=execution.pk, element_index=NO_ELEMENT)
    return children.order_by("parent_step", "status", "pk")


def _shown_children(children: Iterable[Execution]) -> list[Child]:
    return [
        Child(
            id=child.pk,
            reactor=child.reactor,
            relation=child.get_relation_display(),
            step=child.parent_step,
            badge=badge(child.status),
        )
        for child in children
    ]
