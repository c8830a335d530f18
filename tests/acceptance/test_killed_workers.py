"""Real worker processes die by SIGKILL at every moment between two of the engine's writes, and others go on.

At most the body in flight runs again, an atomic step's writes are there once, every unit is dispatched once, nothing is
stuck. All moments of a queue are gone through at once: each has an execution of its own, and a few workers, of which
another is started whenever one has died. A worker carries one delivery at a time, so that a death concerns one only.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker

from django_reactor import Reactor
from django_reactor.core.statuses import Relation, Status
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.models import Execution, JournalEntry
from tests.contract.committed import environment_of_processes, forget_executions, transactional_db
from tests.killed import trap
from tests.killed.reactors import Asking, Packing, Placing, Returning, create_table, drop_table, effects_of
from tests.workers import ROOT, Fleet, fleet

__all__ = ["transactional_db"]

pytestmark = pytest.mark.usefixtures("transactional_db")

PATIENCE = 600.0
"""Seconds for all moments of a queue."""
HASTE = {"LEASE_TTL": "5", "SWEEP_INTERVAL": "2"}

# Where a worker dies, and which body runs again: the one whose end is not journaled. Every crash point is there in each
# of the surroundings that make a difference to it.

FORWARD: dict[str, str | None] = {
    "claim 2:claimed": None,
    "claim 2:dispatched": None,
    "claim 2:recorded": None,
    "book:atomic_body_done": None,
    "charge 1:body_done": "charge 1",
    "charge 1:recorded": None,
    "charge 1:released": None,
    "charge 2:recorded": None,
    "charge 2:released": None,
    "ship:before_end": None,
    "ship:recorded": None,
}
IN_A_UNIT: dict[str, str | None] = {
    "unit claim 1:claimed": None,
    "notify snoozed:released": None,
    "notify 2:before_end": "notify 2",
    "notify 2:recorded": None,
    "notify 2:before_wake": None,
}
BACK: dict[str, str | None] = {
    "ship 2:recorded": None,
    "call off:rollback_body_done": "call off",
    "call off:recorded": None,
    "refund snoozed:released": None,
    "claim 3:claimed": None,
    "refund:rollback_body_done": "refund",
    "unbook:atomic_body_done": None,
    "release:before_end": "release",
    "release:recorded": None,
}
OVER_A_MAP: dict[str, str | None] = {
    "claim 1:loaded": None,
    "claim 1:dispatched": None,
    "claim 1:released": None,
    "pack 0:body_done": "pack 0",
    "pack 1:element_ended": None,
    "pack 2:element_ended": None,
    "pack 2:before_wake": None,
    "claim 2:settled": None,
}
AT_A_QUESTION: dict[str, str | None] = {
    "reserve:wait_opened": None,
    "ask:body_done": "ask",
    "ask:paused": None,
    "claim 2:recorded": None,
    "answered": None,
}
IN_THE_CALLER: dict[str, str | None] = {
    "started": None,
    "body_done": "reserve",
    "recorded": None,
    "released": None,
}
EVERYWHERE: set[tuple[str, str]] = {
    ("forward", "claim 2:claimed"),
    ("forward", "book:atomic_body_done"),
    ("forward", "charge 1:released"),
    ("forward", "charge 2:recorded"),
    ("forward", "ship:recorded"),
    ("back", "call off:recorded"),
    ("back", "claim 3:claimed"),
    ("back", "unbook:atomic_body_done"),
    ("in the caller", "released"),
}
"""Where the databases could differ: around claim, record and hand-off."""

OF_COORDINATION = {
    *(CrashPoint.ADMITTED, CrashPoint.TAKEN, CrashPoint.BEFORE_RELEASE),
    *(CrashPoint.DRAWN, CrashPoint.PARKED_IN_LINE, CrashPoint.BEFORE_NEXT_TURN),
}
"""Processes are killed there in tests/crash, and at any instant in tests/proof."""

ON_POSTGRES = connection.vendor == "postgresql"
QUEUES = ("dramatiq on redis", "rq") if ON_POSTGRES else ("dramatiq on redis",)
CREW = 3
"""Workers at a time."""

Moment = tuple[str, str]
"""Which of the journeys, and where on it; '' is nowhere."""
Line = tuple[str, str, str]
"""Of a journal: step, action, outcome."""


PLACED_JOURNAL = [
    ("reserve", "run", "success"),
    ("", "hand_off", ""),
    ("notify", "dispatch", ""),
    ("book", "run", "success"),
    ("charge", "run", "retrying"),
    ("charge", "run", "success"),
    ("confirm", "run", "success"),
    ("ship", "run", "success"),
]
NOTIFIED_JOURNAL = [("notify", "run", "retrying"), ("notify", "run", "success")]
RETURNED_JOURNAL = [
    ("reserve", "run", "success"),
    ("book", "run", "success"),
    ("charge", "run", "success"),
    ("ship", "run", "retrying"),
    ("ship", "run", "failure"),
    ("ship", "compensate", "success"),
    ("charge", "undo", "success"),
    ("book", "undo", "success"),
    ("reserve", "undo", "success"),
]
PACKED_JOURNAL = [("packed", "dispatch", ""), ("packed", "run", "success"), ("sealed", "run", "success")]
APPROVED_JOURNAL = [
    ("reserve", "run", "success"),
    ("approval", "pause", ""),
    ("approval", "resume", "success"),
    ("charge", "run", "success"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    """A reactor, where on its way workers die, and how it ends all the same. Parts are units and elements."""

    reactor: type[Reactor[Any]]
    again: Mapping[str, str | None]
    status: Status = Status.COMPLETED
    journal: Sequence[Line]
    parts: int = 0
    part_journal: Sequence[Line] = ()
    effects: Sequence[str]


PLACING = Journey(
    reactor=Placing,
    again=FORWARD,
    journal=PLACED_JOURNAL,
    parts=1,
    part_journal=NOTIFIED_JOURNAL,
    effects=["reserve", "notify 1", "notify snoozed", "notify 2", "book", "charge 1", "charge 2", "confirm", "ship"],
)
RETURNING = Journey(
    reactor=Returning,
    again=BACK,
    status=Status.FAILED,
    journal=RETURNED_JOURNAL,
    effects=[
        *("reserve", "book", "charge", "ship 1", "ship 2"),
        *("call off", "refund snoozed", "refund", "unbook", "release"),
    ],
)
PACKING = Journey(
    reactor=Packing,
    again=OVER_A_MAP,
    journal=PACKED_JOURNAL,
    parts=3,
    part_journal=[("Pack", "run", "success")] * 3,
    effects=["pack 0", "pack 1", "pack 2", "seal"],
)
ASKING = Journey(reactor=Asking, again=AT_A_QUESTION, journal=APPROVED_JOURNAL, effects=["reserve", "ask", "charge"])
JOURNEYS = {
    "forward": PLACING,
    "in a unit": replace(PLACING, again=IN_A_UNIT),
    "back": RETURNING,
    "over a map": PACKING,
    "at a question": ASKING,
    "in the caller": replace(PLACING, again=IN_THE_CALLER),
}
UNDISTURBED: list[Moment] = [("forward", ""), ("back", ""), ("over a map", ""), ("at a question", "")]


def moments() -> list[Moment]:
    every = [(name, moment) for name, journey in JOURNEYS.items() for moment in journey.again]
    return every if ON_POSTGRES else [each for each in every if each in EVERYWHERE]


def dies_elsewhere(where: str) -> bool:
    """Not a worker, but the process that starts it or answers."""
    return bool(where) and ":" not in where


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What stands in the rows when all is over. Parts are units and elements."""

    status: str
    part_statuses: list[str]
    journal: list[Line]
    part_journal: list[Line]
    effects: Counter[str]
    is_at_rest: bool
    died: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    left: Mapping[Moment, Left]
    passed: frozenset[str]
    """The moments that an undisturbed execution of each reactor went through."""


