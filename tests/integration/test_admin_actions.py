"""Undo, cancel and retry on one execution's page: who may, when, and what comes of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client

from django_reactor import Reactor, step
from django_reactor.core.statuses import Relation, Status, Stop
from django_reactor.models import Execution
from tests.integration.admin_support import LIST, Shipment, act_url, broken, client_of, page_url, row, stored, text_of

ACTIONS = ("retry", "undo", "cancel")
ALLOWED = {
    Status.PENDING: {"cancel"},
    Status.RUNNING: {"cancel"},
    Status.SCHEDULED: {"cancel"},
    Status.PAUSED: {"cancel", "undo"},
    Status.ROLLING_BACK: set(),
    Status.COMPLETED: {"undo"},
    Status.FAILED: {"retry"},
    Status.HALTED: {"undo"},
    Status.CANCELLED: {"undo"},
    Status.UNDONE: set(),
    Status.ABORTED: {"retry", "undo", "cancel"},
}
"""PROTOCOL, section 10."""


def a_failed_one() -> Execution:
    with broken("book"):
        return stored(Shipment.run(parcel="P-1"))


def status_of(execution: Execution) -> str:
    return Execution.objects.get(pk=execution.pk).status


def said(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def offered(html: str, execution: Execution) -> set[str]:
    return {action for action in ACTIONS if f'action="{act_url(execution, action)}"' in html}


# -- who ---------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("method", ["get", "post", "put", "delete"])
@pytest.mark.parametrize("granted", ["all", "all but this", "all but view", "view only", "nobody"])
@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_needs_its_own_permission_and_a_post(action: str, granted: str, method: str) -> None:
    permissions = {
        "all": {"view", *ACTIONS},
        "all but this": {"view", *ACTIONS} - {action},
        "all but view": set(ACTIONS),
        "view only": {"view"},
        "nobody": set(),
    }[granted]
    execution = row(status=Status.ABORTED)  # which allows all three
    client = Client() if granted == "nobody" else client_of(*sorted(permissions))
    response = getattr(client, method)(act_url(execution, action))
    if granted == "nobody":
        assert response.status_code == 302
        assert response["Location"].startswith("/admin/login/")
    elif method != "post":
        assert response.status_code == 405
        assert response["Allow"] == "POST"
    elif granted == "all":
        assert response.status_code == 302
        assert response["Location"] == page_url(execution)
    else:
        assert response.status_code == 403
    acted = granted == "all" and method == "post"
    assert (status_of(execution) != Status.ABORTED) == acted
    assert LogEntry.objects.exists() == acted


@pytest.mark.django_db
@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_without_the_csrf_token_is_refused(action: str) -> None:
    execution = row(status=Status.ABORTED)
    client = client_of("view", *ACTIONS)
    client.handler.enforce_csrf_checks = True
    assert client.post(act_url(execution, action)).status_code == 403
    assert status_of(execution) == Status.ABORTED


@pytest.mark.django_db
@pytest.mark.parametrize("action", ACTIONS)
def test_a_project_can_decide_by_row(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = row(status=Status.ABORTED, tags=["mine"]), row(status=Status.ABORTED)

    def permission(self: Any, request: Any, obj: Execution | None = None) -> bool:
        return obj is None or obj.tags == ["mine"]

    monkeypatch.setattr(f"django_reactor.admin.ExecutionAdmin.has_{action}_permission", permission)
    client = client_of("view")
    assert act_url(mine, action) in text_of(client, page_url(mine))
    assert act_url(other, action) not in text_of(client, page_url(other))
    assert client.post(act_url(mine, action)).status_code == 302
    assert client.post(act_url(other, action)).status_code == 403
    assert status_of(other) == Status.ABORTED


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["add/", "{}/delete/"])
def test_nothing_can_be_added_or_deleted_even_by_a_superuser(path: str, admin_client: Client) -> None:
    execution = row()
    url = LIST + path.format(execution.pk)
    assert admin_client.get(url).status_code == 403
    assert admin_client.post(url, {"post": "yes"}).status_code == 403
    assert admin_client.post(page_url(execution), {"status": "failed"}).status_code == 405
    assert status_of(execution) == Status.COMPLETED


@pytest.mark.django_db
def test_list_page_and_history_need_the_view_permission() -> None:
    execution = row()
    stranger, viewer = client_of("undo", "cancel", "retry"), client_of("view")
    for url in (LIST, page_url(execution), LIST + f"{execution.pk}/history/"):
        assert stranger.get(url).status_code == 403
        assert viewer.get(url).status_code == 200


# -- when --------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("status", Status)
def test_a_page_offers_what_the_status_allows_and_explains_the_rest(status: Status) -> None:
    execution = row(status=status)
    html = text_of(client_of("view", *ACTIONS), page_url(execution))
    assert offered(html, execution) == ALLOWED[status]
    for action in set(ACTIONS) - ALLOWED[status]:
        explanation = html.partition(f'<li id="why-not-{action}">')[2].partition("</li>")[0]
        assert len(explanation) > 30, action
        assert f'disabled aria-describedby="why-not-{action}"' in html


@pytest.mark.django_db
@pytest.mark.parametrize(("status", "action"), [(s, a) for s in Status for a in ACTIONS if a not in ALLOWED[s]])
def test_what_is_not_offered_changes_nothing_and_says_why(action: str, status: Status) -> None:
    execution = row(status=status)
    before = Execution.objects.filter(pk=execution.pk).values().get()
    response = client_of("view", *ACTIONS).post(act_url(execution, action))
    assert response["Location"] == page_url(execution)
    assert said(response)[0].startswith("Nothing was changed. ")
    assert Execution.objects.filter(pk=execution.pk).values().get() == before
    assert not LogEntry.objects.exists()


@pytest.mark.django_db
def test_what_the_page_offers_is_what_the_engine_accepts() -> None:
    """Also where the row alone does not tell: the status changed since the page was made."""
    execution = row(status=Status.ABORTED)
    client = client_of("view", *ACTIONS)
    client.post(act_url(execution, "undo"))
    response = client.post(act_url(execution, "retry"))
    assert said(response)[-1].startswith("Nothing was changed.")
    assert status_of(execution) == Status.UNDONE


@pytest.mark.django_db
def test_a_failed_execution_with_rollback_failures_can_be_undone() -> None:
    execution = row(status=Status.FAILED, rollback_failures=1, failure={"message": "m"})
    html = text_of(client_of("view", *ACTIONS), page_url(execution))
    assert offered(html, execution) == {"retry", "undo"}


@pytest.mark.django_db
@pytest.mark.parametrize("relation", [Relation.COMPOSED, Relation.ELEMENT])
def test_part_of_another_execution_is_acted_on_through_its_root(relation: Relation) -> None:
    root = row()
    part = row(relation=relation, parent=root, root=root, owner=root, parent_step="pack", status=Status.ABORTED)
    client = client_of("view", *ACTIONS)
    html = text_of(client, page_url(part))
    assert offered(html, part) == set()
    assert "act on its root" in html
    assert "act on its root" in said(client.post(act_url(part, "retry")))[0]


@pytest.mark.django_db
def test_a_pending_undo_cannot_be_turned_into_a_cancel() -> None:
    execution = row(status=Status.RUNNING, stop=Stop.UNDO)
    assert offered(text_of(client_of("view", *ACTIONS), page_url(execution)), execution) == set()


@pytest.mark.django_db
def test_without_permission_there_are_no_buttons() -> None:
    execution = row(status=Status.ABORTED)
    html = text_of(client_of("view", "cancel"), page_url(execution))
    assert offered(html, execution) == {"cancel"}
    assert "why-not" not in html
    assert "<form" not in text_of(client_of("view"), page_url(execution)).partition('id="content-main"')[2]


# -- what comes of it --------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_retry_runs_here_and_says_how_it_ended() -> None:
    client, failed = client_of("view", "retry"), a_failed_one()
    with broken("book"):
        assert "The execution failed: no courier" in said(client.post(act_url(failed, "retry")))[0]
    assert said(client.post(act_url(failed, "retry")))[-1] == "The execution is now completed."
    assert status_of(failed) == Status.COMPLETED


@pytest.mark.django_db
def test_undo_undoes_and_keeps_the_reason() -> None:
    done = stored(Shipment.run(parcel="P-1"))
    client = client_of("view", "undo")
    response = client.post(act_url(done, "undo"), {"reason": "  sent twice "})
    assert said(response) == ["The execution is now undone."]
    assert [entry.reason for entry in done.trace() if entry.action == "rollback"] == ["sent twice"]
    assert "sent twice" in text_of(client, page_url(done))


@pytest.mark.django_db
def test_a_reason_with_what_databases_cannot_hold_is_kept_without_it() -> None:
    done = stored(Shipment.run(parcel="P-1"))
    client_of("view", "undo").post(act_url(done, "undo"), {"reason": "sent\x00twice"})
    assert [entry.reason for entry in done.trace() if entry.action == "rollback"] == [
        "sent\N{REPLACEMENT CHARACTER}twice"
    ]
    assert "sent\N{REPLACEMENT CHARACTER}twice" in LogEntry.objects.get().change_message


@pytest.mark.django_db
def test_an_undo_that_fails_says_so() -> None:
    done = stored(Shipment.run(parcel="P-1"))
    with broken("unpack"):
        response = client_of("view", "undo").post(act_url(done, "undo"))
    assert "the parcel is glued" in said(response)[0]
    assert status_of(done) == Status.FAILED


@pytest.mark.django_db
def test_cancel_of_a_running_execution_is_a_request_to_its_runner() -> None:
    running = row(status=Status.RUNNING, lease_token=uuid4(), lease_expires_at=datetime.now(UTC) + timedelta(minutes=1))
    client = client_of("view", "cancel")
    response = client.post(act_url(running, "cancel"), {"reason": "not wanted"})
    assert said(response) == ["The execution will stop at its next step."]
    stored = Execution.objects.get(pk=running.pk)
    assert (stored.status, stored.stop, stored.stop_reason) == (Status.RUNNING, Stop.CANCEL, "not wanted")
    assert "stop requested" in text_of(client, LIST)


@pytest.mark.django_db
@pytest.mark.parametrize("action", ACTIONS)
def test_the_history_says_who_asked_for_what_and_why(action: str) -> None:
    execution, client = row(status=Status.ABORTED), client_of("view", *ACTIONS)
    client.post(act_url(execution, action), {"reason": "because"})
    logged = LogEntry.objects.get()
    assert logged.object_id == str(execution.pk)
    assert logged.user.get_username() == "person-view-retry-undo-cancel"
    assert logged.change_message.startswith(f"{action.capitalize()} requested.")
    assert ("because" in logged.change_message) == (action != "retry")
    assert logged.change_message in text_of(client, LIST + f"{execution.pk}/history/")


@pytest.mark.django_db
def test_a_refusal_by_the_engine_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else was faster, between the look at the row and the act."""
    execution = row(status=Status.COMPLETED)
    monkeypatch.setattr("django_reactor.admin.performing.obstacle", lambda action, row: "")
    response = client_of("view", "retry").post(act_url(execution, "retry"))
    assert response.status_code == 302
    assert "retry" in said(response)[0]
    assert status_of(execution) == Status.COMPLETED


@pytest.mark.django_db
def test_an_action_on_an_id_that_does_not_exist_is_not_found() -> None:
    client = client_of("view", "undo")
    stranger = client_of("undo")
    for where in ("rubbish", "01999999-9999-7999-8999-999999999999"):
        assert client.post(f"{LIST}{where}/undo/").status_code == 404
        assert stranger.post(f"{LIST}{where}/undo/").status_code == 403  # he learns nothing


# -- transactions ------------------------------------------------------------------------------------------------------


class Probe(Reactor):
    """Tells whether its step runs inside somebody's transaction."""

    class Meta:
        app_label = "depot"

    @step
    def look(self) -> bool:
        return connection.in_atomic_block


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("bulk", [False, True])
def test_actions_journal_step_by_step_also_with_atomic_requests(bulk: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    execution = row(reactor="depot.Probe", status=Status.ABORTED, inputs="{}")
    client = client_of("view", "retry")
    if bulk:
        form = {"action": "retry_selected", "_selected_action": str(execution.pk), "confirmed": "yes"}
        client.post(LIST, form)
    else:
        client.post(act_url(execution, "retry"))
    assert status_of(execution) == Status.COMPLETED
    assert Execution.objects.get(pk=execution.pk).results["look"] is False
