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
from django_reactor.core.plan import Definition, Kind, PlanStep
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
    "leave_cancelled",
    "passed_over",
    "starts_in_line",
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
                raise Unavailable(order.out_of_turn(head))
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


def leave_cancelled(services: Services, definition: Definition, owner: UUID) -> None:
    """Units or elements of this owner were cancelled that nobody had begun: their places in lines are given up. After
    that is committed; where a process dies in between, whoever waits is woken by a sweep."""
    if starts_in_line(definition):
        wake_next(services, services.coordination.turns.finish_cancelled(owner))


# -- what a definition says --------------------------------------------------------------------------------------------


def has_lines(definition: Definition) -> bool:
    """Whether it, or a part of it, may stand in a line. Asked at every end of an execution."""
    return _known(definition, _stands_in_line)


def starts_in_line(definition: Definition) -> bool:
    """Whether it, or a part of it, may start units or elements that stand in lines of their own."""
    return _known(definition, _starts_in_line)


Question = Callable[[Definition, frozenset[str]], bool]
"""About a definition; with the labels above it, since reactors may be composed of themselves."""
_answers: WeakKeyDictionary[type, dict[Question, bool]] = WeakKeyDictionary()


def _known(definition: Definition, question: Question) -> bool:
    is_declared = getattr(definition.cls, "__reactor__", None) is definition
    answers = _answers.setdefault(definition.cls, {}) if is_declared else {}
    try:
        if question not in answers:
            answers[question] = question(definition, frozenset())
    except DefinitionError:  # what a step runs is not known here, and may do so
        return True
    return answers[question]


def _stands_in_line(definition: Definition, above: frozenset[str]) -> bool:
    if definition.coordination.ordered_lock:
        return True
    steps = [resolve_target(step) for step in definition.plan.steps]
    return any(step.coordination.ordered_lock for step in steps) or _of_parts(definition, _stands_in_line, above)


def _starts_in_line(definition: Definition, above: frozenset[str]) -> bool:
    started = (resolve_target(step) for step in definition.plan.steps if step.kind in STARTED)
    return any(map(_is_in_line, started)) or _of_parts(definition, _starts_in_line, above)


def _is_in_line(step: PlanStep) -> bool:
    """Of a step that starts executions of their own: whether those draw."""
    if step.kind is Kind.ASYNC_STEP:
        return bool(step.coordination.ordered_lock)
    return _stands_in_line(definition_of_target(step.target), frozenset())


def _of_parts(definition: Definition, question: Question, above: frozenset[str]) -> bool:
    if definition.label in above:
        return False
    above |= {definition.label}
    targets = (resolve_target(step).target for step in definition.plan.steps if step.kind in PARTS)
    return any(question(definition_of_target(target), above) for target in targets)


STARTED = (Kind.ASYNC_STEP, Kind.ASYNC_REACTOR, Kind.MAP)
PARTS = (Kind.COMPOSE, Kind.MAP)
