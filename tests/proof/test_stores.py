"""Processes that take, extend and free locks and semaphores, start, and stand in lines, over and over, while some of
them are killed and others are stopped for longer than the ttl: what they wrote down keeps the rules.

`PROOF_SECONDS` is how long it goes on (see CONTRIBUTING.md).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from django.db import connection

from django_reactor.coordination.database.holds import DatabaseHolds
from django_reactor.coordination.database.turns import DatabaseTurns
from django_reactor.engine.coordination_ports import Holds
from django_reactor.models import Ticket
from testproject.brokers import redis_url
from tests.contract.committed import environment_of_processes, eventually, transactional_db
from tests.contract.redis_store import redis_store
from tests.proof.crew import EVENTS
from tests.proof.cycles import LEASE_TTL, LINES, POISON, TTL, WANTED
from tests.proof.events import Event, events_of
from tests.proof.holding import faults_of_holds
from tests.proof.lining import faults_of_lines
from tests.proof.starting import faults_of_starts
from tests.services import require_service
from tests.workers import ROOT

__all__ = ["transactional_db"]

SECONDS = float(os.environ.get("PROOF_SECONDS") or 5)
QUICK = {"PGOPTIONS": "-c synchronous_commit=off"}
"""No server dies here, so nobody waits for its disk."""
LEAST = 2
"""Cycles a second of a machine that does much else."""

pytestmark = pytest.mark.usefixtures("transactional_db")


def crew(folder: Path, seconds: float, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.proof.crew", str(folder), str(seconds)],
        cwd=ROOT,
        env={**environment_of_processes(), **QUICK, "DJANGO_SETTINGS_MODULE": "tests.worker_settings", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def record_of(process: subprocess.Popen[str], folder: Path, seconds: float) -> list[Event]:
    output, _ = process.communicate(timeout=seconds + 60)
    assert process.returncode == 0, output
    events = events_of(folder / EVENTS)
    counts = Counter(event["what"] for event in events)
    print(dict(counts))  # noqa: T201  # pytest shows it if the test fails
    assert counts["left"] >= LEAST * seconds
    assert counts["killed"] >= 1
    assert counts["stopped"] >= 1
    return events


def all_can_be_had(holds: Holds) -> None:
    """By new owners, as soon as the ttl of what the dead have left is over."""
    for wanted in WANTED:
        eventually(partial(holds.take, uuid4(), 1, wanted), f"a take of {wanted.key}", within=2 * TTL + 1)
    time.sleep(TTL)


def lines_are_empty() -> dict[str, Sequence[int]]:
    """Once the dead were passed over. Returns the numbers that were, by key; every number was drawn."""
    turns = DatabaseTurns()
    for key in LINES:
        eventually(partial(_is_empty, turns, key), f"the end of {key}")
    tickets = Ticket.objects.order_by("number").values_list("sequence__key", "number", "state")
    for key in LINES:
        numbers = [number for of, number, _ in tickets if of == key]
        assert numbers == list(range(1, len(numbers) + 1))
    return {key: [number for of, number, state in tickets if (of, state) == (key, "passed")] for key in LINES}


def _is_empty(turns: DatabaseTurns, key: str) -> bool:
    turns.pass_over(key, POISON)
    return turns.head(key) is None


def test_the_stores_in_the_database_keep_the_rules(tmp_path: Path) -> None:
    process = crew(tmp_path, SECONDS, LEASE_TTL=str(LEASE_TTL), COORDINATION="database")
    events = record_of(process, tmp_path, SECONDS)
    passed = lines_are_empty()
    faults = faults_of_holds(events, locks_what_it_sees=connection.vendor == "mysql")
    assert not [*faults, *faults_of_starts(events), *faults_of_lines(events, passed)]
    all_can_be_had(DatabaseHolds())


def test_the_stores_in_redis_keep_the_rules(tmp_path: Path) -> None:
    require_service("redis")
    with redis_store(redis_url(os.environ)) as store:
        process = crew(tmp_path, SECONDS, COORDINATION="redis", CACHE_PREFIX=store.prefix, PROOF_OF="rates")
        events = record_of(process, tmp_path, SECONDS)
        assert not [*faults_of_holds(events), *faults_of_starts(events)]
        all_can_be_had(store.holds)
