"""Executions beside which others take what they need, on the in-memory adapters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import tzinfo
from typing import Any
from uuid import UUID

from django_reactor.engine.coordination_ports import HoldKind, Wanted
from django_reactor.results import Result
from tests.engine_support import Fleet

__all__ = ["OTHER", "Rivals", "values_of"]

OTHER = UUID(int=7)


class Rivals(Fleet):
    """A fleet beside which somebody else may take locks, too."""

    def lock(self, key: str, owner: UUID = OTHER, ttl: float = 60, kind: HoldKind = HoldKind.LOCK) -> Any:
        return self.stores.holds.take(owner, 1, Wanted(kind=kind, key=key, ttl=ttl))

    def holder(self, key: str, kind: HoldKind = HoldKind.LOCK) -> UUID | None:
        held = self.stores.holds.holders(kind, key)
        return held[0].owner if held else None

    def free(self, hold: Any) -> None:
        assert self.stores.holds.release([hold])

    def forget_names(self, look_up: Callable[[str], Mapping[str, int]]) -> None:
        """Of rate limits."""
        self.stores = replace(self.stores, named_limits=look_up)
        self.services = replace(self.services, coordination=self.stores)

    def live_in(self, time_zone: tzinfo) -> None:
        """As the project's own."""
        self.stores = replace(self.stores, time_zone=lambda: time_zone)
        self.services = replace(self.services, coordination=self.stores)

    @property
    def signals(self) -> list[str]:
        return [name for name in self.observer.names if "lock" in name or "semaphore" in name]


def values_of(result: Result[Any]) -> Any:
    """The results of all steps."""
    return result.unwrap()
