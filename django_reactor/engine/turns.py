"""Let one go after the other: what a level of an execution does in a line (PROTOCOL 8, ordered lock).

1. Lines come before everything else that coordination asks for: who waits there holds nothing of the kind. The places
   of a level are drawn together, in the order of their keys: no two come before each other.
2. A whole execution has its places since it was stored. A step, and a part, draw when they arrive; and so does what is
   retried, since its places have ended.
3. In one tree a key is drawn once: whatever it is a part of, or beside, whose turn has come is entered again.
4. A worker whose turn has not come parks, without a time at which it is due: that is no snooze, and has no bound. In a
   caller a step that has just arrived hands its place back, and fails. Whoever had a place before keeps it.
5. In a strict chain nobody runs after a lower number of its batch has failed: it is halted, when it is first asked.
6. A head that is dead is passed over by whoever waits for it.
7. A rollback asks for no turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django_reactor.engine.coordination_ports import Ticket, TicketState, Turn, TurnState
from django_reactor.engine.demands import Ordered
from django_reactor.engine.gates import Unavailable
from django_reactor.engine.lines import clear_the_way, draw, passed_over
from django_reactor.engine.run import Run

__all__ = ["InLine", "turn_at_start", "turn_of"]

HAVE_THE_TURN = (TicketState.RUNNING, TicketState.PASSED)


@dataclass(frozen=True, slots=True)
class InLine:
    """Its turn has not come. `ticket` is its place, `head` who is before it."""

    run: Run
    order: Ordered
    ticket: Ticket
    head: Ticket


def turn_at_start(run: Run, orders: Sequence[Ordered]) -> str:
    """In a caller, in the transaction that stores it. Why it must not run, '' if it may. Raises `Unavailable`."""
    draw(run.services, orders, run.id)
    for order in orders:
        turn = _turn(run, order, "")
        if turn.state is TurnState.WAITS:
            raise Unavailable(order.out_of_turn(turn.head))
        if turn.state is TurnState.CHAIN_FAILED:
            return _broken_chain(order, turn)
    return ""


def turn_of(run: Run, orders: Sequence[Ordered], step: str = "") -> InLine | str:
    """Of a level that is let in. Why it must not run, '' if it may. Raises `Unavailable` for one that has handed its
    places back, and `Refused` as a write does."""
    had = _had(run, orders, step)
    orders = [order for order in orders if order.key not in had]
    missing = [order for order in orders if _is_missing(_turn_or_none(run, order, step))]
    if missing:
        _arrive(run, missing, step)
    for order in orders:
        turn = _after_the_dead(run, order, step)
        if turn.state is TurnState.WAITS and turn.head is not None:
            return InLine(run, order, turn.ticket, turn.head)
        if turn.state is TurnState.CHAIN_FAILED:
            return _broken_chain(order, turn)
    return ""


def _broken_chain(order: Ordered, turn: Turn) -> str:
    return f"ordered lock {order.key!r}: number {turn.first_failed} failed, before number {turn.ticket.number}"


def _had(run: Run, orders: Sequence[Ordered], step: str) -> set[str]:
    """The keys whose turn another level of the same tree has. A whole execution is the first to ask."""
    if not orders or (run.whole is None and not step):
        return set()
    tickets = run.services.coordination.turns.tickets_of([run.owner.id])
    others = (each for each in tickets if (each.execution_id, each.step) != (run.id, step))
    return {each.key for each in others if each.state in HAVE_THE_TURN}


def _is_missing(turn: Turn | None) -> bool:
    return turn is None or turn.ticket.state in (TicketState.DONE, TicketState.FAILED)


def _arrive(run: Run, orders: Sequence[Ordered], step: str) -> None:
    """Draw, as long as the lease holds; all in one transaction, or of two that need the same lines each could come
    first in one of them, and wait for the other for ever."""
    services = run.services
    hands_back = not run.tenure.in_worker and (step != "" or run.whole is not None)
    if hands_back:
        clear_the_way(services, orders)
    services.journal.flush()
    run.tenure.stored = True
    run.tenure.keep(services.leases)

    def statements() -> None:
        services.journal.reconsider(run.lease, None)
        draw(services, orders, run.id, step)
        for order in orders if hands_back else ():
            turn = _turn(run, order, step)
            if turn.state is TurnState.WAITS:
                raise Unavailable(order.out_of_turn(turn.head))

    services.transactions.carried_out(statements)


def _after_the_dead(run: Run, order: Ordered, step: str) -> Turn:
    turn = _turn(run, order, step)
    while turn.state is TurnState.WAITS and turn.head is not None and passed_over(run.services, order, turn.head):
        turn = _turn(run, order, step)
    return turn


def _turn(run: Run, order: Ordered, step: str) -> Turn:
    turn = _turn_or_none(run, order, step)
    assert turn is not None  # it has a ticket
    return turn


def _turn_or_none(run: Run, order: Ordered, step: str) -> Turn | None:
    """Whoever is retried mends the chain that it has broken itself, and is not asked about it."""
    owner = run.owner
    is_retried = owner.record.generation > 0 or owner.history.keeps_all
    has_begun = not step and run.history.has_begun
    strict = order.strict and not is_retried and not has_begun
    return run.services.coordination.turns.turn(order.key, run.id, step, strict=strict)
