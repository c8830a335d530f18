"""Executions in the Django admin: a list, one page each, and the actions undo, cancel and retry.

Nothing can be added, changed or deleted here. Whatever is shown has passed the redactor of its execution.
"""

from __future__ import annotations

from django.contrib import admin

from django_reactor.admin.executions import ExecutionAdmin
from django_reactor.models import Execution

__all__ = ["ExecutionAdmin"]

admin.site.register(Execution, ExecutionAdmin)
