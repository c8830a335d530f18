"""The database goes away while executions run, wait and roll back, for longer than a lease and the time between two
sweeps, and comes back. The same workers bring all of them to their right ends, and nobody helps."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from uuid import UUID

import pytest
from django.conf import ENVIRONMENT_VARIABLE, settings
from django.db import connection, connections
from django.test import override_settings

from django_reactor.core.statuses import Status
from django_reactor.models import Execution, JournalEntry
from django_reactor.results import Result
from testproject.databases import database
from tests.contract.committed import eventually, transactional_db
from tests.killed.reactors import Held, Waits, create_table, drop_table, effects_of
from tests.private_postgres import Server, private_postgres
from tests.workers import ROOT, fleet

__all__ = ["transactional_db"]

pytestmark = pytest.mark.skipif(connection.vendor != "postgresql", reason="the server that is stopped is PostgreSQL's")

ELSEWHERE = "elsewhere"
LEASE_TTL, SWEEP_INTERVAL = 3.0, 1.0
PATIENCE = 90.0
AWAY = LEASE_TTL + SWEEP_INTERVAL + 2
"""Seconds."""
WORKERS: dict[str, list[tuple[str, ...]]] = {"dramatiq on redis": [("--threads", "6")], "rq": [()] * 5}
"""One thread or process for each body that is held, and more."""


class Elsewhere:
    """Executions are stored on another server."""

    def db_for_read(self, model: type, **hints: object) -> str:
        return ELSEWHERE

    db_for_write = db_for_read


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with private_postgres() as server:
        environment = os.environ | {ENVIRONMENT_VARIABLE: settings.SETTINGS_MODULE} | server.environment
        migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(migrate, cwd=ROOT, env=environment, timeout=120, check=True)
        yield server


@pytest.fixture
def stored_elsewhere(transactional_db: None, server: Server) -> Iterator[None]:
    """Executions of this process are stored on that server."""
    chosen = connections.configure_settings({"default": database(server.environment)})["default"]
    connections.settings[ELSEWHERE] = chosen
    try:
        with override_settings(DATABASE_ROUTERS=[Elsewhere()]):
            create_table(ELSEWHERE)
            yield
            drop_table(ELSEWHERE)
    finally:
        connections[ELSEWHERE].close()
        del connections[ELSEWHERE], connections.settings[ELSEWHERE]


@pytest.mark.parametrize("kind", WORKERS)
@pytest.mark.usefixtures("stored_elsewhere")
def test_an_outage_of_the_database_loses_nothing_and_needs_no_one(kind: str, server: Server, tmp_path: Path) -> None:
    environment = os.environ | server.environment
    environment |= {"LEASE_TTL": str(LEASE_TTL), "SWEEP_INTERVAL": str(SWEEP_INTERVAL)}
    with fleet(kind, environment, tmp_path) as workers:
        ends_while_away = {
            Execution.objects.get(pk=id_of(Held.enqueue(folder=str(tmp_path), held=where))): where
            for where in ("reserve", "book")
        }
        atomic = id_of(Held.enqueue(folder=str(tmp_path), held="book"))
        rolling_back = id_of(Held.enqueue(folder=str(tmp_path), held="unbook", fails=True))
        crew = [workers.start(*options) for options in WORKERS[kind]]
        held = [*(execution.pk for execution in ends_while_away), atomic, rolling_back]
        for execution_id in held:
            eventually((tmp_path / f"{execution_id} is in").exists, "the body that is held", within=PATIENCE)
        parked = id_of(Waits.enqueue())
        eventually(lambda: waits_for_its_unit(parked), "a reader that waits", within=PATIENCE)
        eventually(lambda: was_refused(parked), "the refusal of its unit", within=PATIENCE)
        pending = id_of(Held.using(run_after=4).enqueue(folder=str(tmp_path)))

        server.stop()
        for execution in ends_while_away:
            let_go(tmp_path, execution.pk)
        threading.Event().wait(AWAY)
        server.start()
        connections[ELSEWHERE].close()
        let_go(tmp_path, atomic)
        let_go(tmp_path, rolling_back)

        eventually(all_ended, "the end of all executions", within=PATIENCE)
        assert [worker.has_ended for worker in crew] == [False] * len(crew)

        renewed = id_of(Held.enqueue(folder=str(tmp_path), held="charge"))
        eventually((tmp_path / f"{renewed} is in").exists, "the body that is held", within=PATIENCE)
        expiry = expiry_of(renewed)
        eventually(lambda: seconds_since(expiry, renewed) > LEASE_TTL, "renewals of its lease", within=PATIENCE)
        let_go(tmp_path, renewed)
        eventually(all_ended, "the end of the last", within=PATIENCE)

    placed = Counter(["reserve", "book", "charge"])
    for execution, where in ends_while_away.items():
        assert status_of(execution.pk) == Status.COMPLETED
        again = Counter([where] if where == "reserve" else [])  # what an atomic step wrote is gone
        assert effects_of(execution.pk, ELSEWHERE) == placed + again
    for execution_id in (atomic, pending, renewed):
        assert status_of(execution_id) == Status.COMPLETED
        assert effects_of(execution_id, ELSEWHERE) == placed
    assert status_of(rolling_back) == Status.FAILED
    assert effects_of(rolling_back, ELSEWHERE) == placed + Counter(["unbook", "release"])
    assert status_of(parked) == Status.COMPLETED
    assert effects_of(parked, ELSEWHERE) == Counter(["notify 1", "notify 2", "confirm"])
    assert all(not execution.rollback_failures for execution in Execution.objects.all())
    assert JournalEntry.objects.filter(execution=rolling_back).count() == 5


def id_of(result: Result[object]) -> UUID:
    assert result.execution_id is not None
    return result.execution_id


def let_go(folder: Path, execution_id: UUID) -> None:
    (folder / f"{execution_id} may go").touch()


def status_of(execution_id: UUID) -> str:
    return Execution.objects.get(pk=execution_id).status


def waits_for_its_unit(execution_id: UUID) -> bool:
    return Execution.objects.filter(pk=execution_id, status=Status.SCHEDULED).exclude(waiting_for="").exists()


def was_refused(parent_id: UUID) -> bool:
    """Its unit rests until the next attempt: no body of it is in flight."""
    return Execution.objects.filter(parent=parent_id, status=Status.SCHEDULED, lease_token=None).exists()


def expiry_of(execution_id: UUID) -> datetime:
    expiry = Execution.objects.get(pk=execution_id).lease_expires_at
    assert expiry is not None
    return expiry


def seconds_since(expiry: datetime, execution_id: UUID) -> float:
    """By which the expiry of the lease has been put off."""
    return (expiry_of(execution_id) - expiry).total_seconds()


def all_ended() -> bool:
    return not Execution.objects.exclude(status__in=[status for status in Status if status.is_end]).exists()
