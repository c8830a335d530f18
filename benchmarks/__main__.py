"""Measure side by side, and print ratios: absolute figures say more about the machine than about the contenders."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from benchmarks import report
from benchmarks.processes import Worker, workers
from benchmarks.rounds import STEPS, costs_per_step, reload, side_by_side
from benchmarks.stores import STORES, Store, available, created, settings_of_server

CONTENDERS = ("bare", "orm", "reactor", "locked", "dbos")
SIZES = (10, 100, 1000)
RELOADED = 1000


def main(arguments: Sequence[str] | None = None) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that databases are dropped
    options = _parser().parse_args(arguments)
    peers = _peers(options.dbos_python)
    for store in options.stores or STORES.values():
        if available(store):
            _measure(store, peers, options)
        else:
            _say(f"\n## {store.name}: no server answers, nothing is measured")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("stores", nargs="*", type=_store, help=f"of {', '.join(STORES)} (default: all of them)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (default: %(default)s)")
    parser.add_argument("--turn", type=float, default=0.25, help="seconds of a turn (default: %(default)s)")
    parser.add_argument(
        "--synchronous",
        choices=("NORMAL", "FULL"),
        default="NORMAL",
        help="SQLite's way to wait for the disk, the same for all contenders (default: %(default)s)",
    )
    parser.add_argument("--profile", action="store_true", help="print instead where the time of a run goes")
    parser.add_argument("--dbos-python", default=sys.executable, help="an interpreter that has dbos, if not this one")
    return parser


def _store(name: str) -> Store:
    if name not in STORES:
        raise argparse.ArgumentTypeError(f"there is no store {name!r}, only {', '.join(STORES)}")
    return STORES[name]


def _peers(python: str) -> Mapping[str, str]:
    """Contenders that need an interpreter of their own; without dbos the others are measured all the same."""
    found = subprocess.run([python, "-c", "import dbos"], capture_output=True, check=False).returncode == 0
    if not found:
        _say("dbos is not installed, so it is left out: python -m pip install -r benchmarks/requirements.txt")
    return {"dbos": python} if found else {}


def _measure(store: Store, peers: Mapping[str, str], options: argparse.Namespace) -> None:
    details = {"synchronous": options.synchronous} if store.vendor == "sqlite" else settings_of_server()
    _say(report.heading(store, details))
    with created(store, options.synchronous) as environment:
        names = ["reactor"] if options.profile else [name for name in CONTENDERS if name != "dbos" or peers]
        with workers(names, environment, peers) as ready:
            if options.profile:
                _profile(ready[0], options)
            else:
                _compare(ready, options)


def _compare(ready: Sequence[Worker], options: argparse.Namespace) -> None:
    _say(report.comparison(side_by_side(ready, options.rounds, options.turn)))
    reactor = next(worker for worker in ready if worker.name == "reactor")
    _say(report.flatness(costs_per_step(reactor, SIZES, options.rounds, options.turn)))
    _say(report.reloading(RELOADED, reload(reactor, RELOADED, options.rounds)))


def _profile(reactor: Worker, options: argparse.Namespace) -> None:
    one = reactor.seconds(10, STEPS) / 10  # the first of them warms up
    executions = max(1, round(options.rounds * options.turn / one))
    found = reactor.ask(do="profile", executions=executions, steps=STEPS)
    _say(report.split(found["seconds"] / (executions * STEPS), found["layers"], found["functions"]))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
