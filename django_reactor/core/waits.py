"""Waits as `decide` sees them: the answers of interrupts, as far as they have come."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["ANSWERED", "Wait", "WaitState"]


class WaitState(enum.StrEnum):
    OPEN = "open"
    ACCEPTED = "accepted"
    """There is a payload, and the runner has not taken it yet."""
    APPLIED = "applied"
    REJECTED = "rejected"
    """The last allowed payload was invalid too."""
    TIMED_OUT = "timed_out"
    CLOSED = "closed"
    """Nothing is waited for any more: the interrupt was skipped, or its execution stopped, ended or rolled back."""


ANSWERED = frozenset({WaitState.ACCEPTED, WaitState.REJECTED, WaitState.TIMED_OUT})
"""States on which the interrupt goes on: with a value, or by failing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One interrupt of one generation, or a payload that came before it. `attempts` counts invalid payloads, `error`
    describes the last one once it was the last allowed."""

    step: str
    state: WaitState
    correlation_id: str | None = None
    payload: str | None = None
    attempts: int = 0
    error: Mapping[str, Any] | None = None
    timeout_at: datetime | None = None

    @property
    def is_answered(self) -> bool:
        return self.state in ANSWERED
