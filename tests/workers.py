"""Real worker processes of every queue, on the tests' database, and this process as the one that sends to them.

    with fleet("rq", environment, tmp_path) as workers:
        worker = workers.start()
        …

Their output is shown when the test fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import dramatiq
import pika
import redis
from django.test import override_settings
from django.utils.module_loading import import_string

from django_reactor import queues
from testproject import brokers
from tests.services import require_service

__all__ = ["KINDS", "ROOT", "Fleet", "Worker", "close_connections_of_rq", "fleet", "forget_in_redis"]

ROOT = Path(__file__).resolve().parent.parent
GRACE = 30.0
"""Seconds that a worker gets to end by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    broker: str
    """What `BROKER` is to the test project."""
    command: tuple[str, ...]
    service: str | None = None


DRAMATIQ = ("rundramatiq", "--processes", "1", "--threads", "2")
QUEUE = "{queue}"

KINDS = {
    "dramatiq on redis": Kind(broker="redis", command=DRAMATIQ, service="redis"),
    "dramatiq on rabbitmq": Kind(broker="rabbitmq", command=DRAMATIQ, service="rabbitmq"),
    "rq": Kind(broker="rq", command=("rqworker", QUEUE, "--with-scheduler"), service="redis"),
    "tasks": Kind(
        broker="tasks", command=("db_worker", "--queue-name", QUEUE, "--interval", "0.1", "--no-startup-delay")
    ),
}


class Worker:
    """One command of a worker, with all processes that it has started."""

    def __init__(self, command: list[str], environment: Mapping[str, str], output: Path) -> None:
        self._output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def pids(self) -> set[int]:
        """All of its processes that live; those that run deliveries among them."""
        return {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and self._started(path)}

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def terminate(self) -> None:
        """Ask it to end, as a supervisor does."""
        self._process.terminate()

    def wait(self, timeout: float = GRACE) -> int:
        """Its exit code."""
        return self._process.wait(timeout)

    def kill(self) -> None:
        """SIGKILL for every process of it."""
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(GRACE)

    def end(self) -> None:
        """Wait for the end that it was asked for, then enforce it."""
        with suppress(subprocess.TimeoutExpired):
            self.wait()
        self.kill()

    def _started(self, path: Path) -> bool:
        """Whether this process is of its session: the name, in brackets, may hold anything."""
        try:
            state, _, _, session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return int(session) == self._process.pid and state != "Z"


class Fleet:
    """The workers of one queue, which is this test's alone."""

    def __init__(self, kind: Kind, environment: Mapping[str, str], folder: Path) -> None:
        self.queue_name = f"acceptance-{uuid4().hex[:8]}"
        self._kind, self._folder = kind, folder
        self._workers: list[Worker] = []
        self.environment = {
            **environment,
            "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
            "BROKER": kind.broker,
            "QUEUE_NAME": self.queue_name,
            "PYTHONUNBUFFERED": "1",
        }

    def start(self, *options: str) -> Worker:
        """One more worker, with these options of its command besides."""
        command = [part.format(queue=self.queue_name) for part in (*self._kind.command, *options)]
        output = self._folder / f"worker-{len(self._workers)}.log"
        worker = Worker([sys.executable, "manage.py", *command], self.environment, output)
        self._workers.append(worker)
        return worker

    def stop(self) -> None:
        for worker in self._workers:
            worker.terminate()
        for number, worker in enumerate(self._workers):
            worker.end()
            print(f"--- worker {number}\n{worker.output}")  # noqa: T201  # pytest shows it if the test fails


@contextmanager
def fleet(name: str, environment: Mapping[str, str], folder: Path) -> Iterator[Fleet]:
    """No worker yet; but what this process enqueues goes to them."""
    kind = KINDS[name]
    if kind.service is not None:
        require_service(kind.service)
    workers = Fleet(kind, environment, folder)
    with ExitStack() as stack:
        stack.callback(_forget_queue, kind, workers.queue_name)
        stack.enter_context(_sending(brokers.queue(workers.environment), workers.queue_name))
        stack.callback(workers.stop)
        yield workers


@contextmanager
def _sending(queue: brokers.Queue, name: str) -> Iterator[None]:
    """Settings of the workers in this process. (The broker is made when apps are loaded: here they are already.)"""
    chosen: dict[str, Any] = {"BACKEND": queue.backend, "QUEUE_NAME": name}
    configured = queue.settings.get("DRAMATIQ_BROKER")
    before = dramatiq.broker.global_broker
    if configured:
        dramatiq.set_broker(import_string(configured["BROKER"])(**configured["OPTIONS"]))
    others = {name: value for name, value in queue.settings.items() if name != "DRAMATIQ_BROKER"}
    try:
        with override_settings(DJANGO_REACTOR=chosen, **others):
            try:
                yield
            finally:
                close_connections_of_rq()
    finally:
        queues.backend.forget()
        if configured and dramatiq.broker.global_broker is not None:
            dramatiq.broker.global_broker.close()
        dramatiq.broker.global_broker = before


def close_connections_of_rq() -> None:
    """Of the adapter that this process uses now. It keeps them as long as it lives; a process of tests has many."""
    for queue in getattr(queues.backend(), "_queues", {}).values():
        queue.connection.close()


def forget_in_redis(client: redis.Redis, name: str) -> None:
    """Delete what Dramatiq or RQ keep of this queue, jobs that nobody ran among it."""
    for job in client.scan_iter("rq:job:*"):
        if client.hget(job, "origin") == name.encode():
            client.delete(job)
    for key in client.scan_iter(f"*{name}*"):
        client.delete(key)


def _forget_queue(kind: Kind, name: str) -> None:
    """Leave nothing of it in the broker."""
    if kind.service == "redis":
        with redis.Redis.from_url(brokers.redis_url(os.environ)) as client:
            forget_in_redis(client, name)
    elif kind.service == "rabbitmq":
        connection = pika.BlockingConnection(pika.URLParameters(brokers.rabbitmq_url(os.environ)))
        for suffix in ("", ".DQ", ".XQ"):
            connection.channel().queue_delete(f"{name}{suffix}")
        connection.close()
    elif kind.broker == "tasks":
        from django_tasks_db.models import DBTaskResult

        DBTaskResult.objects.filter(queue_name=name).delete()
