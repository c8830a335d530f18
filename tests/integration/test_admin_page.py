"""One execution's page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_reactor import Reactor, Redacted, compose, interrupt, step
from django_reactor.admin import page as page_module
from django_reactor.core import registry
from django_reactor.core.statuses import Action, EntryOutcome, Relation, Status, Stop
from django_reactor.exceptions import InputError
from django_reactor.models import Execution, JournalEntry
from tests.integration.admin_support import (
    LIST,
    WAYS_TO_HIDE,
    Shipment,
    act_url,
    an_id,
    broken,
    client_of,
    entries,
    fingerprint_of,
    hide,
    page_url,
    row,
    stored,
    text_of,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer() -> Client:
    return client_of("view")


def words(html: str) -> str:
    return " ".join(html.split())


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_the_head_identifies_the_execution(viewer: Client) -> None:
    ran = Shipment.using(idempotency_key="order-17", tags=["north", "express"]).run(parcel="P-1")
    html = text_of(viewer, page_url(ran.execution_id))
    for text in (str(ran.execution_id), "depot.Shipment", "reactor-completed", "order-17", "north", "express"):
        assert text in html
    assert fingerprint_of(Shipment) in html
    assert "as it is now" in html
    assert "so far" not in html


def test_inputs_and_the_result_are_shown(viewer: Client) -> None:
    html = text_of(viewer, page_url(Shipment.run(parcel="P-99").execution_id))
    assert "<dt>parcel</dt><dd><code" in html
    assert "P-99" in html
    assert "handed to courier-7" in html.partition('id="result-title"')[2].partition("</section>")[0]


def test_the_trace_tells_each_entry_in_order_and_sets_the_rollback_apart(viewer: Client) -> None:
    with broken("book"):
        failed = Shipment.run(parcel="P-1")
    response = viewer.get(page_url(failed.execution_id))
    forward, rollback = response.context["page"].trace.sections
    assert [(row.seq, row.step, row.action, row.outcome) for row in forward.rows] == [
        (1, "pack", "run", "success"),
        (2, "book", "run", "failure"),
    ]
    assert [(row.seq, row.step, row.action, row.outcome) for row in rollback.rows] == [(3, "pack", "undo", "success")]
    html = response.content.decode()
    assert '<tbody class="reactor-rollback">' in html
    assert '<th scope="rowgroup" colspan="9">Rollback</th>' in html


def test_what_follows_a_retry_is_a_section_of_its_own(viewer: Client) -> None:
    with broken("book"):
        failed = Shipment.run(parcel="P-1")
    stored(failed).retry()
    sections = viewer.get(page_url(failed.execution_id)).context["page"].trace.sections
    assert [section.role for section in sections] == ["forward", "rollback", "retry"]
    assert [row.step for row in sections[2].rows] == ["", "pack", "book", "hand_over"]


def test_steps_that_have_not_run_are_listed_as_such(viewer: Client) -> None:
    with broken("book"):
        failed = Shipment.run(parcel="P-1")
    response = viewer.get(page_url(failed.execution_id))
    assert [step.name for step in response.context["page"].trace.not_run] == ["hand_over"]
    assert '<th scope="row">hand_over</th><td colspan="7">not run</td>' in response.content.decode()


def test_the_failure_card_says_what_where_and_what_could_not_be_undone(viewer: Client) -> None:
    with broken("book", "unpack"):
        failed = Shipment.run(parcel="P-1")
    html = text_of(viewer, page_url(failed.execution_id))
    card = html.partition('class="reactor-failure"')[2].partition("</section>")[0]
    for text in ("Failed in book", "no courier for P-1", "depot.Shipment", "admin_support.py:", "&gt; ", "Backtrace"):
        assert text in card
    assert "fail(f&quot;no courier" in card
    not_undone = card.partition("Not undone")[2].partition("</table>")[0]
    for text in ("pack", "undo", "raised", "the parcel is glued"):
        assert text in not_undone


def test_a_snooze_a_stop_and_a_lease_are_explained(viewer: Client) -> None:
    now = datetime.now(UTC)
    busy = row(
        status=Status.RUNNING,
        snoozes=3,
        snooze_reason="remote is starting",
        stop=Stop.CANCEL,
        stop_reason="not wanted",
        lease_token=uuid4(),
        lease_expires_at=now + timedelta(seconds=50),
    )
    html = words(text_of(viewer, page_url(busy)))
    for text in ("3: remote is starting", "a cancel is requested", "not wanted", "held by a process", "so far"):
        assert text in html
    dead = row(status=Status.RUNNING, lease_token=uuid4(), lease_expires_at=now - timedelta(minutes=5))
    assert "expired 5 min" in text_of(viewer, page_url(dead))


def test_a_changed_definition_is_pointed_out(viewer: Client) -> None:
    old = row(fingerprint="0123456789abcdef")
    assert "definition changed since" in text_of(viewer, page_url(old))


def test_a_child_links_to_its_root_and_parent_and_they_to_it(viewer: Client) -> None:
    root = row()
    child = row(relation=Relation.COMPOSED, parent=root, root=root, owner=root, parent_step="pack")
    element = row(relation=Relation.ELEMENT, parent=root, root=root, owner=root, parent_step="pack", element_index=4)
    for html in (text_of(viewer, page_url(child)), text_of(viewer, page_url(element))):
        assert page_url(root) in html
    assert "pack [4]" in html
    assert page_url(child) in text_of(viewer, page_url(root))
    assert page_url(element) not in text_of(viewer, page_url(root))  # of its map, there may be very many


def test_of_many_children_some_are_listed_with_a_link_to_all(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MAX_CHILDREN", 2)
    root = row()
    for index in range(3):
        row(relation=Relation.ASYNC_STEP, parent=root, root=root, owner=root, parent_step=f"pack_{index}")
    with CaptureQueriesContext(connection) as captured:
        response = viewer.get(page_url(root))
    assert len(response.context["page"].children) == 2
    assert any("parent_id" in query["sql"] and "LIMIT 3" in query["sql"] for query in captured.captured_queries)
    link = f"?relation=all&amp;parent__exact={root.pk}"
    assert link in response.content.decode()


@pytest.mark.parametrize("way", WAYS_TO_HIDE)
def test_a_child_that_may_not_be_seen_is_not_named(viewer: Client, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    root = row()
    of_root: dict[str, Any] = {"relation": Relation.COMPOSED, "parent": root, "root": root, "owner": root}
    shown = row(parent_step="pack", **of_root)
    hidden = row(parent_step="book", reactor="vault.Secret", **of_root)
    hide(monkeypatch, way, hidden)
    assert viewer.get(page_url(hidden)).status_code in (403, 404)
    html = text_of(viewer, page_url(root))
    assert page_url(shown) in html
    assert str(hidden.pk) not in html
    assert "vault.Secret" not in html.partition('<h2 id="children-title">')[2]
    assert "There are others, which you may not see." in html
    Execution.objects.filter(pk=hidden.pk).delete()
    assert "which you may not see" not in text_of(viewer, page_url(root))


def test_a_child_alone_that_may_not_be_seen_is_not_named(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    root = row()
    hidden = row(relation=Relation.COMPOSED, parent=root, root=root, owner=root, parent_step="pack")
    hide(monkeypatch, "get_queryset", hidden)
    html = text_of(viewer, page_url(root))
    assert str(hidden.pk) not in html
    assert "There are others, which you may not see." in html


def test_the_trace_shows_no_pointer_to_what_was_dispatched(viewer: Client) -> None:
    execution, now, child = row(), datetime.now(UTC), uuid4()
    for seq, value in enumerate((str(child), f"map:{child}"), 1):
        JournalEntry.objects.create(
            execution=execution, seq=seq, step="pack", action="dispatch", value=value, started_at=now, finished_at=now
        )
    html = text_of(viewer, page_url(execution))
    assert html.count("<td>dispatch</td>") == 2
    assert str(child) not in html
    assert "[unreadable" not in html


# -- what is gone ------------------------------------------------------------------------------------------------------


def test_the_page_of_a_reactor_whose_module_was_removed_works_and_says_so() -> None:
    viewer = client_of("view", "undo", "cancel", "retry")
    lost = row(reactor="zoo.Removed", status=Status.FAILED, failure={"message": "m"})
    entries(lost, 2, step="a_step_of_old")
    html = text_of(viewer, page_url(lost))
    assert "This reactor is not known here" in html
    assert "a_step_of_old" in html
    assert "not run" not in html
    assert act_url(lost, "retry") not in html


def test_a_label_that_two_classes_claim_counts_as_unknown(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_classes", {}), ("_by_label", None), ("_app_label_of", None)):
        monkeypatch.setattr(registry, name, value)
    for number in (1, 2):

        class Twin(Reactor[Any]):
            __qualname__ = f"Twin{number}"  # not as a class of this function, which would replace the other

            class Meta:
                name = "depot.Twin"

            @step
            def only(self) -> None: ...

    assert list(registry.duplicates()) == ["depot.Twin"]
    assert "not known here" in text_of(viewer, page_url(row(reactor="depot.Twin")))
    assert "unknown here" in text_of(viewer, LIST)


def test_values_whose_classes_and_rows_are_gone_are_shown_all_the_same(viewer: Client) -> None:
    gone = row(
        inputs='{"order":{"$":"model","m":"shop.Order","v":987654},"x":{"$":"dataclass","c":"no.module:Gone","v":{}}}',
        output='{"$":"some day","v":1}',
    )
    entries(gone, 1, value="this is no JSON", arguments='{"a":{"$":"enum","c":"no.module:Colour","v":"RED"}}')
    html = text_of(viewer, page_url(gone))
    for text in ("shop.Order 987654", "Gone", "unknown kind of value", "unreadable", "Colour.RED"):
        assert text in html


def test_an_older_or_newer_form_of_a_failure_is_shown_as_far_as_it_goes(viewer: Client) -> None:
    for failure in ({}, {"message": None, "later": 1}, {"rollback_failures": [{"step": "s"}, 5], "backtrace": "x"}):
        assert text_of(viewer, page_url(row(status=Status.FAILED, failure=failure)))


@pytest.mark.parametrize("where", ["rubbish", "0000", str(uuid4())])
def test_an_id_that_does_not_exist_is_not_found(viewer: Client, where: str) -> None:
    assert viewer.get(f"/admin/django_reactor/execution/{where}/change/").status_code == 404


# -- interrupts --------------------------------------------------------------------------------------------------------


class Approval(Reactor[Any]):
    parcel: str
    token: Redacted[str] = "unset"

    class Meta:
        app_label = "depot"

    @step
    def looked_up(self, parcel: str) -> str:
        return f"of {self.token}"

    @interrupt(payload=bool, correlation_id="{parcel}, {looked_up}", timeout=timedelta(days=3))
    def approved(self, parcel: str) -> None: ...


class Inside(Reactor[Any]):
    class Meta:
        app_label = "depot"

    @compose(Approval)
    def asking(self) -> dict[str, str]:
        return {"parcel": "P-9"}


def test_what_an_execution_waits_for_is_listed_with_its_history(viewer: Client) -> None:
    execution = stored(Approval.run(parcel="P-8", token="hush-hush"))
    with pytest.raises(InputError):
        execution.resume("perhaps")
    html = words(text_of(viewer, page_url(execution.pk)))
    assert "reactor-paused" in html
    assert "P-8, of [REDACTED]" in html
    assert "hush" not in html
    for text in ('<th scope="row">approved</th> <td>open</td>', "<td>pause</td>", '<td class="reactor-number">1</td>'):
        assert text in html
    execution.resume(True)
    html = words(text_of(viewer, page_url(execution.pk)))
    assert '<th scope="row">approved</th> <td>applied</td>' in html
    assert "<td>resume</td>" in html


def test_what_a_child_waits_for_is_listed_with_a_link_to_it(viewer: Client) -> None:
    execution = stored(Inside.run())
    child = Execution.objects.get(parent=execution.pk)
    assert f'<a href="{page_url(child.pk)}">approved</a>' in text_of(viewer, page_url(execution.pk))
    assert '<th scope="row">approved</th>' in text_of(viewer, page_url(child.pk))


def test_what_a_child_waits_for_has_no_link_to_one_that_is_not_listed(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution = stored(Inside.run())
    child = Execution.objects.get(parent=execution.pk)
    hide(monkeypatch, "get_queryset", child)
    html = text_of(viewer, page_url(execution.pk))
    assert '<th scope="row">approved</th>' in html
    assert page_url(child.pk) not in html


def test_an_execution_without_interrupts_has_no_list_of_them(viewer: Client) -> None:
    assert "waits-title" not in text_of(viewer, page_url(Shipment.run(parcel="P-1").execution_id))


# -- size --------------------------------------------------------------------------------------------------------------


def count_queries(client: Client, url: str) -> int:
    client.get(url)
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200
    return len(captured)


def test_a_page_takes_the_same_queries_for_3_entries_and_300(viewer: Client) -> None:
    few, many = row(status=Status.FAILED, failure={"message": "m"}), row()
    entries(few, 3, arguments='{"a":{"$":"secret","v":"abcd"}}')
    entries(many, 300, arguments='{"a":{"$":"secret","v":"abcd"}}')
    row(relation=Relation.COMPOSED, parent=many, root=many, owner=many, parent_step="pack")
    assert count_queries(viewer, page_url(few)) == count_queries(viewer, page_url(many)) <= 11


def test_a_long_trace_is_shown_in_pages_that_lead_to_each_other(viewer: Client) -> None:
    long = row()
    entries(long, 1000)
    first = viewer.get(page_url(long))
    html = words(first.content.decode())
    assert "Entries 1 to 500 of 1000" in html
    assert html.count('<th scope="row">pack</th>') == 500
    assert "not run" not in html
    assert 'href="?after=500#trace"' in html
    second = words(text_of(viewer, page_url(long) + "?after=500"))
    assert "Entries 501 to 1000 of 1000" in second
    assert 'href="?after=0#trace"' in second
    assert "… more" not in second
    assert second.count("not run") == 2
    for rubbish in ("x", "-1", "9" * 30, "²"):
        assert viewer.get(page_url(long), {"after": rubbish}).status_code == 200


def test_a_value_that_is_too_long_is_cut_and_says_so(viewer: Client) -> None:
    big = row(inputs='{"text":"' + "x" * 30_000 + '"}')
    entries(big, 2, value='"' + "y" * 60_000 + '"')
    html = text_of(viewer, page_url(big))
    assert "29,000 more characters" in html
    assert "[60,002 characters, too long to show]" in html
    assert len(html) < 100_000


def test_a_long_value_is_folded_and_a_short_one_is_not(viewer: Client) -> None:
    execution = row(inputs='{"short":"s","long":"' + "l" * 200 + '"}')
    inputs = viewer.get(page_url(execution)).context["page"].inputs
    assert not inputs["short"].is_long
    assert inputs["long"].is_long
    assert inputs["long"].text == "l" * 200


# -- times -------------------------------------------------------------------------------------------------------------


class Quick(Reactor[dict[str, int]]):
    class Meta:
        app_label = "depot"
        verbose_name = "an express delivery"

    @step
    def only(self) -> int:
        return 1


def test_a_verbose_name_is_the_title(viewer: Client) -> None:
    html = text_of(viewer, page_url(Quick.run().execution_id))
    assert "<h1>An express delivery" in html
    assert "The values of all steps" in html


@pytest.mark.parametrize(
    ("length", "shown"),
    [
        (timedelta(microseconds=400), "&lt; 1 ms"),
        (timedelta(milliseconds=340), "340 ms"),
        (timedelta(seconds=2, milliseconds=410), "2.41 s"),
        (timedelta(minutes=3, seconds=5), "3 min 5 s"),
        (timedelta(hours=30, minutes=1), "1 d 6 h"),
        (timedelta(hours=3, minutes=2), "3 h 2 min"),
    ],
)
def test_a_duration_is_shown_in_fitting_units(viewer: Client, length: timedelta, shown: str) -> None:
    start = datetime.now(UTC) - timedelta(days=3)
    ended = row(id=an_id(start), started_at=start, finished_at=start + length)
    assert f"<dd>{shown}</dd>" in words(text_of(viewer, page_url(ended)))


def test_an_entry_of_every_action_and_outcome_can_be_shown(viewer: Client) -> None:
    execution, now = row(), datetime.now(UTC)
    shapes = [(action, outcome) for action in Action for outcome in EntryOutcome]
    JournalEntry.objects.bulk_create(
        JournalEntry(execution=execution, seq=seq, action=action, outcome=outcome, started_at=now, finished_at=now)
        for seq, (action, outcome) in enumerate(shapes, 1)
    )
    trace = viewer.get(page_url(execution)).context["page"].trace
    assert sum(len(section.rows) for section in trace.sections) == len(shapes) == trace.total
