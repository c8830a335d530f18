"""Hooks: Django signals, sent after the fact with `send_robust`. The sender is the reactor class; every signal has
`execution_id`. A receiver can neither change nor break a run: what it raises is logged."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from django.dispatch import Signal

logger = logging.getLogger("django_reactor")

execution_started = Signal()
execution_completed = Signal()
execution_failed = Signal()
execution_halted = Signal()
execution_paused = Signal()
execution_snoozed = Signal()
"""`delay` (seconds), `reason`."""
execution_cancelled = Signal()
execution_undone = Signal()
execution_aborted = Signal()
step_started = Signal()
"""`step`, `attempt`; so have all that follow, and the journal's `entry` where something has ended."""
step_completed = Signal()
step_failed = Signal()
step_retrying = Signal()
compensation_started = Signal()
compensation_completed = Signal()
compensation_failed = Signal()
undo_started = Signal()
undo_completed = Signal()
undo_failed = Signal()
handed_off = Signal()
dispatched = Signal()
lock_acquired = Signal()
"""`key`, and the `step` that needs it, or ''; so have all of locks and semaphores. Not sent again for what a later
delivery takes over."""
lock_failed = Signal()
"""`error`."""
lock_released = Signal()
semaphore_acquired = Signal()
"""`limit`."""
semaphore_failed = Signal()
"""`limit`, `error`."""
semaphore_released = Signal()

SIGNALS: dict[str, Signal] = {name: value for name, value in list(globals().items()) if isinstance(value, Signal)}


class SignalObserver:
    """The engine's port `Observer`."""

    def notice(self, event: str, reactor: type, execution_id: UUID, **details: Any) -> None:
        signal = SIGNALS[event]
        if not signal.receivers or not signal.has_listeners(reactor):
            return
        for receiver, answer in signal.send_robust(reactor, execution_id=execution_id, **details):
            if isinstance(answer, Exception):
                name = getattr(receiver, "__qualname__", repr(receiver))
                logger.error(
                    "event=django_reactor.receiver_failed signal=%s receiver=%s execution_id=%s error=%s",
                    event,
                    name,
                    execution_id,
                    type(answer).__name__,
                )
