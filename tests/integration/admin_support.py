"""Reactors, rows and people for the tests of the admin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db.models import QuerySet
from django.test import Client
from django.urls import reverse

from django_reactor import Reactor, Redacted, fail, halt, step
from django_reactor.admin import ExecutionAdmin
from django_reactor.core.statuses import Status
from django_reactor.engine.identifiers import uuid7
from django_reactor.models import Execution, JournalEntry

__all__ = [
    "LIST",
    "WAYS_TO_HIDE",
    "Shipment",
    "a_person",
    "act_url",
    "an_id",
    "broken",
    "client_of",
    "entries",
    "fingerprint_of",
    "hide",
    "page_url",
    "row",
    "rows_at",
    "shown_ids",
    "stored",
    "text_of",
]

LIST = "/admin/django_reactor/execution/"

_broken: set[str] = set()


class Shipment(Reactor[str]):
    """Pack a parcel, book a courier, hand it over."""

    parcel: str
    token: Redacted[str] = "unset"

    class Meta:
        app_label = "depot"
        returns = "hand_over"

    @step
    def pack(self, parcel: str) -> dict[str, str]:
        return {"packed": parcel}

    @pack.undo
    def unpack(self, result: dict[str, str]) -> None:
        if "unpack" in _broken:
            fail("the parcel is glued")

    @step
    def book(self, pack: dict[str, str], token: str) -> str:
        if "halt" in _broken:
            halt("no courier today")
        if "book" in _broken:
            fail(f"no courier for {pack['packed']} with {token}", retry=False)
        return "courier-7"

    @step
    def hand_over(self, book: str) -> str:
        return f"handed to {book}"


@contextmanager
def broken(*names: str) -> Iterator[None]:
    """While this is open, these steps fail (`halt`: book halts)."""
    _broken.update(names)
    try:
        yield
    finally:
        _broken.difference_update(names)


def stored(result: Any) -> Execution:
    """The row behind a result."""
    return Execution.objects.get(pk=result.execution_id)


def fingerprint_of(reactor: type[Reactor[Any]]) -> str:
    definition = reactor.__reactor__
    assert definition is not None
    return definition.plan.fingerprint


# -- rows --------------------------------------------------------------------------------------------------------------


def an_id(moment: datetime | None = None) -> UUID:
    """A UUIDv7 of this moment; otherwise of now, and later than those that were made before."""
    if moment is None:
        return uuid7()
    milliseconds = int(moment.timestamp() * 1000)
    random = int.from_bytes(os.urandom(10), "big")
    return UUID(int=milliseconds << 80 | 0x7 << 76 | (random >> 4 & 0xFFF) << 64 | 0x2 << 62 | random & (1 << 62) - 1)


def row(**fields: Any) -> Execution:
    """An execution in any state, as the engine could have left it."""
    now = datetime.now(UTC)
    pk = fields.pop("id", None) or an_id()
    defaults: dict[str, Any] = {
        "reactor": "depot.Shipment",
        "fingerprint": fingerprint_of(Shipment),
        "root_id": pk,
        "owner_id": pk,
        "status": Status.COMPLETED,
        "inputs": '{"parcel":"P-1"}',
        "queue_name": "default",
        "created_at": now,
        "started_at": now,
        "updated_at": now,
    }
    return Execution.objects.create(id=pk, **defaults | fields)


def rows_at(*moments: datetime) -> list[Execution]:
    return [row(id=an_id(moment), started_at=moment) for moment in moments]


def entries(execution: Execution, count: int, **fields: Any) -> None:
    """This many entries of the step `pack`."""
    start = datetime.now(UTC)
    defaults: dict[str, Any] = {"step": "pack", "action": "run", "outcome": "success", "attempt": 1, "value": '"done"'}
    JournalEntry.objects.bulk_create(
        JournalEntry(
            execution=execution,
            seq=seq,
            started_at=start,
            finished_at=start + timedelta(milliseconds=5),
            **defaults | fields,
        )
        for seq in range(1, count + 1)
    )


# -- people ------------------------------------------------------------------------------------------------------------


def a_person(*permissions: str) -> Any:
    """Somebody of the staff with these permissions (`view`, `undo`, `cancel`, `retry`) on executions."""
    person = get_user_model().objects.create_user(f"person-{'-'.join(permissions)}", is_staff=True)
    codenames = [f"{name}_execution" for name in permissions]
    person.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return person


def client_of(*permissions: str) -> Client:
    client = Client()
    client.force_login(a_person(*permissions))
    return client


WAYS_TO_HIDE = ("get_queryset", "has_view_permission")


def hide(monkeypatch: pytest.MonkeyPatch, way: str, hidden: Execution | UUID) -> None:
    """Let nobody see this execution, in one of the ways that Django has for it."""
    pk = hidden.pk if isinstance(hidden, Execution) else hidden
    rows, permitted = ExecutionAdmin.get_queryset, ExecutionAdmin.has_view_permission

    def get_queryset(self: ExecutionAdmin, request: Any) -> QuerySet[Execution, Execution]:
        return rows(self, request).exclude(pk=pk)

    def has_view_permission(self: ExecutionAdmin, request: Any, obj: Execution | None = None) -> bool:
        return permitted(self, request, obj) and (obj is None or obj.pk != pk)

    monkeypatch.setattr(ExecutionAdmin, way, {f.__name__: f for f in (get_queryset, has_view_permission)}[way])


# -- pages -------------------------------------------------------------------------------------------------------------


def page_url(execution: Execution | UUID | None) -> str:
    pk = execution.pk if isinstance(execution, Execution) else execution
    return reverse("admin:django_reactor_execution_change", args=[pk])


def act_url(execution: Execution | UUID | None, action: str) -> str:
    pk = execution.pk if isinstance(execution, Execution) else execution
    return reverse(f"admin:django_reactor_execution_{action}", args=[pk])


def text_of(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200, (url, response.status_code)
    return response.content.decode()


def shown_ids(client: Client, query: str = "") -> list[UUID]:
    """The executions that the list shows, in its order."""
    response = client.get(LIST + query)
    assert response.status_code == 200, (query, response.status_code)
    return [execution.pk for execution in response.context["cl"].result_list]
