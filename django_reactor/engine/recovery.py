"""What a sweep does: find what is due and held by nobody, and deliver it again (PROTOCOL 9).

1. Look, by one read, whether nobody else leads and there is anything to do: an idle process asks for nothing else.
2. Lead. One process of the fleet sweeps at a time; two that do so at once do no harm, since of two that mark a row one
   wins. Who finds nothing does not lead, and keeps nobody from looking.
3. Then one verb for each kind of thing that a crash or a lost message leaves lying. A verb looks at a bounded number
   of rows, the longest due first, without locking any. Each row is marked by one conditional update before anything is
   done about it: a crash in between costs one patience. An interrupt whose time is over is answered by that.
4. A row that raises is logged, counted and left to a later sweep, and the others go on. Only a store that cannot be
   reached breaks the sweep off.

What is delivered again was never picked up, is past its time, or was held by a process that died. That its reactor is
unknown here is no reason to leave it: another worker may know it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar
from uuid import UUID

from django_reactor.engine.execution_ports import Deliveries
from django_reactor.engine.map_ports import Elements
from django_reactor.engine.records import Message
from django_reactor.engine.waits import Address, Answers, NotForward, NotOpen

__all__ = [
    "MOST_DOUBLINGS",
    "Moving",
    "OutOfReach",
    "Overdue",
    "Pace",
    "Recovery",
    "Sweeps",
    "Swept",
    "Waiting",
    "patience",
]

logger = logging.getLogger("django_reactor")


class HasExecution(Protocol):
    @property
    def execution_id(self) -> UUID: ...


Found = TypeVar("Found", bound=HasExecution)

MOST_DOUBLINGS = 6


def patience(interval: float, sends: int) -> float:
    """How many seconds a message gets to arrive before the next is sent, when so many were sent since the last claim.

    A backlog looks like lost messages. Without a growing patience each sweep would send all of it again.
    """
    return float(interval * 2 ** min(sends, MOST_DOUBLINGS))


class OutOfReach(Exception):
    """The store cannot be reached at the moment: whatever is asked of it next would fail alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """`interval` is the time between two sweeps, in seconds, `limit` the most rows that a verb looks at in one."""

    interval: float
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one sweep did."""

    delivered: int = 0
    """Executions that were delivered again."""
    woken: int = 0
    """Executions that waited for a unit that had ended, a map that had settled, or a turn that had come."""
    let_go: int = 0
    """Elements of maps whose turn had come, and had not been noted."""
    timed_out: int = 0
    """Interrupts that nobody answered in time."""
    failed: int = 0
    """Rows that raised; each was logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """An execution that is to be delivered again: its message, and how many were sent when it was found."""

    message: Message
    sends: int

    @property
    def execution_id(self) -> UUID:
        return self.message.execution_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An execution that waits for a unit, or for its turn."""

    execution_id: UUID
    waiting_for: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """A map whose elements run in workers, and its execution."""

    execution_id: UUID
    map_id: UUID


class Sweeps(Protocol):
    """What a sweep asks of the rows. Each method is one transaction; times are by the store's clock."""

    def is_called_for(self, holder: UUID, pace: Pace) -> bool:
        """Whether a sweep by this process may find anything: false while another leads, or if there is nothing that a
        verb would look at. One read, without locks; it may say yes in vain."""

    def lead(self, holder: UUID, seconds: float, task: str = "sweep") -> bool:
        """Be the one that sweeps (or does this task) for so long. False while another is."""

    def unheld(self, pace: Pace) -> Sequence[Overdue]:
        """What is due, held by nobody, and was not sent within its `patience`: the longest due first. No locks."""

    def unwoken(self, pace: Pace) -> Sequence[Waiting]:
        """What is parked for a unit that has ended, or for a turn that has come: a process died between that and the
        wake. Also the next in a line whose head nobody runs: it may have to pass that over. No locks."""

    def moving(self, pace: Pace) -> Sequence[Moving]:
        """Maps that fan out and have not ended: any of them, as many as are looked at in one sweep. No locks."""

    def mark_sent(self, overdue: Overdue, interval: float) -> bool:
        """Count one more sending, now; False if that is not called for any more: it was claimed, or another was
        faster. Does not wait for a row that somebody else has locked: False. Raises `OutOfReach`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """`deliver` has the execution of a message delivered: it sends it to a worker, or delivers it here."""

    sweeps: Sweeps
    deliveries: Deliveries
    elements: Elements
    answers: Answers
    deliver: Callable[[Message], None]
    pace: Callable[[], Pace]

    def sweep_if_leader(self, holder: UUID) -> Swept | None:
        """None if another process leads, or if there is nothing to do."""
        pace = self.pace()
        if self.sweeps.is_called_for(holder, pace) and self.sweeps.lead(holder, pace.interval):
            return self.sweep()
        return None

    def sweep(self) -> Swept:
        """Sweep, whoever leads."""
        pace = self.pace()
        timed_out, not_timed_out = self._each(self.answers.overdue(pace.limit), self._time_out)
        woken, not_woken = self._each(self.sweeps.unwoken(pace), self._wake)
        let_go, woken_by_maps, not_tended = self._tend(pace)
        delivered, failed = self._each(self.sweeps.unheld(pace), lambda overdue: self._deliver_again(overdue, pace))
        return Swept(
            delivered=delivered,
            woken=woken + woken_by_maps,
            let_go=let_go,
            timed_out=timed_out,
            failed=failed + not_woken + not_tended + not_timed_out,
        )

    def _tend(self, pace: Pace) -> tuple[int, int, int]:
        """What a process leaves undone that dies when an element has ended: the turn of the next one, if it was the
        last finish of a narrowed window, and the wake of who waits for the map."""
        moving = self.sweeps.moving(pace)
        let_go: list[Message] = []
        _, not_topped_up = self._each(moving, lambda one: self._top_up(one, let_go))
        woken, not_woken = self._each(moving, self._wake_if_settled)
        return len(let_go), woken, not_topped_up + not_woken

    def _top_up(self, moving: Moving, let_go: list[Message]) -> bool:
        messages = self.elements.top_up(moving.map_id)
        for message in messages:
            self.deliver(message)
        let_go += messages
        return bool(messages)

    def _wake_if_settled(self, moving: Moving) -> bool:
        settled = self.elements.find(moving.map_id) if self.elements.is_settled(moving.map_id) else None
        message = self.elements.wake(settled) if settled is not None else None
        if message is None:
            return False
        self.deliver(message)
        return True

    def _time_out(self, address: Address) -> bool:
        try:
            answered = self.answers.time_out(address)
        except (NotForward, NotOpen):  # something else was faster, or somebody has the row locked
            return False
        if answered.message is not None:
            self.deliver(answered.message)
        return True

    def _wake(self, waiting: Waiting) -> bool:
        message = self.deliveries.wake(waiting.execution_id, waiting.waiting_for)
        if message is None:
            return False
        self.deliver(message)
        return True

    def _deliver_again(self, overdue: Overdue, pace: Pace) -> bool:
        if not self.sweeps.mark_sent(overdue, pace.interval):
            return False
        self.deliver(overdue.message)
        return True

    @staticmethod
    def _each(found: Sequence[Found], verb: Callable[[Found], bool]) -> tuple[int, int]:
        """For how many the verb had something to do, and for how many it raised."""
        done = failed = 0
        for each in found:
            try:
                done += verb(each)
            except OutOfReach:
                raise
            except Exception:  # one row of a sweep
                failed += 1
                logger.exception("event=django_reactor.sweep_failed execution_id=%s", each.execution_id)
        return done, failed
