"""What can be asked of an execution here, and when.

The engine alone decides whether an action is carried out; this module says beforehand, from the row that is shown, what
it would answer (PROTOCOL 10), so that a button can explain itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext_lazy as _

from django_reactor.admin.known import definition_of
from django_reactor.core.statuses import FORWARD, RETRYABLE, UNDOABLE, Relation, Status, Stop
from django_reactor.models import Execution

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

__all__ = ["ACTIONS", "ExecutionAction", "obstacle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionAction:
    """`name` is part of the permission's and the address's name."""

    name: str
    label: StrOrPromise
    bulk_label: StrOrPromise
    effect: StrOrPromise
    requested: StrOrPromise
    """What the history says before the action begins."""
    takes_reason: bool
    refusal: Callable[[Execution], StrOrPromise]
    """Why its status forbids it; '' if it doesn't."""
    carry_out: Callable[[Execution, str], Any]


def obstacle(action: ExecutionAction, execution: Execution) -> StrOrPromise:
    """Why the engine would refuse this action on this execution; '' if it would not."""
    if execution.relation in (Relation.COMPOSED, Relation.ELEMENT):
        return _("It is part of another execution: act on its root.")
    if definition_of(execution.reactor) is None:
        return _("Its reactor is not known here: bring its module back first.")
    return action.refusal(execution)


def _cannot_undo(execution: Execution) -> StrOrPromise:
    if execution.relation == Relation.ASYNC_STEP:
        return _("An async step cleans up after itself when it fails; it has no undo.")
    match Status(execution.status):
        case status if status in UNDOABLE:
            return ""
        case Status.FAILED if execution.rollback_failures:
            return ""
        case Status.FAILED:
            return _("It failed and everything was undone then.")
        case Status.UNDONE:
            return _("It is undone already.")
        case Status.ROLLING_BACK:
            return _("It is being rolled back already.")
        case _:
            return _("It has not ended: cancel it first.")


def _cannot_cancel(execution: Execution) -> StrOrPromise:
    match Status(execution.status):
        case status if status in FORWARD and execution.stop == Stop.UNDO:
            return _("It is about to be undone.")
        case status if status in FORWARD or status is Status.ABORTED:
            return ""
        case Status.CANCELLED:
            return _("It is cancelled already.")
        case Status.ROLLING_BACK:
            return _("It is being rolled back.")
        case _:
            return _("It has ended.")


def _cannot_retry(execution: Execution) -> StrOrPromise:
    match Status(execution.status):
        case status if status in RETRYABLE:
            return ""
        case status if status.is_end:
            return _("It did not fail.")
        case _:
            return _("It has not ended.")


ACTIONS: Mapping[str, ExecutionAction] = {
    action.name: action
    for action in (
        ExecutionAction(
            name="retry",
            label=_("Retry"),
            bulk_label=_("Retry selected executions"),
            effect=_("Runs it again in place, here and now; results that still hold are kept."),
            requested=_("Retry requested."),
            takes_reason=False,
            refusal=_cannot_retry,
            carry_out=lambda execution, reason: execution.retry(),
        ),
        ExecutionAction(
            name="undo",
            label=_("Undo"),
            bulk_label=_("Undo selected executions"),
            effect=_("Undoes what was done, newest step first, here and now."),
            requested=_("Undo requested."),
            takes_reason=True,
            refusal=_cannot_undo,
            carry_out=lambda execution, reason: execution.undo(reason),
        ),
        ExecutionAction(
            name="cancel",
            label=_("Cancel"),
            bulk_label=_("Cancel selected executions"),
            effect=_("Stops it at its next step; what was done is kept, and can be undone later."),
            requested=_("Cancel requested."),
            takes_reason=True,
            refusal=_cannot_cancel,
            carry_out=lambda execution, reason: execution.cancel(reason),
        ),
    )
}
