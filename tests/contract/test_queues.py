"""What every adapter of a queue keeps, on its library's own worker and on real brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest

from django_reactor.queues import entry
from tests.contract.committed import eventually
from tests.contract.stations import STATIONS, Station
from tests.services import require_service

DELAY = 1.5
"""Seconds: more than a second, since some libraries count whole ones."""
MOST_PATIENCE = 20.0
"""Seconds within which a broker that is away must be said to be so."""


class Arrivals:
    """What was delivered, and when."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.times: list[float] = []

    def __call__(self, execution_id: str) -> None:
        self.times.append(time.time())
        self.ids.append(execution_id)


@pytest.fixture
def arrivals() -> Iterator[Arrivals]:
    before = entry._deliver
    arrived = Arrivals()
    entry.deliver_by(arrived)
    yield arrived
    entry._deliver = before


def those(quality: str) -> pytest.MarkDecorator:
    """Run it on the stations that have this quality."""
    return pytest.mark.parametrize(
        "station", [name for name, kind in STATIONS.items() if getattr(kind, quality)], indirect=True
    )


@pytest.fixture(params=list(STATIONS))
def station(request: pytest.FixtureRequest, arrivals: Arrivals, transactional_db: None) -> Iterator[Station]:
    kind = STATIONS[request.param]
    if kind.service is not None:
        require_service(kind.service)
    with ExitStack() as stack:
        yield kind(stack)


@pytest.fixture
def queue_name() -> str:
    return f"contract-{uuid4().hex[:8]}"  # some libraries have room for 32 characters


def new_id() -> str:
    return str(uuid4())


def send(
    station: Station, execution_id: str, queue_name: str, *, delay: float = 0, priority: int | None = None
) -> None:
    station.backend.enqueue(execution_id, queue_name=queue_name, delay=delay, priority=priority)


def arrive(station: Station, arrivals: Arrivals, count: int, *queue_names: str) -> list[str]:
    """The first so many arrivals."""

    def worked() -> bool:
        station.work(*queue_names)
        return len(arrivals.ids) >= count

    eventually(worked, f"the arrival of {count} messages")
    return arrivals.ids


def test_a_message_arrives_once_with_its_id(station: Station, arrivals: Arrivals, queue_name: str) -> None:
    first, second = new_id(), new_id()
    send(station, first, queue_name)
    assert arrive(station, arrivals, 1, queue_name) == [first]
    send(station, second, queue_name)
    assert arrive(station, arrivals, 2, queue_name) == [first, second]


def test_two_messages_for_one_execution_are_two(station: Station, arrivals: Arrivals, queue_name: str) -> None:
    execution_id = new_id()
    send(station, execution_id, queue_name, delay=0.1)
    send(station, execution_id, queue_name)
    assert arrive(station, arrivals, 2, queue_name) == [execution_id, execution_id]


def test_a_message_with_a_delay_comes_when_it_is_over_and_not_before(
    station: Station, arrivals: Arrivals, queue_name: str
) -> None:
    later, now = new_id(), new_id()
    sent = time.time()
    send(station, later, queue_name, delay=DELAY)
    send(station, now, queue_name)
    assert arrive(station, arrivals, 2, queue_name) == [now, later]
    assert arrivals.times[1] >= sent + DELAY


@those("is_pulled")
def test_a_worker_takes_the_messages_of_its_queues_only(station: Station, arrivals: Arrivals, queue_name: str) -> None:
    foreign, own = new_id(), new_id()
    send(station, foreign, f"{queue_name}-of-others")
    send(station, own, queue_name)
    assert arrive(station, arrivals, 1, queue_name) == [own]
    assert len(station.contents(f"{queue_name}-of-others")) > 0


def test_the_broker_holds_the_id_and_no_pickle(station: Station, queue_name: str) -> None:
    execution_id = new_id()
    send(station, execution_id, queue_name, delay=3600)
    if station.is_pulled:
        send(station, execution_id, queue_name)
    contents = station.contents(queue_name)
    holding = [content for content in contents if execution_id.encode() in content]
    assert len(holding) >= (2 if station.is_pulled else len(contents))
    for content in contents:
        content.decode()  # text, all of it
        assert b"django_reactor.deliver" in content or len(content) < 150, content


def test_what_holds_no_id_is_dropped_and_the_next_message_comes(
    station: Station, arrivals: Arrivals, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    execution_id = new_id()
    send(station, "rm -rf", queue_name)
    send(station, execution_id, queue_name)
    assert arrive(station, arrivals, 1, queue_name) == [execution_id]
    assert "does not hold the id of an execution" in caplog.text
    assert "rm -rf" not in [record.getMessage() for record in caplog.records if record.name == "django_reactor"]


@those("is_distant")
def test_a_broker_that_is_away_is_said_to_be_so_in_time_and_serves_again_when_it_is_back(
    station: Station, arrivals: Arrivals, queue_name: str
) -> None:
    assert station.line is not None
    before, lost, after = new_id(), new_id(), new_id()
    send(station, before, queue_name)
    station.line.cut()
    started = time.monotonic()
    with pytest.raises(Exception):  # noqa: B017, PT011  # each library has its own
        send(station, lost, queue_name)
    assert time.monotonic() - started < MOST_PATIENCE
    station.line.mend()
    send(station, after, queue_name)
    assert arrive(station, arrivals, 2, queue_name) == [before, after]


@those("is_distant")
def test_a_worker_goes_on_after_its_broker_was_away(station: Station, arrivals: Arrivals, queue_name: str) -> None:
    assert station.line is not None
    before, after = new_id(), new_id()
    send(station, before, queue_name)
    arrive(station, arrivals, 1, queue_name)
    station.line.cut()
    station.line.mend()
    send(station, after, queue_name)
    arrive(station, arrivals, 2, queue_name)
    assert after in arrivals.ids


def test_where_priorities_are_supported_the_higher_one_comes_first(
    station: Station, arrivals: Arrivals, queue_name: str
) -> None:
    low, high = new_id(), new_id()
    if not station.backend.supports_priority:
        send(station, low, queue_name, priority=-50)
        assert arrive(station, arrivals, 1, queue_name) == [low], "one that is not used is no error"
        return
    send(station, low, queue_name, priority=-1000)
    send(station, high, queue_name, priority=1000)
    assert arrive(station, arrivals, 2, queue_name) == [high, low]
