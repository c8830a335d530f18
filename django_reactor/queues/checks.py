"""System checks of the queue that the settings name.

E201  the adapter cannot be loaded
E202  DRAMATIQ_BROKER is set and nothing reads it
E203  Dramatiq's broker lacks what delivers executions
E204  django_rq is not installed as an app
E205  RQ has not a queue that executions use
E206  the backend of Django's tasks has not a queue that executions use
W201  without a broker executions run in the process that starts them (only with --deploy)
W202  Dramatiq's messages are pickled
W203  RabbitMQ is not asked to confirm messages
W204  RQ's jobs are pickled
W205  RQ's workers run no sweeper
W206  the backend of Django's tasks cannot put off a task
W207  a reactor declares a priority that the queue does not use
W208  every delivery opens a database connection of its own (only with --deploy)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections

from django_reactor.conf import settings
from django_reactor.core import registry
from django_reactor.exceptions import ConfigurationError
from django_reactor.queues.base import Backend
from django_reactor.queues.selection import load

__all__ = ["CHECKS", "DEPLOY_CHECKS", "check_queue", "check_workers"]


def check_queue(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """E201, what the adapter says about its library, and W207."""
    try:
        name = settings.load().BACKEND
    except ConfigurationError:
        return []  # E100
    try:
        backend = load(name)
    except ConfigurationError as error:
        problem, _, cure = str(error).rpartition("; ")
        return [Error(f"{problem}.", hint=f"{cure[:1].upper()}{cure[1:]}.", id="django_reactor.E201")]
    return [*backend.check(), *_check_priorities(backend)]


def check_workers(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """W201, or W208 where there are workers."""
    from django_reactor.queues.dramatiq import configured_broker

    try:
        name = settings.load().BACKEND
    except ConfigurationError:
        return []
    if name != "dramatiq":
        return []
    if configured_broker() is not None:
        return _check_connections()
    return [
        Warning(
            "No broker is configured: executions run in threads of the process that starts them.",
            hint="Set DRAMATIQ_BROKER, add 'django_dramatiq' to INSTALLED_APPS, and run `manage.py rundramatiq`.",
            id="django_reactor.W201",
        )
    ]


CHECKS: tuple[Callable[..., list[CheckMessage]], ...] = (check_queue,)
DEPLOY_CHECKS: tuple[Callable[..., list[CheckMessage]], ...] = (check_workers,)


def _check_connections() -> list[CheckMessage]:
    """Dramatiq's threads live long. To open a connection takes a server several times as long as a short delivery."""
    reopened = [
        name
        for name, database in connections.settings.items()
        if connections[name].vendor != "sqlite" and not _keeps_connections(database)
    ]
    if not reopened:
        return []
    return [
        Warning(
            f"Connections are not kept, so every delivery in a worker opens one: {', '.join(reopened)}.",
            hint="Set CONN_MAX_AGE in the workers' DATABASES, or on PostgreSQL OPTIONS['pool'].",
            id="django_reactor.W208",
        )
    ]


def _keeps_connections(database: Mapping[str, Any]) -> bool:
    return database["CONN_MAX_AGE"] != 0 or bool(database["OPTIONS"].get("pool"))


def _check_priorities(backend: Backend) -> list[CheckMessage]:
    if backend.supports_priority:
        return []
    return [
        Warning(
            f"{reactor.__qualname__} declares a priority, which {type(backend).__name__} does not use.",
            hint="Give it a queue_name of its own, and that queue workers of its own.",
            obj=reactor,
            id="django_reactor.W207",
        )
        for reactor in registry.reactors()
        if cast(Any, reactor).__reactor__.priority is not None
    ]
