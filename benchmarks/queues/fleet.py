"""The worker processes of a contender. They stand still while it is not their turn, so that nobody's idle looking for
work is paid by another."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["Fleet", "running"]

GRACE = 20.0
"""Seconds that workers get to end."""


class Fleet:
    """Commands that were started, each in a process group of its own with all that it has started."""

    def __init__(self, started: list[subprocess.Popen[bytes]]) -> None:
        self._started = started

    def stand_still(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def worked(self) -> float:
        """Seconds that their processes were at work so far; 0 where there is no /proc."""
        return sum(map(self._worked, Path("/proc").glob("[0-9]*/stat"))) / os.sysconf("SC_CLK_TCK")

    def _worked(self, stat: Path) -> int:
        """Ticks of one process, if it is of our groups. Its name, in brackets, may hold anything."""
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return 0  # it has ended
        groups = {process.pid for process in self._started}
        return int(fields[11]) + int(fields[12]) if int(fields[2]) in groups else 0

    def end(self) -> None:
        self.go_on()
        self._signal(signal.SIGTERM)
        end = time.monotonic() + GRACE
        for process in self._started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
        self._signal(signal.SIGKILL)
        for process in self._started:
            process.wait()

    def _signal(self, number: signal.Signals) -> None:
        for process in self._started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)


@contextmanager
def running(name: str, environment: Mapping[str, str], python: str) -> Iterator[Fleet]:
    commands = importlib.import_module(f"benchmarks.queues.contenders.{name}").consumers(python)
    started: list[subprocess.Popen[bytes]] = []
    fleet = Fleet(started)
    try:
        for command in commands:
            started.append(
                subprocess.Popen(
                    command,
                    env=dict(environment),
                    stdout=subprocess.DEVNULL,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
        yield fleet
    finally:
        fleet.end()
