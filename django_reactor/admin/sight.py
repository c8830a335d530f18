"""Which executions a person may see, as a project decides it by row: a page names no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest

from django_reactor.models import Execution

if TYPE_CHECKING:
    from django_reactor.admin.executions import ExecutionAdmin

__all__ = ["Sight"]

LARGE = ("inputs", "output", "failure", "carried")
"""Nobody decides by them: they may be a megabyte each."""


class Sight:
    def __init__(self, execution_admin: ExecutionAdmin, request: HttpRequest) -> None:
        self._admin, self._request = execution_admin, request

    def within(self, column: str) -> Exists:
        """Whether the list would have the execution that this column names."""
        return Exists(self._admin.get_queryset(self._request).filter(pk=OuterRef(column)))

    def divide(self, executions: QuerySet[Execution, Execution]) -> tuple[list[Execution], list[Execution]]:
        """Those that may be seen, and the others, in their order, without their large columns. One query."""
        seen: list[Execution] = []
        hidden: list[Execution] = []
        for row in executions.annotate(is_within=self.within("pk")).defer(*LARGE):
            may_see = row.is_within and self._admin.has_view_permission(self._request, row)
            (seen if may_see else hidden).append(row)
        return seen, hidden
