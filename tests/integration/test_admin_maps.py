"""The maps on one execution's page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_reactor import Reactor, Step, fail, map_step, worker
from django_reactor.models import Execution
from tests.integration.admin_support import client_of, page_url, shown_ids, text_of
from tests.stored import execution_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _lost_messages() -> Iterator[None]:
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        yield


@pytest.fixture
def viewer() -> Client:
    return client_of("view")


class Weigh(Step[int]):
    parcel: int

    class Meta:
        name = "depot.Weigh"

    def run(self) -> int:
        if self.parcel == 13:
            fail("the scale is broken")
        return self.parcel


class Weighs(Reactor[Any]):
    parcels: list[int]

    class Meta:
        app_label = "depot"

    @map_step(Weigh, fan_out=2, fail_fast=False)
    def weights(self, parcels: list[int]) -> Iterable[dict[str, int]]:
        return ({"parcel": parcel} for parcel in parcels)


def weighed(*parcels: int, deliveries: int = 0) -> Execution:
    execution = execution_of(Weighs.run(parcels=list(parcels)))
    for row in Execution.objects.filter(parent=execution.pk).order_by("element_index")[:deliveries]:
        worker.deliver(row.pk)
    return execution


def test_a_map_is_shown_with_its_state_and_its_elements_by_status(viewer: Client) -> None:
    execution = weighed(1, 13, 2, 3, deliveries=2)
    response = viewer.get(page_url(execution.pk))
    (shown,) = response.context["page"].maps
    assert (shown.step, str(shown.state), shown.total, shown.ended) == ("weights", "running", 4, 4)
    html = response.content.decode()
    section = html.partition('id="maps-title"')[2].partition("</section>")[0]
    for text in ("4 of 4 ended", "in workers, at most 2 at a time", "failures are kept", "reactor-failed"):
        assert text in section
    assert response.context["page"].children == []


def test_each_count_leads_to_these_elements(viewer: Client) -> None:
    execution = weighed(1, 13, 2, 3, deliveries=2)
    weighed(13, deliveries=1)
    (shown,) = viewer.get(page_url(execution.pk)).context["page"].maps
    failed = next(counted for counted in shown.counts if "reactor-failed" in counted.badge)
    assert failed.number == 1
    (element,) = shown_ids(viewer, f"?{failed.query}")
    assert str(element) == str(Execution.objects.get(parent=execution.pk, status="failed").pk)
    assert len(shown_ids(viewer, f"?{shown.query}")) == 4


def test_an_element_has_a_page_of_its_own(viewer: Client) -> None:
    weighed(13, deliveries=1)
    element = Execution.objects.get(relation="element")
    html = text_of(viewer, page_url(element.pk))
    for text in ("depot.Weigh", "the scale is broken", "reactor-failed"):
        assert text in html
    assert "This reactor is not known here" not in html


def test_a_page_makes_as_many_queries_for_many_elements_as_for_few(viewer: Client) -> None:
    counts = []
    for size in (1, 60):
        execution = weighed(*range(100, 100 + size), deliveries=1)
        viewer.get(page_url(execution.pk))
        with CaptureQueriesContext(connection) as captured:
            viewer.get(page_url(execution.pk))
        counts.append(len(captured))
    assert counts[0] == counts[1]
