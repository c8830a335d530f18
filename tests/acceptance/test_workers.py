"""Executions in real worker processes of every queue."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from django.test import override_settings

from django_reactor.core.statuses import EntryOutcome, Status
from django_reactor.models import Execution
from django_reactor.queues import immediate
from tests.contract.committed import eventually, transactional_db
from tests.worked.reactors import Held, Locking, Refused, RefusedForLong, Simple
from tests.workers import KINDS, ROOT, Fleet, fleet

__all__ = ["transactional_db"]


@pytest.fixture(params=list(KINDS))
def workers(
    request: pytest.FixtureRequest, environment_of_a_process: dict[str, str], tmp_path: Path
) -> Iterator[Fleet]:
    with fleet(request.param, environment_of_a_process, tmp_path) as workers:
        yield workers


def ended(execution_id: UUID | None) -> Execution:
    """Once it has ended."""
    assert execution_id is not None
    rows = Execution.objects.filter(pk=execution_id)
    eventually(lambda: Status(rows.get().status).is_end, "the end of the execution")
    return rows.get()


def test_a_worker_runs_an_enqueued_execution_and_its_unit_to_the_end(workers: Fleet) -> None:
    dispatched = Simple.enqueue(number=21)
    assert Execution.objects.get().status == Status.PENDING
    worker = workers.start()
    execution = ended(dispatched.execution_id)
    assert execution.status == Status.COMPLETED, execution.failure
    assert execution.results["doubled"] == 42
    unit = ended(Execution.objects.get(parent=execution).pk)
    assert os.getpid() not in {execution.results["pid"], unit.result().unwrap()}
    worker.terminate()
    assert worker.wait() == 0


def test_a_retry_in_a_worker_comes_after_its_delay(workers: Fleet) -> None:
    workers.start()
    execution = ended(Refused.enqueue().execution_id)
    assert execution.status == Status.COMPLETED, execution.failure
    first, second = execution.trace()
    assert (first.outcome, second.outcome) == (EntryOutcome.RETRYING, EntryOutcome.SUCCESS)
    assert (second.started_at - first.finished_at).total_seconds() >= 1.2


@pytest.mark.parametrize("workers", ["dramatiq on redis", "dramatiq on rabbitmq"], indirect=True)
def test_neither_a_retry_that_is_pending_nor_a_reader_that_waits_holds_a_thread(workers: Fleet) -> None:
    """There is but one."""
    workers.start("--threads", "1")
    waiting = RefusedForLong.enqueue().execution_id
    rows = Execution.objects.filter(root=waiting, status=Status.SCHEDULED, lease_token=None)
    eventually(lambda: rows.count() == 2, "a reader that waits for a unit that waits for its next attempt")
    assert ended(Simple.enqueue(number=2).execution_id).status == Status.COMPLETED
    assert rows.count() == 2


@pytest.mark.parametrize("workers", ["dramatiq on redis", "dramatiq on rabbitmq"], indirect=True)
def test_a_terminated_worker_ends_the_step_that_runs_and_leaves_the_rest_to_another(
    workers: Fleet, tmp_path: Path
) -> None:
    first = workers.start()
    dispatched = Held.enqueue(folder=str(tmp_path))
    eventually((tmp_path / "begun").exists, "the first step")
    inside = first.pids
    first.terminate()
    assert first.wait() == 0
    second = workers.start()
    execution = ended(dispatched.execution_id)
    assert execution.status == Status.COMPLETED, execution.failure
    assert execution.results["first"] in inside
    assert execution.results["second"] in second.pids
    assert not (tmp_path / "taken back").exists()


@pytest.mark.parametrize("workers", ["dramatiq on redis", "rq"], indirect=True)
def test_an_idle_worker_finds_an_execution_whose_message_was_lost(workers: Fleet) -> None:
    with override_settings(DJANGO_REACTOR={"BACKEND": "immediate", "QUEUE_NAME": workers.queue_name}):
        dispatched = Refused.using(run_after=0.01).enqueue()
        immediate.discard()
    workers.environment["SWEEP_INTERVAL"] = "0.3"
    workers.start()
    assert ended(dispatched.execution_id).status == Status.COMPLETED


@pytest.mark.parametrize("workers", ["rq"], indirect=True)
def test_a_job_of_rq_is_not_stuck_by_a_lock_of_what_runs_beside_it(workers: Fleet) -> None:
    """RQ forks for each job, threads it does not take along, but whatever they have locked."""
    workers.start()
    assert ended(Locking.enqueue().execution_id).results["locked"]


def test_what_a_process_without_a_broker_leaves_is_done_by_the_next_that_starts_a_worker(
    environment_of_a_process: dict[str, str], tmp_path: Path
) -> None:
    """Without `rundramatiq`, with nothing configured: threads of the process that enqueues."""
    environment = environment_of_a_process | {
        "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
        "BROKER": "",
        "SWEEP_INTERVAL": "0.3",
    }
    leaving = f"""
from pathlib import Path
from tests.contract.committed import eventually
from tests.worked.reactors import Held
print(Held.enqueue(folder={str(tmp_path)!r}).execution_id)
eventually(Path({str(tmp_path)!r}, "begun").exists, "the first step")
"""
    left = Execution.objects.get(pk=in_a_process(leaving, environment))
    assert left.status == Status.PENDING
    assert list(left.results) == ["first"]
    taking_on = f"""
from django_reactor.models import Execution
from tests.contract.committed import eventually
from tests.worked.reactors import Simple
Simple.enqueue(number=1)
eventually(lambda: Execution.objects.get(pk={str(left.pk)!r}).status == "completed", "the end of what was left")
"""
    in_a_process(taking_on, environment)
    assert list(left.results) == ["first", "second"]
    assert left.results["first"] != left.results["second"]
    assert not (tmp_path / "taken back").exists()


def in_a_process(script: str, environment: dict[str, str]) -> str:
    """What it printed. It ends by itself, in order."""
    command = [sys.executable, "-c", f"import django; django.setup()\n{script}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
