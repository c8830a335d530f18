"""System checks of the queue, by id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import dramatiq
import pytest
from django.core.checks import CheckMessage
from django.db import connection, connections
from django.test import modify_settings, override_settings
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.encoder import JSONEncoder, PickleEncoder

from django_reactor import Reactor, queues, step
from django_reactor.queues.checks import check_queue, check_workers

pytestmark = pytest.mark.usefixtures("own_registry")

NOWHERE = {"default": {"HOST": "127.0.0.1", "PORT": 1, "SERIALIZER": "rq.serializers.JSONSerializer"}}
OUR_WORKER = {"WORKER_CLASS": "django_reactor.queues.rq_worker.Worker"}


@pytest.fixture(autouse=True)
def _another_choice_afterwards() -> Iterator[None]:
    yield
    queues.backend.forget()


def found(backend: str, **settings: Any) -> list[CheckMessage]:
    with override_settings(DJANGO_REACTOR={"BACKEND": backend}, **settings):
        return check_queue()


def only(identifier: str, messages: list[CheckMessage]) -> str:
    (message,) = messages
    assert message.id == f"django_reactor.{identifier}"
    assert message.hint
    return message.msg


@contextmanager
def broker_of(broker: dramatiq.Broker | None) -> Iterator[None]:
    before = dramatiq.broker.global_broker
    dramatiq.broker.global_broker = broker
    try:
        yield
    finally:
        dramatiq.broker.global_broker = before


def prepared(broker: dramatiq.Broker) -> dramatiq.Broker:
    with broker_of(broker), override_settings(DJANGO_REACTOR={"BACKEND": "dramatiq"}):
        queues.backend().prepare()
    return broker


def rq(queues_of_rq: dict[str, Any] | None = None, **settings: Any) -> list[CheckMessage]:
    configured = NOWHERE if queues_of_rq is None else queues_of_rq
    with modify_settings(INSTALLED_APPS={"append": "django_rq"}):
        return found("rq", RQ_QUEUES=configured, RQ=OUR_WORKER, **settings)


def tasks(**backend: Any) -> list[CheckMessage]:
    return found("tasks", TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"} | backend})


@pytest.mark.parametrize("backend", ["immediate", "dramatiq"])
def test_a_queue_in_order_gives_no_message(backend: str) -> None:
    with broker_of(None):
        assert found(backend) == []


def test_brokers_in_order_give_no_message() -> None:
    for broker in (RedisBroker(), RabbitmqBroker(confirm_delivery=True)):
        with broker_of(prepared(broker)):
            assert found("dramatiq") == []
    assert rq() == []
    assert tasks() == []


def test_e201_a_queue_that_cannot_be_loaded() -> None:
    assert "'rabbit'" in only("E201", found("rabbit"))
    assert "no.such.Queue" in only("E201", found("no.such.Queue"))


def test_e202_a_broker_that_nothing_reads() -> None:
    with broker_of(None):
        only("E202", found("dramatiq", DRAMATIQ_BROKER={}))


def test_e203_a_broker_that_does_not_know_the_actor() -> None:
    with broker_of(RedisBroker()):
        assert "'django_reactor.deliver'" in only("E203", found("dramatiq"))


def test_w202_pickled_messages_of_dramatiq() -> None:
    with broker_of(prepared(RedisBroker())):
        dramatiq.set_encoder(PickleEncoder())
        try:
            only("W202", found("dramatiq"))
        finally:
            dramatiq.set_encoder(JSONEncoder())


def test_w203_messages_that_rabbitmq_does_not_confirm() -> None:
    with broker_of(prepared(RabbitmqBroker())):
        only("W203", found("dramatiq"))


def test_e204_an_app_of_rq_that_is_not_installed() -> None:
    only("E204", found("rq", RQ_QUEUES=NOWHERE))


def test_e205_a_queue_that_rq_does_not_have() -> None:
    class Slow(Reactor[Any]):
        class Meta:
            queue_name = "slow"

        @step
        def work(self) -> None: ...

    assert "'slow'" in only("E205", rq())
    assert [message.id for message in rq({})] == ["django_reactor.E205"] * 2


@pytest.mark.parametrize("serializer", ["rq.serializers.PickleSerializer", None])
def test_w204_pickled_jobs_of_rq(serializer: str | None) -> None:
    assert "'default'" in only("W204", rq({"default": NOWHERE["default"] | {"SERIALIZER": serializer}}))


def test_w205_workers_of_rq_without_a_sweeper() -> None:
    with modify_settings(INSTALLED_APPS={"append": "django_rq"}):
        only("W205", found("rq", RQ_QUEUES=NOWHERE))


def test_e206_a_queue_that_the_backend_of_tasks_does_not_have() -> None:
    assert "'default'" in only("E206", tasks(QUEUES=["mails"]))


def test_w206_a_backend_of_tasks_that_cannot_put_off() -> None:
    library = "django.tasks" if find_spec("django.tasks") else "django_tasks"
    message = only("W206", tasks(BACKEND=f"{library}.backends.immediate.ImmediateBackend"))
    assert "ImmediateBackend" in message


def test_w207_a_priority_that_is_not_used() -> None:
    class Urgent(Reactor[Any]):
        class Meta:
            priority = 10

        @step
        def work(self) -> None: ...

    assert "Urgent" in only("W207", found("immediate"))
    assert tasks() == []
    with broker_of(prepared(RabbitmqBroker(confirm_delivery=True, max_priority=10))):
        assert found("dramatiq") == []


def test_w201_is_said_of_a_deployment_without_a_broker() -> None:
    with broker_of(None), override_settings(DJANGO_REACTOR={"BACKEND": "dramatiq"}):
        only("W201", check_workers())
    with broker_of(prepared(RedisBroker())), override_settings(DJANGO_REACTOR={"BACKEND": "dramatiq"}):
        assert "W201" not in str(check_workers())
    with override_settings(DJANGO_REACTOR={"BACKEND": "immediate"}):
        assert check_workers() == []


@pytest.mark.parametrize(
    ("changes", "is_said"),
    [
        ({"CONN_MAX_AGE": 0}, True),
        ({"CONN_MAX_AGE": 600}, False),
        ({"CONN_MAX_AGE": None}, False),
        ({"CONN_MAX_AGE": 0, "OPTIONS": {"pool": True}}, False),
    ],
    ids=["closed each time", "kept for a time", "kept for ever", "in a pool"],
)
def test_w208_is_said_of_workers_that_connect_anew_for_every_delivery(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], is_said: bool
) -> None:
    for name, value in changes.items():
        monkeypatch.setitem(connections.settings["default"], name, value)
    with broker_of(prepared(RedisBroker())), override_settings(DJANGO_REACTOR={"BACKEND": "dramatiq"}):
        messages = check_workers()
    if is_said and connection.vendor != "sqlite":
        assert "default" in only("W208", messages)
    else:
        assert messages == []


def test_settings_that_cannot_be_read_are_reported_elsewhere() -> None:
    with override_settings(DJANGO_REACTOR={"BACKENT": "rq"}):
        assert check_queue() == check_workers() == []
