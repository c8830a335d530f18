"""`manage.py demo`: real orders through `PlaceOrder`, with faults and kills, and proof that the books balance and that
nobody met who must not."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, TextIO, cast

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from testproject.shop.demo import mailbox, report, surroundings
from testproject.shop.demo.approving import answer_all
from testproject.shop.demo.database import is_file, own_database
from testproject.shop.demo.importing import Import
from testproject.shop.demo.interrupting import noticing
from testproject.shop.demo.placing import finish_aborted, place_each
from testproject.shop.demo.serving import NAME, PASSWORD, ensure_user, serve
from testproject.shop.demo.settling import settle_the_day
from testproject.shop.demo.supply import supply
from testproject.shop.demo.watching import Watch
from testproject.shop.demo.workers import Fleet, Workers, in_this_process, own_queues
from testproject.shop.exceptions import OrdersFileError
from testproject.shop.faults import Faults
from testproject.shop.models import Customer, SentMail
from testproject.shop.orders_file import OrderLine, read_orders
from testproject.shop.planning import PlannedOrder, plan
from testproject.shop.reconcile import Check, reconcile

ORDERS = Path(__file__).parents[2] / "data" / "orders.txt"
KILL_EVERY = 4.0


class Command(BaseCommand):
    # They may connect, and so make the file that is looked at first.
    requires_system_checks = ()
    help = (
        "Runs a file of orders through PlaceOrder, on a database of its own, with faults on purpose, and proves from "
        "the tables that stock, payments, orders, mails, points and ledgers agree, and that those who share something "
        "kept apart. Exits non-zero if they do not."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--database",
            type=Path,
            metavar="PATH",
            help=f"an SQLite file ({surroundings.FILE}, unless DATABASE in the environment names a server)",
        )
        add("--keep", action="store_true", help="go on with the file; orders in it are not placed again")
        add("--orders", type=Path, default=ORDERS, metavar="PATH", help="customer, number, YYYYMMDD, units, dollars")
        add(
            "--import",
            action="store_true",
            dest="as_import",
            help="all orders of the file by one execution of ImportOrders, which maps them over PlaceOrder",
        )
        add("--limit", type=_count, metavar="N", help="only the first N orders")
        add("--faults", type=_rate, default=0.1, metavar="RATE", help="how likely each fault is, 0 to 1 (%(default)s)")
        add("--seed", type=int, default=1, help="the same seed, the same faults (%(default)s)")
        add("--broker", choices=["redis", "rabbitmq"], help="worker processes on it, instead of threads of this one")
        add("--workers", type=_count, metavar="N", help="how many worker processes (2)")
        add(
            "--kill-workers",
            type=_duration,
            nargs="?",
            const=KILL_EVERY,
            metavar="SECONDS",
            help="kill one of them every so often (%(const)s), and start another",
        )
        add("--serve", action="store_true", help="open the admin afterwards")
        add("--port", type=int, default=8000, help="for --serve (%(default)s)")

    def run_from_argv(self, argv: list[str]) -> None:
        if not surroundings.are_set():
            parser = self.create_parser(argv[0], argv[1])
            options = parser.parse_args(argv[2:])
            if options.broker is None and (options.workers or options.kill_workers):
                parser.error("--workers and --kill-workers are about worker processes: name their --broker")
            if options.settings is not None:
                parser.error("the demo has settings of its own: leave --settings out")
            surroundings.start_again(
                surroundings.environment(os.environ, file=options.database, broker=options.broker or "")
            )
        super().run_from_argv(argv)

    def handle(self, **options: Any) -> None:
        if not surroundings.are_set():
            raise CommandError("the demo has settings of its own: start it from the command line")
        self.stdout.ending = ""  # rich ends its lines itself
        console = Console(file=cast(TextIO, self.stdout))
        lines = _read(options["orders"])[: options["limit"]]
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        with own_database(keep=options["keep"]), _files(keep=options["keep"]) as files:
            with _workers(files, options) as workers:
                self._run(console, lines, workers, options)
            self._report(console, workers, files)
            self._prove(console, files)
            if options["serve"]:
                self._serve(console, options["port"])

    def _run(self, console: Console, lines: list[OrderLine], workers: Workers, options: dict[str, Any]) -> None:
        rate, seed = options["faults"], options["seed"]
        orders = list(plan(lines, name=options["orders"].stem, rate=rate, seed=seed))
        customers = supply(orders, rate=rate, seed=seed)
        started = monotonic()
        try:
            if options["keep"] and (count := finish_aborted()):
                console.print(f"Went on with {count} orders that an earlier run left unfinished.")
            with noticing() as interruption, _progress(console) as progress:
                watch = Watch(progress, progress.add_task("Executions ended"), workers)
                watch.meanwhile += [interruption, lambda: answer_all(rate=rate, seed=seed)]
                if options["as_import"]:
                    _import(progress, watch, options)
                else:
                    _place(progress, watch, orders, customers)
                watch.wait()
                settle_the_day()
                watch.wait()
        except KeyboardInterrupt as exc:
            way_on = "; --keep goes on with the orders that are left" if is_file() else ""
            raise CommandError(f"interrupted{way_on}", returncode=130) from exc
        database = settings.DATABASES["default"]["NAME"]
        console.print(f"{len(orders):,} orders in {monotonic() - started:.1f} s, in {database}")

    def _report(self, console: Console, workers: Workers, files: Path) -> None:
        console.print(report.outcomes_table(), report.gateway_table(), report.executions_table())
        console.print(report.contention_table())
        console.print(report.mails_table(mailbox.copies(files / "mail")))
        if workers.killed:
            console.print(f"Worker processes killed: {workers.killed}")

    def _prove(self, console: Console, files: Path) -> None:
        arrived = mailbox.copies(files / "mail")
        checks = [
            *reconcile(),
            Check(claim="mails sent = different mails arrived", found=SentMail.objects.count(), accounted=len(arrived)),
        ]
        console.print(report.checks_table(checks))
        if failed := [check.claim for check in checks if not check.holds]:
            raise CommandError("the books do not balance: " + "; ".join(failed))

    def _serve(self, console: Console, port: int) -> None:
        ensure_user()
        console.print(f"The admin: http://127.0.0.1:{port}/admin/  (user {NAME}, password {PASSWORD})")
        serve(port)


@contextmanager
def _workers(files: Path, options: dict[str, Any]) -> Iterator[Workers]:
    with ExitStack() as stack:
        if options["broker"] is None:
            yield stack.enter_context(in_this_process())
        else:
            stack.enter_context(own_queues())
            fleet = Fleet(options["workers"] or 2, log=files / "workers.log", kill_every=options["kill_workers"])
            yield stack.enter_context(fleet)


@contextmanager
def _files(*, keep: bool) -> Iterator[Path]:
    """Where mails and the workers' output go. Beside a file they stay, as it does; else they are of use after a failure
    only."""
    files = surroundings.files()
    files.mkdir(exist_ok=True)
    if not keep:
        mailbox.empty(files / "mail")
        (files / "workers.log").unlink(missing_ok=True)
    yield files
    if not is_file():
        shutil.rmtree(files)


def _place(progress: Progress, watch: Watch, orders: Sequence[PlannedOrder], customers: Mapping[str, Customer]) -> None:
    for _ in progress.track(place_each(orders, customers), total=len(orders), description="Orders placed"):
        watch.look()


def _import(progress: Progress, watch: Watch, options: dict[str, Any]) -> None:
    running = Import(progress, progress.add_task("Orders imported"), options["orders"], options["limit"])
    running.start(Faults(rate=options["faults"], seed=options["seed"]))
    watch.meanwhile.append(running.look)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )


def _read(path: Path) -> list[OrderLine]:
    try:
        return read_orders(path)
    except OrdersFileError as exc:
        raise CommandError(str(exc)) from exc


def _rate(text: str) -> float:
    if not 0 <= float(text) <= 1:
        raise ArgumentTypeError(f"a rate is between 0 and 1, not {text}")
    return float(text)


def _count(text: str) -> int:
    if int(text) < 1:
        raise ArgumentTypeError(f"a number of orders is 1 or more, not {text}")
    return int(text)


def _duration(text: str) -> float:
    if not 0 < float(text) < float("inf"):
        raise ArgumentTypeError(f"a time is above 0 seconds, not {text}")
    return float(text)
