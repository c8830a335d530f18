"""The runner's side of a worker: a process that answers one command at a time (see `worker`)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

__all__ = ["Worker", "WorkerFailed", "workers"]


class WorkerFailed(Exception):
    """A worker ended instead of answering; what it said is on standard error."""


class Worker:
    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, **command: Any) -> Mapping[str, Any]:
        assert self._process.stdin is not None  # a pipe was asked for
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WorkerFailed(f"the contender {self.name!r} ended with {self._process.wait()}")
        answer: Mapping[str, Any] = json.loads(line)
        return answer

    def run(self, executions: int, steps: int) -> Mapping[str, Any]:
        return self.ask(do="run", executions=executions, steps=steps)

    def seconds(self, executions: int, steps: int) -> float:
        return float(self.run(executions, steps)["seconds"])


@contextmanager
def workers(
    names: Sequence[str],
    environment: Mapping[str, str],
    pythons: Mapping[str, str],
    module: str = "benchmarks.worker",
) -> Iterator[list[Worker]]:
    """One process for each contender, ready to measure, ended after the block. `pythons`: another interpreter than ours
    for some of them. `module` is what answers the commands."""
    with ExitStack() as ended:
        started = [
            Worker(name, ended.enter_context(_process(name, environment, pythons.get(name, sys.executable), module)))
            for name in names
        ]
        for worker in started:
            worker.answer()
        yield started


@contextmanager
def _process(name: str, environment: Mapping[str, str], python: str, module: str) -> Iterator[subprocess.Popen[str]]:
    command = [python, "-m", module, name]
    with subprocess.Popen(
        command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
