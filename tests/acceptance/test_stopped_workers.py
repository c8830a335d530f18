"""Workers that are told to end, or are ended, in the middle of a step, and time limits of their queues: nothing of that
is the step's failure."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import dramatiq
import pytest
from django.test import override_settings

from django_reactor import queues
from django_reactor.core.statuses import Status
from django_reactor.models import Execution
from django_reactor.queues import actor, rq
from tests.contract.committed import eventually, transactional_db
from tests.killed.reactors import Held, create_table, drop_table, effects_of
from tests.workers import Fleet, Worker, fleet

__all__ = ["transactional_db"]

PATIENCE = 60.0
"""Seconds for each thing that is to happen: a worker has to start, or a lease to lapse."""
TIME_LIMIT = 4
"""Seconds, in which a worker of a busy machine gets as far as into the step."""
PLACED = Counter(["reserve", "book", "charge"])
AGAIN = Counter(["reserve"])


@pytest.fixture(autouse=True)
def effects_table(transactional_db: None) -> Iterator[None]:
    create_table()
    yield
    drop_table()


@pytest.fixture
def workers(
    request: pytest.FixtureRequest, environment_of_a_process: dict[str, str], tmp_path: Path
) -> Iterator[Fleet]:
    environment = environment_of_a_process | {"LEASE_TTL": "3", "SWEEP_INTERVAL": "1"}
    with fleet(request.param, environment, tmp_path) as workers:
        yield workers


@pytest.fixture
def unswept_workers(
    request: pytest.FixtureRequest, environment_of_a_process: dict[str, str], tmp_path: Path
) -> Iterator[Fleet]:
    """No message but the test's own, however long a worker takes to start."""
    with fleet(request.param, environment_of_a_process | {"SWEEP_INTERVAL": "3600"}, tmp_path) as workers:
        yield workers


def held_in_its_first_step(folder: Path) -> UUID:
    execution_id = Held.enqueue(folder=str(folder), held="reserve").execution_id
    assert execution_id is not None
    return execution_id


def is_in_its_step(folder: Path, execution_id: UUID) -> None:
    eventually((folder / f"{execution_id} is in").exists, "the first step", within=PATIENCE)


def let_go(folder: Path, execution_id: UUID) -> None:
    (folder / f"{execution_id} may go").touch()


def is_completed(execution_id: UUID) -> None:
    rows = Execution.objects.filter(pk=execution_id)
    eventually(lambda: Status(rows.get().status).is_end, "the end of the execution", within=PATIENCE)
    assert rows.get().status == Status.COMPLETED, rows.get().failure


@pytest.mark.parametrize("workers", ["rq"], indirect=True)
def test_a_worker_of_rq_that_is_terminated_ends_the_delivery_that_runs(workers: Fleet, tmp_path: Path) -> None:
    worker = workers.start()
    execution_id = held_in_its_first_step(tmp_path)
    is_in_its_step(tmp_path, execution_id)
    worker.terminate()
    eventually(lambda: "shut down" in worker.output.lower(), "the worker's word that it ends", within=PATIENCE)
    let_go(tmp_path, execution_id)
    assert worker.wait() == 0
    is_completed(execution_id)
    assert effects_of(execution_id) == PLACED


def terminated_until_it_ends(worker: Worker) -> None:
    """RQ takes a second signal that comes soon after the first for the same one."""
    deadline = time.monotonic() + PATIENCE
    while not worker.has_ended:
        assert time.monotonic() < deadline, "the worker goes on"
        worker.terminate()
        time.sleep(0.5)


def terminated_once(worker: Worker) -> None:
    worker.terminate()
    worker.wait()


@pytest.mark.parametrize(
    ("workers", "options", "end"),
    [
        ("dramatiq on redis", ("--worker-shutdown-timeout", "500"), terminated_once),
        ("dramatiq on redis", (), Worker.kill),
        ("rq", (), terminated_until_it_ends),
        ("rq", (), Worker.kill),
    ],
    ids=["dramatiq-no time left", "dramatiq-killed", "rq-terminated twice", "rq-killed"],
    indirect=["workers"],
)
def test_a_step_whose_worker_is_not_given_the_time_runs_again_in_another(
    workers: Fleet, options: tuple[str, ...], end: Callable[[Worker], None], tmp_path: Path
) -> None:
    worker = workers.start(*options)
    execution_id = held_in_its_first_step(tmp_path)
    is_in_its_step(tmp_path, execution_id)
    end(worker)
    eventually(lambda: not worker.pids, "the end of all its processes", within=PATIENCE)
    let_go(tmp_path, execution_id)
    workers.start()
    is_completed(execution_id)
    assert effects_of(execution_id) == PLACED + AGAIN


def send_to_dramatiq(execution_id: UUID, queue_name: str) -> None:
    options = {"time_limit": int(TIME_LIMIT * 1000)}
    dramatiq.get_broker().enqueue(
        dramatiq.Message(
            queue_name=queue_name, actor_name=actor.ACTOR, args=(str(execution_id),), kwargs={}, options=options
        )
    )


def send_to_rq(execution_id: UUID, queue_name: str) -> None:
    backend = queues.backend()
    assert isinstance(backend, rq.RqBackend)
    backend._queue(queue_name).enqueue(rq.JOB, str(execution_id), job_timeout=TIME_LIMIT)


@pytest.mark.parametrize(
    ("unswept_workers", "send"),
    [("dramatiq on redis", send_to_dramatiq), ("rq", send_to_rq)],
    indirect=["unswept_workers"],
)
def test_a_time_limit_of_the_queue_interrupts_a_step_and_does_not_fail_it(
    unswept_workers: Fleet, send: Callable[[UUID, str], None], tmp_path: Path
) -> None:
    with override_settings(
        DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages", "QUEUE_NAME": unswept_workers.queue_name}
    ):
        execution_id = held_in_its_first_step(tmp_path)
    send(execution_id, unswept_workers.queue_name)
    unswept_workers.start()
    execution = Execution.objects.get(pk=execution_id)
    eventually(execution.trace, "the entry of the interruption", within=PATIENCE)
    let_go(tmp_path, execution_id)
    is_completed(execution_id)
    assert [(entry.step, entry.action) for entry in execution.trace()][:2] == [("reserve", "abort"), ("reserve", "run")]
    assert effects_of(execution_id) == PLACED + AGAIN
