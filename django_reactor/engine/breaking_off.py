"""An execution is broken off from outside: by a signal, or by a library that interrupts a worker's threads.

Nothing is rolled back. In a caller it becomes `aborted`, in a worker it is left to the next delivery; the journal names
the step that was cut off.
"""

from __future__ import annotations

from collections.abc import Collection

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import HELD, Relation, Status
from django_reactor.engine.cutting_off import abort_entry, cut_off_step, note_cut_off
from django_reactor.engine.execution_ports import Refused
from django_reactor.engine.interruptions import is_shutdown
from django_reactor.engine.leaving import give_up_all, leaving_of
from django_reactor.engine.parts import begun_part
from django_reactor.engine.recording import release_of
from django_reactor.engine.records import Move, Recoveries
from django_reactor.engine.run import Run

__all__ = ["give_back", "interrupted"]


def interrupted(run: Run, interruption: BaseException, blocks: Collection[str]) -> None:
    """Written from wherever it struck: nobody here knows whether a write that it met was carried out. `blocks` are the
    databases on which a caller had a transaction open."""
    run.services.transactions.reconnect(but=blocks)
    run.reload()
    begun = begun_part(run)
    step = cut_off_step(begun)
    if step and begun is not run:
        note_cut_off(begun, step)
        step = ""
    entry = abort_entry(run, step)
    if run.tenure.in_worker or run.record.relation is Relation.ELEMENT:  # which nobody could retry, and its map awaits
        give_back(run, entry, shut_down=is_shutdown(interruption))
        run.send_again(0.0)
    else:
        _abort(run, entry)
        give_up_all(run)
        run.notice("execution_aborted")


def give_back(run: Run, entry: Entry | None, *, shut_down: bool) -> None:
    """A worker that is shut down makes the delivery as if it had not been; any other interruption counts as one that
    made no progress, so that it ends as poison if it never does."""
    recoveries = Recoveries.GIVE_BACK if shut_down else Recoveries.KEEP
    release = release_of(run, Status.PENDING, recoveries=recoveries, ignores_stop=True)
    try:
        run.services.journal.release(run.lease, release, entry)
    except Refused:
        run.services.journal.reconsider(run.lease, None)  # raises `LeaseLost`: there is nothing to give back
        raise
    run.tenure.released = 0.0


def _abort(run: Run, entry: Entry) -> None:
    move = Move(to=Status.ABORTED, expected=HELD, ignores_stop=True, with_parts=bool(run.history.children))
    leaving = leaving_of(run, Status.ABORTED)
    if leaving is None:
        run.services.journal.move(run.lease, move, entry)
        return

    def with_the_rest() -> None:
        run.services.journal.move(run.lease, move, entry)
        leaving.write()

    run.services.transactions.carried_out(with_the_rest)
    leaving.done()
