"""Enqueue and drain with 2 processes of 4 threads, side by side, on PostgreSQL and Redis; then latency, alone."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from benchmarks import report
from benchmarks.processes import workers
from benchmarks.queues.fleet import running
from benchmarks.queues.turns import (
    Gathered,
    Latency,
    Rates,
    Size,
    Team,
    gathering,
    growth,
    latency,
    side_by_side,
    warm_up,
)
from benchmarks.redis_server import keys_of_this_run, redis_answers
from benchmarks.stores import STORES, available, created, settings_of_server
from testproject.brokers import redis_url

CONTENDERS = ("raw", "reactor", "celery", "dbos")
PEERS = ("celery", "dbos")
OURS = "reactor"


def main(arguments: Sequence[str] | None = None) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that databases are dropped
    options = _parser().parse_args(arguments)
    store = STORES[options.store]
    if not available(store) or not redis_answers():
        _say("PostgreSQL or Redis does not answer, nothing is measured")
        return 0
    names = [name for name in options.contenders or CONTENDERS if name not in PEERS or _has(options.peers_python, name)]
    details = {"dramatiq_worker_timeout": f"{options.worker_timeout} ms"}
    _say(report.heading(store, dict(settings_of_server()) | details))
    with created(store, synchronous="NORMAL") as environment, keys_of_this_run() as prefix, _folder() as folder:
        _measure(names, options, dict(environment) | _surroundings(prefix, folder, options))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queues", description=__doc__)
    parser.add_argument("contenders", nargs="*", metavar="contender", help=f"of {', '.join(CONTENDERS)} (default: all)")
    parser.add_argument("--store", choices=("postgres", "prepared"), default="postgres")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender (default: %(default)s)")
    parser.add_argument("--number", type=int, default=2000, help="enqueued in a turn (default: %(default)s)")
    parser.add_argument("--gather", type=int, default=5000, help="results that are gathered (default: %(default)s)")
    parser.add_argument(
        "--growth",
        type=int,
        nargs="*",
        default=[1_000, 50_000],
        metavar="SIZE",
        help="results that this project gathers once each, for time and memory (default: 1000 50000)",
    )
    parser.add_argument("--samples", type=int, default=100, help="of the latency (default: %(default)s)")
    parser.add_argument(
        "--worker-timeout",
        type=int,
        default=10,
        help="milliseconds that a Dramatiq worker without work sleeps at most before it asks Redis again; Dramatiq's "
        "own default is 1000 (default: %(default)s)",
    )
    parser.add_argument("--peers-python", default=sys.executable, help="an interpreter that has the peers")
    return parser


def _has(python: str, module: str) -> bool:
    if subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0:
        return True
    _say(f"{module} is not installed, so it is left out: python -m pip install -r benchmarks/requirements.txt")
    return False


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="django-reactor-benchmark-") as folder:
        yield Path(folder)


def _surroundings(prefix: str, folder: Path, options: argparse.Namespace) -> dict[str, str]:
    return {
        "DJANGO_SETTINGS_MODULE": "benchmarks.queues.settings",
        "BENCHMARK_REDIS": redis_url(os.environ),
        "BENCHMARK_PREFIX": prefix,
        "BENCHMARK_STAMPS": str(folder / "stamps"),
        "dramatiq_worker_timeout": str(options.worker_timeout),
    }


def _measure(names: Sequence[str], options: argparse.Namespace, environment: Mapping[str, str]) -> None:
    pythons = dict.fromkeys(PEERS, options.peers_python)
    with ExitStack() as ended:
        producers = ended.enter_context(workers(names, environment, pythons, "benchmarks.queues.producer"))
        teams = [
            Team(
                producer=producer,
                fleet=ended.enter_context(
                    running(producer.name, environment, pythons.get(producer.name, sys.executable))
                ),
            )
            for producer in producers
        ]
        warm_up(teams)
        if options.number:
            _say(_comparison(side_by_side(teams, options.rounds, options.number), options.number))
        if options.gather:
            _say(_gathered(gathering(teams, options.rounds, options.gather), options.gather))
        if options.samples:
            _say(_latencies({team.name: latency(team, options.samples) for team in teams}, options.samples))
        for team in teams:
            if team.name == OURS and options.growth:
                _say(_growth(growth(team, options.growth)))


def _comparison(measured: Mapping[str, Rates], number: int) -> str:
    lines = [f"{number:,} pieces of work; a second, the median of the rounds"]
    titles = ("enqueued", "drained", "overall", "of raw", "drain", "CPU")
    lines += [f"{'contender':<10}" + "".join(f"{title:>10}" for title in titles)]
    reference = measured.get("raw", next(iter(measured.values())))
    for name, rates in measured.items():
        enqueued, drained, overall = (median(each) for each in (rates.enqueued, rates.drained, rates.overall))
        work = median(rates.work)
        lines.append(
            f"{name:<10}{enqueued:>10,.0f}{drained:>10,.0f}{overall:>10,.0f}"
            f"{rates.ratio(reference):>10.2f}{rates.ratio_of_drains(reference):>10.2f}{work * 1e6:>7,.0f} µs"
        )
    return "\n".join(lines)


def _gathered(measured: Mapping[str, Gathered], number: int) -> str:
    lines = [f"{number:,} results in one place; a second, the median of the rounds"]
    lines += [f"{'contender':<10}" + "".join(f"{title:>10}" for title in ("gathered", "of raw", "CPU"))]
    reference = measured.get("raw", next(iter(measured.values())))
    lines += [
        f"{name:<10}{median(each.rate):>10,.0f}{each.ratio(reference):>10.2f}{median(each.work) * 1e6:>7,.0f} µs"
        for name, each in measured.items()
    ]
    return "\n".join(lines)


def _latencies(measured: Mapping[str, Latency], samples: int) -> str:
    lines = [f"from enqueue to the start of the body, one at a time, {samples} samples, in ms"]
    lines += [f"{'contender':<10} {'p50':>8} {'p95':>8}"]
    lines += [f"{name:<10} {each.p50 * 1e3:>8.1f} {each.p95 * 1e3:>8.1f}" for name, each in measured.items()]
    return "\n".join(lines)


def _growth(sizes: Sequence[Size]) -> str:
    lines = ["results gathered once by this project: time of each, and the most memory of a process, in MB"]
    lines += [f"{'results':>10}{'each':>10}{'asker':>8}{'worker':>8}"]
    lines += [
        f"{size.number:>10,}{size.seconds * 1e6:>7,.0f} µs{size.asker / 1e6:>8,.0f}{size.worker / 1e6:>8,.0f}"
        for size in sizes
    ]
    return "\n".join(lines)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
