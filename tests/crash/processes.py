"""Processes to be killed, and what the tests ask of the rows that they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from django.db import connection

from django_reactor.engine.crash_points import CrashPoint
from django_reactor.journal.fields import DbNow
from django_reactor.models import Execution

__all__ = ["Process", "Processes", "expire", "only_execution"]

LONG = timedelta(hours=1)
ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    how: str
    """`stopped`, `exit N`, or the name of the signal that killed it."""
    report: Path

    @property
    def was_killed(self) -> bool:
        return self.how == "SIGKILL"

    @property
    def result(self) -> str:
        """The type and the text of what its call returned."""
        return self.report.read_text()


class Processes:
    """Starts processes on the tests' database, one after another."""

    def __init__(self, folder: Path, **more_environment: str) -> None:
        self._folder, self._count = folder, 0
        self._stopped: set[int] = set()
        self._spawner = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.victim"],
            cwd=ROOT,
            env=environment() | more_environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, reactor: type, *, crash_at: tuple[CrashPoint, int] | None = None, stall_at: str = "") -> Process:
        return self._start("run", reactor.__name__, crash_at, stall_at)

    def drive(self, reactor: type, *, crash_at: tuple[CrashPoint, int] | None = None) -> Process:
        """Run it, and carry out all deliveries that come of it."""
        return self._start("drive", reactor.__name__, crash_at, "")

    def act(
        self,
        verb: str,
        execution_id: UUID,
        *arguments: str,
        crash_at: tuple[CrashPoint, int] | None = None,
        stall_at: str = "",
    ) -> Process:
        """`undo`, `retry`, `cancel`, `deliver`, or `resume` with a payload."""
        return self._start(verb, str(execution_id), crash_at, stall_at, arguments)

    def go_on(self, process: Process) -> Process:
        """SIGCONT for a stopped one."""
        return self._ask({"go_on": process.pid}, process.report)

    def _start(
        self,
        verb: str,
        on: str,
        crash_at: tuple[CrashPoint, int] | None,
        stall_at: str,
        arguments: Sequence[str] = (),
    ) -> Process:
        self._count += 1
        report = self._folder / f"report-{self._count}"
        command: dict[str, Any] = {"verb": verb, "on": on, "arguments": list(arguments), "report": str(report)}
        command |= {"crash_at": crash_at, "stall_at": stall_at}
        return self._ask(command, report)

    def _ask(self, command: dict[str, Any], report: Path) -> Process:
        pipe_in, pipe_out = self._pipes()
        pipe_in.write(json.dumps(command) + "\n")
        pipe_in.flush()
        process = Process(**json.loads(pipe_out.readline()), report=report)
        (self._stopped.add if process.how == "stopped" else self._stopped.discard)(process.pid)
        return process

    def close(self) -> None:
        """A failed test may have left a stopped one."""
        for pid in self._stopped:
            os.kill(pid, signal.SIGKILL)
        pipe_in, pipe_out = self._pipes()
        pipe_in.close()
        self._spawner.wait(30)
        pipe_out.close()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._spawner.stdin is not None
        assert self._spawner.stdout is not None
        return self._spawner.stdin, self._spawner.stdout


def environment() -> dict[str, str]:
    """What makes another process of the test project work on the tests' database."""
    name = str(connection.settings_dict["NAME"])
    return os.environ | {"DJANGO_SETTINGS_MODULE": "testproject.settings", "DATABASE_NAME": name}


def only_execution() -> Execution:
    return Execution.objects.get()


def expire(execution_id: UUID) -> None:
    """As if the time of its lease were over. (No test waits for that.)"""
    past = Execution.objects.filter(pk=execution_id, lease_token__isnull=False)
    assert past.update(lease_expires_at=DbNow() - LONG) == 1
