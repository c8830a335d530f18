"""One contender in a process of its own: `python -m benchmarks.worker NAME`.

It reads commands from standard input, one JSON object a line, and answers each with one on standard output, so that the
runner can let contenders take turns. It first says `{"ready": true}`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from time import perf_counter, process_time
from typing import Any, Protocol, TextIO

__all__ = ["Command", "Contender", "main", "measured", "serve"]

Command = Callable[[Any, Mapping[str, Any]], Mapping[str, Any]]


class Contender(Protocol):
    """A way to carry out executions of trivial steps, each outcome committed before the next step starts."""

    def execute(self, steps: int) -> None:
        """One execution."""

    def close(self) -> None: ...


def measured(contender: Contender, executions: int, steps: int) -> Mapping[str, float]:
    """Seconds that so many executions take, and how many of them this process was at work."""
    started, worked = perf_counter(), process_time()
    for _ in range(executions):
        contender.execute(steps)
    return {"seconds": perf_counter() - started, "worked": process_time() - worked}


def _run(contender: Any, command: Mapping[str, Any]) -> Mapping[str, Any]:
    return measured(contender, command["executions"], command["steps"])


def _reload(contender: Any, command: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"seconds": contender.reload(command["steps"])}


def _profile(contender: Any, command: Mapping[str, Any]) -> Mapping[str, Any]:
    from benchmarks.sampling import sampled

    with sampled() as samples:
        times = measured(contender, command["executions"], command["steps"])
    return {**times, "layers": samples.layers(), "functions": samples.functions()}


COMMANDS: Mapping[str, Command] = {
    "run": _run,
    "reload": _reload,
    "profile": _profile,
}


def main(name: str, commands: TextIO, answers: TextIO) -> None:
    serve(importlib.import_module(f"benchmarks.contenders.{name}").contender(os.environ), COMMANDS, commands, answers)


def serve(contender: Any, known: Mapping[str, Command], commands: TextIO, answers: TextIO) -> None:
    """Say that it is ready, then answer commands to their end, and close the contender."""
    try:
        _answer(answers, {"ready": True})
        for line in commands:
            command = json.loads(line)
            _answer(answers, known[command["do"]](contender, command))
    finally:
        contender.close()


def _answer(answers: TextIO, answer: Mapping[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    # What a library prints must not be taken for an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    main(sys.argv[1], sys.stdin, answers)
