"""Do stock, payments, orders, parcels, mails, points and ledgers agree, to the unit and the cent, and did those who
share something keep apart?

Every figure is added up by the database from what is in the tables; nothing is remembered from when the orders ran.
Only an execution that completed may have left something behind. So each check sets what there is (units off the
shelf, money at the gateway) against the part of it that completed executions and their orders account for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from django_reactor.models import Execution, JournalEntry, Ticket
from testproject.shop import gateway
from testproject.shop.meetings import Stay, calls_over_quota, crowded, first_calls
from testproject.shop.models import (
    Customer,
    GatewayCharge,
    LedgerPosting,
    Order,
    Parcel,
    Payment,
    PointsMovement,
    Reservation,
    SentMail,
    Settlement,
    Stock,
    Visit,
)
from testproject.shop.money import ZERO, MoneyField
from testproject.shop.reactors import PlaceOrder, SettleDay

__all__ = ["Check", "reconcile"]

A_DAY = timedelta(hours=23)
"""Places in lines are forgotten a day after their end."""
ENDS = ("completed", "failed", "halted", "cancelled", "undone", "aborted")

Figure = int | Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A claim and its two figures, which must be the same."""

    claim: str
    found: Figure
    accounted: Figure

    @property
    def holds(self) -> bool:
        return self.found == self.accounted


def reconcile() -> list[Check]:
    return [
        Check(claim=claim, found=found, accounted=accounted)
        for part in (_stock, _money, _executions, _parcels, _mails, _points, _ledger, _settlements, _meetings)
        for claim, found, accounted in part()
    ]


def _stock() -> Iterator[tuple[str, Figure, Figure]]:
    sold_of_product = _of(_sold(), product=OuterRef("pk")).annotate(units=Sum("quantity")).values("units")
    balanced = Stock.objects.annotate(sold=Coalesce(Subquery(sold_of_product), 0)).filter(
        received=F("on_hand") + F("sold")
    )
    held = Reservation.objects.filter(state=Reservation.State.HELD)

    yield (
        "units received = on hand + sold",
        _total(Stock.objects.all(), "received", 0),
        _total(Stock.objects.all(), "on_hand", 0) + _total(_sold(), "quantity", 0),
    )
    yield "products = those whose units agree", Stock.objects.count(), balanced.count()
    yield "open reservations = those of orders", held.count(), held.filter(order__in=_sold()).count()


def _money() -> Iterator[tuple[str, Figure, Figure]]:
    captured, paid = _captured(), Payment.objects.filter(state=Payment.State.CAPTURED)
    ours = captured.filter(reference__in=_completed().values("pk"))

    yield "captured at the gateway = payments", _total(captured, "amount", ZERO), _total(paid, "amount", ZERO)
    yield "payments = totals of completed orders", _total(paid, "amount", ZERO), _total(_sold(), "total", ZERO)
    yield "captured charges = of completed orders", captured.count(), ours.count()


def _executions() -> Iterator[tuple[str, Figure, Figure]]:
    every, completed = Execution.objects.all(), _completed()
    others = _placed().exclude(status="completed")
    this = {"execution_id": OuterRef("pk")}
    orders = _of(_confirmed(), **this).annotate(orders=Count("pk")).values("orders")
    total = _of(_confirmed(), **this).annotate(sum=Sum("total")).values("sum")
    captured = _of(_captured(), reference=OuterRef("pk")).annotate(sum=Sum("amount")).values("sum")
    to_the_cent = completed.annotate(
        total=Subquery(total), captured=Coalesce(Subquery(captured), ZERO, output_field=MoneyField())
    ).filter(total=F("captured"))

    yield "executions = those that ended", every.count(), every.filter(status__in=ENDS).count()
    yield (
        "completed = those with one order",
        completed.count(),
        completed.annotate(orders=Subquery(orders)).filter(orders=1).count(),
    )
    yield "completed = those charged their total", completed.count(), to_the_cent.count()
    yield (
        "not completed = those without an order",
        others.count(),
        others.exclude(Exists(Order.objects.standing().filter(**this))).count(),
    )


def _parcels() -> Iterator[tuple[str, Figure, Figure]]:
    parcels = Parcel.objects.exclude(state=Parcel.State.UNPACKED)
    handed_over = parcels.filter(state=Parcel.State.HANDED_OVER)

    yield "completed orders = parcels handed over", _completed().count(), handed_over.count()
    yield "parcels packed = handed over for an order", parcels.count(), handed_over.filter(order__in=_sold()).count()


def _mails() -> Iterator[tuple[str, Figure, Figure]]:
    """A mail may be given up after its last attempt: the order stands all the same, and the mail's execution failed."""
    units = Execution.objects.filter(parent_step="send_confirmation", parent__in=_completed().values("pk"))
    sent = SentMail.objects.filter(order__in=_sold())

    yield "completed = those with one mail execution", _completed().count(), units.count()
    yield "mails sent = mail executions completed", sent.count(), units.filter(status="completed").count()
    yield "orders with a mail = mails sent", sent.values("order").distinct().count(), sent.count()


