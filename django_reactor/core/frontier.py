"""Which steps could run next: those whose dependencies all stand.

A heap of their positions: taking the next one costs the logarithm of how many are ready, not the length of the plan.
"""

from __future__ import annotations

from collections.abc import Container, Set
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from django_reactor.core.plan import Kind, Plan, PlanStep

__all__ = ["Frontier"]


@dataclass(slots=True)
class Frontier:
    """The steps that could run next."""

    plan: Plan
    _missing: dict[str, int] = field(default_factory=dict)
    _heap: list[tuple[bool, int]] = field(default_factory=list)

    def begin(self) -> None:
        """Nothing is done yet."""
        self._missing = dict(self.plan.awaited)
        self._heap = [self._rank(step) for step in self.plan.independent]
        heapify(self._heap)

    def reset(self, done: Set[str]) -> None:
        self._missing = {s.name: len(s.dependencies - done) for s in self.plan.steps}
        self._heap = [self._rank(s) for s in self.plan.steps if not self._missing[s.name] and s.name not in done]
        heapify(self._heap)

    def done(self, name: str) -> None:
        for dependent in self.plan.dependents.get(name, ()):
            self._missing[dependent.name] -= 1
            if not self._missing[dependent.name]:
                heappush(self._heap, self._rank(dependent))

    def first(self, done: Container[str]) -> PlanStep | None:
        """The first ready step in declaration order; interrupts only when nothing else is ready."""
        while self._heap:
            step = self.plan.steps[self._heap[0][1]]
            if step.name not in done:
                return step
            heappop(self._heap)
        return None

    def all(self, done: Container[str]) -> list[PlanStep]:
        """Every ready step, in the same order."""
        ready = (self.plan.steps[position] for _, position in sorted(self._heap))
        return [step for step in ready if step.name not in done]

    @staticmethod
    def _rank(step: PlanStep) -> tuple[bool, int]:
        return step.kind is Kind.INTERRUPT, step.position
