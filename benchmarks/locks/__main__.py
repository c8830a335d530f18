"""Cycles of taking and releasing a lock, by 8 threads, side by side, on PostgreSQL and on Redis."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks import report
from benchmarks.processes import Worker, workers
from benchmarks.redis_server import keys_of_this_run, redis_answers
from benchmarks.stores import STORES, available, created, settings_of_server
from testproject.brokers import redis_url

CONTENDERS = ("database", "for_update", "advisory", "redis", "redis_py")
REFERENCES = {"database": "for_update", "redis": "redis_py"}
"""What each of this project's is compared with."""
KEYS = (1, 100)


def main(arguments: Sequence[str] | None = None) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that databases are dropped
    options = _parser().parse_args(arguments)
    store = STORES[options.store]
    if not available(store) or not redis_answers():
        _say("PostgreSQL or Redis does not answer, nothing is measured")
        return 0
    _say(report.heading(store, settings_of_server()))
    with created(store, synchronous="NORMAL") as environment, keys_of_this_run() as prefix:
        of_locks = {
            "DJANGO_SETTINGS_MODULE": "benchmarks.locks.settings",
            "BENCHMARK_REDIS": redis_url(os.environ),
            "BENCHMARK_PREFIX": prefix,
        }
        names = options.contenders or CONTENDERS
        with workers(names, dict(environment) | of_locks, {}, "benchmarks.locks.worker") as ready:
            for keys in KEYS:
                _say(_table(_side_by_side(ready, keys, options), keys, options.threads))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.locks", description=__doc__)
    parser.add_argument("contenders", nargs="*", metavar="contender", help=f"of {', '.join(CONTENDERS)} (default: all)")
    parser.add_argument("--store", choices=("postgres", "prepared"), default="prepared")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender (default: %(default)s)")
    parser.add_argument("--turn", type=float, default=1.0, help="seconds of a turn (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=8, help="that want the locks at once (default: %(default)s)")
    return parser


Measured = Mapping[str, Sequence[Mapping[str, float]]]


def _side_by_side(ready: Sequence[Worker], keys: int, options: argparse.Namespace) -> Measured:
    """Contenders take turns, as in `benchmarks.rounds`."""
    found: dict[str, list[Mapping[str, float]]] = {worker.name: [] for worker in ready}

    def turn(worker: Worker, seconds: float) -> Mapping[str, float]:
        return worker.ask(do="run", threads=options.threads, keys=keys, seconds=seconds)

    for worker in ready:
        turn(worker, options.turn / 4)
    order = list(ready)
    for _ in range(options.rounds):
        for worker in order:
            measured = turn(worker, options.turn)
            cycles = max(1, measured["cycles"])
            found[worker.name].append({"rate": cycles / options.turn, "work": measured["worked"] / cycles})
        order.reverse()
    return found


def _table(measured: Measured, keys: int, threads: int) -> str:
    lines = [f"{threads} threads, {keys} key{'s' if keys > 1 else ''}; cycles a second, the median of the rounds"]
    lines += [f"{'contender':<12}{'cycles/s':>10}{'of its peer':>20}{'CPU/cycle':>12}"]
    for name, rounds in measured.items():
        peer = REFERENCES.get(name, "")
        ratio = f"{_ratio(rounds, measured[peer]):.2f} of {peer}" if peer in measured else ""
        rate, work = median(each["rate"] for each in rounds), median(each["work"] for each in rounds)
        lines.append(f"{name:<12}{rate:>10,.0f}{ratio:>20}{work * 1e6:>9,.0f} µs")
    return "\n".join(lines)


def _ratio(ours: Sequence[Mapping[str, float]], theirs: Sequence[Mapping[str, float]]) -> float:
    return median(a["rate"] / b["rate"] for a, b in zip(ours, theirs, strict=True))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
