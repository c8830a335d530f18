"""Lines: who is next where an ordered lock lets one go after the other (PROTOCOL 8, ordered lock).

1. A number is drawn in the transaction that stores the execution: numbers follow the commits, and a rollback takes its
   number back. While that transaction is open, others that draw for this key wait.
2. A ticket ends in the transaction that ends the execution, or the step, that it stands for.
3. Once that is committed the next in the line is woken, by a statement of its own. Whoever parks in a line looks in the
   same way once its own park is committed: of the two, one sees what the other has done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from uuid import UUID
from weakref import WeakKeyDictionary

from django_reactor.core.keys import digest_of
from django_reactor.core.plan import Definition, Kind
from django_reactor.core.targets import definition_of_target, resolve_target
from django_reactor.engine.coordination_ports import Ticket
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.demands import Ordered
from django_reactor.engine.gates import Unavailable
from django_reactor.engine.services import Services
from django_reactor.exceptions import DefinitionError

__all__ = [
    "clear_the_way",
    "draw",
    "has_lines",
    "passed_over",
    "store_in_line",
    "waiting_for_turn",
    "wake_next",
]

logger = logging.getLogger("django_reactor")


def waiting_for_turn(key: str) -> str:
    """What stands in the row of an execution that waits in the line of this key."""
    return f"turn:{digest_of(key)}"


def draw(services: Services, orders: Sequence[Ordered], execution_id: UUID, step: str = "") -> None:
    """In the transaction that stores the execution; in the order of the keys, so that no two wait for each other."""
    for order in orders:
        services.coordination.turns.draw(order.key, execution_id, step)
    if orders:
        reached(CrashPoint.DRAWN)


def store_in_line(services: Services, store: Callable[[], bool], orders: Sequence[Ordered], execution_id: UUID) -> bool:
    """Store an execution with its places; False if its idempotency key is taken."""
    if not orders:
        return store()
    stored = False

    def statements() -> None:
        nonlocal stored
        stored = store()
        if stored:
            draw(services, orders, execution_id)

    services.transactions.carried_out(statements)
    return stored


def clear_the_way(services: Services, orders: Sequence[Ordered]) -> None:
    """Before anything is written, and without waiting for anybody: raises `Unavailable` if somebody stands in the line,
    after whoever is dead there was passed over."""
    for order in orders:
        head = services.coordination.turns.head(order.key)
        while head is not None:
            passed_over(services, order, head)
            after = services.coordination.turns.head(order.key)
            if after is not None and after.number == head.number:
                raise Unavailable(order.out_of_turn(head), None)
            head = after


def passed_over(services: Services, order: Ordered, head: Ticket) -> bool:
    """Pass the head over if it is dead. True if there is another one now."""
    if not services.coordination.turns.pass_over(order.key, order.poison_pill_timeout):
        return False
    logger.warning(
        "event=django_reactor.turn_passed_over key=%s number=%d execution_id=%s",
        order.key,
        head.number,
        head.execution_id,
    )
    wake_next(services, [order.key])
    return True


def wake_next(services: Services, keys: Sequence[str]) -> None:
    """Whoever is first in these lines, and waits there. After what has let it go is committed."""
    if not keys:
        return
    if services.transactions.in_callers_block():
        services.transactions.after_commit(lambda: _wake(services, keys))
    else:
        _wake(services, keys)


def _wake(services: Services, keys: Sequence[str]) -> None:
    reached(CrashPoint.BEFORE_NEXT_TURN)
    for key in keys:
        head = services.coordination.turns.head(key)
        message = None if head is None else services.deliveries.wake(head.execution_id, waiting_for_turn(key))
        if message is not None:
            services.messenger.send(message)


_known: WeakKeyDictionary[type, bool] = WeakKeyDictionary()


def has_lines(definition: Definition) -> bool:
    """Whether it, or a part of it, may stand in a line. Asked at every end of an execution."""
    known = _known.get(definition.cls) if getattr(definition.cls, "__reactor__", None) is definition else None
    if known is not None:
        return known
    try:
        found = _has_lines(definition, frozenset())
    except DefinitionError:  # what a step runs is not known here
        return True
    if getattr(definition.cls, "__reactor__", None) is definition:
        _known[definition.cls] = found
    return found


def _has_lines(definition: Definition, above: frozenset[str]) -> bool:
    if definition.coordination.ordered_lock:
        return True
    if definition.label in above:
        return False
    for step in map(resolve_target, definition.plan.steps):
        if step.coordination.ordered_lock:
            return True
        is_part = step.kind in (Kind.COMPOSE, Kind.MAP)
        if is_part and _has_lines(definition_of_target(step.target), above | {definition.label}):
            return True
    return False
