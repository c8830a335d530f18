"""The process that enqueues, of one contender: `python -m benchmarks.queues.producer NAME`, as `benchmarks.worker`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Protocol

from benchmarks.queues.stamps import latencies
from benchmarks.worker import Command, serve

__all__ = ["Producer"]


class Producer(Protocol):
    def enqueue(self, number: int) -> None:
        """So many pieces of work that do nothing, one after another."""

    def enqueue_stamp(self) -> None:
        """One that says when it started."""

    def gather(self, number: int) -> int:
        """So many pieces of work that give 1, at once: the sum of what they gave, when it is known."""

    def wait_until_done(self) -> None:
        """Returns when all that was enqueued has ended."""

    def close(self) -> None: ...


def _enqueue(producer: Any, command: Mapping[str, Any]) -> Mapping[str, Any]:
    started = perf_counter()
    producer.enqueue(command["number"])
    return {"seconds": perf_counter() - started}


def _wait(producer: Any, command: Mapping[str, Any]) -> Mapping[str, Any]:
    started = perf_counter()
    producer.wait_until_done()
    return {"seconds": perf_counter() - started}


def _latencies(producer: Any, command: Mapping[str, Any]) -> Mapping[str, Any]:
    found = latencies(producer.enqueue_stamp, command["samples"])
    producer.wait_until_done()
    return {"seconds": list(found)}


def _gather(producer: Any, command: Mapping[str, Any]) -> Mapping[str, Any]:
    started = perf_counter()
    total = producer.gather(command["number"])
    assert total == command["number"], total
    return {"seconds": perf_counter() - started}


COMMANDS: Mapping[str, Command] = {"enqueue": _enqueue, "gather": _gather, "wait": _wait, "latencies": _latencies}


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout, sys.stderr
    made = importlib.import_module(f"benchmarks.queues.contenders.{sys.argv[1]}").producer(os.environ)
    serve(made, COMMANDS, sys.stdin, answers)
