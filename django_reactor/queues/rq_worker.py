"""RQ's worker, with what runs beside the deliveries. The project's setting for it:

RQ = {"WORKER_CLASS": "django_reactor.queues.rq_worker.Worker"}
"""

from __future__ import annotations

import os
import signal
import time
from multiprocessing import get_context
from typing import Any

import rq

from django_reactor.queues import processes

__all__ = ["Worker"]

LOOK = 1.0
"""Seconds between two looks at whether the worker lives."""


class Worker(rq.Worker):
    """It recovers executions, and reads jobs as their queue writes them, whatever `--serializer` says: `manage.py
    rqworker` says pickle unless it is told.

    What runs beside the deliveries has a process of its own, forked before any thread is there. A thread would do
    harm: RQ forks for each job, and a lock that the thread holds at that instant stays locked in the job for ever."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        serializers = {queue.serializer for queue in self.queues}
        if len(serializers) == 1:
            self.serializer = serializers.pop()

    def work(self, *args: Any, **kwargs: Any) -> bool:
        beside = get_context("fork").Process(target=_beside, args=(os.getpid(),), name="django-reactor", daemon=True)
        beside.start()
        try:
            return super().work(*args, **kwargs)
        finally:
            beside.terminate()
            beside.join()


def _beside(worker: int) -> None:
    """It ends with the worker, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which a terminal sends to all: the worker decides
    processes.booted()
    while os.getppid() == worker:
        time.sleep(LOOK)
    processes.stopped()
