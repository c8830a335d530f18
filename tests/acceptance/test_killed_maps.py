"""Worker processes are killed in the middle of a fan-out, and a caller while it reads the source: nothing is lost,
doubled or stuck. At most the bodies in flight in a killed process run again."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection, transaction

from django_reactor.core.statuses import Relation, Status
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.models import Execution, JournalEntry, MapRun
from tests.contract.committed import environment_of_processes, transactional_db
from tests.killed.reactors import Wrapping, WrappingAll, create_table, drop_table, effects_of
from tests.workers import ROOT, Fleet, fleet

__all__ = ["transactional_db"]

pytestmark = [
    pytest.mark.usefixtures("transactional_db"),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="one database goes through a thousand elements"),
]

PATIENCE = 600.0
"""Seconds for one map."""
HASTE = {"LEASE_TTL": "5", "SWEEP_INTERVAL": "2"}
COUNT = 1000
THREADS = 4
KILLS_AT = (200, 500)
"""Elements that have ended when a worker is killed."""


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Fleet]:
    create_table()
    try:
        with fleet("dramatiq on redis", environment_of_processes() | HASTE, tmp_path) as workers:
            yield workers
    finally:
        with transaction.atomic(), connection.cursor() as cursor:
            for model in (JournalEntry, MapRun, Execution):
                cursor.execute(f"DELETE FROM {connection.ops.quote_name(model._meta.db_table)}")
        drop_table()


def elements(*statuses: Status) -> int:
    rows = Execution.objects.filter(relation=Relation.ELEMENT)
    return (rows.filter(status__in=statuses) if statuses else rows).count()


def root() -> Execution:
    return Execution.objects.get(relation=Relation.ROOT)


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what}: {Counter(Execution.objects.values_list('relation', 'status'))}"
        time.sleep(0.05)


def carried_to_its_end(workers: Fleet, progress: Callable[[], int]) -> int:
    """How often a worker was killed on the way; another takes its place each time."""
    crew = [workers.start("--threads", str(THREADS)) for _ in range(2)]
    kills = 0
    for count in KILLS_AT:
        until(lambda count=count: progress() >= count or Status(root().status).is_end, "progress")  # type: ignore[misc]
        if Status(root().status).is_end:
            break
        crew.pop(0).kill()
        crew.append(workers.start("--threads", str(THREADS)))
        kills += 1
    until(lambda: Status(root().status).is_end, "the end")
    return kills


def at_rest() -> bool:
    rows = Execution.objects.all()
    return not (rows.exclude(lease_token=None) | rows.exclude(wake_at=None) | rows.exclude(stop="")).exists()


def bodies(prefix: str) -> Counter[int]:
    effects = effects_of(root().pk)
    return Counter({int(name.split()[1]): number for name, number in effects.items() if name.startswith(f"{prefix} ")})


@pytest.mark.parametrize("reactor", [Wrapping, WrappingAll])
def test_workers_killed_in_a_fan_out_lose_no_element(workers: Fleet, reactor: type[Wrapping]) -> None:
    reactor.run(count=COUNT)
    kills = carried_to_its_end(workers, lambda: elements(Status.COMPLETED))
    assert kills == len(KILLS_AT)
    assert root().result().unwrap() == COUNT
    assert elements(Status.COMPLETED) == elements() == COUNT
    wrapped = bodies("wrap")
    assert set(wrapped) == set(range(COUNT))
    assert wrapped.total() - COUNT <= kills * THREADS
    assert JournalEntry.objects.filter(execution__relation=Relation.ELEMENT).count() == COUNT
    assert at_rest()


def test_workers_killed_in_a_fan_out_that_fails_and_in_its_undo_leave_nothing_undone(workers: Fleet) -> None:
    torn = COUNT * 2 // 5
    Wrapping.run(count=COUNT, torn=torn)
    kills = carried_to_its_end(workers, lambda: elements(Status.COMPLETED) + 2 * elements(Status.UNDONE))
    assert kills > 0
    execution = root()
    assert execution.status == Status.FAILED
    assert (execution.failure or {})["message"] == f"element {torn}: torn"
    assert (execution.failure or {})["rollback_failures"] == []
    assert elements(Status.FAILED) == 1
    assert elements(Status.UNDONE) + elements(Status.CANCELLED) == COUNT - 1
    begun, reversed_ = set(bodies("wrap")), bodies("unwrap")
    assert begun <= set(reversed_)
    assert reversed_.total() - len(begun) <= kills * THREADS  # again, or of bodies that may have run for all one knows
    assert MapRun.objects.get().state == "undone"
    assert at_rest()


def test_workers_killed_in_a_fan_out_with_failures_that_are_kept_lose_no_result(workers: Fleet) -> None:
    WrappingAll.run(count=COUNT, torn=7)
    carried_to_its_end(workers, lambda: elements(Status.COMPLETED))
    assert root().result().unwrap() == COUNT - 1
    assert (elements(Status.COMPLETED), elements(Status.FAILED)) == (COUNT - 1, 1)
    summary = MapRun.objects.get().summary
    assert (summary["failed"], [failure["index"] for failure in summary["failures"]]) == (1, [7])
    assert at_rest()


def test_a_caller_killed_while_it_reads_its_source_is_followed_by_one_that_reads_it_again(workers: Fleet) -> None:
    running = f"from tests.killed.reactors import Wrapping; Wrapping.run(count={COUNT + 1})"
    process = subprocess.run(
        [sys.executable, "-c", f"import django; django.setup(); {running}"],
        cwd=ROOT,
        env=workers.environment | {"KILL_FOLDER": "", "DJANGO_REACTOR_CRASH_AT": f"{CrashPoint.LOADED}:2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == -9, process.stderr
    assert (elements(Status.PENDING), MapRun.objects.get().state) == (COUNT, "loading")
    stored = set(Execution.objects.filter(relation=Relation.ELEMENT).values_list("pk", flat=True)[:10])
    workers.start("--threads", str(THREADS))
    until(lambda: Status(root().status).is_end, "the end")
    assert root().result().unwrap() == COUNT + 1
    assert elements(Status.COMPLETED) == elements() == COUNT + 1
    assert not Execution.objects.filter(pk__in=stored).exists()
    assert effects_of(root().pk)["read"] == 2
    assert set(bodies("wrap").values()) == {1}
    assert at_rest()
