"""Answering an interrupt on its execution's page: who may, what is shown, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from enum import Enum
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from pydantic import BaseModel, Field

from django_reactor import Reactor, Redacted, compose, interrupt, step, worker
from django_reactor.models import Execution, Wait
from tests.integration.admin_support import act_url, client_of, page_url, stored, text_of

pytestmark = pytest.mark.django_db(transaction=True)


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Verdict(BaseModel):
    approved: bool
    limit: int = Field(default=10, ge=1, description="At most so many.")
    day: date | None = None
    size: Size = Size.SMALL
    notes: list[str] = []


class Asks(Reactor[Any]):
    class Meta:
        app_label = "answers"
        returns = "verdict"

    @interrupt(payload=Verdict, correlation_id="case-7", timeout=timedelta(days=3), max_attempts=2)
    def verdict(self) -> None: ...


class AsksAnything(Reactor[Any]):
    class Meta:
        app_label = "answers"
        returns = "anything"

    @interrupt
    def anything(self) -> None: ...


class AsksSecret(Reactor[Any]):
    class Meta:
        app_label = "answers"

    @interrupt(payload=Redacted[int])
    def code(self) -> None: ...


class Whole(Reactor[Any]):
    class Meta:
        app_label = "answers"
        returns = "part"

    @compose(Asks)
    def part(self) -> Any:
        return {}


class Two(Reactor[Any]):
    class Meta:
        app_label = "answers"

    @interrupt(payload=int)
    def first(self) -> None: ...

    @interrupt(payload=int)
    def second(self) -> None: ...

    @step
    def both(self, first: int, second: int) -> int:
        return first + second


@pytest.fixture(autouse=True)
def _no_worker() -> Iterator[None]:
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        yield


def paused(reactor: type[Reactor[Any]]) -> Execution:
    execution = stored(reactor.run())
    assert execution.status == "paused"
    return execution


def post(client: Client, execution: Execution, payload: str, wait: Wait | None = None) -> Any:
    wait = wait or Wait.objects.get(state="open")
    return client.post(act_url(execution, "resume"), {"wait": wait.pk, "payload": payload})


def said(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def test_the_page_shows_what_is_asked_and_until_when() -> None:
    html = text_of(client_of("view", "resume"), page_url(paused(Asks)))
    for shown in (
        "Answer verdict",
        "case-7",
        "Until ",
        "<code>approved</code>",
        "boolean",
        "required",
        "At most so many.",
        "string (date) or null",
        "one of &quot;small&quot;, &quot;large&quot;",
        "list of string",
        "0 of 2 attempts are used",
        "&quot;approved&quot;: null",
    ):
        assert shown in html, shown


def test_without_a_type_any_json_is_expected() -> None:
    execution = paused(AsksAnything)
    client = client_of("view", "resume")
    assert "Expected: any JSON value." in text_of(client, page_url(execution))
    assert post(client, execution, '{"any": [1, null]}').status_code == 302
    assert Wait.objects.get().state == "accepted"


def test_a_valid_answer_is_accepted_logged_and_left_to_a_worker() -> None:
    execution = paused(Asks)
    client = client_of("view", "resume")
    response = post(client, execution, '{"approved": true, "day": "2026-05-01", "size": "large"}')
    assert (response.status_code, response["Location"]) == (302, page_url(execution))
    assert said(response) == ["The answer is accepted; a worker goes on with it."]
    execution.refresh_from_db()
    assert execution.status == "pending"  # though its interrupt would resume here
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.get_change_message()) == (str(execution.pk), "Answered interrupt verdict.")
    assert "Answer verdict" not in text_of(client, page_url(execution))
    worker.deliver(execution.pk)
    execution.refresh_from_db()
    assert execution.result().unwrap() == Verdict(approved=True, day=date(2026, 5, 1), size=Size.LARGE)


def test_what_is_wrong_stands_beside_what_was_typed_and_counts_as_an_attempt() -> None:
    execution = paused(Asks)
    client = client_of("view", "resume")
    response = post(client, execution, '{"approved": "perhaps", "limit": 0, "notes": ["<b>kept</b>"]}')
    html = response.content.decode()
    assert response.status_code == 200
    assert "<code>approved</code>: " in html
    assert "<code>limit</code>: " in html
    assert "&lt;b&gt;kept&lt;/b&gt;" in html
    assert "<b>kept</b>" not in html
    assert "1 of 2 attempts are used" in html
    last = post(client, execution, "{}")
    assert said(last)[-1:] == ["That was the last attempt allowed: the interrupt fails."]
    execution.refresh_from_db()
    assert (Wait.objects.get().state, execution.status) == ("rejected", "pending")


@pytest.mark.parametrize("text", ["", "{", "NaN", "[" * 100_000, "1" * 5_000], ids=len)
def test_what_is_no_json_comes_back_and_counts_as_nothing(text: str) -> None:
    execution = paused(AsksAnything)
    response = post(client_of("view", "resume"), execution, text)
    assert "This is not JSON: " in response.content.decode()
    assert Wait.objects.values_list("state", "attempts").get() == ("open", 0)
    assert not LogEntry.objects.exists()


def test_an_answer_that_may_be_secret_is_not_given_back() -> None:
    execution = paused(AsksSecret)
    response = post(client_of("view", "resume"), execution, '"hunter22"')
    html = response.content.decode()
    assert 'class="errorlist"' in html
    assert "hunter22" not in html
    assert "hunter22" not in LogEntry.objects.get().get_change_message()


@pytest.mark.parametrize("of_part", [False, True])
def test_what_a_part_asks_can_be_answered_on_its_own_page_and_on_its_roots(of_part: bool) -> None:
    root = paused(Whole)
    page = Execution.objects.get(relation="composed") if of_part else root
    client = client_of("view", "resume")
    assert "Answer verdict" in text_of(client, page_url(page))
    assert post(client, page, '{"approved": true}').status_code == 302
    root.refresh_from_db()
    assert (Wait.objects.get().state, root.status) == ("accepted", "pending")


def test_each_of_several_has_its_own_form() -> None:
    execution = paused(Two)
    client = client_of("view", "resume")
    second = Wait.objects.get(step="second")
    html = post(client, execution, '"x"', second).content.decode()
    assert html.count('class="errorlist"') == 1
    assert post(client, execution, "2", second).status_code == 302
    assert dict(Wait.objects.values_list("step", "state")) == {"first": "open", "second": "accepted"}


def test_an_answer_that_comes_too_late_changes_nothing_and_says_so() -> None:
    execution = paused(Asks)
    client = client_of("view", "resume")
    assert post(client, execution, '{"approved": true}').status_code == 302
    again = client.post(act_url(execution, "resume"), {"wait": Wait.objects.get().pk, "payload": '{"approved": false}'})
    assert again.status_code == 302
    assert said(again)[-1].endswith("was answered before")
    cancelled = paused(AsksAnything)
    wait = Wait.objects.get(state="open")
    cancelled.cancel()
    assert "Answer anything" not in text_of(client, page_url(cancelled))
    post(client, cancelled, "1", wait)
    assert Wait.objects.get(pk=wait.pk).state == "closed"


# -- who ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("granted", [{"view"}, {"resume"}, {"view", "undo", "cancel", "retry"}])
def test_an_answer_needs_its_own_permission(granted: set[str]) -> None:
    execution = paused(AsksAnything)
    client = client_of(*sorted(granted))
    assert post(client, execution, "1").status_code == 403
    if "view" in granted:
        assert "Answer anything" not in text_of(client, page_url(execution))
    assert Wait.objects.get().state == "open"
    assert not LogEntry.objects.exists()


def test_an_answer_needs_a_post_with_the_csrf_token_and_a_wait_of_the_execution() -> None:
    execution, other = paused(AsksAnything), paused(Asks)
    client = client_of("view", "resume")
    assert client.get(act_url(execution, "resume")).status_code == 405
    for wait in (Wait.objects.get(execution=other).pk, "", "x", "9" * 30):
        assert client.post(act_url(execution, "resume"), {"wait": wait, "payload": "1"}).status_code == 404
    client.handler.enforce_csrf_checks = True
    assert post(client, execution, "1", Wait.objects.get(execution=execution)).status_code == 403
    assert set(Wait.objects.values_list("state", flat=True)) == {"open"}


def test_a_project_can_decide_by_row_also_about_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    root = paused(Whole)

    def permission(self: Any, request: Any, obj: Execution | None = None) -> bool:
        return obj is None or obj.relation == "root"

    monkeypatch.setattr("django_reactor.admin.ExecutionAdmin.has_resume_permission", permission)
    assert post(client_of("view"), root, '{"approved": true}').status_code == 403
    assert Wait.objects.get().state == "open"


def test_open_questions_cost_no_queries_of_their_own() -> None:
    client = client_of("view", "resume")
    counts = []
    for reactor in (AsksAnything, Two):
        execution = paused(reactor)
        text_of(client, page_url(execution))
        with CaptureQueriesContext(connection) as queries:
            assert "Answer" in text_of(client, page_url(execution))
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 11
