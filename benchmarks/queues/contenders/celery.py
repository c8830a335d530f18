"""The peer `celery`, on the same Redis: tasks that store nothing, acknowledged when they have ended, as Dramatiq's are.
Only what is gathered has results, in Redis too.

Nothing of ours or of Django is imported, so that it can run on an interpreter that has only the peers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from benchmarks.queues.contenders import broker
from benchmarks.queues.stamps import send_stamp

__all__ = ["consumers", "producer"]

PREFIX = broker.prefix(os.environ, "celery:") if "BENCHMARK_REDIS" in os.environ else ""


def _application() -> Any:
    os.environ.pop("DJANGO_SETTINGS_MODULE", None)  # or it looks for Django
    url = broker.url(os.environ)
    application = import_module("celery").Celery("benchmark", broker=url, backend=url)
    application.conf.update(
        broker_transport_options={"global_keyprefix": PREFIX},
        result_backend_transport_options={"global_keyprefix": PREFIX},
        task_ignore_result=True,
        task_acks_late=True,
        worker_hijack_root_logger=False,
    )
    return application


def _nothing() -> None:
    pass


def _one(number: int) -> int:
    return 1


def _add(results: list[int]) -> int:
    return sum(results)


class Celery:
    def __init__(self) -> None:
        self._client = import_module("redis").Redis.from_url(broker.url(os.environ))

    def enqueue(self, number: int) -> None:
        for _ in range(number):
            nothing.delay()

    def enqueue_stamp(self) -> None:
        stamp.delay()

    def gather(self, number: int) -> int:
        """A chord: the tasks' results are counted in Redis, and the last one calls what adds them up."""
        chord = import_module("celery").chord
        total: int = chord([one.s(each) for each in range(number)])(add.s()).get(timeout=broker.PATIENCE)
        return total

    def wait_until_done(self) -> None:
        waiting, taken = f"{PREFIX}celery", f"{PREFIX}unacked"
        broker.wait_until(lambda: not self._client.llen(waiting) and not self._client.hlen(taken))

    def close(self) -> None:
        self._client.close()


if PREFIX:
    app = _application()
    nothing = app.task(name="nothing")(_nothing)
    stamp = app.task(name="stamp")(send_stamp)
    one = app.task(name="one", ignore_result=False)(_one)
    add = app.task(name="add", ignore_result=False)(_add)


def producer(environment: Mapping[str, str]) -> Celery:
    return Celery()


def consumers(python: str) -> Sequence[Sequence[str]]:
    quiet = ["--without-gossip", "--without-mingle", "--loglevel", "ERROR"]
    command = [
        python,
        "-m",
        "celery",
        "-q",
        "-A",
        __name__,
        "worker",
        "--pool",
        "threads",
        "--concurrency",
        "4",
        *quiet,
    ]
    return [[*command, "--hostname", f"worker{number}@%h"] for number in (1, 2)]
