"""The process of one contender: `python -m benchmarks.locks.worker NAME`, as `benchmarks.worker`."""

from __future__ import annotations

import importlib
import os
import random
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, process_time
from typing import Any, Protocol

from benchmarks.worker import Command, serve

__all__ = ["Session"]


class Session(Protocol):
    def cycle(self, key: int) -> None:
        """Take the lock of this key (from 1), and release it."""

    def close(self) -> None: ...


class Threads:
    """Each with a session of its own, which stays."""

    def __init__(self, make: Callable[[], Session]) -> None:
        self._make = make
        self._here = threading.local()
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def run(self, number: int, keys: int, seconds: float) -> Mapping[str, float]:
        pool = self._pools.setdefault(number, ThreadPoolExecutor(number))
        barrier = threading.Barrier(number)
        before = process_time()
        done = list(pool.map(lambda _: self._cycles(barrier, keys, seconds), range(number)))
        return {"cycles": sum(done), "worked": process_time() - before}

    def _cycles(self, barrier: threading.Barrier, keys: int, seconds: float) -> int:
        session, done = self._session(), 0
        barrier.wait(60)
        end = perf_counter() + seconds
        while perf_counter() < end:
            session.cycle(random.randint(1, keys))
            done += 1
        return done

    def _session(self) -> Session:
        found: Session | None = getattr(self._here, "session", None)
        if found is None:
            found = self._here.session = self._make()
        return found

    def close(self) -> None:
        for number, pool in self._pools.items():
            barrier = threading.Barrier(number)
            list(pool.map(lambda _, each=barrier: self._close(each), range(number)))
            pool.shutdown()

    def _close(self, barrier: threading.Barrier) -> None:
        barrier.wait(60)
        self._session().close()


def _run(threads: Any, command: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = threads.run(command["threads"], command["keys"], command["seconds"])
    return found


COMMANDS: Mapping[str, Command] = {"run": _run}


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout, sys.stderr
    import django

    django.setup()
    contender = importlib.import_module(f"benchmarks.locks.contenders.{sys.argv[1]}")
    serve(Threads(lambda: contender.session(os.environ)), COMMANDS, sys.stdin, answers)
