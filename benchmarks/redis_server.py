"""What a benchmark asks of Redis: whether it is there, and names of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from testproject.brokers import redis_url

__all__ = ["keys_of_this_run", "redis_answers"]


def redis_answers() -> bool:
    with redis.Redis.from_url(redis_url(os.environ)) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False


@contextmanager
def keys_of_this_run() -> Iterator[str]:
    """The beginning of every key of this run, none of which is there after the block."""
    prefix = f"django-reactor-benchmark-{os.getpid()}"
    try:
        yield prefix
    finally:
        with redis.Redis.from_url(redis_url(os.environ)) as client:
            for key in client.scan_iter(f"{prefix}*"):
                client.delete(key)
