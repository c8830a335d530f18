"""Park in a line until its turn has come (PROTOCOL 4, park; 8, ordered lock).

1. The lease is given up without a time at which it is due. In the same transaction, after that write, it looks at the
   line once more.
2. Once that is committed it looks again, as whoever leaves it does after his own commit: a turn that came
   between the two is seen by one of them. What a crash leaves asleep the sweeper wakes.
3. No snooze is counted, and there is no bound: a line moves on as long as its heads run, or are passed over.
"""

from __future__ import annotations

from django_reactor.core.decisions import Decision
from django_reactor.core.statuses import Status
from django_reactor.engine import logs
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.cutting_off import note_what_began
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.lines import waiting_for_turn, wake_next
from django_reactor.engine.recording import reconsider, release_of
from django_reactor.engine.run import Run
from django_reactor.engine.tenure import UNTIL_WOKEN
from django_reactor.engine.turns import InLine

__all__ = ["wait_in_line"]


def wait_in_line(run: Run, current: Decision, line: InLine) -> Decision:
    """The next decision if that is refused, or `current`."""
    if run.tenure.may_have_run:
        note_what_began(run.owner)
    key, turns = line.order.key, run.services.coordination.turns

    def has_come() -> bool:
        head = turns.head(key)
        return head is None or head.number >= line.ticket.number

    release = release_of(run, Status.SCHEDULED, wake_in=None, waiting_for=waiting_for_turn(key))
    try:
        at_once = run.services.deliveries.park(run.tenure.lease, release, has_come)
    except Refused:
        return reconsider(run, None)
    run.tenure.released = 0.0 if at_once else UNTIL_WOKEN
    reached(CrashPoint.PARKED_IN_LINE)
    if not at_once:
        logs.parked(run, release.waiting_for)
        run.tenure.behind = line.head.execution_id
        wake_next(run.services, [key])
    return current
