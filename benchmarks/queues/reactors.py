"""What this project runs in the benchmark: one step each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.queues.stamps import send_stamp
from django_reactor import Reactor, Step, map_step, step

__all__ = ["Gathering", "Nothing", "Stamp"]


class Nothing(Reactor):
    @step
    def only(self) -> int:
        return 1


class Stamp(Reactor):
    @step
    def only(self) -> int:
        send_stamp()
        return 1


class One(Step[int]):
    number: int

    def run(self) -> int:
        return 1


class Gathering(Reactor[int]):
    """So many pieces of work at once, and the sum of what they gave."""

    number: int

    class Meta:
        returns = "total"

    @map_step(One, fan_out=100)
    def ones(self, number: int) -> Iterator[dict[str, int]]:
        return ({"number": each} for each in range(number))

    @step
    def total(self, ones: Any) -> int:
        return sum(ones.values())
