"""Who carries the demo's executions on: threads of this process, or worker processes that are killed at random."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import IO, Any, Protocol

import dramatiq
from django.conf import settings
from django.core.management.base import CommandError
from dramatiq.common import dq_name, xq_name

from django_reactor.queues import in_process

__all__ = ["Fleet", "Workers", "in_this_process", "own_queues"]

THREADS = 4
GRACE = 15.0
"""Seconds that workers get to end when they are asked to."""


class Workers(Protocol):
    killed: int

    def tend(self, ended: int) -> None:
        """See to the workers, now that so many executions have ended. Called again and again, and returns at once."""


class Threads:
    killed = 0

    def tend(self, ended: int) -> None:
        """Nothing is needed."""


@contextmanager
def in_this_process() -> Iterator[Workers]:
    """Started before the first message: it recovers what an earlier run left."""
    in_process.broker()
    try:
        yield Threads()
    finally:
        in_process.stop()


class Fleet:
    """Processes of `manage.py rundramatiq`, started on entry and stopped on exit. What they say goes to `log`.

    `kill_every` is the mean time between two kills, in seconds. Each is one SIGKILL to all processes of a worker, and
    another takes its place. Between two of them some execution has to end, so that the orders end however often.
    """

    def __init__(self, size: int, *, log: Path, kill_every: float | None = None) -> None:
        self.killed = 0
        self._size, self._log_path, self._kill_every = size, log, kill_every
        self._workers: list[subprocess.Popen[bytes]] = []
        self._next_kill = self._ended_at_last_kill = 0.0

    def __enter__(self) -> Fleet:
        self._log: IO[bytes] = self._log_path.open("ab")
        self._workers = [self._start() for _ in range(self._size)]
        self._draw_next_kill()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.terminate()
        deadline = monotonic() + GRACE
        for worker in self._workers:
            with suppress(subprocess.TimeoutExpired):
                worker.wait(max(0.0, deadline - monotonic()))
            self._kill(worker)
        self._log.close()

    def tend(self, ended: int) -> None:
        for worker in self._workers:
            if worker.poll() is not None:
                raise CommandError(f"a worker ended by itself, see {self._log_path}")
        if self._kill_every is not None and monotonic() >= self._next_kill and ended > self._ended_at_last_kill:
            position = random.randrange(self._size)
            self._kill(self._workers[position])
            self._workers[position] = self._start()
            self.killed, self._ended_at_last_kill = self.killed + 1, ended
            self._draw_next_kill()

    def _draw_next_kill(self) -> None:
        if self._kill_every is not None:
            self._next_kill = monotonic() + self._kill_every * random.uniform(0.5, 1.5)

    def _start(self) -> subprocess.Popen[bytes]:
        root = settings.BASE_DIR.parent
        command = [sys.executable, "manage.py", "rundramatiq", "--processes", "1", "--threads", str(THREADS)]
        # A session of its own: Ctrl-C is ours alone, and the worker can be killed with the processes it started.
        return subprocess.Popen(command, cwd=root, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True)

    @staticmethod
    def _kill(worker: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


@contextmanager
def own_queues() -> Iterator[None]:
    """Leave nothing of the demo's in the broker: what a message is about is in the database."""
    try:
        yield
    finally:
        broker = dramatiq.get_broker()
        broker.flush_all()
        for name in list(broker.queues):
            _forget(broker, name)


def _forget(broker: Any, queue_name: str) -> None:
    """What a flush leaves: empty queues, and what killed workers had not acknowledged."""
    if hasattr(broker, "channel"):
        for name in (queue_name, dq_name(queue_name), xq_name(queue_name)):
            broker.channel.queue_delete(name)
    else:
        for key in broker.client.scan_iter(f"{broker.namespace}:*{queue_name}*"):
            broker.client.delete(key)
