"""How a status is shown: a word, a sign and a colour, so that none of them has to be seen."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_reactor.core.statuses import Status

__all__ = ["badge", "status_name"]

NAMES = {
    Status.PENDING: _("pending"),
    Status.RUNNING: _("running"),
    Status.SCHEDULED: _("scheduled"),
    Status.PAUSED: _("paused"),
    Status.ROLLING_BACK: _("rolling back"),
    Status.COMPLETED: _("completed"),
    Status.FAILED: _("failed"),
    Status.HALTED: _("halted"),
    Status.CANCELLED: _("cancelled"),
    Status.UNDONE: _("undone"),
    Status.ABORTED: _("aborted"),
}
SIGNS = {
    Status.PENDING: "…",
    Status.RUNNING: "▶",
    Status.SCHEDULED: "◷",
    Status.PAUSED: "‖",
    Status.ROLLING_BACK: "↺",
    Status.COMPLETED: "✓",
    Status.FAILED: "✕",
    Status.HALTED: "■",
    Status.CANCELLED: "⊘",
    Status.UNDONE: "↶",
    Status.ABORTED: "!",
}


def status_name(status: str) -> str:
    return str(NAMES[Status(status)]) if status in set(Status) else status


def badge(status: str) -> SafeString:
    sign = SIGNS[Status(status)] if status in set(Status) else "?"
    return format_html(
        '<span class="reactor-badge reactor-{}"><span aria-hidden="true">{}</span> {}</span>',
        status,
        sign,
        status_name(status),
    )
