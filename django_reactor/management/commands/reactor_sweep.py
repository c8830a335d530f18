"""`manage.py reactor_sweep`: one sweep, for cron or by hand."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError

from django_reactor import worker
from django_reactor.engine.records import Message
from django_reactor.engine.recovery import OutOfReach
from django_reactor.sweeper import forgetting, recovery


class Command(BaseCommand):
    help = (
        "Sweeps once: delivers again what is due and held by no process. Harmless beside running workers; what was "
        "sent to them lately is left to them. Forgets what coordination no longer needs. Exits non-zero only if the "
        "sweep itself fails."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--deliver", action="store_true", help="carry the deliveries out here, one after another, without a broker"
        )

    def handle(self, *, deliver: bool, **options: Any) -> None:
        try:
            swept = recovery(_deliver_here if deliver else None).sweep()
            forgotten = forgetting().forget()
        except (DatabaseError, OutOfReach) as error:
            raise CommandError(f"the sweep failed: {error.__cause__ or error}") from error
        how = "here" if deliver else "to the workers"
        counts = f"woken: {swept.woken}, elements let go: {swept.let_go}, timed out: {swept.timed_out}"
        ends = f"failed: {swept.failed}, rows forgotten: {forgotten}"
        self.stdout.write(f"delivered again {how}: {swept.delivered}, {counts}, {ends}")


def _deliver_here(message: Message) -> None:
    worker.deliver(message.execution_id)
