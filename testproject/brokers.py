"""The test project's queue, chosen by the environment.

`BROKER` is `redis` or `rabbitmq` (Dramatiq with this broker), `rq`, `tasks` (Django's tasks, in the database),
`immediate`, or empty: Dramatiq in threads of the process. `QUEUE_NAME` is the queue's name; `REDIS_URL` and
`RABBITMQ_URL` say where the servers are, by default on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from django.core.exceptions import ImproperlyConfigured

__all__ = ["Queue", "caches", "queue", "rabbitmq_url", "redis_url"]

Environment = Mapping[str, str]

REDIS_CACHE = "django_redis.cache.RedisCache"
JSON = "rq.serializers.JSONSerializer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What the settings say about one queue library."""

    backend: str
    apps: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def queue(environ: Environment) -> Queue:
    """The queue that the environment asks for."""
    kind = environ.get("BROKER") or ""
    if kind not in KINDS:
        raise ImproperlyConfigured(f"BROKER must be empty or one of {', '.join(filter(None, KINDS))}; got {kind!r}")
    return KINDS[kind](environ)


def queue_name(environ: Environment) -> str:
    return environ.get("QUEUE_NAME") or "default"


def redis_url(environ: Environment) -> str:
    return environ.get("REDIS_URL") or "redis://127.0.0.1:6379/0"


def rabbitmq_url(environ: Environment) -> str:
    return environ.get("RABBITMQ_URL") or "amqp://guest:guest@127.0.0.1:5672"


def caches(environ: Environment) -> dict[str, Any]:
    """Django's own, and, where django-redis is installed, one in Redis for coordination (see `COORDINATION`)."""
    found: dict[str, Any] = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    if find_spec("django_redis"):
        prefix = environ.get("CACHE_PREFIX") or "testproject"
        found["redis"] = {"BACKEND": REDIS_CACHE, "LOCATION": redis_url(environ), "KEY_PREFIX": prefix}
    return found


def in_process(environ: Environment) -> Queue:
    return Queue(backend="dramatiq")


def redis(environ: Environment) -> Queue:
    return dramatiq("dramatiq.brokers.redis.RedisBroker", {"url": redis_url(environ)})


def rabbitmq(environ: Environment) -> Queue:
    # Without a confirmation a message that is written to a dead connection is lost without an error.
    options = {"url": rabbitmq_url(environ), "confirm_delivery": True}
    return dramatiq("dramatiq.brokers.rabbitmq.RabbitmqBroker", options)


def dramatiq(broker: str, options: Mapping[str, Any]) -> Queue:
    middleware = [
        "dramatiq.middleware.AgeLimit",
        "dramatiq.middleware.TimeLimit",
        "dramatiq.middleware.ShutdownNotifications",
        "dramatiq.middleware.Callbacks",
        "dramatiq.middleware.Retries",
        "django_dramatiq.middleware.DbConnectionsMiddleware",
    ]
    configured = {"BROKER": broker, "OPTIONS": options, "MIDDLEWARE": middleware}
    return Queue(backend="dramatiq", apps=("django_dramatiq",), settings={"DRAMATIQ_BROKER": configured})


def rq(environ: Environment) -> Queue:
    configured = {
        "RQ_QUEUES": {queue_name(environ): {"URL": redis_url(environ), "SERIALIZER": JSON}},
        "RQ": {"WORKER_CLASS": "django_reactor.queues.rq_worker.Worker"},
    }
    return Queue(backend="rq", apps=("django_rq",), settings=configured)


def tasks(environ: Environment) -> Queue:
    configured = {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": [queue_name(environ)]}
    return Queue(backend="tasks", settings={"TASKS": {"default": configured}})


def immediate(environ: Environment) -> Queue:
    return Queue(backend="immediate")


def apps_of_tests() -> tuple[str, ...]:
    """The table of tasks in the database, where it is installed, so that tests of every queue run in one process."""
    return ("django_tasks_db",) if find_spec("django_tasks_db") else ()


KINDS: dict[str, Callable[[Environment], Queue]] = {
    "": in_process,
    "redis": redis,
    "rabbitmq": rabbitmq,
    "rq": rq,
    "tasks": tasks,
    "immediate": immediate,
}
