"""An action on selected rows: first a page that says which of them it can reach, then an answer for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_reactor.admin import ids
from django_reactor.admin.actions import ExecutionAction, obstacle
from django_reactor.admin.badges import badge
from django_reactor.admin.performing import perform
from django_reactor.journal.orm import alias
from django_reactor.models import Execution

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

    from django_reactor.admin.executions import ExecutionAdmin

__all__ = ["MAX_SELECTED", "act"]

MAX_SELECTED = 100
"""They are worked off one after another while the browser waits."""
CONFIRMED = "confirmed"
FORBIDDEN = _("You do not have the permission to do this.")


@dataclass(frozen=True, slots=True)
class Candidate:
    execution: Execution
    why_not: StrOrPromise

    @property
    def short_id(self) -> str:
        return ids.short(self.execution.pk)

    @property
    def badge(self) -> SafeString:
        return badge(self.execution.status)


def act(
    execution_admin: ExecutionAdmin,
    request: HttpRequest,
    action: ExecutionAction,
    selected: QuerySet[Execution, Execution],
) -> HttpResponse | None:
    """Without the confirmation, the page that asks for it; with it, act on each and go back to the list."""
    chosen = list(selected.order_by("-pk")[: MAX_SELECTED + 1])
    if len(chosen) > MAX_SELECTED:
        text = gettext("Nothing was changed. At most %(count)d executions can be acted on at once.")
        execution_admin.message_user(request, text % {"count": MAX_SELECTED}, messages.ERROR)
        return None
    if CONFIRMED not in request.POST:
        return _confirmation(execution_admin, request, action, chosen)
    reason = request.POST.get("reason", "").strip()
    for execution in chosen:
        level, text = _act_on(execution_admin, request, action, execution, reason)
        execution_admin.message_user(request, f"{ids.short(execution.pk)} ({execution.reactor}): {text}", level)
    return None


def _act_on(
    execution_admin: ExecutionAdmin, request: HttpRequest, action: ExecutionAction, execution: Execution, reason: str
) -> tuple[int, str]:
    """On the row as it is now: the ones before it took their time."""
    fresh = Execution.objects.using(alias()).filter(pk=execution.pk).first()
    if fresh is None:
        return messages.ERROR, gettext("It does not exist any more.")
    if not execution_admin.may(request, action.name, fresh):
        return messages.ERROR, str(FORBIDDEN)
    answer = perform(action, fresh, reason, lambda row, text: execution_admin.log_change(request, row, text))
    return answer.level, answer.text


def _confirmation(
    execution_admin: ExecutionAdmin, request: HttpRequest, action: ExecutionAction, chosen: Sequence[Execution]
) -> HttpResponse:
    candidates = [Candidate(row, _why_not(execution_admin, request, action, row)) for row in chosen]
    request.current_app = execution_admin.admin_site.name  # read by the admin's templates
    context = {
        **execution_admin.admin_site.each_context(request),
        "title": action.bulk_label,
        "opts": execution_admin.opts,
        "media": execution_admin.media,
        "action": action,
        "action_name": f"{action.name}_selected",
        "checkbox_name": ACTION_CHECKBOX_NAME,
        "confirmed_name": CONFIRMED,
        "reachable": [candidate for candidate in candidates if not candidate.why_not],
        "unreachable": [candidate for candidate in candidates if candidate.why_not],
    }
    return TemplateResponse(request, "admin/django_reactor/execution/bulk.html", context)


def _why_not(
    execution_admin: ExecutionAdmin, request: HttpRequest, action: ExecutionAction, execution: Execution
) -> StrOrPromise:
    return obstacle(action, execution) if execution_admin.may(request, action.name, execution) else FORBIDDEN
