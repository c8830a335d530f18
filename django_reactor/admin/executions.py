"""`ExecutionAdmin`: the list, the page, and the views that act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import ShowFacets
from django.contrib.admin.views.main import ERROR_FLAG
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.text import capfirst

from django_reactor.admin import bulk, ids, search, views
from django_reactor.admin.actions import ACTIONS, ExecutionAction
from django_reactor.admin.answering import RESUME
from django_reactor.admin.changelist import BEFORE, BoundedPaginator, ExecutionChangeList
from django_reactor.admin.columns import COLUMNS
from django_reactor.admin.filters import CreatedFilter, ReactorFilter, RelationFilter
from django_reactor.journal.orm import alias
from django_reactor.models import Execution

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Execution]  # generic for checkers only
else:
    _ModelAdmin = admin.ModelAdmin

__all__ = ["ExecutionAdmin"]

ALLOWED_LOOKUPS = frozenset(
    {"status__exact", ReactorFilter.parameter_name, RelationFilter.parameter_name, CreatedFilter.parameter_name}
    | {BEFORE, "parent__exact", "parent_step__exact", "parent_generation__exact"}
)
"""Any other would let a reader ask for what he may not see (`?inputs__contains=…`), or scan the table."""


class ExecutionAdmin(_ModelAdmin):
    """Read-only. Each action has a permission of its own, which is asked for when it acts, for the very execution:
    override `has_undo_permission` and its siblings to decide by row."""

    list_display = COLUMNS
    list_filter = ("status", ReactorFilter, RelationFilter, CreatedFilter)
    list_per_page = 50
    list_max_show_all = 0
    search_fields = ("id",)
    search_help_text = search.HELP
    sortable_by = ()
    ordering = ("-id",)
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    paginator = BoundedPaginator
    actions = ("retry_selected", "undo_selected", "cancel_selected")

    class Media:
        css: Mapping[str, Sequence[str]] = {"all": ("django_reactor/admin.css",)}

    # -- who may do what -------------------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Execution | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Execution | None = None) -> bool:
        return False

    def has_undo_permission(self, request: HttpRequest, obj: Execution | None = None) -> bool:
        return self._has(request, "undo")

    def has_cancel_permission(self, request: HttpRequest, obj: Execution | None = None) -> bool:
        return self._has(request, "cancel")

    def has_retry_permission(self, request: HttpRequest, obj: Execution | None = None) -> bool:
        return self._has(request, "retry")

    def has_resume_permission(self, request: HttpRequest, obj: Execution | None = None) -> bool:
        return self._has(request, "resume")

    def _has(self, request: HttpRequest, name: str) -> bool:
        return bool(request.user.has_perm(f"{self.opts.app_label}.{name}_{self.opts.model_name}"))

    def may(self, request: HttpRequest, action: str, execution: Execution) -> bool:
        """Whether this person may do this with this execution, which he must be allowed to see."""
        permitted: bool = getattr(self, f"has_{action}_permission")(request, execution)
        return permitted and self.has_view_permission(request, execution)

    # -- the list --------------------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Execution, Execution]:
        """From where the engine writes: a replica may lag behind."""
        return super().get_queryset(request).using(alias())

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ExecutionChangeList]:
        return ExecutionChangeList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        title = {"title": capfirst(self.opts.verbose_name_plural)}
        return super().changelist_view(request, title | (extra_context or {}))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Execution, Execution], search_term: str
    ) -> tuple[QuerySet[Execution, Execution], bool]:
        return (search.found(queryset, search_term) if search_term.strip() else queryset), False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        return lookup in ALLOWED_LOOKUPS

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Execution, Execution], *args: Any, **kwargs: Any
    ) -> HttpResponse | None:
        """What is no id is answered like a lookup that cannot be: by the list without it."""
        if not all(ids.is_whole(text) for text in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            return HttpResponseRedirect(f"{request.path}?{ERROR_FLAG}=1")
        return super().response_action(request, queryset, *args, **kwargs)

    @admin.action(permissions=["retry"], description=ACTIONS["retry"].bulk_label)
    def retry_selected(self, request: HttpRequest, queryset: QuerySet[Execution, Execution]) -> HttpResponse | None:
        return bulk.act(self, request, ACTIONS["retry"], queryset)

    @admin.action(permissions=["undo"], description=ACTIONS["undo"].bulk_label)
    def undo_selected(self, request: HttpRequest, queryset: QuerySet[Execution, Execution]) -> HttpResponse | None:
        return bulk.act(self, request, ACTIONS["undo"], queryset)

    @admin.action(permissions=["cancel"], description=ACTIONS["cancel"].bulk_label)
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Execution, Execution]) -> HttpResponse | None:
        return bulk.act(self, request, ACTIONS["cancel"], queryset)

    # -- one execution ---------------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        opts = self.opts
        own = [
            path(
                f"<path:object_id>/{action.name}/",
                self.admin_site.admin_view(partial(self._act, action=action)),
                name=f"{opts.app_label}_{opts.model_name}_{action.name}",
            )
            for action in ACTIONS.values()
        ]
        own.append(
            path(
                f"<path:object_id>/{RESUME}/",
                self.admin_site.admin_view(self._answer),
                name=f"{opts.app_label}_{opts.model_name}_{RESUME}",
            )
        )
        urls: list[URLPattern] = [*own, *super().get_urls()]
        for url in urls:  # the list too: its actions run there
            views.outside_transactions(url.callback)
        return urls

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        return views.show(self, request, object_id)

    def _act(self, request: HttpRequest, object_id: str, *, action: ExecutionAction) -> HttpResponse:
        return views.act(self, request, object_id, action)

    def _answer(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return views.answer(self, request, object_id)
