"""Actions on rows that are selected in the list."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.test import Client

from django_reactor.admin import bulk, ids
from django_reactor.core.statuses import Status
from django_reactor.models import Execution
from tests.integration.admin_support import LIST, Shipment, broken, client_of, row, stored

pytestmark = pytest.mark.django_db

ACTIONS = ("retry", "undo", "cancel")


def choose(client: Client, action: str, *executions: Execution, query: str = "", **form: str) -> Any:
    selected = [str(execution.pk) for execution in executions]
    return client.post(LIST + query, {"action": f"{action}_selected", "_selected_action": selected, **form})


def said(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def statuses(*executions: Execution) -> list[str]:
    found = dict(Execution.objects.values_list("pk", "status"))
    return [found[execution.pk] for execution in executions]


def test_the_confirmation_says_which_it_can_reach_and_changes_nothing() -> None:
    aborted, completed = row(status=Status.ABORTED), row(status=Status.COMPLETED)
    response = choose(client_of("view", "retry"), "retry", aborted, completed)
    html = response.content.decode()
    reachable, _, unreachable = html.partition("Left as they are")
    assert str(aborted.pk) in reachable
    assert str(completed.pk) not in reachable
    assert str(completed.pk) in unreachable
    assert "It did not fail." in unreachable
    assert 'name="_selected_action" value="' + str(aborted.pk) in html
    assert statuses(aborted, completed) == [Status.ABORTED, Status.COMPLETED]
    assert not LogEntry.objects.exists()


def test_only_what_can_be_explained_takes_a_reason() -> None:
    aborted = row(status=Status.ABORTED)
    client = client_of("view", *ACTIONS)
    for action in ACTIONS:
        html = choose(client, action, aborted).content.decode()
        assert ('name="reason"' in html) == (action != "retry")


def test_a_selection_that_allows_nothing_offers_no_button() -> None:
    html = choose(client_of("view", "retry"), "retry", row()).content.decode()
    assert "None of the selected executions allows this." in html
    assert '<button type="submit" class="button default">' not in html


@pytest.mark.parametrize(
    ("action", "expected"), [("retry", Status.COMPLETED), ("undo", Status.UNDONE), ("cancel", Status.CANCELLED)]
)
def test_confirmed_it_acts_on_each_logs_each_and_answers_for_each(action: str, expected: str) -> None:
    first, second, third = row(status=Status.ABORTED), row(status=Status.ABORTED), row(status=Status.ROLLING_BACK)
    response = choose(client_of("view", action), action, first, second, third, confirmed="yes", reason="why not")
    assert response.status_code == 302
    assert statuses(first, second, third) == [expected, expected, Status.ROLLING_BACK]
    answers = said(response)
    assert len(answers) == 3
    for execution, text in ((first, f"now {expected}"), (second, f"now {expected}"), (third, "Nothing was changed")):
        [answer] = [a for a in answers if a.startswith(f"{ids.short(execution.pk)} (depot.Shipment): ")]
        assert text in answer
    assert set(LogEntry.objects.values_list("object_id", flat=True)) == {str(first.pk), str(second.pk)}


def test_one_that_fails_again_does_not_stop_the_others() -> None:
    with broken("book"):
        bad = stored(Shipment.run(parcel="P-1"))
        good = row(status=Status.ABORTED, reactor="depot.Other")
        worse = stored(Shipment.run(parcel="P-2"))
        answers = said(choose(client_of("view", "retry"), "retry", bad, good, worse, confirmed="yes"))
    assert len(answers) == 3
    assert sum("no courier" in answer for answer in answers) == 2
    assert sum("not known here" in answer for answer in answers) == 1


def test_nobody_is_offered_an_action_without_its_permission() -> None:
    aborted = row(status=Status.ABORTED)
    client = client_of("view", "undo")
    html = client.get(LIST).content.decode()
    assert 'value="undo_selected"' in html
    for action in ("retry", "cancel"):
        assert f'value="{action}_selected"' not in html
        choose(client, action, aborted, confirmed="yes")
        assert statuses(aborted) == [Status.ABORTED]
    assert 'name="action"' not in client_of("view").get(LIST).content.decode()


def test_each_row_is_asked_for_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = row(status=Status.ABORTED, tags=["mine"]), row(status=Status.ABORTED)

    def permission(self: Any, request: Any, obj: Execution | None = None) -> bool:
        return obj is None or obj.tags == ["mine"]

    monkeypatch.setattr("django_reactor.admin.ExecutionAdmin.has_undo_permission", permission)
    client = client_of("view")
    unreachable = choose(client, "undo", mine, other).content.decode().partition("Left as they are")[2]
    assert str(other.pk) in unreachable
    assert "You do not have the permission" in unreachable
    answers = said(choose(client, "undo", mine, other, confirmed="yes"))
    assert statuses(mine, other) == [Status.UNDONE, Status.ABORTED]
    assert any("You do not have the permission" in answer for answer in answers)


def test_what_may_not_be_seen_may_not_be_acted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = row(status=Status.ABORTED)
    monkeypatch.setattr(
        "django_reactor.admin.ExecutionAdmin.has_view_permission", lambda self, request, obj=None: obj is None
    )
    answers = said(choose(client_of("view", "undo"), "undo", hidden, confirmed="yes"))
    assert "You do not have the permission" in answers[0]
    assert statuses(hidden) == [Status.ABORTED]


def test_the_filter_is_applied_again_to_what_is_selected() -> None:
    inside, outside = row(status=Status.ABORTED), row(status=Status.ABORTED, reactor="depot.Probe")
    client = client_of("view", "undo")
    choose(client, "undo", inside, outside, query="?reactor=depot.Shipment", confirmed="yes")
    assert statuses(inside, outside) == [Status.UNDONE, Status.ABORTED]


def test_too_many_at_once_are_refused_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MAX_SELECTED", 2)
    many = [row(status=Status.ABORTED) for _ in range(3)]
    client = client_of("view", "undo")
    for form in ({}, {"confirmed": "yes"}, {"select_across": "1", "confirmed": "yes"}):
        response = choose(client, "undo", *many[: 1 if "select_across" in form else 3], **form)
        assert "At most 2 executions" in said(response)[-1]
    assert statuses(*many) == [Status.ABORTED] * 3
    assert said(choose(client, "undo", *many[:2], confirmed="yes"))[-1].endswith("is now undone.")


def test_one_that_was_deleted_meanwhile_is_answered_for(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = row(status=Status.ABORTED), row(status=Status.ABORTED)  # the newest is acted on first

    def deleting(execution: Execution, text: str) -> None:
        Execution.objects.filter(pk=first.pk).delete()

    monkeypatch.setattr("django_reactor.admin.ExecutionAdmin.log_change", lambda *args: deleting(*args[2:]))
    answers = said(choose(client_of("view", "undo"), "undo", first, second, confirmed="yes"))
    assert any("does not exist any more" in answer for answer in answers)
    assert statuses(second) == [Status.UNDONE]


@pytest.mark.parametrize("no_id", ["\x00", "abc", "", "7" * 40])
def test_a_selection_of_what_is_no_id_changes_nothing(no_id: str) -> None:
    aborted, client = row(status=Status.ABORTED), client_of("view", "cancel")
    for form in ({}, {"confirmed": "yes"}):
        chosen = {"action": "cancel_selected", "_selected_action": [str(aborted.pk), no_id], **form}
        answer = client.post(LIST, chosen)
        assert (answer.status_code, answer.headers["Location"]) == (302, f"{LIST}?e=1")
    assert statuses(aborted) == [Status.ABORTED]
    assert not LogEntry.objects.exists()
