"""A Dramatiq worker in threads of this process, for projects without a broker.

1. The first message starts it; a process that sends none has none. A fork starts its own.
2. It stops when the main thread has ended: it waits, up to `GRACE` seconds, for the steps that run. This is done from
   a thread that the interpreter waits for, not at exit: by then steps could start no thread any more.
3. Messages that it did not deliver are gone with the process. What they were about is in the database, and the next
   process that starts a worker finds it there.
4. It closes its database connections after each message: a test database can be dropped while it idles.
"""

from __future__ import annotations

import os
import threading

import dramatiq
from django.db import connections
from dramatiq.brokers.stub import StubBroker

from django_reactor.queues import actor, processes

__all__ = ["GRACE", "broker", "is_running", "stop"]

THREADS = 4
GRACE = 10.0
"""Seconds that running steps get to end when the process does."""
TICK = 0.1
"""Seconds between two looks at the delayed messages, and of an idle thread at whether it should end."""


class Connections(dramatiq.Middleware):
    """Closes what the delivery has opened."""

    def after_process_message(
        self,
        broker: dramatiq.Broker,
        message: dramatiq.broker.MessageProxy,
        *,
        result: object = None,
        exception: BaseException | None = None,
    ) -> None:
        connections.close_all()


class _Worker:
    """The worker of one process; it starts and stops once."""

    def __init__(self) -> None:
        self.broker = StubBroker(middleware=[Connections()])
        self._worker = dramatiq.Worker(self.broker, worker_timeout=int(TICK * 1000), worker_threads=THREADS)
        self._lock = threading.Lock()
        self._stopped = False

    def start(self) -> None:
        actor.prepare(self.broker)
        self._worker.start()
        processes.booted()

    def stop(self, grace: float) -> None:
        """Whoever comes second waits for the first. Messages are taken on, but stay where they are."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._worker.stop(timeout=int(grace * 1000))


_lock = threading.Lock()
_running: _Worker | None = None
_end: threading.Thread | None = None


def broker() -> dramatiq.Broker:
    """The broker of this process's worker, which is started if it does not run. Thread-safe."""
    global _running, _end
    with _lock:
        if _running is None:
            started = _Worker()
            started.start()
            _running = started
        if _end is None:
            _end = threading.Thread(target=_stop_at_the_end, name="django-reactor-end", daemon=False)
            _end.start()
        return _running.broker


def is_running() -> bool:
    """Whether a message has started a worker in this process."""
    return _running is not None


def stop(grace: float = GRACE) -> None:
    """Wait for the steps that run, up to so many seconds, and end the threads. The next message starts new ones."""
    global _running
    worker = _running
    if worker is None:
        return
    worker.stop(grace)
    with _lock:
        if _running is worker:
            _running = None


def _stop_at_the_end() -> None:
    """Not by `stop`: the last deliveries' messages must not start another worker."""
    threading.main_thread().join()
    if (worker := _running) is not None:
        worker.stop(GRACE)


def _in_a_fork() -> None:
    """The threads are the parent's, and so may be whoever holds the lock."""
    global _lock, _running, _end
    _lock, _running, _end = threading.Lock(), None, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_fork)
