"""A worker process dies at the moment that a tag of the execution names, once.

A moment is what a delivery did last, and the crash point that it reached after that: `charge 1:recorded`. What it did
last is what a body told (`passed`), or else its claim: `claim 2` of a root, `unit claim 1` of a unit.

The environment variable `KILL_FOLDER` sets the trap. A file in there is named after the moment at which a process died;
`passed` lists those that an execution with the tag `RECORD` went through.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from django_reactor import queues, worker
from django_reactor.core.statuses import Relation
from django_reactor.engine.crash_points import CrashPoint, watch
from django_reactor.models import Execution

__all__ = ["PASSED", "RECORD", "passed", "set_up"]

RECORD = "record"
PASSED = "passed"


@dataclass(slots=True)
class Delivery:
    """The one that this thread is at."""

    tags: list[str]
    did_last: str


_this = threading.local()


def set_up() -> None:
    if folder := os.environ.get("KILL_FOLDER"):
        queues.install(_deliver)
        watch(lambda point: _is_the_end(Path(folder), point))


def passed(what: str) -> None:
    """A body says what it did."""
    delivery: Delivery | None = getattr(_this, "delivery", None)
    if delivery is not None:
        delivery.did_last = what


def _deliver(execution_id: str) -> None:
    row = Execution.objects.filter(pk=execution_id).values("tags", "epoch", "relation").get()
    whose = "claim" if row["relation"] == Relation.ROOT else "unit claim"
    _this.delivery = Delivery(list(row["tags"]), f"{whose} {row['epoch'] + 1}")
    try:
        worker.deliver(execution_id)
    finally:
        del _this.delivery


def _is_the_end(folder: Path, point: CrashPoint) -> bool:
    delivery: Delivery | None = getattr(_this, "delivery", None)
    if delivery is None:
        return False
    moment = f"{delivery.did_last}:{point}"
    if RECORD in delivery.tags:
        with (folder / PASSED).open("a") as file:
            file.write(f"{moment}\n")
    return moment in delivery.tags and _is_the_first_time(folder / moment)


def _is_the_first_time(sign: Path) -> bool:
    """Among all processes."""
    try:
        sign.open("x").close()
    except FileExistsError:
        return False
    return True
