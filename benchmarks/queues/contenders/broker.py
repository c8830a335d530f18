"""Redis, as the contenders that use it find it: each has keys of its own, gone after the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

__all__ = ["PATIENCE", "prefix", "url", "wait_until"]

PATIENCE = 120.0
"""Seconds after which what is enqueued counts as stuck."""
TICK = 0.02


def url(environment: Mapping[str, str]) -> str:
    return environment["BENCHMARK_REDIS"]


def prefix(environment: Mapping[str, str], name: str) -> str:
    return f"{environment['BENCHMARK_PREFIX']}-{name}"


def wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            raise TimeoutError("not all that was enqueued was done")
        time.sleep(TICK)
