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
        return sum(int(fields[11]) + int(fields[12]) for _, fields in self._processes()) / os.sysconf("SC_CLK_TCK")

    def pids(self) -> list[int]:
        """Of their processes; none where there is no /proc."""
        return [pid for pid, _ in self._processes()]

    def _processes(self) -> Iterator[tuple[int, list[str]]]:
        """Those of our groups, and what `stat` says behind the name, which is in brackets and may hold anything."""
        groups = {process.pid for process in self._started}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[2]) in groups:
                    yield int(stat.parent.name), fields

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
