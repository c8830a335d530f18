"""The demo's tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from django.db.models import Count, F, Q, Sum
from rich.table import Table

from django_reactor.models import Execution, JournalEntry
from testproject.shop.models import GatewayRequest, Refusal, SentMail
from testproject.shop.money import ZERO
from testproject.shop.reactors import PlaceOrder
from testproject.shop.reconcile import Check

__all__ = ["checks_table", "contention_table", "executions_table", "gateway_table", "mails_table", "outcomes_table"]

KINDS = {
    ("shop.PlaceOrder", "root"): "orders",
    ("shop.PlaceOrder", "element"): "in imports",
    ("shop.ShipOrder", "composed"): "parcels",
    ("shop.PlaceOrder", "async_step"): "mails",
    ("shop.AwardPoints", "async_reactor"): "points",
    ("shop.PostToLedger", "async_reactor"): "postings",
    ("shop.PostToLedger", "root"): "reversals",
    ("shop.SettleDay", "root"): "settlements",
    ("shop.ImportOrders", "root"): "imports",
}
SHARED = {
    "lock 'stock:": "the stock of a product",
    "semaphore 'gateway'": "a line of the gateway",
    "rate limit 'gateway'": "the gateway's quota of a second",
    "lock 'settlement'": "the settlement of the day",
}
"""How the reasons begin for which somebody was put off."""
UNTRACED = ("shop.ImportOrders", "shop.PostToLedger")
"""They are taken again for reasons that are written down nowhere."""
HANDED_OFF, RETRIED, RESUMED = Q(action="hand_off"), Q(action="run", outcome="retrying"), Q(action="resume")


def outcomes_table() -> Table:
    table = Table("Status", "Failed step", "Failure", title="Orders by outcome", title_justify="left")
    table.add_column("Orders", justify="right")
    placed = PlaceOrder.executions.filter(relation__in=("root", "element")).values_list("status", "failure")
    outcomes = Counter(_outcome(status, failure) for status, failure in placed)
    for (status, step, message), count in sorted(outcomes.items(), key=lambda item: (item[0][0], -item[1], item[0])):
        table.add_row(status, step, message, f"{count:,}")
    table.add_section()
    table.add_row("all", "", "", f"{outcomes.total():,}")
    return table


def _outcome(status: str, failure: Any) -> tuple[str, str, str]:
    described: Mapping[str, Any] = failure or {}
    return status, described.get("step") or "", described.get("message") or ""


def executions_table() -> Table:
    """How they got on. An execution is taken over when a lease ran out, because its worker was killed, or was given
    back by one that was asked to stop: all takings but those for which there is another reason."""
    table = Table("Executions", title="How they ran", title_justify="left")
    for column in ("All", "Completed", "Handed off", "Retried", "Resumed", "Taken over"):
        table.add_column(column, justify="right")
    completed = Count("pk", filter=Q(status="completed"))
    kinds = Execution.objects.values("reactor", "relation")
    for row in kinds.annotate(all=Count("pk"), completed=completed, taken=Sum("epoch")).order_by("-relation"):
        entries = JournalEntry.objects.filter(execution__reactor=row["reactor"], execution__relation=row["relation"])
        reasons = [entries.filter(which).count() for which in (HANDED_OFF, RETRIED, RESUMED)]
        of_kind = Execution.objects.filter(reactor=row["reactor"], relation=row["relation"])
        put_off = Refusal.objects.filter(execution_id__in=of_kind.values("pk")).count()
        retried = entries.filter(action="retry", step="").count()
        taken_over = row["taken"] - row["all"] - sum(reasons) - put_off - retried
        has_lease_of_its_own = row["relation"] != "composed" and row["reactor"] not in UNTRACED
        figures = (row["all"], row["completed"], *reasons)
        shown = _figure(taken_over) if has_lease_of_its_own else ""
        table.add_row(KINDS[row["reactor"], row["relation"]], *map(_figure, figures), shown)
    return table


def contention_table() -> Table:
    """Who had to wait for what others had. (A posting waits where it was taken more often than once; so is one whose
    worker was killed.)"""
    table = Table("Shared", title="Who had to wait for others", title_justify="left")
    table.add_column("Put off", justify="right")
    table.add_column("Executions", justify="right")
    for beginning, name in SHARED.items():
        put_off = Refusal.objects.filter(reason__startswith=beginning)
        table.add_row(name, _figure(put_off.count()), _figure(put_off.values("execution_id").distinct().count()))
    waited = Execution.objects.filter(reactor="shop.PostToLedger", epoch__gt=1)
    times = waited.aggregate(times=Sum(F("epoch") - 1))["times"] or 0
    table.add_row("the turn in a customer's ledger", _figure(times), _figure(waited.count()))
    return table


def mails_table(copies: Counter[str]) -> Table:
    """Whoever is killed after a mail was sent and before that is written down sends it once more."""
    table = Table("Confirmation mails", title="Mails, as the customers got them", title_justify="left")
    table.add_column("", justify="right")
    table.add_row("recorded as sent", _figure(SentMail.objects.count()))
    table.add_row("different ones that arrived, by Message-ID", _figure(len(copies)))
    table.add_row("arrived once more under the same Message-ID", _figure(copies.total() - len(copies)))
    return table


def gateway_table() -> Table:
    """What the gateway's own records say; the shop cannot tell one timeout from the other."""
    table = Table("Outcome", title="Requests as the gateway saw them", title_justify="left")
    table.add_column("Requests", justify="right")
    table.add_column("Asked for", justify="right")
    counted = GatewayRequest.objects.values_list("outcome").annotate(requests=Count("pk"), asked=Sum("amount"))
    for outcome, requests, asked in counted.order_by("outcome"):
        table.add_row(GatewayRequest.Outcome(outcome).label, f"{requests:,}", f"{asked or ZERO:,}")
    return table


def checks_table(checks: Iterable[Check]) -> Table:
    table = Table("Claim", title="Reconciliation, from the tables", title_justify="left")
    table.add_column("There is", justify="right")
    table.add_column("Accounted for", justify="right")
    table.add_column("")
    for check in checks:
        table.add_row(
            check.claim,
            _figure(check.found),
            _figure(check.accounted),
            "[green]holds[/]" if check.holds else "[bold red]FAILS[/]",
        )
    return table


def _figure(figure: int | Decimal) -> str:
    return f"{figure:,}"
