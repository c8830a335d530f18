"""What an execution's page shows of coordination."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_reactor import (
    Lock,
    OrderedLock,
    Period,
    RateLimit,
    Reactor,
    Redacted,
    Semaphore,
    Step,
    async_step,
    fail,
    runtime,
    step,
)
from django_reactor.coordination.redis.holds import RedisHolds
from django_reactor.coordination.redis.rates import RedisRateLimits
from django_reactor.core.statuses import Status
from django_reactor.engine import delivering
from django_reactor.engine.coordination_ports import HoldKind, Wanted, Window
from django_reactor.models import Execution
from django_reactor.runtime import services
from django_reactor.worker import definition
from testproject.brokers import redis_url
from tests.contract.redis_store import redis_at, redis_store
from tests.integration.admin_support import WAYS_TO_HIDE, client_of, hide, page_url, row, text_of
from tests.private_postgres import free_port
from tests.services import require_service

pytestmark = pytest.mark.django_db

OUTBOX = "tests.integration.test_delivery_costs.Outbox"
MOST_QUERIES = 11
"""Of a page without coordination (see test_admin_page)."""


@pytest.fixture
def viewer() -> Client:
    return client_of("view")


@pytest.fixture(autouse=True)
def _messages_wait() -> Iterator[None]:
    with override_settings(
        DJANGO_REACTOR={"BACKEND": "tests.integration.test_delivery_costs.Outbox", "REDIS_ALIAS": "redis"}
    ):
        yield


class Harbour(Reactor[Any]):
    """Everything at once, of the whole."""

    berth: str
    token: Redacted[str] = "unset"

    class Meta:
        app_label = "docks"
        lock = Lock("berth:{berth}", ttl=600)
        semaphore = Semaphore("crane", limit=2, ttl=600)
        rate_limit = RateLimit("tide:{berth}", limits={"minute": 2, "day": 3})
        period = Period("inspection:{berth}", every="year")
        ordered_lock = OrderedLock("queue:{berth}")

    @step
    def moor(self) -> str:
        return "moored"


class Weigh(Step[int]):
    container: str

    class Meta:
        lock = Lock("scale:{container}", ttl=600)

    def run(self) -> int:
        return 7


class Unload(Reactor[Any]):
    """Steps that coordinate."""

    berth: str
    token: Redacted[str] = "unset"

    class Meta:
        app_label = "docks"

    @step
    def find(self, berth: str) -> dict[str, str]:
        return {"container": f"C-{berth}"}

    @step(lock=Lock("deck:{find[container]}:{berth}", ttl=600), semaphore=Semaphore("crane", limit=2, ttl=600))
    def lift(self, find: dict[str, str]) -> str:
        return find["container"]

    @lift.undo
    def lower(self, result: str) -> None: ...

    @step(Weigh)
    def weigh(self, lift: str) -> dict[str, str]:
        return {"container": lift}

    @step
    def finish(self, weigh: int) -> int:
        fail("it is too heavy", retry=False)


DAY = [Window(name="day", seconds=86400, limit=3)]
OTHER = UUID(int=7)
"""An owner that is no execution, as a direct call of a step is."""


def take(key: str, owner: UUID = OTHER, kind: HoldKind = HoldKind.LOCK, limit: int = 1) -> Any:
    wanted = Wanted(kind=kind, key=key, ttl=600, limit=limit)
    hold = services().coordination.holds.take(owner, 1, wanted)
    assert hold is not None
    return hold


def stored(result: Any) -> Execution:
    return Execution.objects.get(pk=result.execution_id)


def deliver(execution_id: UUID | None) -> None:
    """As a worker does, on this connection."""
    assert execution_id is not None
    delivering.deliver(services(), definition, execution_id)


def delivered(result: Any) -> Execution:
    deliver(result.execution_id)
    return stored(result)


def panel(client: Client, execution: Any) -> Any:
    response = client.get(page_url(execution.execution_id if hasattr(execution, "execution_id") else execution))
    assert response.status_code == 200
    return response.context["page"].coordination


def facts(shown: Any) -> dict[tuple[str, str], list[str]]:
    """The lines of each key, without links."""
    return {
        (key.kind, key.key.text): [f"{fact.before} {fact.after}".strip() for fact in key.facts] for key in shown.keys
    }


def links(shown: Any, key: str) -> list[UUID]:
    (found,) = (each for each in shown.keys if each.key.text == key)
    return [fact.execution.id for fact in found.facts if fact.execution]


def count_queries(client: Client, execution: Any) -> int:
    client.get(page_url(execution))
    with CaptureQueriesContext(connection) as captured:
        assert client.get(page_url(execution)).status_code == 200
    return len(captured)


# -- of the whole ------------------------------------------------------------------------------------------------------


def test_each_declared_key_is_shown_in_the_order_of_asking_with_what_is_so_now(viewer: Client) -> None:
    waiting = Harbour.enqueue(berth="7")
    shown = panel(viewer, waiting)
    assert [(key.step, key.kind, key.key.text) for key in shown.keys] == [
        ("", "ordered lock", "queue:7"),
        ("", "period", "inspection:7"),
        ("", "rate limit", "tide:7"),
        ("", "lock", "berth:7"),
        ("", "semaphore", "crane"),
    ]
    assert shown.waits == ""
    found = facts(shown)
    assert found["ordered lock", "queue:7"] == ["number 1: its turn has come"]
    assert found["period", "inspection:7"][0].startswith(f"{datetime.now().year} is not marked; it is over in ")
    assert found["rate limit", "tide:7"] == ["0 of 2 starts in this minute", "0 of 3 starts in this day"]
    assert found["lock", "berth:7"] == ["free"]
    assert found["semaphore", "crane"] == ["0 of 2 slots are taken"]


def test_after_its_end_it_shows_what_it_has_used_and_marked(viewer: Client) -> None:
    done = delivered(Harbour.enqueue(berth="7"))
    assert done.status == Status.COMPLETED
    found = facts(panel(viewer, done))
    assert found["ordered lock", "queue:7"] == ["number 1: done"]
    assert found["period", "inspection:7"] == [f"this execution has marked {datetime.now().year}"]
    minute, day = found["rate limit", "tide:7"]
    assert minute.startswith(("1 of 2 starts in this minute, which rolls in ", "0 of 2"))  # a minute may have begun
    assert day.startswith("1 of 3 starts in this day, which rolls in ")
    assert found["lock", "berth:7"] == ["free"]


def test_who_else_has_marked_a_period_is_linked(viewer: Client) -> None:
    first = delivered(Harbour.enqueue(berth="7"))
    second = delivered(Harbour.enqueue(berth="7"))
    assert second.status == Status.HALTED
    assert links(panel(viewer, second), "inspection:7") == [first.pk]


def test_who_holds_a_lock_is_linked_and_what_waits_for_it_says_how_often_and_until_when(viewer: Client) -> None:
    other = row(status=Status.RUNNING)
    take("berth:7", other.pk)
    waiting = delivered(Harbour.enqueue(berth="7"))
    assert waiting.status == Status.SCHEDULED
    shown = panel(viewer, waiting)
    assert links(shown, "berth:7") == [other.pk]
    assert [key.key.text for key in shown.keys if key.is_awaited] == ["berth:7"]
    assert shown.waits.startswith("Waits: lock 'berth:7' is held by another execution. It has tried once, and tries")
    assert "tries again in " in shown.waits
    html = text_of(viewer, page_url(waiting))
    assert f'<a href="{page_url(other)}">depot.Shipment' in html
    assert "waits for this" in html
    assert facts(shown)["ordered lock", "queue:7"] == ["number 1: it is its turn"]

    Execution.objects.filter(pk=waiting.pk).update(wake_at=datetime.now(UTC) - timedelta(seconds=1))
    deliver(waiting.pk)
    assert "It has tried 2 times, and tries again" in panel(viewer, waiting).waits


def test_what_it_holds_itself_and_what_no_stored_execution_holds_is_said(viewer: Client) -> None:
    running = row(reactor="docks.Harbour", inputs='{"berth":"7"}', status=Status.RUNNING)
    take("berth:7", running.pk)
    take("crane", kind=HoldKind.SEMAPHORE, limit=2)
    found = facts(panel(viewer, running))
    assert found["lock", "berth:7"][0].startswith("held by this execution, for another 9 min 59 s unless extended")
    taken, holder = found["semaphore", "crane"]
    assert taken == "1 of 2 slots are taken"
    assert f"held by {OTHER}, which is no stored execution" in holder


def test_of_many_holders_some_are_named(viewer: Client) -> None:
    for _ in range(12):
        take("crane", uuid4(), HoldKind.SEMAPHORE, limit=12)
    found = facts(panel(viewer, row(reactor="docks.Harbour", inputs='{"berth":"7"}')))["semaphore", "crane"]
    assert found[0] == "12 of 2 slots are taken"
    assert len(found) == 12
    assert found[-1] == "…"


def test_a_full_window_says_when_it_rolls_and_is_what_is_waited_for(viewer: Client) -> None:
    for _ in range(3):
        services().coordination.rate_limits.charge("tide:7", DAY)
    waiting = delivered(Harbour.enqueue(berth="7"))
    shown = panel(viewer, waiting)
    assert facts(shown)["rate limit", "tide:7"][1].startswith("3 of 3 starts in this day, which rolls in ")
    assert [key.key.text for key in shown.keys if key.is_awaited] == ["tide:7"]
    assert "3 starts in this day are used up" in shown.waits


def test_who_waits_for_its_turn_sees_its_number_the_first_in_line_and_how_many_are_before_it(viewer: Client) -> None:
    head, between, waiting = (Harbour.enqueue(berth="7") for _ in range(3))
    take("berth:7")  # so that the first does not get on
    deliver(head.execution_id)
    deliver(waiting.execution_id)
    assert stored(waiting).status == Status.SCHEDULED
    shown = panel(viewer, waiting)
    assert shown.waits.startswith("Waits for its turn, for ")
    assert [key.key.text for key in shown.keys if key.is_awaited] == ["queue:7"]
    place, first = facts(shown)["ordered lock", "queue:7"]
    assert place == "number 3: 2 are before it"
    assert first.startswith("number 1 is the first: at the head for ")
    assert links(shown, "queue:7") == [head.execution_id]
    assert facts(panel(viewer, between))["ordered lock", "queue:7"][0] == "number 2: 1 is before it"


@pytest.mark.parametrize("way", WAYS_TO_HIDE)
def test_who_may_not_be_seen_is_not_named(viewer: Client, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    other = row(status=Status.RUNNING, reactor="vault.Secret")
    hide(monkeypatch, way, other)
    take("berth:7", other.pk)
    waiting = delivered(Harbour.enqueue(berth="7"))
    shown = panel(viewer, waiting)
    assert facts(shown)["lock", "berth:7"][0].startswith("held by another execution, for another ")
    coordination = text_of(viewer, page_url(waiting)).partition('id="coordination"')[2]
    assert str(other.pk) not in coordination
    assert "vault.Secret" not in coordination


@pytest.mark.parametrize("way", WAYS_TO_HIDE)
def test_who_is_first_in_line_or_has_marked_a_period_is_not_named_if_it_may_not_be_seen(
    viewer: Client, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    done = delivered(Harbour.enqueue(berth="7"))
    hide(monkeypatch, way, done)
    later = Harbour.enqueue(berth="7")
    year = datetime.now().year
    assert facts(panel(viewer, later))["period", "inspection:7"][0].startswith(f"{year} is marked by another execution")
    head, waiting = (Harbour.enqueue(berth="8") for _ in range(2))
    hide(monkeypatch, way, stored(head))
    assert facts(panel(viewer, waiting))["ordered lock", "queue:8"][1].startswith(
        "number 1 is the first: another execution"
    )
    assert str(head.execution_id) not in text_of(viewer, page_url(waiting.execution_id))


# -- of a step ---------------------------------------------------------------------------------------------------------


def test_the_step_that_waits_is_shown_with_keys_of_results_and_inputs(viewer: Client) -> None:
    take("deck:C-3:3")
    waiting = delivered(Unload.enqueue(berth="3"))
    assert waiting.status == Status.SCHEDULED
    shown = panel(viewer, waiting)
    assert [(key.step, key.kind, key.key.text) for key in shown.keys] == [
        ("lift", "lock", "deck:C-3:3"),
        ("lift", "semaphore", "crane"),
    ]
    assert [key.key.text for key in shown.keys if key.is_awaited] == ["deck:C-3:3"]


def test_what_a_function_makes_for_a_step_class_is_not_known_before_and_said_so(viewer: Client) -> None:
    take("scale:C-3")
    waiting = delivered(Unload.enqueue(berth="3"))
    (shown,) = panel(viewer, waiting).keys
    assert (shown.step, shown.is_broken) == ("weigh", True)
    assert "known once an attempt has ended" in shown.facts[0].before
    assert "scale:C-3" in panel(viewer, waiting).waits


def test_an_undo_that_needs_its_locks_shows_them(viewer: Client) -> None:
    failed = delivered(Unload.enqueue(berth="3"))
    assert failed.status == Status.FAILED
    assert panel(viewer, failed) is None
    entries = failed.entries.order_by("seq")
    undone = entries.get(step="lift", action="undo")
    undone.delete()
    Execution.objects.filter(pk=failed.pk).update(status=Status.ROLLING_BACK)
    shown = panel(viewer, failed)
    assert [(key.step, key.kind, key.key.text) for key in shown.keys] == [
        ("lift", "lock", "deck:C-3:3"),
        ("lift", "semaphore", "crane"),
    ]


class Notify(Reactor[Any]):
    berth: str

    class Meta:
        app_label = "docks"

    @async_step(lock=Lock("mail:{looked_up}:{berth}", ttl=600))
    def tell(self, looked_up: str) -> None: ...

    @step
    def looked_up(self) -> str:
        return "Ada"


def test_a_unit_shows_what_its_step_declares_with_the_inputs_of_its_parent(viewer: Client) -> None:
    take("mail:Ada:3")
    delivered(Notify.enqueue(berth="3"))
    unit = Execution.objects.get(parent_step="tell")
    deliver(unit.pk)
    shown = panel(viewer, unit)
    assert [(key.step, key.key.text, key.is_awaited) for key in shown.keys] == [("tell", "mail:Ada:3", True)]


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_key_that_cannot_be_made_any_more_is_shown_as_such(viewer: Client) -> None:
    old = row(reactor="docks.Harbour", inputs='{"pier":"<b>7</b>"}')
    shown = panel(viewer, old)
    broken = [key for key in shown.keys if key.is_broken]
    assert [key.kind for key in broken] == ["ordered lock", "period", "rate limit", "lock"]
    assert {key.key.text for key in broken} == {"[cannot be made any more]"}
    assert all("'berth'" in key.facts[0].before for key in broken)
    assert facts(shown)["semaphore", "crane"] == ["0 of 2 slots are taken"]


class Unnamed(Reactor[Any]):
    class Meta:
        app_label = "docks"
        rate_limit = RateLimit.named("nobody")

    @step
    def only(self) -> None: ...


def test_a_limit_that_nobody_has_named_is_shown_as_such(viewer: Client) -> None:
    (shown,) = panel(viewer, row(reactor="docks.Unnamed", inputs="{}")).keys
    assert shown.is_broken
    assert "nobody" in shown.facts[0].before


def test_keys_are_escaped_and_say_no_secret(viewer: Client) -> None:
    secret = '{"berth":"<b>hush</b>","token":{"$":"secretstr","v":"hush"}}'
    html = text_of(viewer, page_url(row(reactor="docks.Harbour", inputs=secret)))
    part = html.partition('id="coordination"')[2].partition("</section>")[0]
    assert "berth:&lt;b&gt;[REDACTED]&lt;/b&gt;" in part
    assert "<b>" not in part
    assert "hush" not in html


def test_a_reactor_that_is_gone_or_declares_nothing_has_no_such_part(viewer: Client) -> None:
    assert panel(viewer, row(reactor="docks.Sunk")) is None
    assert 'id="coordination"' not in text_of(viewer, page_url(row()))


# -- on Redis ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def on_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds and rate limits of this process are there, by whatever cache is configured."""
    before = services()
    there = replace(before.coordination, holds=RedisHolds(), rate_limits=RedisRateLimits())
    monkeypatch.setitem(runtime._made, runtime._PROCESS, replace(before, coordination=there))


