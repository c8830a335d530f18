"""The row that bare loops write: as wide as the journal entry of a trivial step."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

__all__ = ["COLUMNS", "row"]

COLUMNS = (
    "execution_id",
    "seq",
    "step",
    "action",
    "outcome",
    "attempt",
    "arguments",
    "value",
    "error",
    "reason",
    "undoable",
    "started_at",
    "finished_at",
)


def row(execution_id: UUID, seq: int) -> tuple[Any, ...]:
    started = datetime.now(UTC)
    name = f"step_{seq:04}"
    return execution_id, seq, name, "run", "success", 1, None, str(seq), None, "", False, started, datetime.now(UTC)
