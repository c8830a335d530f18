"""This project: `Reactor.enqueue`, and workers by `manage.py rundramatiq`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import django
from django.db import connection

from benchmarks.queues.contenders import broker

__all__ = ["consumers", "producer"]


class Executions:
    def __init__(self, nothing: Any, stamp: Any, gathering: Any) -> None:
        self._nothing, self._stamp, self._gathering = nothing, stamp, gathering

    def enqueue(self, number: int) -> None:
        for _ in range(number):
            self._nothing.enqueue()

    def enqueue_stamp(self) -> None:
        self._stamp.enqueue()

    def gather(self, number: int) -> int:
        from django_reactor.models import Execution

        execution = Execution.objects.get(pk=self._gathering.run(number=number).execution_id)
        return int(execution.join(broker.PATIENCE).unwrap() or 0)

    def wait_until_done(self) -> None:
        from django_reactor.models import Execution

        broker.wait_until(lambda: not Execution.objects.exclude(status="completed").exists())

    def close(self) -> None:
        connection.close()


def producer(environment: Mapping[str, str]) -> Executions:
    django.setup()
    from benchmarks.queues.reactors import Gathering, Nothing, Stamp

    return Executions(Nothing, Stamp, Gathering)


def consumers(python: str) -> Sequence[Sequence[str]]:
    return [[python, "-m", "django", "rundramatiq", "--processes", "2", "--threads", "4", "--skip-logging"]]
