"""What the log says of an execution where no caller sees it: how it moves between processes, and how it ended in one
that nobody waits for. One line each; what a secret went into is redacted by then."""

from __future__ import annotations

import json
import logging
from typing import Any
from uuid import UUID

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import Relation, Status
from django_reactor.engine.run import Run
from django_reactor.results import Failure, Result

__all__ = ["dispatched", "ended", "handed_off", "parked", "retrying", "snoozed"]

logger = logging.getLogger("django_reactor")

LONGEST = 200
"""Characters of a message."""


def handed_off(run: Run) -> None:
    logger.info("event=django_reactor.handed_off reactor=%s execution_id=%s", run.definition.label, run.id)


def dispatched(run: Run, step: str, unit: UUID) -> None:
    logger.info(
        "event=django_reactor.dispatched reactor=%s step=%s execution_id=%s unit_id=%s",
        run.definition.label,
        step,
        run.id,
        unit,
    )


def retrying(run: Run, entry: Entry) -> None:
    error = entry.error or {}
    logger.info(
        "event=django_reactor.retrying reactor=%s step=%s execution_id=%s attempt=%d retry_in=%.3f error=%s reason=%s",
        run.definition.label,
        entry.step,
        run.id,
        entry.attempt,
        error.get("retry_in", 0.0),
        error.get("exception_class"),
        _quoted(str(error.get("message", ""))),
    )


def snoozed(run: Run, delay: float, reason: str) -> None:
    logger.info(
        "event=django_reactor.snoozed reactor=%s execution_id=%s delay=%.3f reason=%s",
        run.definition.label,
        run.id,
        delay,
        _quoted(reason),
    )


def parked(run: Run, waiting_for: str) -> None:
    logger.info(
        "event=django_reactor.parked reactor=%s execution_id=%s waiting_for=%s",
        run.definition.label,
        run.id,
        _quoted(waiting_for),
    )


def ended(run: Run, result: Result[Any]) -> None:
    """Of an owner, in a worker. The failure of an element is its map's to tell. A person has to look at what could not
    be undone: that is a warning."""
    record = run.record
    if run.status is Status.FAILED and isinstance(result, Failure) and record.relation is not Relation.ELEMENT:
        logger.log(
            logging.WARNING if result.rollback_failures else logging.INFO,
            "event=django_reactor.failed reactor=%s step=%s execution_id=%s parent_id=%s error=%s rollback_failures=%d "
            "reason=%s",
            run.definition.label,
            result.step,
            run.id,
            record.parent_id,
            result.exception_class,
            len(result.rollback_failures),
            _quoted(result.message),
        )
        return
    logger.info(
        "event=django_reactor.ended reactor=%s execution_id=%s parent_id=%s status=%s",
        run.definition.label,
        run.id,
        record.parent_id,
        run.status,
    )


def _quoted(text: str) -> str:
    """On one line, whatever is in it."""
    return json.dumps(text if len(text) <= LONGEST else f"{text[:LONGEST]}…", ensure_ascii=False)
