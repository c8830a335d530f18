"""The sweeper of a process: a thread that recovers what crashes and lost messages leave lying anywhere in the fleet.

Whatever runs deliveries calls `start` when it begins to, after its last fork, and `stop` when it ends.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from uuid import UUID, uuid4

from django_reactor.conf import settings
from django_reactor.engine.forgetting import INTERVAL, Forgetting
from django_reactor.engine.records import Message
from django_reactor.engine.recovery import Pace, Recovery, Swept
from django_reactor.runtime import services

__all__ = ["Sweeper", "forgetting", "recovery", "start", "stop"]

logger = logging.getLogger("django_reactor")

MOST_BACKOFF = 2
"""Doublings of the interval while the database is away: whoever waits longer is missed when it is back."""
JITTER = 0.25
"""Part of a pause that is added by chance, so that the processes of a deployment don't sweep in step."""


def start() -> None:
    """Sweep in this process from now on, at once and then every `SWEEP_INTERVAL`, if the fleet has no other leader.

    Returns at once; does nothing if it sweeps already, or with `SWEEPER=False`. A forked child has to call it again.
    """
    if settings.load().SWEEPER:
        _sweeper().start()


def stop(timeout: float = 5.0) -> None:
    """Sweep no more. Waits up to `timeout` seconds for the sweep that is at work."""
    _sweeper().stop(timeout)


def recovery(deliver: Callable[[Message], None] | None = None) -> Recovery:
    """On this process's adapters. By default what is due is sent to the workers."""
    from django_reactor.journal.sweeps import OrmSweeps

    adapters = services()
    return Recovery(
        sweeps=OrmSweeps(),
        deliveries=adapters.deliveries,
        elements=adapters.elements,
        answers=adapters.answers,
        deliver=deliver or adapters.messenger.send,
        pace=_pace,
    )


def forgetting() -> Forgetting:
    """On this process's adapters."""
    from django_reactor.journal.sweeps import OrmSweeps

    return Forgetting(sweeps=OrmSweeps(), stores=services().coordination, limit=settings.load().SWEEP_LIMIT)


def _pace() -> Pace:
    return Pace(interval=settings.load().SWEEP_INTERVAL, limit=settings.load().SWEEP_LIMIT)


@cache
def _sweeper() -> Sweeper:
    from django.db import connections

    return Sweeper(
        sweep=lambda holder: recovery().sweep_if_leader(holder),
        interval=lambda: settings.load().SWEEP_INTERVAL,
        forget=lambda holder: forgetting().forget_if_due(holder),
        done=connections.close_all,
    )


class Sweeper:
    """One thread. Its methods may be called from any thread, and from signal handlers.

    `sweep` and `forget` get the identity under which this process leads; `interval` is in seconds; few turns call
    `forget`; `done` is called in the thread after each turn, to give up its connection.
    """

    def __init__(
        self,
        sweep: Callable[[UUID], Swept | None],
        interval: Callable[[], float],
        done: Callable[[], None] = lambda: None,
        forget: Callable[[UUID], int | None] = lambda holder: None,
    ) -> None:
        self._sweep, self._interval, self._done, self._forget = sweep, interval, done, forget
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """A forked child has no thread."""
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._forgets_at = 0.0
        self._stopped = threading.Event()

    @property
    def is_running(self) -> bool:
        thread = self._thread
        return thread is not None and thread.is_alive()

    def start(self) -> None:
        with self._lock:
            if self.is_running and not self._stopped.is_set():
                return
            self._stopped = threading.Event()
            self._thread = threading.Thread(
                target=self._keep_sweeping, args=(self._stopped,), name="django-reactor-sweeper", daemon=True
            )
            self._thread.start()

    def stop(self, timeout: float) -> None:
        with self._lock:
            thread = self._thread
            self._stopped.set()
        if thread is not None:
            thread.join(timeout)

    def _keep_sweeping(self, stopped: threading.Event) -> None:
        holder, failures = uuid4(), 0
        while not stopped.is_set():
            failures = 0 if self._turn(holder) else failures + 1
            stopped.wait(_pause(self._interval(), failures))

    def _turn(self, holder: UUID) -> bool:
        """Whether it came to its end. A database that is away may be back at the next turn: the thread must live on."""
        try:
            try:
                swept = self._sweep(holder)
                forgotten = self._forget_if_due(holder)
            finally:
                self._done()  # which may raise as well: PyMySQL objects to the end of a connection that was killed
        except Exception as error:  # noqa: BLE001  # one turn of a thread
            logger.warning("event=django_reactor.sweep_broken_off error=%s", type(error).__name__)
            return False
        if swept is not None and swept != Swept():
            counts = " ".join(f"{name}={count}" for name, count in asdict(swept).items())
            logger.info("event=django_reactor.swept %s", counts)
        if forgotten:
            logger.info("event=django_reactor.forgotten rows=%d", forgotten)
        return True

    def _forget_if_due(self, holder: UUID) -> int | None:
        """A process need not even ask more often than the fleet forgets."""
        now = time.monotonic()
        if now < self._forgets_at:
            return None
        self._forgets_at = now + INTERVAL
        return self._forget(holder)


def _pause(interval: float, failures: int) -> float:
    """Seconds until the next turn, never less than the interval."""
    return float(interval * 2 ** min(failures, MOST_BACKOFF) * random.uniform(1, 1 + JITTER))
