"""A process that starts others to be killed: `python -m tests.crash.victim`.

It sets Django up once, without opening a connection, and forks for each command, a line of JSON on its standard
input. When the child has ended or has stopped itself, it answers with a line: how.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any
from uuid import UUID

import django

__all__ = ["main"]


def main() -> None:
    django.setup()
    from tests.crash import map_reactors, reactors  # noqa: F401 (known before the fork)

    for line in sys.stdin:
        command = json.loads(line)
        pid = command.get("go_on")
        if pid is None:
            pid = os.fork()
            if pid == 0:
                carry_out(command)
        else:
            os.kill(pid, signal.SIGCONT)
        print(json.dumps({"pid": pid, "how": fate(pid)}), flush=True)  # noqa: T201 (the protocol)


def fate(pid: int) -> str:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return "stopped"
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit {os.WEXITSTATUS(status)}"


def carry_out(command: dict[str, Any]) -> None:
    """In the child: do it, write down what came back, and leave without any clean-up."""
    status = 1
    try:
        result = verb_of(command)()
        Path(command["report"]).write_text(f"{type(result).__name__}: {result}")
        status = 0
    except Exception:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)


def verb_of(command: dict[str, Any]) -> Any:
    from django_reactor import actions
    from django_reactor.engine.crash_points import CrashPoint, arm
    from tests.crash import map_reactors, reactors

    if command["crash_at"]:
        point, count = command["crash_at"]
        arm(CrashPoint(point), count)
    reactors.stall_at(command["stall_at"])
    if command["verb"] == "drive":
        return lambda: map_reactors.drive(getattr(map_reactors, command["on"]))
    if command["verb"] == "run":
        return getattr(reactors, command["on"]).run
    return lambda: getattr(actions, command["verb"])(UUID(command["on"]), *command["arguments"])


if __name__ == "__main__":
    main()
