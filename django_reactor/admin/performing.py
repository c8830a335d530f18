"""Carry an action out for a person: log who asked, act, and say what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.contrib import messages
from django.utils.translation import gettext

from django_reactor.admin.actions import ExecutionAction, obstacle
from django_reactor.admin.badges import status_name
from django_reactor.admin.redactors import redactor_of
from django_reactor.core.statuses import Status, Stop
from django_reactor.exceptions import ReactorError
from django_reactor.journal.fields import storable
from django_reactor.journal.orm import alias
from django_reactor.models import Execution

__all__ = ["Answer", "perform"]

Log = Callable[[Execution, str], object]


@dataclass(frozen=True, slots=True)
class Answer:
    """`level` is one of the messages framework."""

    level: int
    text: str


def perform(action: ExecutionAction, execution: Execution, reason: str, log: Log) -> Answer:
    """Act on an execution whose row was just read. The request is logged before the engine begins, and stays logged
    if this process dies on the way; what came of it is in the journal. Errors of the database are raised."""
    if refused := obstacle(action, execution):
        return Answer(messages.ERROR, gettext("Nothing was changed. %(why)s") % {"why": refused})
    scrub = redactor_of(execution).scrub
    reason = storable(reason) if action.takes_reason else ""
    log(execution, _logged(action, scrub(reason)))
    try:
        action.carry_out(execution, reason)
    except ReactorError as error:
        return Answer(messages.ERROR, scrub(str(error)))
    return _answer(Execution.objects.using(alias()).get(pk=execution.pk))


def _logged(action: ExecutionAction, reason: str) -> str:
    if not reason:
        return str(action.requested)
    return gettext("%(requested)s Reason: %(reason)s") % {"requested": action.requested, "reason": reason}


def _answer(execution: Execution) -> Answer:
    """What the row says afterwards: another process may have taken the execution over."""
    status = Status(execution.status)
    if status is Status.FAILED:
        message = redactor_of(execution).scrub(str((execution.failure or {}).get("message", "")))
        return Answer(messages.WARNING, gettext("The execution failed: %(message)s") % {"message": message})
    if status.is_end:
        return Answer(messages.SUCCESS, gettext("The execution is now %(status)s.") % {"status": status_name(status)})
    if execution.stop != Stop.NONE:
        return Answer(messages.INFO, gettext("The execution will stop at its next step."))
    return Answer(messages.INFO, gettext("The execution goes on: %(status)s.") % {"status": status_name(status)})
