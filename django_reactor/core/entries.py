"""One record of the journal, as the engine sees it. Values are text that a codec made; nothing here decodes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_reactor.core.statuses import Action, EntryOutcome

__all__ = ["Entry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`step` is '' for what concerns the whole execution. `error` is a JSON-compatible description of a failure
    (the fields of `Failure`, and `began`); `undoable` says that the step had an undo when it completed."""

    seq: int
    action: Action
    step: str = ""
    outcome: EntryOutcome = EntryOutcome.NONE
    attempt: int = 0
    arguments: str | None = None
    value: str | None = None
    error: Mapping[str, Any] | None = None
    reason: str = ""
    undoable: bool = False
    started_at: datetime
    finished_at: datetime
