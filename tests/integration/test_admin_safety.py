"""Nothing that a user's data says becomes markup, and nothing secret becomes text."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from pydantic import SecretStr

from django_reactor import Reactor, Redacted, Step, fail, skip, step
from django_reactor.core.statuses import Status
from django_reactor.models import Execution
from tests.integration.admin_support import LIST, act_url, client_of, entries, page_url, row, stored

pytestmark = pytest.mark.django_db

SCRIPT = "<script>alert(1)</script>"
SECRET = "hunter22-very-secret"
OTHER_SECRET = 'made"on<the>way'
ACTIONS = ("retry", "undo", "cancel")


class Sign(Step[str]):
    """Its own contract declares the secret; the execution's inputs do not know it."""

    key: Redacted[str]

    def run(self) -> str:
        return f"signed with {self.key}"

    def undo(self, result: str) -> None:
        fail(f"cannot unsign {self.key}")


class Leaky(Reactor):
    """Repeats its secrets wherever it can."""

    token: Redacted[str]
    note: str = ""

    class Meta:
        app_label = "depot"

    @step
    def copy(self, token: str) -> dict[str, Any]:
        return {"copy": token, token: 1, "wrapped": SecretStr("wrapped-in-pydantic")}

    @step
    def skipped(self, copy: dict[str, Any], token: str) -> None:
        skip(f"not needed for {token}", value=[token])

    @step(Sign)
    def sign(self, skipped: list[str] | None) -> dict[str, str]:
        return {"key": OTHER_SECRET}

    @step
    def break_down(self, sign: str, token: str) -> None:
        raise ValueError(f"{sign}, {token}, wrapped-in-pydantic")


def every_page(client: Client, execution: Execution) -> list[str]:
    urls = (LIST, page_url(execution), f"{LIST}{execution.pk}/history/", "/admin/")
    pages = [client.get(url).content.decode() for url in urls]
    reason = {"reason": f"because of {SECRET}"}
    for action in ACTIONS:
        form = {"action": f"{action}_selected", "_selected_action": str(execution.pk)}
        pages.append(client.post(LIST, form).content.decode())
        pages.append(client.post(act_url(execution, action), reason, follow=True).content.decode())
        pages.append(client.post(LIST, form | reason | {"confirmed": "yes"}, follow=True).content.decode())
    return [*pages, *(client.get(url).content.decode() for url in urls)]


def test_a_secret_stands_on_no_page() -> None:
    leaky = Leaky.using(tags=[f"tag-{SECRET}"], idempotency_key=f"key-{SECRET}").run(token=SECRET, note="harmless")
    execution = stored(leaky)
    assert SECRET in execution.inputs  # it is stored, after all
    assert execution.rollback_failures
    pages = every_page(client_of("view", *ACTIONS), execution)
    assert any("harmless" in page for page in pages)
    assert any("[REDACTED]" in page for page in pages)
    for page in pages:
        for secret in (SECRET, OTHER_SECRET, "made&quot;on&lt;the&gt;way", "wrapped-in-pydantic"):
            assert secret not in page
    assert not LogEntry.objects.filter(change_message__contains=SECRET).exists()


def test_texts_that_were_stored_without_redaction_are_redacted_when_shown() -> None:
    """Reasons that people typed; failures that an older version stored."""
    execution = row(
        status=Status.FAILED,
        inputs=f'{{"token":{{"$":"secret","v":"{SECRET}"}}}}',
        failure={
            "message": f"m {SECRET}",
            "step": "s",
            "snippet": SECRET,
            "backtrace": [SECRET],
            "arguments": {SECRET: [SECRET]},
            "field_errors": {"f": [SECRET]},
            "rollback_failures": [{"step": "s", "message": SECRET}],
        },
        stop_reason=SECRET,
        snoozes=1,
        snooze_reason=SECRET,
        tags=[SECRET],
        idempotency_key=SECRET,
    )
    entries(execution, 2, reason=SECRET, error={"message": SECRET, "backtrace": [SECRET]}, value=f'"{SECRET}"')
    client = client_of("view")
    for url in (LIST, page_url(execution)):
        html = client.get(url).content.decode()
        assert SECRET not in html
        assert "[REDACTED]" in html


def test_a_secret_that_an_entry_outside_this_page_knows_is_redacted_too() -> None:
    execution = row()
    entries(execution, 600, value=f'"{SECRET}"')
    execution.entries.filter(seq=600).update(arguments=f'{{"token":{{"$":"secret","v":"{SECRET}"}}}}')
    assert SECRET not in client_of("view").get(page_url(execution)).content.decode()


def test_markup_in_data_stays_text() -> None:
    execution = row(
        reactor=f"zoo.{SCRIPT}",
        status=Status.FAILED,
        rollback_failures=1,
        inputs=f'{{"{SCRIPT}":"{SCRIPT}"}}',
        output=f'"{SCRIPT}"',
        tags=[SCRIPT],
        idempotency_key=SCRIPT,
        stop_reason=SCRIPT,
        snoozes=1,
        snooze_reason=SCRIPT,
        failure={
            "message": SCRIPT,
            "exception_class": SCRIPT,
            "step": SCRIPT,
            "reactor": SCRIPT,
            "file": SCRIPT,
            "line": 1,
            "snippet": SCRIPT,
            "backtrace": [SCRIPT],
            "arguments": {SCRIPT: SCRIPT},
            "field_errors": {SCRIPT: [SCRIPT]},
            "rollback_failures": [dict.fromkeys(("step", "kind", "reason", "message", "exception_class"), SCRIPT)],
        },
    )
    entries(execution, 2, step=SCRIPT, reason=SCRIPT, value=f'"{SCRIPT * 9}"', error={"message": SCRIPT})
    pages = every_page(client_of("view", *ACTIONS), execution)
    assert any("&lt;script&gt;alert(1)" in page for page in pages)
    for page in pages:
        assert SCRIPT not in page
        assert "<script>alert" not in page


def test_markup_in_a_message_of_an_action_stays_text() -> None:
    class Refuses(Reactor):
        note: Annotated[str, "any"] = ""

        class Meta:
            app_label = "depot"

        @step
        def no(self) -> None:
            fail(SCRIPT)

    failed = Refuses.run()
    response = client_of("view", "retry").post(act_url(failed.execution_id, "retry"), follow=True)
    assert "The execution failed: &lt;script&gt;" in response.content.decode()
    assert SCRIPT not in response.content.decode()
