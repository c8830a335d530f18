"""RQ, through django-rq: queues are those of `RQ_QUEUES`. Delays need a worker that runs `--with-scheduler`."""

from __future__ import annotations

import difflib
import math
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import django_rq
from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning
from django_rq.workers import get_worker_class
from rq import Queue
from rq.serializers import JSONSerializer

from django_reactor.exceptions import ConfigurationError
from django_reactor.queues import names
from django_reactor.queues.rq_worker import Worker

__all__ = ["JOB", "RqBackend"]

JOB = "django_reactor.tasks.deliver_job"
"""What RQ's worker calls with the execution's id."""

DAY = 24 * 60 * 60
OPTIONS: dict[str, Any] = {
    "job_timeout": -1,  # none: RQ's default would end a delivery after three minutes
    "result_ttl": 0,
    "failure_ttl": DAY,  # a job of a worker that was killed; the execution itself is recovered by another message
}


class RqBackend:
    """The adapter `rq`. Each message is a job with an id of its own, so that RQ takes none for another."""

    is_immediate = False
    supports_delay = True
    max_delay = float("inf")
    supports_priority = False

    def __init__(self) -> None:
        self._queues: dict[str, Queue] = {}
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Nothing is needed."""

    def enqueue(self, execution_id: str, *, queue_name: str, delay: float, priority: int | None) -> None:
        """Raises `ConfigurationError` for a queue that `RQ_QUEUES` does not have."""
        queue = self._queue(queue_name)
        if delay > 0:
            queue.enqueue_at(_not_before(delay), JOB, execution_id, **OPTIONS)
        else:
            queue.enqueue(JOB, execution_id, **OPTIONS)

    def check(self) -> Sequence[CheckMessage]:
        if not apps.is_installed("django_rq"):
            hint = "Add 'django_rq' to INSTALLED_APPS."
            return [Error("django_rq is not in INSTALLED_APPS.", hint=hint, id="django_reactor.E204")]
        return [*_check_queues(), *_check_workers()]

    def _queue(self, name: str) -> Queue:
        """Made once: django-rq opens new connections for each."""
        if name not in self._queues:
            if name not in _configured():
                close = difflib.get_close_matches(name, _configured(), n=1)
                cure = f"did you mean {close[0]!r}?" if close else "add it there"
                raise ConfigurationError(f"RQ_QUEUES has no queue {name!r}; {cure}")
            with self._lock:
                # The message is sent after the commit already: RQ need not wait for one.
                self._queues[name] = django_rq.get_queue(name, commit_mode="auto")
        return self._queues[name]


def _not_before(delay: float) -> datetime:
    """RQ's registry counts whole seconds, and cuts off what is above."""
    return datetime.fromtimestamp(math.ceil(datetime.now(UTC).timestamp() + delay), UTC)


def _configured() -> dict[str, dict[str, Any]]:
    return getattr(django_settings, "RQ_QUEUES", {})


def _check_queues() -> Iterator[CheckMessage]:
    for name in names.declared():
        if name not in _configured():
            yield Error(
                f"Executions are delivered through the queue {name!r}, which RQ_QUEUES does not have.",
                hint=f"Add {name!r} to RQ_QUEUES.",
                id="django_reactor.E205",
            )
        elif not _is_json(_configured()[name].get("SERIALIZER")):
            yield Warning(
                f"The queue {name!r} of RQ stores jobs as pickle: whoever can write to Redis can run code in the "
                "workers.",
                hint=f"Set RQ_QUEUES[{name!r}]['SERIALIZER'] = 'rq.serializers.JSONSerializer', and start workers "
                "with --serializer rq.serializers.JSONSerializer or with the worker class that W205 names.",
                id="django_reactor.W204",
            )


def _is_json(serializer: object) -> bool:
    return serializer in ("json", "rq.serializers.JSONSerializer", JSONSerializer)


def _check_workers() -> Iterator[CheckMessage]:
    chosen: type = get_worker_class()
    if not issubclass(chosen, Worker):
        path = f"{Worker.__module__}.{Worker.__qualname__}"
        yield Warning(
            "RQ's workers run no sweeper: executions whose worker died wait for `manage.py reactor_sweep`.",
            hint=f"Set RQ = {{'WORKER_CLASS': {path!r}}}, or run the command by cron.",
            id="django_reactor.W205",
        )
