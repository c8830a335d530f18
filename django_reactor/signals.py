"""Hooks: Django signals, sent with `send_robust`. The sender is the reactor class (of a Step class that runs by itself,
that one); every signal has `execution_id`. A receiver can neither change nor break a run: what it raises is logged.
Where a transaction is open, a database error takes back with it what the receivers of this signal have written there.

What has ended is written by then, in the transaction of the caller's if one is open; that may still be rolled back. A
process that dies in between sends nothing. Receivers run in the thread that runs the execution, and hold it up.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.dispatch import Signal

if TYPE_CHECKING:
    from django_reactor.engine.ports import Transactions

logger = logging.getLogger("django_reactor")

execution_started = Signal()
"""Sent once, by the process that takes an execution up first: a part, a unit or an element, too."""
execution_completed = Signal()
execution_failed = Signal()
execution_halted = Signal()
execution_paused = Signal()
"""`waits`: an `OpenWait` for each open interrupt."""
execution_snoozed = Signal()
"""`delay` (seconds), `reason`."""
execution_cancelled = Signal()
execution_undone = Signal()
execution_aborted = Signal()
step_started = Signal()
"""`step`, `attempt`."""
step_completed = Signal()
"""`step`, `attempt`, and the `entry` of the journal; so have all that follow of steps, compensations and undos. It was
skipped or halted if the entry's `outcome` says so."""
step_failed = Signal()
"""For good: no other attempt follows."""
step_retrying = Signal()
"""This attempt failed, and another one follows."""
compensation_started = Signal()
"""`step` alone."""
compensation_completed = Signal()
compensation_failed = Signal()
undo_started = Signal()
"""`step` alone."""
undo_completed = Signal()
undo_failed = Signal()
handed_off = Signal()
"""A worker does the rest."""
dispatched = Signal()
"""`step`, and the `unit_id` of the unit that was started."""
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

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def notice(self, event: str, reactor: type, execution_id: UUID, **details: Any) -> None:
        signal = SIGNALS[event]
        if not signal.receivers or not signal.has_listeners(reactor):
            return
        with self._transactions.around_body() as scope:
            answers = signal.send_robust(reactor, execution_id=execution_id, **details)
            if scope.broken() is not None:
                scope.roll_back()
        for receiver, answer in answers:
            if isinstance(answer, Exception):
                name = getattr(receiver, "__qualname__", repr(receiver))
                logger.error(
                    "event=django_reactor.receiver_failed signal=%s receiver=%s execution_id=%s error=%s",
                    event,
                    name,
                    execution_id,
                    type(answer).__name__,
                )
