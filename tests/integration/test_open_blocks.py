"""Deliveries in threads that have a transaction open: a test's own, in which all of it takes part, and what others have
left behind, which is given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import dramatiq
import pytest
from django.db import connection, connections, transaction
from django.test import override_settings
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import TimeLimitExceeded

from django_reactor import Background, Reactor, Success, step
from django_reactor.core.statuses import Status
from django_reactor.models import Execution
from django_reactor.queues import actor
from tests.contract.committed import PATIENCE


class Handed(Reactor[str]):
    class Meta:
        returns = "two"
        background = Background(after="one")

    @step
    def one(self) -> None: ...

    @step
    def two(self, one: None) -> str:
        return "done"


@pytest.mark.django_db
@pytest.mark.parametrize("begin", [Handed.run, Handed.enqueue])
@override_settings(DJANGO_REACTOR={"BACKEND": "immediate"})
def test_a_test_delivers_inside_of_its_own_transaction(
    begin: Callable[[], Any], django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[Any]]
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        begin()
    execution = Execution.objects.get()
    assert execution.result() == Success("done", execution_id=execution.pk)


@pytest.fixture
def broker() -> Iterator[StubBroker]:
    broker = StubBroker(middleware=[])
    actor.prepare(broker)
    yield broker
    broker.close()


@pytest.mark.django_db(transaction=True)
@override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"})
def test_a_block_that_was_left_open_in_a_workers_thread_is_given_up(broker: StubBroker) -> None:
    def interrupted() -> None:
        """As its block is about to end."""
        transaction.atomic().__enter__()
        Execution.objects.update(priority=17)
        raise TimeLimitExceeded

    def last() -> None:
        assert not connection.in_atomic_block
        connections.close_all()

    other = dramatiq.actor(broker=broker, actor_name="interrupted")(interrupted)
    at_last = dramatiq.actor(broker=broker, actor_name="last")(last)
    execution_id = Handed.enqueue().execution_id
    other.send()
    broker.actors[actor.ACTOR].send(str(execution_id))
    at_last.send()
    worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=1)
    worker.start()
    try:
        broker.join("default", timeout=int(PATIENCE * 1000), fail_fast=False)
    finally:
        worker.stop()
    execution = Execution.objects.get()
    assert (execution.status, execution.priority) == (Status.COMPLETED, None)
