"""What a history is made of: results that stand, units and children that were started, steps that failed. Each is read
off one entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django_reactor.core.entries import Entry
from django_reactor.core.statuses import EntryOutcome

__all__ = ["Child", "Dispatch", "FailedStep", "Standing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A result that holds. `run_number` is part of the idempotency key that the body had."""

    step: str
    seq: int
    value: str | None
    arguments: str | None
    skipped: bool
    undoable: bool
    run_number: int

    @classmethod
    def of(cls, entry: Entry, run_number: int) -> Standing:
        """What the entry of a success, or of a skipped step, says."""
        skipped = entry.outcome is EntryOutcome.SKIPPED
        return cls(
            step=entry.step,
            seq=entry.seq,
            value=entry.value,
            arguments=entry.arguments,
            skipped=skipped,
            undoable=entry.undoable and not skipped,
            run_number=run_number,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """A unit that was started, when, and the id of its execution."""

    step: str
    unit: UUID
    at: datetime

    @classmethod
    def of(cls, entry: Entry) -> Dispatch:
        """What a `dispatch` entry says that is not `undoable`."""
        assert entry.value is not None  # the unit's id
        return cls(step=entry.step, unit=UUID(entry.value), at=entry.finished_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A composed child, or a map, that was opened: the id of its execution, or of the map's row, and how often it was
    rolled back from here."""

    step: str
    execution: UUID
    undos: int = 0
    is_map: bool = False

    @classmethod
    def of(cls, entry: Entry) -> Child:
        """What a `dispatch` entry says that is `undoable`."""
        assert entry.value is not None  # the child's id
        kind, _, opened = entry.value.rpartition(":")
        return cls(step=entry.step, execution=UUID(opened), is_map=kind == "map")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedStep:
    """The step whose failure, or cutting off, is to be compensated."""

    step: str
    error: Mapping[str, Any]
    began: bool
    attempt: int
    arguments: str | None
    run_number: int
    cut_off: bool = False
    listed: bool = False
    """Its compensation failed before and is owed, even if it is declared no more."""

    @classmethod
    def of(cls, entry: Entry, run_number: int, *, cut_off: bool = False) -> FailedStep:
        """What the entry of a failure, of an attempt or of an abort says."""
        error = entry.error or {}
        return cls(
            step=entry.step,
            error=error,
            began=cut_off or bool(error.get("began", True)),
            attempt=entry.attempt,
            arguments=entry.arguments,
            run_number=run_number,
            cut_off=cut_off,
        )
