"""The demo's proof is worth something only if it fails when the books are wrong, in each way they can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.db.models import F
from django.test import override_settings
from django.utils import timezone

from django_reactor import Failure, Result, Success, signals, worker
from django_reactor.models import Execution, JournalEntry
from django_reactor.queues import immediate
from testproject.shop.demo.placing import finish_aborted
from testproject.shop.demo.settling import settle_the_day
from testproject.shop.faults import Faults, injected
from testproject.shop.gateway import CALLS_A_SECOND, LINES
from testproject.shop.models import (
    Customer,
    GatewayCharge,
    LedgerPosting,
    Order,
    Parcel,
    Payment,
    PointsMovement,
    Product,
    Reservation,
    SentMail,
    Settlement,
    Stock,
    Visit,
)
from testproject.shop.reactors import PlaceOrder
from testproject.shop.reconcile import reconcile

pytestmark = pytest.mark.django_db(transaction=True)

CENT = Decimal("0.01")
FIRST, SECOND = "CD-1", "CD-2"

UNITS = "units received = on hand + sold"
PRODUCTS = "products = those whose units agree"
RESERVATIONS = "open reservations = those of orders"
GATEWAY = "captured at the gateway = payments"
PAYMENTS = "payments = totals of completed orders"
CHARGES = "captured charges = of completed orders"
ENDED = "executions = those that ended"
ONE_ORDER = "completed = those with one order"
TOTALS = "completed = those charged their total"
NO_ORDER = "not completed = those without an order"
HANDED_OVER = "completed orders = parcels handed over"
PACKED = "parcels packed = handed over for an order"
ONE_MAIL = "completed = those with one mail execution"
MAILS = "mails sent = mail executions completed"
MAILED = "orders with a mail = mails sent"
POINTS = "points given = units of completed orders"
CUSTOMERS = "customers = those whose points agree"
FOLLOWING = "postings = those made of the one before"
ORDER = "postings = those in the order of their starts"
LEDGERS = "customers = those whose ledgers agree"
DAYS = "settlements = days"
RUNS = "settlements = runs that completed"
SETTLED = "settled payments = settlements"
STOCK = "visits to a product's stock = undisturbed"
GATEWAY_LINES = "gateway calls = within its lines"
QUOTA = "gateway calls counted = within its quota"

WITHOUT_AN_ORDER = {UNITS, PRODUCTS, RESERVATIONS, ONE_ORDER, TOTALS, PACKED, MAILS, POINTS, CUSTOMERS}


@pytest.fixture(autouse=True)
def _two_orders_stand_and_one_was_rolled_back() -> Iterator[None]:
    with override_settings(DJANGO_REACTOR={"BACKEND": "immediate"}):
        customer = Customer.objects.create(number="1")
        for sku in (FIRST, SECOND):
            Product.objects.create(sku=sku, title=sku, price=Decimal("10.00"))
            Stock.receive(sku, 10)
        assert isinstance(placed(customer, FIRST, "29.33"), Success)
        assert isinstance(placed(customer, SECOND, "0.00"), Success)
        orders = (Faults(rate=0.5, order=str(number)) for number in range(10_000))
        with injected(next(order for order in orders if order.strikes("confirm") and not order.at_gateway(1))):
            assert isinstance(placed(customer, FIRST, "14.96"), Failure)
        settle_the_day()
        yield


def placed(customer: Customer, sku: str, amount: str) -> Result[Order]:
    """What became of it after the hand-off, which delivers at once."""
    handed_off = PlaceOrder.run(customer=customer, sku=sku, quantity=2, card_token="tok_1", amount=Decimal(amount))
    assert handed_off.execution_id is not None
    return Execution.objects.get(pk=handed_off.execution_id).result()


def failing() -> set[str]:
    return {check.claim for check in reconcile() if not check.holds}


def test_the_books_balance_after_orders_that_completed_and_one_that_was_rolled_back() -> None:
    checks = reconcile()
    assert [check for check in checks if not check.holds] == []
    figures = {check.claim: check.found for check in checks}
    assert figures == {
        UNITS: 20,
        PRODUCTS: 2,
        RESERVATIONS: 2,
        GATEWAY: Decimal("29.33"),
        PAYMENTS: Decimal("29.33"),
        CHARGES: 1,
        ENDED: 15,
        ONE_ORDER: 2,
        TOTALS: 2,
        NO_ORDER: 1,
        HANDED_OVER: 2,
        PACKED: 2,
        ONE_MAIL: 2,
        MAILS: 2,
        MAILED: 2,
        POINTS: 4,
        CUSTOMERS: 1,
        FOLLOWING: 1,
        ORDER: 1,
        LEDGERS: 1,
        DAYS: 1,
        RUNS: 1,
        SETTLED: Decimal("29.33"),
        STOCK: 4,
        GATEWAY_LINES: 2,
        QUOTA: 2,
    }


class CutOff(Faults):
    """The worker is stopped while the warehouse is asked."""

    def strikes(self, point: str) -> bool:
        raise KeyboardInterrupt


def place_another() -> None:
    PlaceOrder.run(customer=Customer.objects.get(), sku=FIRST, quantity=1, card_token="tok_1", amount=Decimal(9))


def test_an_order_that_was_cut_off_in_a_worker_is_found_and_the_books_balance_when_it_went_on() -> None:
    with injected(CutOff()), pytest.raises(KeyboardInterrupt):
        place_another()
    assert {RESERVATIONS, PAYMENTS, ENDED} <= failing()
    worker.deliver(PlaceOrder.executions.get(status="pending").pk)
    assert failing() == set()


def test_an_order_that_was_cut_off_in_its_caller_is_found_and_the_books_balance_when_it_went_on() -> None:
    def cut_off(**about: object) -> None:
        raise KeyboardInterrupt

    signals.step_completed.connect(cut_off, sender=PlaceOrder)
    try:
        with pytest.raises(KeyboardInterrupt):
            place_another()
    finally:
        signals.step_completed.disconnect(cut_off, sender=PlaceOrder)
    assert {UNITS, RESERVATIONS} <= failing()
    assert finish_aborted() == 1
    assert failing() == set()


def test_the_books_balance_when_an_order_is_undone_and_its_points_and_postings_are_taken_back() -> None:
    PlaceOrder.executions.get(pk=Order.objects.get(total=Decimal("29.33")).execution_id).undo()
    assert failing() == set()
    lines = LedgerPosting.objects.order_by("number").values_list("number", "amount", "balance")
    assert list(lines) == [(1, Decimal("29.33"), Decimal("29.33")), (2, Decimal("-29.33"), Decimal(0))]
    assert sorted(PointsMovement.objects.values_list("points", flat=True)) == [-2, 2, 2]


def test_a_mail_that_is_given_up_leaves_its_order_standing_and_the_books_balance() -> None:
    orders = (Faults(rate=0.9, order=str(number)) for number in range(100_000))
    with injected(next(order for order in orders if only_the_mail_fails(order))):
        place_another()
        immediate.drain(timeout=5)
    assert Order.objects.filter(status="confirmed").count() == 3
    assert SentMail.objects.count() == 2
    assert failing() == set()


def only_the_mail_fails(order: Faults) -> bool:
    mail = all(order.strikes(f"mail:{attempt}") for attempt in range(1, 6))
    return mail and not order.strikes("confirm") and not order.at_gateway(1)


def lose_a_unit() -> None:
    Stock.objects.filter(product__sku=FIRST).update(on_hand=F("on_hand") - 1)


def mix_up_two_products() -> None:
    Stock.objects.filter(product__sku=FIRST).update(on_hand=F("on_hand") - 1)
    Stock.objects.filter(product__sku=SECOND).update(on_hand=F("on_hand") + 1)


def forget_to_release() -> None:
    Reservation.objects.filter(state="released").update(state="held")


def charge_for_nothing() -> None:
    GatewayCharge.objects.create(card="c", amount=CENT)


def forget_to_refund() -> None:
    GatewayCharge.objects.filter(state="refunded").update(state="captured")


def record_a_cent_too_much() -> None:
    Payment.objects.filter(state="captured").update(amount=Decimal("29.34"))


def total_a_cent_too_little() -> None:
    Order.objects.filter(status="confirmed", total=Decimal("29.33")).update(total=Decimal("29.32"))


def charge_what_was_free() -> None:
    free = Order.objects.get(status="confirmed", total=0)
    GatewayCharge.objects.create(card="c", amount=CENT, reference=free.execution_id)


def lose_an_order() -> None:
    Order.objects.filter(status="confirmed", total=0).update(status="cancelled")


def leave_an_order_unconfirmed() -> None:
    Order.objects.filter(status="confirmed", total=0).update(status="placed")


def keep_the_order_of_a_failure() -> None:
    Order.objects.filter(status="cancelled").update(status="placed")


def lose_a_parcel() -> None:
    Parcel.objects.filter(order__total=0).update(state="unpacked")


def forget_to_unpack() -> None:
    Parcel.objects.filter(state="unpacked").update(state="packed")


def lose_a_mail() -> None:
    SentMail.objects.filter(order__total=0).delete()


def send_a_mail_twice() -> None:
    mail = SentMail.objects.get(order__total=0)
    SentMail.objects.create(key="another", order=mail.order)


def forget_to_send_a_mail() -> None:
    sent = SentMail.objects.get(order__total=0)
    Execution.objects.filter(relation="async_step", parent=sent.order.execution_id).delete()


def give_points_twice() -> None:
    given = PointsMovement.objects.first()
    assert given is not None
    PointsMovement.objects.create(customer=given.customer, order=given.order, points=given.points)


def give_points_to_another() -> None:
    PointsMovement.objects.update(customer=Customer.objects.create(number="2"))


def stop_half_way() -> None:
    PlaceOrder.executions.filter(status="failed").update(status="rolling_back")


def post_two_lines_after_the_same() -> None:
    line = LedgerPosting.objects.get()
    line.pk = None
    line.save()


def post_out_of_turn() -> None:
    """As if the second had come before the first."""
    place_another()
    first, second = LedgerPosting.objects.order_by("number")
    LedgerPosting.objects.filter(pk=first.pk).update(execution_id=second.execution_id)
    LedgerPosting.objects.filter(pk=second.pk).update(execution_id=first.execution_id)


def settle_the_day_twice() -> None:
    Settlement.settle(execution_id=uuid4())


def forget_what_was_settled() -> None:
    Payment.objects.filter(state="captured").update(settlement=None)


def meet_at_a_stock() -> None:
    """The first is still there when others come."""
    first = Visit.objects.filter(place=f"stock:{FIRST}").order_by("pk")[0]
    Visit.objects.filter(pk=first.pk).update(left_at=timezone.now())


def crowd_the_gateway() -> None:
    """One whose call was counted comes while all lines are taken."""
    while len({visit.execution_id for visit in Visit.objects.filter(place="gateway")}) <= LINES:
        place_another()
    Visit.objects.filter(place="gateway").update(left_at=timezone.now() + timedelta(hours=1))


def call_the_gateway_uncounted() -> None:
    Visit.objects.create(place="gateway", execution_id=uuid4(), left_at=timezone.now())


def call_the_gateway_too_often() -> None:
    """All within half a second: two seconds hold too few of them, wherever the one ends and the other begins."""
    order, second = PlaceOrder.executions.filter(status="completed")[0], timezone.now().replace(microsecond=0)
    for number in range(3 * CALLS_A_SECOND):
        asked = second + timedelta(milliseconds=10 * number)
        came = asked + timedelta(milliseconds=5)
        JournalEntry.objects.create(
            execution=order, seq=1000 + number, step="charge", action="admit", started_at=asked, finished_at=asked
        )
        Visit.objects.create(place="gateway", execution_id=order.pk, entered_at=came, left_at=came)


@pytest.mark.parametrize(
    ("tamper", "claims"),
    [
        (lose_a_unit, {UNITS, PRODUCTS}),
        (mix_up_two_products, {PRODUCTS}),
        (forget_to_release, {RESERVATIONS}),
        (charge_for_nothing, {GATEWAY, CHARGES}),
        (forget_to_refund, {GATEWAY, CHARGES}),
        (record_a_cent_too_much, {GATEWAY, PAYMENTS, SETTLED}),
        (total_a_cent_too_little, {PAYMENTS, TOTALS, LEDGERS}),
        (charge_what_was_free, {GATEWAY, TOTALS}),
        (lose_an_order, {UNITS, PRODUCTS, RESERVATIONS, ONE_ORDER, TOTALS, PACKED, MAILS, POINTS, CUSTOMERS}),
        (
            leave_an_order_unconfirmed,
            {UNITS, PRODUCTS, RESERVATIONS, ONE_ORDER, TOTALS, PACKED, MAILS, POINTS, CUSTOMERS},
        ),
        (keep_the_order_of_a_failure, {NO_ORDER}),
        (lose_a_parcel, {HANDED_OVER}),
        (forget_to_unpack, {PACKED}),
        (lose_a_mail, {MAILS}),
        (send_a_mail_twice, {MAILS, MAILED}),
        (forget_to_send_a_mail, {ONE_MAIL, MAILS}),
        (give_points_twice, {POINTS, CUSTOMERS}),
        (give_points_to_another, {CUSTOMERS}),
        (stop_half_way, {ENDED}),
        (post_two_lines_after_the_same, {FOLLOWING, ORDER, LEDGERS}),
        (post_out_of_turn, {ORDER}),
        (settle_the_day_twice, {DAYS, RUNS}),
        (forget_what_was_settled, {SETTLED}),
        (meet_at_a_stock, {STOCK}),
        (crowd_the_gateway, {GATEWAY_LINES}),
        (call_the_gateway_uncounted, {QUOTA}),
        (call_the_gateway_too_often, {QUOTA}),
    ],
)
def test_a_discrepancy_is_found(tamper: Callable[[], None], claims: set[str]) -> None:
    tamper()
    assert failing() == claims
