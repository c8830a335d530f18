"""The queues under contract: each adapter with its library's own worker in this process, and a look into its broker."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol
from uuid import uuid4

import dramatiq
import pika
import redis
from django.test import override_settings
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker
from rq import Queue, SimpleWorker
from rq.job import Job
from rq.registry import ScheduledJobRegistry
from rq.scheduler import RQScheduler
from rq.serializers import JSONSerializer

from django_reactor.conf import SETTING
from django_reactor.queues import Backend, backend, immediate, in_process, processes
from testproject import brokers
from tests.lines import Line
from tests.workers import close_connections_of_rq, forget_in_redis

__all__ = ["STATIONS", "Station"]

DEAD_LETTERS = (".DQ", ".XQ")


class Station(Protocol):
    service: str | None
    """What it needs to run, by its name in `tests.services`."""
    is_pulled: bool
    """Whether a message waits until a worker takes it."""
    is_distant: bool
    """Whether its broker is reached over a `line`."""
    line: Line | None
    """What leads to the broker, if it is distant."""

    def __init__(self, stack: ExitStack) -> None:
        """Whatever has to be undone goes on the stack."""

    @property
    def backend(self) -> Backend: ...

    def work(self, *queue_names: str) -> None:
        """Let a worker of these queues deliver what is due, or go on doing so."""

    def contents(self, queue_name: str) -> Sequence[bytes]:
        """What the broker holds for this queue, due or not."""


class _Settings:
    """The adapter that these settings choose."""

    service: str | None = None
    is_pulled = True
    is_distant = False
    line: Line | None = None

    def __init__(self, stack: ExitStack, name: str, **settings: Any) -> None:
        chosen = {"BACKEND": name, "SWEEPER": False}
        stack.enter_context(override_settings(**{SETTING: chosen}, **settings))
        stack.callback(backend.forget)
        stack.callback(processes.stopped)

    @property
    def backend(self) -> Backend:
        return backend()


class Immediate(_Settings):
    is_pulled = False

    def __init__(self, stack: ExitStack) -> None:
        super().__init__(stack, "immediate")
        stack.callback(immediate.discard)

    def work(self, *queue_names: str) -> None:
        immediate.drain(timeout=0.05)

    def contents(self, queue_name: str) -> Sequence[bytes]:
        return [execution_id.encode() for execution_id in immediate.waiting()]


class InProcess(_Settings):
    is_pulled = False

    def __init__(self, stack: ExitStack) -> None:
        super().__init__(stack, "dramatiq")
        assert dramatiq.broker.global_broker is None
        stack.callback(in_process.stop)

    def work(self, *queue_names: str) -> None:
        """Its threads do so."""

    def contents(self, queue_name: str) -> Sequence[bytes]:
        return []


class _Dramatiq(_Settings):
    is_distant = True

    def __init__(self, stack: ExitStack, broker: dramatiq.Broker) -> None:
        super().__init__(stack, "dramatiq")
        dramatiq.set_broker(broker)
        self.broker, self._stack = broker, stack
        self._queues: set[str] = set()
        stack.callback(setattr, dramatiq.broker, "global_broker", None)

    def work(self, *queue_names: str) -> None:
        if not self._queues:
            worker = dramatiq.Worker(self.broker, queues=set(queue_names), worker_timeout=50, worker_threads=1)
            worker.start()
            self._queues.update(queue_names)
            self._stack.callback(worker.stop, timeout=5000)
        assert self._queues == set(queue_names)


class DramatiqOnRedis(_Dramatiq):
    service = "redis"

    def __init__(self, stack: ExitStack) -> None:
        self.line = Line(brokers.redis_url(os.environ))
        stack.callback(self.line.cut)
        self._namespace = f"contract-{uuid4()}"
        broker = RedisBroker(url=self.line.url, namespace=self._namespace)
        self._client = stack.enter_context(redis.Redis.from_url(brokers.redis_url(os.environ)))
        stack.callback(forget_in_redis, self._client, self._namespace)
        super().__init__(stack, broker)

    def contents(self, queue_name: str) -> Sequence[bytes]:
        names = (f"{self._namespace}:{name}.msgs" for name in (queue_name, f"{queue_name}.DQ"))
        return [content for name in names for content in self._client.hvals(name)]


class DramatiqOnRabbitmq(_Dramatiq):
    service = "rabbitmq"

    def __init__(self, stack: ExitStack) -> None:
        self.line = Line(brokers.rabbitmq_url(os.environ))
        stack.callback(self.line.cut)
        broker = RabbitmqBroker(url=self.line.url, confirm_delivery=True, max_priority=10)
        stack.callback(self._delete_queues)
        stack.callback(broker.close)
        super().__init__(stack, broker)

    def contents(self, queue_name: str) -> Sequence[bytes]:
        found = []
        with _rabbitmq_channel() as channel:
            for name in (queue_name, f"{queue_name}.DQ"):
                while (message := channel.basic_get(name))[2] is not None:
                    found.append(message[2])  # not acknowledged: it goes back when the channel closes
        return found

    def _delete_queues(self) -> None:
        with _rabbitmq_channel() as channel:
            for name in self.broker.queues - {"default"}:
                for queue in (name, *(f"{name}{suffix}" for suffix in DEAD_LETTERS)):
                    channel.queue_delete(queue)


class Rq(_Settings):
    service = "redis"
    is_distant = True

    def __init__(self, stack: ExitStack) -> None:
        self.line = Line(brokers.redis_url(os.environ))
        stack.callback(self.line.cut)
        self._client = stack.enter_context(redis.Redis.from_url(brokers.redis_url(os.environ)))
        super().__init__(stack, "rq", RQ_QUEUES=_RqQueues(self.line.url))
        stack.callback(close_connections_of_rq)
        self._stack = stack

    def work(self, *queue_names: str) -> None:
        queues = [self._queue(name) for name in queue_names]
        scheduler = RQScheduler(queue_names, connection=self._client, serializer=JSONSerializer)
        scheduler.acquire_locks()
        scheduler.enqueue_scheduled_jobs()
        scheduler.release_locks()
        with _signal_handlers():
            SimpleWorker(queues, connection=self._client, serializer=JSONSerializer).work(
                burst=True, logging_level="WARNING"
            )

    def contents(self, queue_name: str) -> Sequence[bytes]:
        queue = self._queue(queue_name)
        scheduled = ScheduledJobRegistry(queue=queue).get_job_ids()
        found = []
        for job in (Job.key_for(job_id) for job_id in [*queue.get_job_ids(), *scheduled]):
            fields: dict[bytes, bytes] = self._client.hgetall(job)
            found.append(zlib.decompress(fields[b"data"]))
            found.extend(value for name, value in fields.items() if name != b"data")
        return found

    def _queue(self, name: str) -> Queue:
        self._stack.callback(forget_in_redis, self._client, name)
        return Queue(name, connection=self._client, serializer=JSONSerializer)


class _RqQueues(dict[str, dict[str, Any]]):
    """Any name is configured."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._each = {"URL": url, "SERIALIZER": brokers.JSON}

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> dict[str, Any]:
        return self._each


