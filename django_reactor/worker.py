"""What a worker does with a message: deliver one execution."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from uuid import UUID

from django.db import connections

from django_reactor.core import registry
from django_reactor.core.plan import Definition
from django_reactor.core.targets import definition_of_target
from django_reactor.engine import delivering
from django_reactor.engine.known import keys_of
from django_reactor.exceptions import DefinitionError
from django_reactor.runtime import services

__all__ = ["definition", "deliver", "known"]

logger = logging.getLogger("django_reactor")


def deliver(execution_id: UUID | str) -> None:
    """Take the lease of this execution, if it is due and free, and carry it on.

    Errors of the delivery itself (the database is away, a fault of ours) are logged and contained: the lease lapses,
    and the sweeper delivers again. Interruptions of the worker go on. Database connections are closed around it, as
    Django does around a request; but not those of a test that delivers inside of its own transaction.
    """
    _close_old_connections()
    try:
        delivering.deliver(services(), definition, UUID(str(execution_id)), known=known())
    except Exception:  # one delivery
        logger.exception("event=django_reactor.delivery_failed execution_id=%s", execution_id)
    finally:
        _close_old_connections()


def _close_old_connections() -> None:
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def definition(label: str) -> Definition | None:
    """What this process knows under a stored name: of a reactor, or of a Step class that is the target of a map."""
    found = registry.find(label)
    return None if found is None else definition_of_target(found)


_known: tuple[Sequence[str], Sequence[str]] = ((), ())
"""Labels, and the keys that were made of them."""


def known() -> Sequence[str]:
    """The keys of all that this process can run; the same object until another class is made."""
    global _known
    labels, keys = _known
    if labels is not registry.labels():
        labels = registry.labels()
        keys = tuple(key for label in labels for key in _keys(label))
        _known = labels, keys
    return keys


def _keys(label: str) -> Iterator[str]:
    with suppress(DefinitionError):  # a delivery of that one says what is wrong with it
        found = definition(label)
        if found is not None:
            yield from keys_of(found)
