"""What processes write down, each event with one `write` at the end of one file.

Stamps are taken by whoever acts, on the clock that all processes of a machine share: *before* it asks, *after* it was
answered, *before* it leaves, *after* it has left. So what was surely so lies within two stamps, and what may have been
so around them. A process that dies leaves what it had written.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django_reactor.engine.leases import boottime

__all__ = ["FOREVER", "Event", "Recorder", "events_of", "grouped"]

Event = Mapping[str, Any]
FOREVER = float("inf")


class Recorder:
    """Of one process. Thread-safe. `stamp` and `wall` are in seconds."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._numbers = itertools.count()

    def name(self) -> str:
        """A new one, for what belongs together."""
        return f"{os.getpid()}-{threading.get_ident()}-{next(self._numbers)}"

    def note(self, what: str, name: str = "", **more: Any) -> float:
        """Stamp it, write it down, and return the stamp."""
        stamp = boottime()
        event = {"what": what, "name": name, "process": os.getpid(), "stamp": stamp, "wall": time.time(), **more}
        os.write(self._file, (json.dumps(event) + "\n").encode())
        return stamp


def events_of(path: Path) -> list[Event]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def grouped(events: Sequence[Event], about: str) -> dict[str, list[Event]]:
    """By what belongs together: those that begin with an event of this kind, in the order of their stamps."""
    found: dict[str, list[Event]] = {}
    for event in events:
        if event["what"] == about:
            found[event["name"]] = []
        if event["name"] in found:
            found[event["name"]].append(event)
    return found


def ends_of_processes(events: Sequence[Event]) -> dict[int, float]:
    """When those that were killed were surely dead."""
    return {event["victim"]: event["stamp"] for event in events if event["what"] == "killed"}
