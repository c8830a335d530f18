"""Ordered locks, for people: who is in the line of a key, and how to get past one who keeps it.

    from django_reactor import coordination

    coordination.peek("account:1")            # the line, or None if nobody was ever in it
    coordination.skip("account:1", 17)        # number 17 gives up its turn
    coordination.reset("account:1")           # all of them do

Whose turn was given up may still run when it is delivered, beside those that come after it. A key is what the declared
one is for an execution's inputs. `manage.py reactor_order` does the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_reactor.engine.coordination_ports import Line

__all__ = ["peek", "reset", "skip"]


def peek(key: str) -> Line | None:
    """The line as it is now: the number drawn `last`, how many are `live`, the `head` (whose turn it is, with its
    execution), since when (`head_since`), and the lowest number of this batch that failed (`first_failed`). None: no
    number of this key was drawn, or all has long been forgotten."""
    from django_reactor.coordination.database.turns import DatabaseTurns

    return DatabaseTurns().line(_checked(key))


def skip(key: str, number: int) -> bool:
    """Let others pass this number, once; whoever is first in the line then is delivered, after commit. False if it is
    not in the line (any more). Raises `LockUnavailable` if a transaction that is open has it."""
    from django_reactor.coordination.database.turns import DatabaseTurns

    is_passed = DatabaseTurns().skip(_checked(key), _whole(number))
    if is_passed:
        _wake_next(key)
    return is_passed


def reset(key: str) -> int:
    """Let all pass who are in the line now; how many there were. What is drawn later is a new batch, with higher
    numbers. Raises `LockUnavailable` if a transaction that is open has one of them."""
    from django_reactor.coordination.database.turns import DatabaseTurns

    passed = DatabaseTurns().reset(_checked(key))
    if passed:
        _wake_next(key)
    return passed


def _wake_next(key: str) -> None:
    """Who came while a line was emptied may be its head."""
    from django_reactor.engine.lines import wake_next
    from django_reactor.runtime import services

    wake_next(services(), [key])


def _checked(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise TypeError(f"the key of an ordered lock is a text that is not empty, not {key!r}")
    return key


def _whole(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"a number of the line is a whole number, not {number!r}")
    return number
