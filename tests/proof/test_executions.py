"""Executions under locks, semaphores, rate limits, periods and ordered locks, in worker processes of which some are
killed and others are stopped for longer than their leases and ttls: what their bodies wrote down keeps the rules."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from django.db import connection

from django_reactor.core.statuses import Status
from django_reactor.models import Execution
from tests.contract.committed import environment_of_processes, eventually, transactional_db
from tests.contract.redis_store import redis_store
from tests.proof.events import Event, Recorder, events_of
from tests.proof.holding import faults_of_holds
from tests.proof.lining import faults_of_lines
from tests.proof.reactors import PATIENCE, PER_SECOND, Guarded, InOrder, Limited, Once, Pooled
from tests.proof.starting import faults_of_starts
from tests.workers import Fleet, Worker, fleet

__all__ = ["transactional_db"]

LONGER = float(os.environ.get("PROOF_SECONDS") or 5) / 5
LEASE_TTL = 2.0
HASTE = {"LEASE_TTL": "2", "SWEEP_INTERVAL": "1", "SNOOZE_DELAY": "0.2", "SNOOZE_JITTER": "0.2", "MAX_SNOOZES": "10000"}
CREW = 4
THREADS = ("--threads", "4")
KEYS = 2

pytestmark = pytest.mark.usefixtures("transactional_db")


def stores() -> list[str]:
    """One is enough for each database, where it has to be quick."""
    if LONGER > 1:
        return ["database", "redis"]
    return ["redis"] if connection.vendor == "sqlite" else ["database"]


@pytest.mark.parametrize("store", stores())
def test_executions_keep_the_rules(store: str, tmp_path: Path) -> None:
    with surroundings(store) as environment, fleet("dramatiq on redis", environment, tmp_path) as workers:
        record = tmp_path / "record"
        begin(record, count=round(8 * LONGER))
        trouble(workers)
        events = events_of(record)
    print(dict(Counter(event["what"] for event in events)))  # noqa: T201  # pytest shows it if the test fails
    nobody_is_passed = {f"account:{number}": () for number in range(KEYS)}
    faults = [*faults_of_holds(events), *faults_of_starts(events), *faults_of_lines(events, nobody_is_passed)]
    assert not faults
    assert_all_is_done(events)


@contextmanager
def surroundings(store: str) -> Iterator[dict[str, str]]:
    environment = environment_of_processes() | HASTE | {"COORDINATION": store}
    if store == "database":
        yield environment
    else:
        with redis_store(os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379/0") as found:
            yield environment | {"CACHE_PREFIX": found.prefix}


def begin(path: Path, count: int) -> None:
    """So many of each kind, for each of a few keys, in turns."""
    record = Recorder(path)
    for number in range(count):
        for key in range(KEYS):
            Guarded.enqueue(record=str(path), room=key)
            Pooled.enqueue(record=str(path))
            Once.enqueue(record=str(path), report=key)
            name = uuid4().hex
            record.note("draws", name, key=f"account:{key}", patience=PATIENCE)
            InOrder.enqueue(record=str(path), account=key, name=name)
            record.note("drew", name, number=number + 1)
        name = uuid4().hex
        record.note("charges", name, key="api", windows={"1": PER_SECOND})
        Limited.enqueue(record=str(path), name=name)


def trouble(workers: Fleet) -> None:
    """Kill one and start another, stop one for longer than its lease, until all have ended."""
    crew = [workers.start(*THREADS) for _ in range(CREW)]
    eventually(lambda: Execution.objects.filter(status=Status.COMPLETED).count() >= CREW, "work", within=60)
    deadline = time.monotonic() + 60 * LONGER + 60
    turn = 0
    while not all_have_ended():
        assert time.monotonic() < deadline, list(Execution.objects.values_list("reactor", "status", "snooze_reason"))
        turn += 1
        if turn % 2:
            crew.pop(0).kill()
            crew.append(workers.start(*THREADS))
        else:
            frozen(crew[0], LEASE_TTL * 1.3)
        time.sleep(0.5)


def frozen(worker: Worker, seconds: float) -> None:
    pids = worker.pids
    send(pids, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        send(pids, signal.SIGCONT)


def send(pids: set[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def all_have_ended() -> bool:
    return not Execution.objects.exclude(status__in=[status for status in Status if status.is_end]).exists()


def assert_all_is_done(events: list[Event]) -> None:
    counts = Counter(Execution.objects.values_list("reactor", "status"))
    entered = {event["name"] for event in events if event["what"] == "enters"}
    each = sum(event["what"] == "drew" for event in events)
    assert len(entered) == each
    for reactor in (Guarded, Pooled, InOrder):
        assert counts[f"proof.{reactor.__name__}", Status.COMPLETED] == each
    assert counts["proof.Limited", Status.COMPLETED] == each // KEYS
    assert counts["proof.Once", Status.COMPLETED] == KEYS
    assert counts["proof.Once", Status.HALTED] == each - KEYS
