"""The list of executions: what it shows, finds and costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_reactor.admin.changelist import BoundedPaginator
from django_reactor.admin.known import stored_labels
from django_reactor.core.statuses import Relation, Status
from tests.integration.admin_support import (
    LIST,
    Shipment,
    broken,
    client_of,
    row,
    rows_at,
    shown_ids,
    text_of,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer() -> Client:
    return client_of("view")


def test_a_row_says_what_ran_how_it_ended_and_why_it_failed(viewer: Client) -> None:
    with broken("book"):
        failed = Shipment.using(tags=["north"]).run(parcel="P-1")
    html = text_of(viewer, LIST)
    for text in (str(failed.execution_id), "depot.Shipment", "reactor-failed", "book", "no courier for P-1", "north"):
        assert text in html


def test_every_status_is_shown_by_word_and_sign(viewer: Client) -> None:
    signs = set()
    for status in Status:
        row(status=status)
    html = text_of(viewer, LIST)
    for status in Status:
        badge = html.partition(f'reactor-badge reactor-{status}"')[2].partition("</span></td>")[0]
        sign = badge.partition('aria-hidden="true">')[2].partition("<")[0]
        assert status.replace("_", " ") in badge
        signs.add(sign)
    assert len(signs) == len(Status)


def test_the_newest_is_first(viewer: Client) -> None:
    now = datetime.now(UTC)
    old, new, middle = rows_at(now - timedelta(days=9), now, now - timedelta(days=1))
    assert shown_ids(viewer) == [new.pk, middle.pk, old.pk]


# -- cost --------------------------------------------------------------------------------------------------------------


def queries(client: Client, url: str) -> list[str]:
    client.get(url)  # content types, sessions
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200
    return [query["sql"] for query in captured.captured_queries]


def test_the_list_takes_the_same_queries_for_5_rows_and_50(viewer: Client) -> None:
    def some(count: int) -> None:
        for number in range(count):
            row(tags=["t"], status=Status.FAILED, failure={"message": "m"}, inputs='{"a":{"$":"secret","v":"abcd"}}')
            row(reactor=f"depot.Other{number}")

    some(2)
    few = queries(viewer, LIST)
    some(23)
    assert len(queries(viewer, LIST)) == len(few) <= 9


def test_the_list_never_counts_the_whole_table_nor_reads_inputs_and_outputs(viewer: Client) -> None:
    row()
    seen = [sql for sql in queries(viewer, LIST) if "execution" in sql]
    assert seen
    for sql in seen:
        assert "COUNT" not in sql or "LIMIT 10001" in sql
        columns = sql.partition(" FROM ")[0]
        assert not any(f"{name}" in columns for name in ("output", "carried")), sql
        assert "inputs" not in columns or "LIKE" in sql, sql


def test_counting_stops_at_its_bound_and_older_ones_stay_reachable(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedPaginator, "limit", 3)
    monkeypatch.setattr("django_reactor.admin.ExecutionAdmin.list_per_page", 2)
    now = datetime.now(UTC)
    expected = [execution.pk for execution in reversed(rows_at(*(now - timedelta(hours=h) for h in range(6, 0, -1))))]
    assert "more than 3 executions" in text_of(viewer, LIST)
    assert shown_ids(viewer) == expected[:2]
    assert viewer.get(LIST).context["cl"].older is None
    last = viewer.get(LIST + "?p=2")
    assert [execution.pk for execution in last.context["cl"].result_list] == expected[2:3]
    older = viewer.get(LIST + last.context["cl"].older)
    assert [execution.pk for execution in older.context["cl"].result_list] == expected[3:5]
    assert "Back to the newest" in older.content.decode()
    assert "3 executions" in older.content.decode()


def test_a_count_within_the_bound_is_exact(viewer: Client) -> None:
    row()
    row()
    html = " ".join(text_of(viewer, LIST).split())
    assert "2 executions" in html
    assert "more than" not in html


def test_a_reader_cannot_ask_for_columns_that_he_may_not_see(viewer: Client) -> None:
    row(inputs='{"token":{"$":"secret","v":"hunter22"}}')
    for lookup in ("inputs__contains=hunter22", "output__startswith=x", "failure__contains=x", "lease_token=1"):
        assert viewer.get(f"{LIST}?{lookup}").status_code == 400, lookup


@pytest.mark.parametrize(
    "lookup",
    [
        *("status__exact", "reactor", "relation", "created", "id__lt"),
        *("parent__exact", "parent_step__exact", "parent_generation__exact"),
    ],
)
def test_what_no_database_can_look_for_is_answered_as_a_bad_lookup(viewer: Client, lookup: str) -> None:
    shown = row()
    for asked in ({lookup: "\x00"}, {lookup: "pack\x00", "q": "P-1"}):
        answer = viewer.get(LIST, asked)
        assert (answer.status_code, answer.headers["Location"]) == (302, f"{LIST}?e=1")
    assert shown_ids(viewer, "?e=1") == [shown.pk]


def test_a_search_for_what_no_database_can_look_for_says_so(viewer: Client) -> None:
    row()
    assert "Null characters are not allowed." in text_of(viewer, f"{LIST}?q=a%00")


# -- filters -----------------------------------------------------------------------------------------------------------


def test_status_reactor_and_time_narrow_the_list(viewer: Client) -> None:
    now = timezone.now()
    old, recent = rows_at(now - timedelta(days=8), now - timedelta(days=2))
    failed, other = row(status=Status.FAILED), row(reactor="depot.Gone")
    assert shown_ids(viewer, "?status__exact=failed") == [failed.pk]
    assert shown_ids(viewer, "?reactor=depot.Gone") == [other.pk]
    assert set(shown_ids(viewer, "?created=7")) == {recent.pk, failed.pk, other.pk}
    assert set(shown_ids(viewer, "?created=1")) == {failed.pk, other.pk}
    assert set(shown_ids(viewer, "?created=today")) == {failed.pk, other.pk}
    assert old.pk in shown_ids(viewer, "?created=30")
    assert len(shown_ids(viewer, "?created=rubbish")) == 4


def test_only_roots_are_listed_until_others_are_asked_for(viewer: Client) -> None:
    root = row()
    child = row(relation=Relation.COMPOSED, parent=root, root=root, owner=root, parent_step="pack")
    assert shown_ids(viewer) == [root.pk]
    assert shown_ids(viewer, "?relation=composed") == [child.pk]
    assert set(shown_ids(viewer, "?relation=all")) == {root.pk, child.pk}
    assert shown_ids(viewer, f"?relation=all&parent__exact={root.pk}") == [child.pk]


def test_reactors_to_choose_from_are_those_that_have_executions_known_or_not(viewer: Client) -> None:
    for label in ("depot.Shipment", "zoo.Removed", "depot.Shipment", "a.First"):
        row(reactor=label)
    assert stored_labels() == ["a.First", "depot.Shipment", "zoo.Removed"]
    html = text_of(viewer, LIST)
    assert "zoo.Removed (unknown here)" in html
    assert "depot.Shipment (unknown here)" not in html


def test_without_executions_there_are_no_reactors_to_choose_from(viewer: Client) -> None:
    assert stored_labels() == []
    assert shown_ids(viewer) == []


# -- search ------------------------------------------------------------------------------------------------------------


def test_an_id_or_its_beginning_is_found_also_of_a_child(viewer: Client) -> None:
    root, *_others = rows_at(*(datetime.now(UTC) - timedelta(days=days) for days in (0, 3, 6)))
    child = row(relation=Relation.COMPOSED, parent=root, root=root, owner=root, parent_step="pack")
    for text in (str(child.pk), child.pk.hex, str(child.pk).upper(), f"id:{child.pk}", f" {str(child.pk)[:30]}… "):
        assert shown_ids(viewer, f"?q={text}") == [child.pk], text
    assert root.pk in shown_ids(viewer, f"?q={str(root.pk)[:13]}")
    assert len(shown_ids(viewer, f"?q={str(root.pk)[:9]}")) <= 2
    assert shown_ids(viewer, "?q=ffffffff-ffff-4fff-8fff-ffffffffffff") == []


def test_an_idempotency_key_is_found_as_a_whole_whatever_its_reactor(viewer: Client) -> None:
    first = row(idempotency_key="order-17", reactor="depot.Shipment")
    second = row(idempotency_key="order-17", reactor="zoo.Removed")
    digits = row(idempotency_key="20240101")
    row(idempotency_key="order-171")
    assert set(shown_ids(viewer, "?q=order-17")) == {first.pk, second.pk}
    assert shown_ids(viewer, "?q=order-17&reactor=zoo.Removed") == [second.pk]
    assert shown_ids(viewer, "?q=20240101") == [digits.pk]
    assert shown_ids(viewer, "?q=key:20240101") == [digits.pk]
    assert shown_ids(viewer, "?q=order") == []


@pytest.mark.parametrize("tag", ["north", 'say "hi"', "100%", "a_b", "back\\slash", "größe", "a:b", "[]"])
def test_a_tag_is_found_as_a_whole(viewer: Client, tag: str) -> None:
    tagged = row(tags=["other", tag])
    row(tags=[f"{tag}ern", f"x{tag}", tag.upper() + "X", "a-b"])
    row(tags=[])
    assert [e.pk for e in viewer.get(LIST, {"q": tag}).context["cl"].result_list] == [tagged.pk]
    assert [e.pk for e in viewer.get(LIST, {"q": f"tag:{tag}"}).context["cl"].result_list] == [tagged.pk]


def test_a_tag_is_found_in_its_own_case_only(viewer: Client) -> None:
    row(tags=["North"])
    assert shown_ids(viewer, "?q=tag:north") == []


def test_a_key_hides_tags_of_the_same_name_unless_they_are_asked_for(viewer: Client) -> None:
    key, tag = row(idempotency_key="spring"), row(tags=["spring"])
    assert shown_ids(viewer, "?q=spring") == [key.pk]
    assert shown_ids(viewer, "?q=tag:spring") == [tag.pk]


def test_a_search_does_not_look_into_inputs_results_and_messages(viewer: Client) -> None:
    row(inputs='{"parcel":"needle"}', output='"needle"', failure={"message": "needle"}, status=Status.FAILED)
    assert shown_ids(viewer, "?q=needle") == []


def test_a_search_takes_the_same_queries_for_few_rows_and_many(viewer: Client) -> None:
    for _ in range(2):
        row(tags=["t"])
    few = len(queries(viewer, LIST + "?q=t"))
    for _ in range(30):
        row(tags=["t"])
    assert len(queries(viewer, LIST + "?q=t")) == few