class Tasks(_Settings):
    """Django's tasks in the database: its broker is the one under the test."""

    def __init__(self, stack: ExitStack) -> None:
        configured = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": []}}
        super().__init__(stack, "tasks", TASKS=configured)
        from django_tasks_db.models import DBTaskResult

        self._rows = DBTaskResult.objects.all()
        stack.callback(self._rows.delete)

    def work(self, *queue_names: str) -> None:
        from django_tasks_db.management.commands.db_worker import Worker

        Worker(
            queue_names=list(queue_names),
            interval=0,
            batch=True,
            backend_name="default",
            startup_delay=False,
            max_tasks=None,
            worker_id=str(uuid4()),
            excluded_queue_names=[],
        ).run()

    def contents(self, queue_name: str) -> Sequence[bytes]:
        return [str(row.args_kwargs).encode() for row in self._rows.filter(queue_name=queue_name)]


STATIONS: dict[str, type[Any]] = {
    "immediate": Immediate,
    "dramatiq in process": InProcess,
    "dramatiq on redis": DramatiqOnRedis,
    "dramatiq on rabbitmq": DramatiqOnRabbitmq,
    "rq": Rq,
    "tasks": Tasks,
}


@contextmanager
def _rabbitmq_channel() -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(brokers.rabbitmq_url(os.environ)))
    try:
        yield connection.channel()
    finally:
        connection.close()


@contextmanager
def _signal_handlers() -> Iterator[None]:
    """RQ's worker sets its own and leaves them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
