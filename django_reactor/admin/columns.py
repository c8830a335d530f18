"""The columns of the list. Each takes a row that `ExecutionChangeList` has given its redactor."""

from __future__ import annotations

from django.contrib import admin
from django.utils import formats, timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_reactor.admin import badges, ids
from django_reactor.admin.known import definition_of
from django_reactor.admin.rendering import duration
from django_reactor.core.redaction import Redactor
from django_reactor.core.statuses import Status, Stop
from django_reactor.models import Execution

__all__ = ["COLUMNS"]

MESSAGE_LENGTH = 100


@admin.display(description=_("id"))
def short_id(execution: Execution) -> SafeString:
    return format_html('<span class="reactor-id" title="{}">{}</span>', execution.pk, ids.short(execution.pk))


@admin.display(description=_("reactor"))
def reactor(execution: Execution) -> str | SafeString:
    if definition_of(execution.reactor):
        return execution.reactor
    return format_html('{} <span class="reactor-quiet">({})</span>', execution.reactor, gettext("unknown here"))


@admin.display(description=_("status"))
def status(execution: Execution) -> SafeString:
    shown = badges.badge(execution.status)
    if execution.stop == Stop.NONE or Status(execution.status).is_end:
        return shown
    return format_html('{} <span class="reactor-quiet">{}</span>', shown, gettext("stop requested"))


@admin.display(description=_("started"))
def started(execution: Execution) -> SafeString | str:
    """The time of day is enough for today."""
    if execution.started_at is None:
        return ""
    moment = timezone.localtime(execution.started_at)
    time = formats.time_format(moment, "H:i:s")
    date = formats.date_format(moment, "SHORT_DATE_FORMAT")
    shown = time if moment.date() == timezone.localdate() else f"{date} {time}"
    return format_html('<time datetime="{}" title="{} {}">{}</time>', moment.isoformat(), date, time, shown)


@admin.display(description=_("duration"))
def took(execution: Execution) -> str:
    if execution.finished_at is not None:
        return duration(execution.started_at, execution.finished_at)
    so_far = duration(execution.started_at, timezone.now())
    return gettext("%(duration)s so far") % {"duration": so_far} if so_far else ""


@admin.display(description=_("failure"))
def failure(execution: Execution) -> SafeString | str:
    stored = execution.failure
    if not isinstance(stored, dict):
        return ""
    message = _redactor_of(execution).scrub(str(stored.get("message", "")))
    return format_html(
        '<strong>{}</strong><br><span title="{}">{}</span>',
        stored.get("step") or "",
        message,
        Truncator(message).chars(MESSAGE_LENGTH),
    )


@admin.display(description=_("tags"))
def tags(execution: Execution) -> SafeString:
    scrub = _redactor_of(execution).scrub
    return format_html_join(" ", '<span class="reactor-tag">{}</span>', ((scrub(str(tag)),) for tag in execution.tags))


def _redactor_of(execution: Execution) -> Redactor:
    found: Redactor = execution.redactor  # type: ignore[attr-defined]  # set by ExecutionChangeList
    return found


COLUMNS = (short_id, reactor, status, failure, started, took, tags)
