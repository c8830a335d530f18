"""Contenders take turns, so that a busy or a slow moment of the machine falls on all of them.

1. Each is warmed up, and the number of its executions in a turn is chosen so that a turn takes about `turn` seconds.
2. In every round each has one turn; the order is turned round from round to round.
3. A contender's rate is the median of its rounds; a ratio is the median of the ratios within the rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.processes import Worker

__all__ = ["STEPS", "Measured", "costs_per_step", "reload", "side_by_side"]

STEPS = 10
WARM_UP = 3
"""Executions before anything is measured: connections are opened, statements compiled and prepared."""


@dataclass(frozen=True, slots=True)
class Measured:
    """For each contender one number of each round: steps a second, and the processor's seconds a step.

    The second is the contender's own process only. It says what it costs where the disk or the machine is busy, and
    hardly varies with that.
    """

    rates: Mapping[str, Sequence[float]]
    work: Mapping[str, Sequence[float]]

    def work_per_step(self, name: str) -> float:
        return median(self.work[name])

    def rate(self, name: str) -> float:
        return median(self.rates[name])

    def ratio(self, name: str, reference: str) -> float:
        return median(a / b for a, b in zip(self.rates[name], self.rates[reference], strict=True))

    def spread(self, name: str) -> tuple[float, float]:
        return min(self.rates[name]), max(self.rates[name])


def side_by_side(workers: Sequence[Worker], rounds: int, turn: float) -> Measured:
    executions = {worker.name: _executions(worker, turn) for worker in workers}
    rates: dict[str, list[float]] = {worker.name: [] for worker in workers}
    work: dict[str, list[float]] = {worker.name: [] for worker in workers}
    order = list(workers)
    for _ in range(rounds):
        for worker in order:
            number = executions[worker.name]
            took = worker.run(number, STEPS)
            rates[worker.name].append(number * STEPS / took["seconds"])
            work[worker.name].append(took["worked"] / (number * STEPS))
        order.reverse()
    return Measured(rates, work)


def _executions(worker: Worker, turn: float) -> int:
    worker.seconds(WARM_UP, STEPS)
    return max(1, round(turn / (worker.seconds(WARM_UP, STEPS) / WARM_UP)))


def costs_per_step(worker: Worker, sizes: Sequence[int], rounds: int, turn: float) -> Mapping[int, float]:
    """Seconds a step for executions of so many steps, as the median of rounds in which the sizes take turns."""
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    for size in sizes:
        worker.seconds(1, size)
    one_step = worker.seconds(WARM_UP, STEPS) / (WARM_UP * STEPS)
    for _ in range(rounds):
        for size in sizes:
            executions = max(1, round(turn / (one_step * size)))
            seconds[size].append(worker.seconds(executions, size) / (executions * size))
    return {size: median(found) for size, found in seconds.items()}


def reload(worker: Worker, steps: int, rounds: int) -> float:
    """Seconds from the id of an execution to all its results, the median."""
    return median(float(worker.ask(do="reload", steps=steps)["seconds"]) for _ in range(rounds))
