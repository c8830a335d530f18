"""A crew of processes, 4 threads each, that cycle for a while: `python -m tests.proof.crew FOLDER SECONDS`.

One of them after the other is killed, and another is started in its place; or it is stopped for longer than any ttl,
and goes on. In the end all stop when they are through with what they are at. `PROOF_OF` is `holds`, `rates` (both), or
`all`: lines as well.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import django

from tests.proof.events import Recorder

__all__ = ["EVENTS", "main"]

EVENTS = "events"
PROCESSES = 4
THREADS = 4
STOPPED = 0.6
"""Seconds: longer than any ttl, but not than all patience."""
GRACE = 20.0


Begin = Callable[[Recorder, Callable[[], bool], int], None]


class Over:
    """A signal may strike whoever is setting it, which `threading.Event` does not bear."""

    _is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set


class Crew:
    """Single-threaded itself, so that it may fork."""

    def __init__(self, folder: Path, begin: Begin) -> None:
        self._path, self._begin = folder / EVENTS, begin
        self._over = Over()
        signal.signal(signal.SIGTERM, lambda *_: self._over.set())  # in each member, from its first instant on
        self._record = Recorder(self._path)
        self._members = {self._fork() for _ in range(PROCESSES)}

    def _fork(self) -> int:
        member = os.fork()
        if member == 0:
            status = 1
            try:
                _cycle(Recorder(self._path), self._begin, self._over)
                status = 0
            except BaseException:  # noqa: BLE001  # the end of a process
                traceback.print_exc()
            finally:
                os._exit(status)
        return member

    def sail(self, seconds: float) -> None:
        """Kill and stop by turns: one of each at least, however slow the machine is."""
        end = time.monotonic() + seconds
        first = random.randrange(2)
        for strike in itertools.count(first):
            if time.monotonic() >= end and strike >= first + 2:
                return
            time.sleep(random.uniform(0.2, 0.8))
            victim = random.choice(sorted(self._members))
            if strike % 2:
                self._kill(victim)
                self._members.add(self._fork())
            else:
                os.kill(victim, signal.SIGSTOP)
                self._record.note("stopped", victim=victim)
                time.sleep(STOPPED)
                os.kill(victim, signal.SIGCONT)

    def _kill(self, member: int) -> None:
        os.kill(member, signal.SIGKILL)
        os.waitpid(member, 0)
        self._members.remove(member)
        self._record.note("killed", victim=member)

    def end(self) -> bool:
        """Whether all ended well."""
        deadline, statuses = time.monotonic() + GRACE, []
        while self._members and time.monotonic() < deadline:
            for member in list(self._members):
                os.kill(member, signal.SIGTERM)  # again: Python forgets what comes in the midst of a fork
                ended, status = os.waitpid(member, os.WNOHANG)
                if ended:
                    self._members.remove(member)
                    statuses.append(status)
            time.sleep(0.01)
        stuck = list(self._members)
        for member in stuck:
            print(f"{member} did not end")  # noqa: T201  # the output of a command
            self._kill(member)
        return not stuck and not any(statuses)


def _cycle(record: Recorder, begin: Begin, over: Over) -> None:
    failures: list[BaseException] = []

    def one(number: int) -> None:
        try:
            begin(record, over.is_set, number)
        except BaseException as error:  # noqa: BLE001  # told by the process's status
            failures.append(error)
            traceback.print_exc()
            over.set()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def main(folder: Path, seconds: float) -> int:
    random.seed(os.urandom(8))
    crew = Crew(folder, partial(_begin, folder))
    try:
        crew.sail(seconds)
    finally:
        well = crew.end()
    return 0 if well else 1


def _begin(folder: Path, record: Recorder, is_over: Callable[[], bool], number: int) -> None:
    from django.db import connections

    from django_reactor.coordination.database.turns import DatabaseTurns
    from django_reactor.coordination.selection import chosen_holds, chosen_rate_limits
    from tests.proof.cycles import Claims, Cycles

    what = os.environ.get("PROOF_OF", "all")
    cycles = Cycles(
        record=record,
        claims=Claims(folder / "claims"),
        holds=chosen_holds(),
        rates=chosen_rate_limits() if what != "holds" else None,
        turns=DatabaseTurns() if what == "all" else None,
        is_over=is_over,
    )
    try:
        cycles.run(number)
    finally:
        connections.close_all()


if __name__ == "__main__":
    django.setup()
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2])))
