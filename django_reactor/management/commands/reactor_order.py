"""`manage.py reactor_order`: look at the line of an ordered lock, and get it going again."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_reactor import coordination
from django_reactor.engine.coordination_ports import Line
from django_reactor.exceptions import LockUnavailable


class Command(BaseCommand):
    help = (
        "Shows the line of an ordered lock's key (peek), lets others pass one number (skip) or all that are in the "
        "line (reset). Whose turn was given up may still run when it is delivered. Exits non-zero if nothing was done."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="peek|skip|reset")
        for action, does in (("peek", "show the line"), ("skip", "pass one number"), ("reset", "pass all numbers")):
            one = actions.add_parser(action, help=does)
            one.add_argument("key", help="as the declared key is for an execution's inputs")
            if action == "skip":
                one.add_argument("number", type=int, help="as peek shows it")

    def handle(self, *, action: str, key: str, number: int | None = None, **options: Any) -> None:
        if not key:
            raise CommandError("the key is empty")
        line = coordination.peek(key)
        if line is None:
            raise CommandError(f"no number was ever drawn for the key {key!r}, or all has long been forgotten")
        try:
            self.stdout.write(self._done(action, key, number, line))
        except LockUnavailable as error:
            raise CommandError(f"{error}; nothing was done, try again") from error

    def _done(self, action: str, key: str, number: int | None, line: Line) -> str:
        if action == "peek":
            return described(line)
        if action == "reset":
            passed = coordination.reset(key)
            return f"passed {passed}; the line is empty"
        assert number is not None  # it is required
        if not coordination.skip(key, number):
            raise CommandError(f"number {number} is not in the line of {key!r}; {described(line)}")
        return f"passed number {number}"


def described(line: Line) -> str:
    failed = "" if line.first_failed is None else f", failed first: {line.first_failed}"
    counts = f"in the line: {line.live}, drawn last: {line.last}, batch: {line.batch}{failed}"
    if line.head is None:
        return f"{counts}; nobody's turn"
    since = "" if line.head_since is None else f" since {line.head_since:%Y-%m-%d %H:%M:%S} UTC"
    step = f", step {line.head.step}" if line.head.step else ""
    return f"{counts}; the turn of {line.head.number} ({line.head.state}){since}: {line.head.execution_id}{step}"
