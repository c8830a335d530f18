"""What becomes of an execution that cannot have what it needs, since others have it (PROTOCOL 3, release: snooze).

1. It is due again after a while; of a full rate limit exactly when the window rolls. It waits without a thread, also if
   a caller's process carried it, and keeps what outer levels hold.
2. This is counted apart from the snoozes that a step asks for. One that has not begun fails after too many. One that
   has is warned about once, and goes on trying; in a rollback the remaining undos are listed instead.
3. A part that has not begun fails in a caller, as a step would: its caller is there to hear of it.
"""

from __future__ import annotations

import logging
import random

from django_reactor.core.decisions import Decision
from django_reactor.core.statuses import Status
from django_reactor.engine import logs
from django_reactor.engine.admission import Contended
from django_reactor.engine.cutting_off import note_what_began
from django_reactor.engine.recording import give_up, release_of
from django_reactor.engine.run import Run
from django_reactor.exceptions import ContentionError

__all__ = ["give_way"]

logger = logging.getLogger("django_reactor")

LEAST = 0.1
"""Seconds."""
SMALL_JITTER = 1.0
"""Seconds, at most, on top of an exact delay."""


def give_way(run: Run, current: Decision, contended: Contended) -> Decision:
    """The next decision, or `current` if the lease was given up."""
    if _is_final(run, contended):
        return contended.give_up()
    if run.tenure.may_have_run:
        note_what_began(run.owner)
    delay, reason = _delay(run, contended.error), run.redactor.brief(str(contended.error))
    release = release_of(run, Status.SCHEDULED, wake_in=delay, snooze=reason, contended=True)
    refused = give_up(run, release)
    if refused is None:
        logs.snoozed(run, delay, reason)
        run.notice("execution_snoozed", delay=delay, reason=reason)
    return refused or current


def _is_final(run: Run, contended: Contended) -> bool:
    tenure, owner = run.tenure, run.owner
    goes_forward = run.history.cause is None
    has_begun = owner.history.has_begun or tenure.may_have_run
    is_new_part = owner is not run and goes_forward and not run.history.has_begun
    if is_new_part and not tenure.in_worker and not contended.is_lost:
        return True
    tries = run.services.limits().max_snoozes
    if tenure.contentions < tries:
        return False
    if not has_begun or not goes_forward:
        return True
    if tenure.contentions == tries:
        logger.warning(
            "event=django_reactor.contention_persists execution_id=%s key=%s tries=%d",
            owner.id,
            contended.error.key,
            tries,
        )
    return False


def _delay(run: Run, error: ContentionError) -> float:
    limits = run.services.limits()
    if error.retry_after is not None:
        return max(LEAST, error.retry_after) + random.uniform(0, min(limits.snooze_jitter, SMALL_JITTER))
    return limits.snooze_delay + random.uniform(0, limits.snooze_jitter)
