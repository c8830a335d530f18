"""Servers that tests need and a machine may lack: skipped where a developer has none, a failure with `CI=true`.

A server that refuses our user and password counts as missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from testproject import brokers, databases

__all__ = ["require_database", "require_service"]


def require_service(name: str) -> None:
    """Skip the running test, or fail it in CI, when the service does not answer."""
    problem = PROBES[name]()
    if problem and in_ci():
        pytest.fail(f"{name} does not answer: {problem}", pytrace=False)
    if problem:
        pytest.skip(f"{name} does not answer: {problem}")


def require_database(vendor: str) -> None:
    """End the whole run in one line, in CI as a failure, when the server behind Django's vendor does not answer."""
    name = SERVICES.get(vendor)
    problem = PROBES[name]() if name else ""
    if problem and in_ci():
        pytest.exit(f"{name} does not answer: {problem}", returncode=1)
    if problem:
        pytest.exit(f"{name} does not answer, its tests are skipped: {problem}", returncode=0)


def in_ci() -> bool:
    return os.environ.get("CI") == "true"


def postgres() -> str:
    import psycopg

    server = databases.postgres(os.environ)
    try:
        psycopg.connect(
            host=server["HOST"],
            port=server["PORT"],
            user=server["USER"],
            password=server["PASSWORD"],
            dbname="postgres",
            connect_timeout=PATIENCE,
        ).close()
    except psycopg.OperationalError as error:
        return one_line(error)
    return ""


def mariadb() -> str:
    import pymysql

    server = databases.mariadb(os.environ)
    try:
        pymysql.connect(
            host=server["HOST"],
            port=int(server["PORT"]),
            user=server["USER"],
            password=server["PASSWORD"],
            connect_timeout=PATIENCE,
        ).close()
    except pymysql.OperationalError as error:
        return one_line(error)
    return ""


def redis() -> str:
    from redis import Redis
    from redis.exceptions import RedisError

    url = brokers.redis_url(os.environ)
    client = Redis.from_url(url, socket_connect_timeout=PATIENCE, socket_timeout=PATIENCE)
    try:
        client.ping()
    except RedisError as error:
        return one_line(error)
    finally:
        client.close()
    return ""


def rabbitmq() -> str:
    import pika
    import pika.exceptions

    parameters = pika.URLParameters(brokers.rabbitmq_url(os.environ))
    parameters.socket_timeout = PATIENCE
    try:
        pika.BlockingConnection(parameters).close()
    except pika.exceptions.AMQPError as error:
        return one_line(error) or type(error).__name__
    return ""


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


PATIENCE = 5
"""Seconds that a server gets to accept a connection."""

PROBES: dict[str, Callable[[], str]] = {
    "postgres": postgres,
    "mariadb": mariadb,
    "redis": redis,
    "rabbitmq": rabbitmq,
}
"""Each returns what is wrong with its service, or an empty text."""

SERVICES = {"postgresql": "postgres", "mysql": "mariadb"}
"""The service behind each of Django's vendors; SQLite needs none."""
