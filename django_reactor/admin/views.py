"""One execution's page, and the view behind its buttons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from django_reactor.admin import answering
from django_reactor.admin.actions import ACTIONS, ExecutionAction, obstacle
from django_reactor.admin.answering import RESUME, Typed
from django_reactor.admin.page import page_of, waits_of
from django_reactor.admin.performing import perform
from django_reactor.admin.sight import Sight
from django_reactor.journal.orm import alias
from django_reactor.models import Execution, Wait

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

    from django_reactor.admin.executions import ExecutionAdmin

__all__ = ["act", "answer", "outside_transactions", "show"]


@dataclass(frozen=True, slots=True)
class Button:
    action: ExecutionAction
    url: str
    why_not: StrOrPromise
    """Why it is disabled; '' if it is not."""


def outside_transactions(view: Callable[..., Any]) -> Callable[..., Any]:
    """Exempt a view from `ATOMIC_REQUESTS`, on every database: steps must be journaled, and their effects committed,
    one by one, not all or none when the response is sent."""
    for name in connections:
        view = transaction.non_atomic_requests(using=name)(view)
    return view


def show(execution_admin: ExecutionAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["GET", "HEAD"])
    return _page(execution_admin, request, _visible(execution_admin, request, object_id))


def _page(
    execution_admin: ExecutionAdmin, request: HttpRequest, execution: Execution, typed: Typed | None = None
) -> HttpResponse:
    buttons = _buttons(execution_admin, request, execution)
    may_answer = execution_admin.may(request, RESUME, execution)
    sight = Sight(execution_admin, request)
    request.current_app = execution_admin.admin_site.name  # read by the admin's templates
    context = {
        **execution_admin.admin_site.each_context(request),
        "title": f"{execution.reactor} {execution.pk}",
        "opts": execution_admin.opts,
        "media": execution_admin.media,
        "page": page_of(execution, _after(request), sight, may_answer=may_answer, typed=typed),
        "resume_url": _url(execution_admin, RESUME, execution),
        "buttons": buttons,
        "refused": [button for button in buttons if button.why_not],
    }
    return TemplateResponse(request, "admin/django_reactor/execution/page.html", context)


def act(execution_admin: ExecutionAdmin, request: HttpRequest, object_id: str, action: ExecutionAction) -> HttpResponse:
    """Permissions are asked for here, whatever buttons a page has shown."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    execution = _visible(execution_admin, request, object_id)
    if not execution_admin.may(request, action.name, execution):
        raise PermissionDenied
    reason = request.POST.get("reason", "").strip()
    answer = perform(action, execution, reason, lambda row, text: execution_admin.log_change(request, row, text))
    execution_admin.message_user(request, answer.text, answer.level)
    return HttpResponseRedirect(_url(execution_admin, "change", execution))


def answer(execution_admin: ExecutionAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """To an interrupt of the execution, or of a part of it. An answer that is refused comes back with the page."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    execution = _visible(execution_admin, request, object_id)
    wait = _asked(execution, request.POST.get("wait", ""))
    if not all(execution_admin.may(request, RESUME, each) for each in (execution, wait.execution)):
        raise PermissionDenied
    given = answering.answer(
        wait, request.POST.get("payload", ""), lambda row, text: execution_admin.log_change(request, row, text)
    )
    if isinstance(given, Typed):
        return _page(execution_admin, request, execution, given)
    execution_admin.message_user(request, given.text, given.level)
    return HttpResponseRedirect(_url(execution_admin, "change", execution))


def _asked(execution: Execution, number: str) -> Wait:
    is_number = number.isascii() and number.isdigit() and len(number) < 19
    waits = Wait.objects.using(alias()).select_related("execution").filter(waits_of(execution))
    wait = waits.filter(pk=int(number)).first() if is_number else None
    if wait is None:
        raise Http404(f"execution {execution.pk} has no wait {number!r}")
    return wait


def _visible(execution_admin: ExecutionAdmin, request: HttpRequest, object_id: str) -> Execution:
    if not execution_admin.has_view_permission(request):
        raise PermissionDenied
    execution = execution_admin.get_object(request, unquote(object_id))
    if execution is None:
        raise Http404(f"no execution has the id {object_id}")
    if not execution_admin.has_view_permission(request, execution):
        raise PermissionDenied
    return execution


def _after(request: HttpRequest) -> int:
    text = request.GET.get("after", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _buttons(execution_admin: ExecutionAdmin, request: HttpRequest, execution: Execution) -> list[Button]:
    return [
        Button(action, _url(execution_admin, action.name, execution), obstacle(action, execution))
        for action in ACTIONS.values()
        if execution_admin.may(request, action.name, execution)
    ]


def _url(execution_admin: ExecutionAdmin, name: str, execution: Execution) -> str:
    opts = execution_admin.opts
    address = f"admin:{opts.app_label}_{opts.model_name}_{name}"
    return reverse(address, args=[execution.pk], current_app=execution_admin.admin_site.name)
