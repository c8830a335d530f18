"""What is done with an execution that there is, by its id: read its result, act on it, carry it on, wait for its end.

Everything here may be called with or without a transaction open. Models are imported when they are needed, so that
this module can be imported before Django is set up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django_reactor.core import registry
from django_reactor.core.history import fold
from django_reactor.core.plan import Definition, Plan
from django_reactor.core.reactor import definition_of
from django_reactor.core.targets import definition_of_target
from django_reactor.engine import acting, delivering, resuming
from django_reactor.engine.conclusions import conclusion, open_waits
from django_reactor.engine.run import Results
from django_reactor.exceptions import ConfigurationError, ExecutionNotFound, WaitTimeout
from django_reactor.results import Result
from django_reactor.runtime import services
from django_reactor.threads import in_thread

__all__ = [
    # what has become of it
    "result_of",
    "results_of",
    # what is asked of it
    "cancel",
    "resume",
    "resume_correlated",
    "retry",
    "undo",
    # until it has ended
    "ajoin",
    "deliver",
    "join",
]

JOIN_INTERVAL = 0.05, 1.0
"""Seconds between two looks at an execution that somebody waits for: the first, and the longest."""


def result_of(execution_id: UUID) -> Result[Any]:
    record, entries = services().journal.load(execution_id)
    history = fold(_plan_of(record.reactor), entries)
    return conclusion(record, history, services().new_codec(), open_waits(services(), record))


def results_of(execution_id: UUID) -> Mapping[str, Any]:
    record, entries = services().journal.load(execution_id)
    return Results(fold(_plan_of(record.reactor), entries), services().new_codec())


def cancel(execution_id: UUID, reason: str = "") -> None:
    acting.cancel(services(), _known_definition(execution_id), execution_id, reason)


def undo(execution_id: UUID, reason: str = "") -> Result[Any]:
    return acting.undo(services(), _known_definition(execution_id), execution_id, reason)


def retry(execution_id: UUID) -> Result[Any]:
    return acting.retry(services(), _known_definition(execution_id), execution_id)


def resume(execution_id: UUID, payload: Any, step: str | None = None, *, in_background: bool = False) -> Result[Any]:
    return resuming.resume(services(), _by_label, execution_id, payload, step, in_background=in_background)


def resume_correlated(reactor: type, payload: Any, correlation_id: str, step: str | None = None) -> Result[Any]:
    definition = definition_of(reactor)
    return resuming.resume_correlated(services(), _by_label, definition, payload, correlation_id, step)


def deliver(execution_id: UUID) -> Result[Any] | None:
    """Continue here an execution whose process died: does nothing unless it is due and no process holds it."""
    _known_definition(execution_id)
    return delivering.deliver(services(), _definition, execution_id, in_worker=False)


def join(execution_id: UUID, timeout: float | None) -> Result[Any]:
    pauses = _pauses(timeout)
    while _is_moving(execution_id):
        time.sleep(_next_pause(pauses, execution_id, timeout))
    return result_of(execution_id)


async def ajoin(execution_id: UUID, timeout: float | None) -> Result[Any]:
    pauses = _pauses(timeout)
    while await in_thread(_is_moving, execution_id):
        await asyncio.sleep(_next_pause(pauses, execution_id, timeout))
    return await in_thread(result_of, execution_id)


def _pauses(timeout: float | None) -> Any:
    """Growing pauses until the time is over."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause, longest = JOIN_INTERVAL
    while deadline is None or time.monotonic() < deadline:
        yield pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic()))
        pause = min(pause * 2, longest)


def _next_pause(pauses: Any, execution_id: UUID, timeout: float | None) -> float:
    for pause in pauses:
        return float(pause)
    raise WaitTimeout(f"execution {execution_id} did not end within {timeout} seconds")


def _is_moving(execution_id: UUID) -> bool:
    from django_reactor.core.statuses import ENDS, Status
    from django_reactor.journal.orm import alias
    from django_reactor.models import Execution

    status = Execution.objects.using(alias()).filter(pk=execution_id).values_list("status", flat=True).first()
    if status is None:
        raise ExecutionNotFound(execution_id)
    return status not in ENDS and status != Status.PAUSED


def _plan_of(label: str) -> Plan:
    """The plan of a reactor that may be unknown here; its results can be read all the same."""
    found = _definition(label)
    return found.plan if found is not None else Plan(steps=())


def _known_definition(execution_id: UUID) -> Definition:
    from django.db import connections

    from django_reactor.journal.orm import alias, locking
    from django_reactor.models import Execution

    rows = Execution.objects.using(alias()).filter(pk=execution_id)
    label = locking(rows, connections[alias()]).values_list("reactor", flat=True).first()
    if label is None:
        raise ExecutionNotFound(execution_id)
    return _by_label(label, f"execution {execution_id}")


def _definition(label: str) -> Definition | None:
    found = registry.find(label)
    return None if found is None else definition_of_target(found)


def _by_label(label: str, whose: str = "the execution") -> Definition:
    found = _definition(label)
    if found is None:
        raise ConfigurationError(
            f"the reactor {label!r} of {whose} is not known here{registry.near(label)}; bring its module back, or give "
            f"its successor Meta.name = {label!r}"
        )
    return found
