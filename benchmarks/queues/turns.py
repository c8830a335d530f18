"""Contenders take turns, as in `benchmarks.rounds`.

1. Each is warmed up by some work, which also waits for its workers to be ready.
2. In every round each enqueues, while its workers stand still; then they go on until all is done.
3. In rounds of their own each gathers the results of many pieces of work.
4. At the end each is asked for latencies, alone, and this project for maps of several sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from benchmarks.processes import Worker
from benchmarks.queues.fleet import Fleet
from benchmarks.queues.memory import forget_peaks, peak

__all__ = ["Gathered", "Latency", "Rates", "Size", "Team", "gathering", "growth", "latency", "side_by_side", "warm_up"]

WARM_UP = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Who enqueues, and who works."""

    producer: Worker
    fleet: Fleet

    @property
    def name(self) -> str:
        return self.producer.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """For each round, pieces of work a second; and the processor's seconds that a piece costs the workers, which hardly
    vary with what else the machine does."""

    enqueued: Sequence[float]
    drained: Sequence[float]
    work: Sequence[float]

    @property
    def overall(self) -> Sequence[float]:
        """As if one came after the other."""
        return [1 / (1 / first + 1 / second) for first, second in zip(self.enqueued, self.drained, strict=True)]

    def ratio(self, other: Rates) -> float:
        return _ratio(self.overall, other.overall)

    def ratio_of_drains(self, other: Rates) -> float:
        return _ratio(self.drained, other.drained)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """For each round, results a second, from the call to their sum, and the processor's seconds that one costs the
    workers."""

    rate: Sequence[float]
    work: Sequence[float]

    def ratio(self, other: Gathered) -> float:
        return _ratio(self.rate, other.rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Of so many results gathered at once: the seconds that each took, and the most bytes that the process that asked
    for them, and one of the workers, had meanwhile."""

    number: int
    seconds: float
    asker: int
    worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds."""

    p50: float
    p95: float


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return median(a / b for a, b in zip(ours, theirs, strict=True))


def warm_up(teams: Sequence[Team]) -> None:
    for team in teams:
        team.producer.ask(do="enqueue", number=WARM_UP)
        team.producer.ask(do="wait")
        team.fleet.stand_still()


def side_by_side(teams: Sequence[Team], rounds: int, number: int) -> Mapping[str, Rates]:
    enqueued: dict[str, list[float]] = {team.name: [] for team in teams}
    drained: dict[str, list[float]] = {team.name: [] for team in teams}
    work: dict[str, list[float]] = {team.name: [] for team in teams}
    order = list(teams)
    for _ in range(rounds):
        for team in order:
            enqueued[team.name].append(number / team.producer.ask(do="enqueue", number=number)["seconds"])
            before = team.fleet.worked()
            team.fleet.go_on()
            drained[team.name].append(number / team.producer.ask(do="wait")["seconds"])
            team.fleet.stand_still()
            work[team.name].append((team.fleet.worked() - before) / number)
        order.reverse()
    return {name: Rates(enqueued=enqueued[name], drained=drained[name], work=work[name]) for name in enqueued}


def gathering(teams: Sequence[Team], rounds: int, number: int) -> Mapping[str, Gathered]:
    seconds: dict[str, list[float]] = {team.name: [] for team in teams}
    work: dict[str, list[float]] = {team.name: [] for team in teams}
    order = list(teams)
    for _ in range(rounds):
        for team in order:
            before = team.fleet.worked()
            team.fleet.go_on()
            seconds[team.name].append(team.producer.ask(do="gather", number=number)["seconds"])
            team.fleet.stand_still()
            work[team.name].append((team.fleet.worked() - before) / number)
        order.reverse()
    return {name: Gathered(rate=[number / each for each in seconds[name]], work=work[name]) for name in seconds}


def growth(team: Team, sizes: Sequence[int]) -> Sequence[Size]:
    """From the smallest to the largest: what was allocated once may be kept."""
    return [_size(team, number) for number in sorted(sizes)]


def _size(team: Team, number: int) -> Size:
    asker, workers = [team.producer.pid], team.fleet.pids()
    forget_peaks([*asker, *workers])
    team.fleet.go_on()
    seconds = team.producer.ask(do="gather", number=number)["seconds"]
    team.fleet.stand_still()
    return Size(number=number, seconds=seconds / number, asker=peak(asker), worker=peak(workers))


def latency(team: Team, samples: int) -> Latency:
    team.fleet.go_on()
    found = team.producer.ask(do="latencies", samples=samples)["seconds"]
    team.fleet.stand_still()
    parts = quantiles(found, n=20, method="inclusive")
    return Latency(p50=parts[9], p95=parts[18])
