"""What a body sees of its execution: `self.context`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django_reactor.engine.holdings import Holdings
from django_reactor.exceptions import ArgumentError

__all__ = ["Context"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """`attempt` counts from 1, `snoozes` from 0. `step` is the stored name; `tags` are those of the call.

    `idempotency_key` is the same on every attempt and recovery, and new when the step runs again after its undo or its
    compensation; `undo` and `compensate` have keys of their own, and `run_key` is the one that the body had.
    `in_worker` says whether a delivery runs it, and not a caller.
    """

    execution_id: UUID
    root_id: UUID
    step: str
    attempt: int
    snoozes: int
    idempotency_key: str
    run_key: str
    in_worker: bool
    tags: tuple[str, ...]
    results: Mapping[str, Any]
    """The results that stand, by stored name, read-only."""
    holdings: Holdings

    def fence(self, key: str) -> int:
        """The number of the claim that holds this key: it grows with every claim of this execution, so that whatever it
        is sent to can refuse a runner that was overtaken. `ArgumentError` for a key that is not held here."""
        holding = self.holdings.of_key(key)
        if holding is None:
            held = ", ".join(repr(each.key) for each in self.holdings) or "nothing"
            raise ArgumentError(f"fence({key!r}): this execution does not hold that key; it holds {held}")
        return holding.hold.epoch