# -- going through all moments of a queue ------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=QUEUES)
def outcomes(
    request: pytest.FixtureRequest,
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Outcomes:
    folder = tmp_path_factory.mktemp("killed")
    environment = environment_of_processes() | HASTE | {"KILL_FOLDER": str(folder)}
    with django_db_blocker.unblock(), effects_table(), fleet(request.param, environment, folder) as workers:
        started = {moment: start(moment, workers) for moment in (*moments(), *UNDISTURBED)}
        options = ("--threads", "1") if request.param.startswith("dramatiq") else ()
        keep_up(workers, options)
        return Outcomes(
            left={moment: left_of(root_id, moment, folder) for moment, root_id in started.items()},
            passed=frozenset((folder / trap.PASSED).read_text().splitlines()),
        )


@contextmanager
def effects_table() -> Iterator[None]:
    create_table()
    try:
        yield
    finally:
        forget_executions()
        drop_table()


def start(moment: Moment, workers: Fleet) -> UUID:
    """An execution whose worker will die at this moment."""
    name, where = moment
    reactor = JOURNEYS[name].reactor
    if name == "in the caller":
        known = set(Execution.objects.values_list("pk", flat=True))
        died_in(f"{reactor.__name__}.run()", where, workers)
        return Execution.objects.exclude(pk__in=known).get().pk
    bound = reactor.using(tags=[where or trap.RECORD])
    result = bound.run() if reactor is Placing else bound.enqueue()
    assert result.execution_id is not None
    return result.execution_id


def died_in(call: str, point: str, workers: Fleet) -> None:
    """A process that is killed at this crash point of that call."""
    imports = f"from tests.killed.reactors import {Placing.__name__}; from django_reactor.models import Execution"
    process = subprocess.run(
        [sys.executable, "-c", f"import django; django.setup(); {imports}; {call}"],
        cwd=ROOT,
        env=workers.environment | {"KILL_FOLDER": "", "DJANGO_REACTOR_CRASH_AT": point},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr


def answer_questions(workers: Fleet) -> None:
    for paused in Execution.objects.filter(status=Status.PAUSED):
        if CrashPoint.ANSWERED in paused.tags:
            died_in(f"Execution.objects.get(pk={str(paused.pk)!r}).resume(True)", CrashPoint.ANSWERED, workers)
        else:
            paused.resume(True)


def keep_up(workers: Fleet, options: Sequence[str]) -> None:
    """As a supervisor: whoever has died is replaced. Out of time, the tests tell what is missing."""
    crew = [workers.start(*options) for _ in range(CREW)]
    deadline = time.monotonic() + PATIENCE
    while not all_ended() and time.monotonic() < deadline:
        answer_questions(workers)
        for position, worker in enumerate(crew):
            if worker.has_ended:
                crew[position] = workers.start(*options)
        time.sleep(0.2)


def all_ended() -> bool:
    return not Execution.objects.exclude(status__in=[status for status in Status if status.is_end]).exists()


def left_of(root_id: UUID, moment: Moment, folder: Path) -> Left:
    root = Execution.objects.get(pk=root_id)
    parts = Execution.objects.filter(root=root_id).exclude(relation=Relation.ROOT).order_by("element_index")
    return Left(
        status=root.status,
        part_statuses=[part.status for part in parts],
        journal=journal(root_id),
        part_journal=[line for part in parts for line in journal(part.pk)],
        effects=effects_of(root_id),
        is_at_rest=all(
            (row.lease_token, row.lease_expires_at, row.wake_at, row.stop) == (None, None, None, "")
            for row in (root, *parts)
        ),
        died=dies_elsewhere(moment[1]) or (folder / moment[1]).is_file(),
    )


def journal(execution_id: UUID) -> list[Line]:
    entries = JournalEntry.objects.filter(execution=execution_id).order_by("seq")
    return [(entry.step, entry.action, entry.outcome) for entry in entries]


# -- what holds after each ---------------------------------------------------------------------------------------------


def name_of(moment: Any) -> str:
    return f"{moment[0]}, {moment[1]}".rstrip(", ")


@pytest.mark.parametrize("moment", [*moments(), *UNDISTURBED], ids=name_of)
def test_what_a_dead_worker_leaves_is_carried_to_its_end(outcomes: Outcomes, moment: Moment) -> None:
    name, where = moment
    left, journey = outcomes.left[moment], JOURNEYS[name]
    assert left.died == bool(where)
    assert left.is_at_rest, left
    assert (left.status, left.part_statuses) == (journey.status, [Status.COMPLETED] * journey.parts)
    handed_off = name != "in the caller" or where == CrashPoint.RELEASED
    assert left.journal == [entry for entry in journey.journal if handed_off or entry[1] != "hand_off"]
    assert left.part_journal == list(journey.part_journal)
    assert left.effects == Counter(journey.effects) + Counter(filter(None, [journey.again.get(where)]))


@pytest.mark.skipif(not ON_POSTGRES, reason="PostgreSQL goes through all moments, other databases through some")
def test_the_moments_are_those_that_executions_go_through_and_leave_no_crash_point_out(outcomes: Outcomes) -> None:
    assert {where for _, where in moments() if not dies_elsewhere(where)} <= outcomes.passed
    assert {where.rpartition(":")[2] for _, where in moments()} == set(CrashPoint) - OF_COORDINATION
