"""The peer `dbos`: workflows of one step in its queue, on the same database, with its own defaults.

So its queue has no limit of threads: with one, a process takes so many workflows at each look, once a second.

Nothing of ours or of Django is imported, so that it can run on an interpreter that has only the peers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from benchmarks.queues.contenders import broker
from benchmarks.queues.stamps import send_stamp

__all__ = ["consumers", "producer"]

QUEUE, PARENTS = "benchmark", "parents"
UNDONE = "SELECT FROM dbos.workflow_status WHERE status <> 'SUCCESS' LIMIT 1"


class Dbos:
    def __init__(self, environment: Mapping[str, str]) -> None:
        url, dbos = environment["BENCHMARK_URL"], import_module("dbos")
        dbos.run_dbos_database_migrations(system_database_url=url)  # its client does not wait for who makes the tables
        self._client = dbos.DBOSClient(system_database_url=url)
        self._connection = import_module("psycopg").connect(url, autocommit=True)

    def enqueue(self, number: int) -> None:
        for _ in range(number):
            self._enqueue("nothing")

    def enqueue_stamp(self) -> None:
        self._enqueue("stamp")

    def gather(self, number: int) -> int:
        """A workflow that enqueues the others and waits for their results."""
        handle = self._client.enqueue({"workflow_name": "gather", "queue_name": PARENTS}, number)
        total: int = handle.get_result()
        return total

    def wait_until_done(self) -> None:
        broker.wait_until(lambda: self._connection.execute(UNDONE).fetchone() is None)

    def close(self) -> None:
        self._connection.close()
        self._client.destroy()

    def _enqueue(self, workflow: str) -> None:
        self._client.enqueue({"workflow_name": workflow, "queue_name": QUEUE})


def producer(environment: Mapping[str, str]) -> Dbos:
    return Dbos(environment)


def consumers(python: str) -> Sequence[Sequence[str]]:
    return [[python, "-m", __name__]] * 2


def _nothing() -> int:
    return 1


def _stamp() -> int:
    send_stamp()
    return 1


def _work(environment: Mapping[str, str]) -> None:
    """Take workflows from the queue until the process is ended."""
    dbos = import_module("dbos")
    DBOS = dbos.DBOS
    config = {
        "name": "benchmark",
        "system_database_url": environment["BENCHMARK_URL"],
        "executor_id": str(os.getpid()),
        "log_level": "ERROR",
        "console_log_level": "ERROR",
    }
    DBOS(config=config)
    of_one_step = {
        name: DBOS.workflow(name=name)(_of_one_step(DBOS.step()(body)))
        for name, body in (("nothing", _nothing), ("stamp", _stamp))
    }

    def gather(number: int) -> int:
        handles = [DBOS.enqueue_workflow(QUEUE, of_one_step["nothing"]) for _ in range(number)]
        return sum(handle.get_result() for handle in handles)

    DBOS.workflow(name="gather")(gather)
    DBOS.launch()
    for queue in (QUEUE, PARENTS):
        DBOS.register_queue(queue)
    signal.sigwait([signal.SIGTERM, signal.SIGINT])
    DBOS.destroy()


def _of_one_step(step: Callable[[], Any]) -> Callable[[], Any]:
    def workflow() -> Any:
        return step()

    workflow.__qualname__ = f"workflow_of_{step.__name__}"
    return workflow


if __name__ == "__main__":
    _work(os.environ)