@pytest.mark.usefixtures("on_redis")
def test_what_redis_knows_is_shown(viewer: Client) -> None:
    require_service("redis")
    with redis_store(redis_url(os.environ)) as store:
        store.has_run_for_long()
        other, waiting = row(), row(reactor="docks.Harbour", inputs='{"berth":"7"}', status=Status.PENDING)
        take("berth:7", other.pk)
        services().coordination.rate_limits.charge("tide:7", DAY)
        shown = panel(viewer, waiting)
        assert links(shown, "berth:7") == [other.pk]
        assert facts(shown)["rate limit", "tide:7"][1].startswith("1 of 3 starts in this day, which rolls in ")
        assert not any(key.is_broken for key in shown.keys)


@pytest.mark.usefixtures("on_redis")
def test_if_redis_is_away_the_page_says_so_and_shows_the_rest(viewer: Client) -> None:
    pytest.importorskip("django_redis")
    with redis_at(f"redis://127.0.0.1:{free_port()}/0"):
        shown = panel(viewer, row(reactor="docks.Harbour", inputs='{"berth":"7"}', status=Status.PENDING))
    assert [key.kind for key in shown.keys if key.is_broken] == ["rate limit", "lock", "semaphore"]
    assert facts(shown)["lock", "berth:7"][0].startswith("Redis (the cache 'redis') does not answer: ")
    assert facts(shown)["ordered lock", "queue:7"] == ["no number is drawn"]


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_only_pages_of_what_coordinates_cost_more_and_no_page_the_more_the_more_there_is(viewer: Client) -> None:
    plain = row()
    ended = delivered(Unload.enqueue(berth="1"))
    assert count_queries(viewer, plain) <= MOST_QUERIES
    assert count_queries(viewer, ended) <= MOST_QUERIES, "its steps have ended"
    quiet = Harbour.enqueue(berth="2")
    alone = count_queries(viewer, quiet.execution_id)
    for _ in range(5):
        take("crane", row().pk, HoldKind.SEMAPHORE, limit=9)
        Harbour.enqueue(berth="2")
    last = Harbour.enqueue(berth="2")
    assert alone <= MOST_QUERIES + 6, "two of holds, one each of counts, marks, the clock and places"
    assert count_queries(viewer, last.execution_id) == alone + 1, "the executions that are linked"


def test_a_page_of_a_step_that_coordinates_reads_the_journal_once_more(viewer: Client) -> None:
    waiting = Unload.enqueue(berth="3")
    assert count_queries(viewer, waiting.execution_id) <= MOST_QUERIES + 4, "the journal, values, two of holds"
