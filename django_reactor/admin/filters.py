"""The filters beside the list."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_reactor.admin import ids
from django_reactor.admin.known import definition_of, stored_labels
from django_reactor.core.statuses import Relation
from django_reactor.models import Execution

__all__ = ["CreatedFilter", "ReactorFilter", "RelationFilter"]

Executions = QuerySet[Execution, Execution]


class ReactorFilter(SimpleListFilter):
    title = _("reactor")
    parameter_name = "reactor"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(label, self._shown(label)) for label in stored_labels()]

    def _shown(self, label: str) -> str:
        return label if definition_of(label) else gettext("%(label)s (unknown here)") % {"label": label}

    def queryset(self, request: HttpRequest, queryset: Executions) -> Executions:
        return queryset.filter(reactor=self.value()) if self.value() else queryset


class RelationFilter(SimpleListFilter):
    """Roots only, unless something else is asked for; a search looks everywhere."""

    title = _("relation")
    parameter_name = "relation"

    ALL = "all"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        self._searching = bool(request.GET.get(SEARCH_VAR))
        kinds = {
            Relation.ROOT: gettext("roots"),
            Relation.COMPOSED: gettext("composed"),
            Relation.ELEMENT: gettext("elements of maps"),
            Relation.ASYNC_STEP: gettext("async steps"),
            Relation.ASYNC_REACTOR: gettext("async reactors"),
        }
        return [(self.ALL, gettext("all")), *((kind.value, text) for kind, text in kinds.items())]

    def choices(self, changelist: Any) -> Any:
        """Without Django's own “All”, which would mean the default."""
        for value, title in self.lookup_choices:
            yield {
                "selected": self._effective() == value,
                "query_string": changelist.get_query_string({self.parameter_name: value}),
                "display": title,
            }

    def queryset(self, request: HttpRequest, queryset: Executions) -> Executions:
        chosen = self._effective()
        return queryset if chosen == self.ALL else queryset.filter(relation=chosen)

    def _effective(self) -> str:
        return self.value() or (self.ALL if self._searching else Relation.ROOT.value)


class CreatedFilter(SimpleListFilter):
    """By the time in the id: a range of the primary key."""

    title = _("created")
    parameter_name = "created"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [
            ("today", gettext("Today")),
            ("1", gettext("Past 24 hours")),
            ("7", gettext("Past 7 days")),
            ("30", gettext("Past 30 days")),
        ]

    def queryset(self, request: HttpRequest, queryset: Executions) -> Executions:
        value = self.value()
        if value not in dict(self.lookup_choices):
            return queryset
        midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
        since = midnight if value == "today" else timezone.now() - timedelta(days=int(value))
        return queryset.filter(pk__gte=ids.first_since(since))
