"""Django's tasks: `django.tasks` of Django 6, or its backport django-tasks. The setting is `TASKS`, its backend the one
named "django_reactor", or else "default"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning
from django.utils import timezone

from django_reactor.queues import entry, names, processes

if TYPE_CHECKING or find_spec("django.tasks"):
    from django.tasks import task, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.backends.immediate import ImmediateBackend
else:
    from django_tasks import task, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.backends.immediate import ImmediateBackend

__all__ = ["TasksBackend", "deliver"]

OWN, DEFAULT = "django_reactor", "default"
LOWEST, HIGHEST = -100, 100
"""The priorities that tasks may have; one outside is taken for the nearest."""


def alias() -> str:
    """The name of the backend in `TASKS`."""
    return OWN if OWN in getattr(django_settings, "TASKS", {}) else DEFAULT


def library() -> BaseTaskBackend:
    return task_backends[alias()]


def any_queue() -> str:
    """A task has a queue from its declaration on, and the backend must have that one."""
    queues = library().queues
    return DEFAULT if not queues or DEFAULT in queues else min(queues)


@task(backend=alias(), queue_name=any_queue())
def deliver(execution_id: str) -> None:
    """What the library's worker calls. That it does so is the only sign by which a worker makes itself known."""
    if not isinstance(library(), ImmediateBackend):
        processes.booted()
    entry.deliver(execution_id)


class TasksBackend:
    """The adapter `tasks`."""

    @property
    def is_immediate(self) -> bool:
        return isinstance(library(), ImmediateBackend)

    @property
    def supports_delay(self) -> bool:
        return library().supports_defer

    max_delay = float("inf")

    @property
    def supports_priority(self) -> bool:
        return library().supports_priority

    def prepare(self) -> None:
        """Nothing is needed."""

    def enqueue(self, execution_id: str, *, queue_name: str, delay: float, priority: int | None) -> None:
        """Raises the library's `InvalidTask` for a queue that the backend does not have."""
        options: dict[str, Any] = {}
        if delay > 0:
            if not self.supports_delay:
                return
            options["run_after"] = timezone.now() + timedelta(seconds=delay)
        if priority is not None and self.supports_priority:
            options["priority"] = min(max(priority, LOWEST), HIGHEST)
        deliver.using(backend=alias(), queue_name=queue_name, **options).enqueue(execution_id)

    def check(self) -> Sequence[CheckMessage]:
        return [*_check_queues(), *_check_delay()]


def _check_queues() -> Iterator[CheckMessage]:
    queues = library().queues
    for name in names.declared():
        if queues and name not in queues:
            yield Error(
                f"Executions are delivered through the queue {name!r}, which TASKS[{alias()!r}] does not have.",
                hint=f"Add {name!r} to its QUEUES.",
                id="django_reactor.E206",
            )


def _check_delay() -> Iterator[CheckMessage]:
    backend = library()
    if not backend.supports_defer:
        yield Warning(
            f"TASKS[{alias()!r}] is {type(backend).__name__}, which cannot put off a task: retries and snoozes wait "
            "for the next sweep.",
            hint="Use a backend with a worker that supports run_after, such as that of django-tasks-db.",
            id="django_reactor.W206",
        )
