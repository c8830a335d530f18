"""Two workers' processes that deliver the same executions at the same instants: `python -m tests.crash.rivals`.

It reads the executions' ids, a line of JSON, from its standard input. Each of them both processes deliver, let go by a
barrier each time, until it has ended. It answers with a line of JSON: how often each got the lease.
"""

from __future__ import annotations

import json
import sys
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from typing import Any
from uuid import UUID

import django

__all__ = ["main"]

PATIENCE = 60
"""Seconds after which a process gives up waiting for the other."""


def main() -> None:
    """Forks before anything is connected."""
    django.setup()
    from django.test import override_settings

    from tests.crash import reactors  # noqa: F401 (known before the fork)

    override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}).enable()
    ids = [UUID(text) for text in json.loads(sys.stdin.readline())]
    fork = get_context("fork")
    barrier, answers = fork.Barrier(2), fork.SimpleQueue()
    rivals = [fork.Process(target=compete, args=(ids, barrier, answers)) for _ in range(2)]
    for rival in rivals:
        rival.start()
    for rival in rivals:
        rival.join()
    assert [rival.exitcode for rival in rivals] == [0, 0]
    print(json.dumps([answers.get() for _ in rivals]), flush=True)  # noqa: T201 (the protocol)


def compete(ids: list[UUID], barrier: Barrier, answers: Any) -> None:
    from django_reactor.engine import delivering
    from django_reactor.models import Execution
    from django_reactor.runtime import services
    from django_reactor.worker import definition

    won = 0
    try:
        for execution_id in ids:
            row = Execution.objects.filter(pk=execution_id, finished_at=None)
            while row.exists():
                barrier.wait(PATIENCE)
                won += delivering.deliver(services(), definition, execution_id) is not None
                barrier.wait(PATIENCE)
    except BaseException:
        barrier.abort()
        raise
    answers.put(won)


if __name__ == "__main__":
    main()
