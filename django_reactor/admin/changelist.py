"""The list of executions: bounded counting, and only the columns that it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, SEARCH_VAR, ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from django_reactor.admin.redactors import redactors_of
from django_reactor.core.naming import is_storable
from django_reactor.models import Execution

if TYPE_CHECKING:
    _Paginator = Paginator[Execution]  # generic for checkers only
else:
    _Paginator = Paginator

__all__ = ["BEFORE", "BoundedPaginator", "ExecutionChangeList"]

LISTED = (
    "id",
    "reactor",
    "relation",
    "status",
    "stop",
    "failure",
    "rollback_failures",
    "tags",
    "created_at",
    "started_at",
    "finished_at",
)
"""Inputs, output and what is carried may be a megabyte each."""

BEFORE = "id__lt"
"""The parameter that continues the list where counted pages end: executions older than this one."""


class BoundedPaginator(_Paginator):
    """Counts up to a limit, so that neither counting nor the last page reads a whole table."""

    limit = 10_000

    @cached_property
    def count(self) -> int:
        return min(self._counted, self.limit)

    @property
    def has_uncounted(self) -> bool:
        return self._counted > self.limit

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[: self.limit + 1].count())


class ExecutionChangeList(ChangeList):
    uncounted = False
    """Whether there are more rows than were counted."""

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: list[str | None] | None = None
    ) -> QuerySet[Execution, Execution]:
        asked = [text for name, texts in self.filter_params.items() if name != SEARCH_VAR for text in texts]
        if not all(map(is_storable, asked)):
            raise IncorrectLookupParameters  # PostgreSQL would refuse the statement
        rows: QuerySet[Execution, Execution] = super().get_queryset(request, exclude_parameters)
        return rows.only(*LISTED)

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        paginator = self.paginator
        assert isinstance(paginator, BoundedPaginator)
        self.uncounted = paginator.has_uncounted
        if self.uncounted:  # then Django's “… results” beside the search box would be wrong: it is left out
            self.full_result_count = self.result_count
        rows: list[Any] = list(self.result_list)
        self.result_list = rows
        redactors = redactors_of(rows)
        for row in rows:
            row.redactor = redactors[row.pk]

    @property
    def older(self) -> str | None:
        """The query string that continues after the last counted page."""
        if not self.uncounted or self.page_num < self.paginator.num_pages or not self.result_list:
            return None
        return self.get_query_string({BEFORE: str(self.result_list[len(self.result_list) - 1].pk)}, [PAGE_VAR])

    @property
    def newest(self) -> str | None:
        """The query string that goes back to the beginning, if this list is a continuation."""
        return self.get_query_string(remove=[BEFORE, PAGE_VAR]) if BEFORE in self.filter_params else None