def _points() -> Iterator[tuple[str, Figure, Figure]]:
    this = {"customer": OuterRef("pk")}
    given = _of(PointsMovement.objects.all(), **this).annotate(sum=Sum("points")).values("sum")
    bought = _of(_sold(), **this).annotate(units=Sum("quantity")).values("units")
    agreeing = Customer.objects.annotate(
        given=Coalesce(Subquery(given), 0), bought=Coalesce(Subquery(bought), 0)
    ).filter(given=F("bought"))

    yield (
        "points given = units of completed orders",
        _total(PointsMovement.objects.all(), "points", 0),
        _total(_sold(), "quantity", 0),
    )
    yield "customers = those whose points agree", Customer.objects.count(), agreeing.count()


def _ledger() -> Iterator[tuple[str, Figure, Figure]]:
    """Each line is made of the one before: two that were made of the same show in number and balance."""
    postings = list(LedgerPosting.objects.order_by("customer", "number", "pk"))
    remembered = timezone.now() - A_DAY
    starts = Ticket.objects.filter(execution_id__in=[each.execution_id for each in postings], step="")
    places = dict(starts.values_list("execution_id", "number"))
    following, in_order, known = 0, 0, 0
    last: dict[int, LedgerPosting] = {}
    last_place = defaultdict[int, int](int)
    for posting in postings:
        before = last.get(posting.customer_id)
        number, balance = (before.number, before.balance) if before else (0, ZERO)
        following += (posting.number, posting.balance) == (number + 1, balance + posting.amount)
        last[posting.customer_id] = posting
        if posting.created_at > remembered:
            place = places.get(posting.execution_id, 0)
            known += 1
            in_order += place > last_place[posting.customer_id]
            last_place[posting.customer_id] = place
    owed = _of(_sold(), customer=OuterRef("pk")).annotate(sum=Sum("total")).values("sum")
    posted = _of(LedgerPosting.objects.all(), customer=OuterRef("pk")).annotate(sum=Sum("amount")).values("sum")
    agreeing = Customer.objects.annotate(
        owed=Coalesce(Subquery(owed), ZERO, output_field=MoneyField()),
        posted=Coalesce(Subquery(posted), ZERO, output_field=MoneyField()),
    ).filter(owed=F("posted"))

    yield "postings = those made of the one before", len(postings), following
    yield "postings = those in the order of their starts", known, in_order
    yield "customers = those whose ledgers agree", Customer.objects.count(), agreeing.count()


def _settlements() -> Iterator[tuple[str, Figure, Figure]]:
    settled = Payment.objects.filter(settlement__isnull=False)
    completed = SettleDay.executions.filter(status="completed")

    yield "settlements = days", Settlement.objects.count(), Settlement.objects.values("day").distinct().count()
    yield "settlements = runs that completed", Settlement.objects.count(), completed.count()
    yield (
        "settled payments = settlements",
        _total(settled, "amount", ZERO),
        _total(Settlement.objects.all(), "total", ZERO),
    )


def _meetings() -> Iterator[tuple[str, Figure, Figure]]:
    stays = defaultdict[str, list[Stay]](list)
    for place, execution, entered, left in Visit.objects.values_list("place", "execution_id", "entered_at", "left_at"):
        stays[place].append(Stay(execution, entered, left))
    calls = stays.pop(gateway.PLACE, [])
    admissions = JournalEntry.objects.filter(execution__reactor="shop.PlaceOrder", step="charge", action="admit")
    admitted = list(admissions.order_by("pk").values_list("execution_id", "started_at"))
    counted = first_calls(admitted, ((call.execution, call.entered) for call in calls if call.execution))
    never_counted = len({call.execution for call in calls} - {execution for execution, _ in admitted})
    at_stock = sum(map(len, stays.values()))
    met = sum(crowded(each, 1) for each in stays.values())

    yield "visits to a product's stock = undisturbed", at_stock, at_stock - met
    yield "gateway calls = within its lines", len(calls), len(calls) - crowded(calls, gateway.LINES)
    over = calls_over_quota(counted, gateway.CALLS_A_SECOND)
    yield "gateway calls counted = within its quota", len(counted) + never_counted, len(counted) - over


def _placed() -> QuerySet[Execution]:
    """One by one, or by an import."""
    return PlaceOrder.executions.filter(relation__in=("root", "element"))


def _completed() -> QuerySet[Execution]:
    return _placed().filter(status="completed")


def _confirmed() -> QuerySet[Order]:
    return Order.objects.filter(status=Order.Status.CONFIRMED)


def _sold() -> QuerySet[Order]:
    return _confirmed().filter(execution_id__in=_completed().values("pk"))


def _captured() -> QuerySet[GatewayCharge]:
    return GatewayCharge.objects.filter(state=GatewayCharge.State.CAPTURED)


def _of(rows: QuerySet[Any], **outer: OuterRef) -> QuerySet[Any]:
    """The rows that belong to one row of the outer query, as one group."""
    group: QuerySet[Any] = rows.filter(**outer).order_by().values(*outer)
    return group


def _total(rows: QuerySet[Any], column: str, nothing: Figure) -> Any:
    return rows.aggregate(total=Sum(column))["total"] or nothing
