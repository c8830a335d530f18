"""The queue for tests: deliveries in the thread that enqueues them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from django_reactor.queues import entry, immediate

CHAIN = 5_000
"""Messages: as many nested calls would be too deep for the stack."""


@pytest.fixture(autouse=True)
def _only_these_deliveries() -> Iterator[None]:
    before = entry._deliver
    yield
    entry._deliver = before


def deliver_by(function: Callable[[str], None]) -> None:
    entry.deliver_by(function)


def send(execution_id: str, delay: float = 0) -> None:
    immediate.ImmediateBackend().enqueue(execution_id, queue_name="default", delay=delay, priority=None)


def new_ids(count: int) -> list[str]:
    return [str(uuid4()) for _ in range(count)]


def test_what_a_delivery_enqueues_is_delivered_after_it_in_order() -> None:
    first, second, third, fourth = new_ids(4)
    follow = {first: [second, third], second: [fourth]}
    events: list[str] = []

    def deliver(execution_id: str) -> None:
        events.append(f"begin {execution_id}")
        for other in follow.get(execution_id, []):
            send(other)
        events.append(f"end {execution_id}")

    deliver_by(deliver)
    send(first)
    assert events == [f"{what} {one}" for one in (first, second, third, fourth) for what in ("begin", "end")]


def test_a_long_chain_of_deliveries_needs_no_deep_stack() -> None:
    ids = new_ids(CHAIN)
    left = ids[1:]
    seen: list[str] = []

    def deliver(execution_id: str) -> None:
        seen.append(execution_id)
        if left:
            send(left.pop(0))

    deliver_by(deliver)
    send(ids[0])
    assert seen == ids


def test_a_delivery_that_raises_leaves_the_queue_usable() -> None:
    first, second = new_ids(2)
    seen: list[str] = []

    def deliver(execution_id: str) -> None:
        seen.append(execution_id)
        if execution_id == first:
            raise KeyboardInterrupt

    deliver_by(deliver)
    with pytest.raises(KeyboardInterrupt):
        send(first)
    send(second)
    assert seen == [first, second]


def test_threads_do_not_deliver_each_others_messages() -> None:
    (ours, theirs), where = new_ids(2), {}

    def deliver(execution_id: str) -> None:
        where[execution_id] = threading.get_ident()
        if execution_id == ours:
            thread = threading.Thread(target=send, args=(theirs,))
            thread.start()
            thread.join()

    deliver_by(deliver)
    send(ours)
    assert where[ours] == threading.get_ident() != where[theirs]


def test_a_message_with_a_delay_waits_for_a_drain_and_the_earliest_comes_first() -> None:
    late, early = new_ids(2)
    seen: list[str] = []
    deliver_by(seen.append)
    send(late, delay=200)
    send(early, delay=100)
    assert (seen, immediate.waiting()) == ([], [early, late])
    assert immediate.drain() == 2
    assert (seen, immediate.waiting()) == ([early, late], [])


def test_a_drain_ends_though_each_delivery_asks_for_another_one_later() -> None:
    (execution_id,) = new_ids(1)
    seen: list[str] = []

    def deliver(execution_id: str) -> None:
        seen.append(execution_id)
        send(execution_id, delay=60)

    deliver_by(deliver)
    send(execution_id, delay=60)
    assert immediate.drain() == 1
    assert immediate.waiting() == [execution_id]


def test_a_drain_with_a_timeout_waits_for_each_delay_and_not_beyond_its_end() -> None:
    (soon, never), times = new_ids(2), []
    deliver_by(lambda execution_id: times.append((execution_id, time.monotonic())))
    start = time.monotonic()
    send(never, delay=3600)
    send(soon, delay=0.05)
    assert immediate.drain(timeout=5) == 1
    assert [one for one, _ in times] == [soon]
    assert 0.05 <= times[0][1] - start < 5
    assert immediate.waiting() == [never]
