"""The shop's business transactions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from django.conf import settings
from pydantic import BaseModel, Field

from django_reactor import (
    Background,
    Lock,
    OrderedLock,
    Period,
    RateLimit,
    Reactor,
    Redacted,
    Retry,
    Semaphore,
    async_reactor,
    async_step,
    compose,
    fail,
    halt,
    interrupt,
    map_step,
    skip,
    step,
)
from django_reactor.results import MapResults
from testproject.shop import confirmation, faults, gateway
from testproject.shop.exceptions import GatewayTimeout, MailServerBusy, OrderRefused
from testproject.shop.gateway import Charge
from testproject.shop.models import (
    Customer,
    LedgerPosting,
    Order,
    Parcel,
    Payment,
    PointsMovement,
    Reservation,
    Settlement,
    Stock,
    Visit,
)
from testproject.shop.orders_file import iter_orders
from testproject.shop.planning import plan

__all__ = ["Approval", "AwardPoints", "ImportOrders", "PlaceOrder", "PostToLedger", "SettleDay", "ShipOrder"]

APPROVAL_ABOVE = Decimal(50)
"""Dollars. Somebody has to approve of a larger order."""

TTL = 5
"""Seconds for which a dead process keeps a product's stock, or a line of the gateway, from others; what is done there
takes a few milliseconds."""
PATIENCE = 60
"""Seconds that whoever cannot come back later waits for them: a caller, and an undo. Longer than any `TTL`."""

RETRY_DELAY: float = getattr(settings, "SHOP_RETRY_DELAY", 0.01)
"""Seconds before the first retry; short, because this gateway is a table and this mail server a directory."""


class Approval(BaseModel):
    """What somebody says of a large order."""

    approved: bool


class AwardPoints(Reactor[int]):
    """Loyalty points for an order. A movement of points has no key that would show it was made before: that it is made
    once, whatever dies meanwhile, is `atomic=True`."""

    order: Order

    class Meta:
        returns = "award"

    @step(atomic=True, retry=Retry(max_attempts=5, delay=RETRY_DELAY))
    def award(self, order: Order) -> int:
        points = PointsMovement.award(order)
        if not points:
            halt("the order was cancelled")
        return points


class PostToLedger(Reactor[Decimal]):
    """An order, or its cancellation, in its customer's ledger, where each line is made of the last: so they come one
    after the other, in the order in which they were started. One that fails keeps nobody from going on."""

    order: Order

    class Meta:
        returns = "post"
        ordered_lock = OrderedLock("ledger:{order.customer_id}", strict=False)

    @step(atomic=True, retry=Retry(max_attempts=5, delay=RETRY_DELAY))
    def post(self, order: Order) -> Decimal:
        posted = LedgerPosting.post(order, execution_id=self.context.execution_id)
        if not posted:
            halt("there is nothing to post")
        return posted


class SettleDay(Reactor[Settlement]):
    """The payments of a day, counted up: once a day, however often it is asked for."""

    class Meta:
        returns = "settle"
        lock = Lock("settlement", ttl=TTL)
        period = Period("settlement", every="day")

    @step(atomic=True, retry=Retry(max_attempts=5, delay=RETRY_DELAY))
    def settle(self) -> Settlement:
        return Settlement.settle(execution_id=self.context.execution_id)


class ShipOrder(Reactor[Parcel]):
    """Pack an order and hand it over. A part of `PlaceOrder`: nobody pays for what the warehouse does not take."""

    order: Order

    class Meta:
        returns = "pack"

    @step
    def pack(self, order: Order) -> Parcel:
        # A crash may have come between the parcel and its entry.
        parcel, _ = Parcel.objects.get_or_create(execution_id=self.context.execution_id, defaults={"order": order})
        return parcel

    @pack.undo
    def unpack(self, result: Parcel) -> None:
        Parcel.objects.filter(pk=result.pk).update(state=Parcel.State.UNPACKED)

    @step(atomic=True)
    def hand_over(self, order: Order, pack: Parcel) -> None:
        """The warehouse takes the order, or does not."""
        if faults.about(order.note).strikes("confirm"):
            raise OrderRefused("the warehouse refused the order")
        Parcel.objects.filter(pk=pack.pk).update(state=Parcel.State.HANDED_OVER)
        Order.objects.filter(pk=order.pk).update(status=Order.Status.CONFIRMED)


class PlaceOrder(Reactor[Order]):
    """Reserve stock here; in a worker charge the card, create the order and ship it. Undo all of it if a later step
    fails. The mail, the points and the ledger follow on their own: whether they succeed changes nothing in the order.

    At the stock of a product there is one at a time, and at the gateway as many as it has lines, and takes calls."""

    customer: Customer
    sku: str
    quantity: Annotated[int, Field(ge=1)]
    card_token: Redacted[str]
    amount: Annotated[Decimal, Field(ge=0, decimal_places=2)] | None = None
    """What the customer was asked for; without it, the list price."""
    note: Annotated[str, Field(max_length=500)] = ""

    class Meta:
        returns = "create_order"
        background = Background(after="reserve")

    @step(lock=Lock("stock:{sku}", ttl=TTL, wait=PATIENCE, rollback_wait=PATIENCE))
    def reserve(self, sku: str, quantity: int) -> Reservation:
        with Visit.of(f"stock:{sku}", self.context.execution_id):
            return Stock.reserve(sku, quantity, key=self.context.idempotency_key)

    @reserve.undo
    def release(self, sku: str, result: Reservation) -> None:
        with Visit.of(f"stock:{sku}", self.context.execution_id):
            Stock.release(result)

    @step
    def fraud_check(self, customer: Customer) -> None:
        if customer.blocked:
            fail("the customer is blocked", retry=False)

    @interrupt(payload=Approval, timeout=timedelta(days=3), on_timeout=Approval(approved=False), resume="background")
    def approval(self, amount: Decimal | None, reserve: Reservation) -> None:
        """Somebody looks at an order that is unusually large, before it is paid for."""
        if (reserve.total if amount is None else amount) <= APPROVAL_ABOVE:
            skip("not large enough to be looked at", value=Approval(approved=True))

    @step(
        retry=Retry(max_attempts=3, backoff="exponential", delay=RETRY_DELAY, on=[GatewayTimeout]),
        after=["fraud_check"],
        rate_limit=RateLimit("gateway", limits={"second": gateway.CALLS_A_SECOND}),
        semaphore=Semaphore("gateway", limit=gateway.LINES, ttl=TTL, wait=PATIENCE, rollback_wait=PATIENCE),
    )
    def charge(
        self, card_token: str, amount: Decimal | None, note: str, reserve: Reservation, approval: Approval
    ) -> Charge:
        if not approval.approved:
            fail("the order was not approved", retry=False)
        due = reserve.total if amount is None else amount
        if not due:
            skip("nothing to charge")
        this = self.context
        with faults.injected(faults.about(note)):
            return gateway.charge(
                card_token, due, key=this.idempotency_key, reference=this.execution_id, attempt=this.attempt
            )

    @charge.compensate
    def void(self) -> None:
        # After timeouts nobody knows whether the card was charged; the gateway does, under the body's key.
        gateway.void(self.context.run_key)

    @charge.undo
    def refund(self, result: Charge) -> None:
        gateway.refund(result.charge_id)
        Payment.objects.filter(charge_id=result.charge_id).update(state=Payment.State.REFUNDED)

    @step(atomic=True)
    def create_order(
        self, customer: Customer, quantity: int, note: str, reserve: Reservation, charge: Charge | None
    ) -> Order:
        # A retried execution finds the order that its rollback cancelled, and places that one again.
        order, _ = Order.objects.update_or_create(
            execution_id=self.context.execution_id,
            defaults={
                "customer": customer,
                "product": reserve.product,
                "reservation": reserve,
                "quantity": quantity,
                "total": charge.amount if charge else Decimal(0),
                "note": note,
                "status": Order.Status.PLACED,
            },
        )
        if charge:
            Payment.objects.create(order=order, charge_id=charge.charge_id, amount=charge.amount)
        return order

    @create_order.undo
    def cancel_order(self, result: Order) -> None:
        # As atomic as the step: the points go with the order, and so does a posting that takes back what was posted.
        Order.objects.filter(pk=result.pk).update(status=Order.Status.CANCELLED)
        PointsMovement.take_back(result)
        if LedgerPosting.objects.filter(order=result).exists():
            PostToLedger.enqueue(order=result)

    @compose(ShipOrder)
    def shipping(self, create_order: Order) -> dict[str, Order]:
        return {"order": create_order}

    @async_step(retry=Retry(max_attempts=5, delay=RETRY_DELAY), after=["shipping"])
    def send_confirmation(self, create_order: Order) -> None:
        if faults.about(create_order.note).strikes(f"mail:{self.context.attempt}"):
            raise MailServerBusy("the mail server takes no mail at the moment")
        confirmation.send(create_order, key=self.context.idempotency_key)

    @async_reactor(AwardPoints, after=["shipping"])
    def award_points(self, create_order: Order) -> dict[str, Order]:
        return {"order": create_order}

    @async_reactor(PostToLedger, after=["shipping"])
    def post_to_ledger(self, create_order: Order) -> dict[str, Order]:
        return {"order": create_order}


class ImportOrders(Reactor[dict[str, Any]]):
    """A file of orders, each of which is placed on its own, many at a time. One that fails is reported and changes
    nothing in the others; when the import is undone, so is every order of it."""

    path: str
    limit: int | None = None
    """Only so many of its orders."""

    class Meta:
        returns = "report"

    @map_step(PlaceOrder, fan_out=50, fail_fast=False)
    def orders(self, path: str, limit: int | None) -> Iterator[dict[str, Any]]:
        customers = {customer.number: customer for customer in Customer.objects.all()}
        rate, seed = faults.current().rate, faults.current().seed
        for order in plan(islice(iter_orders(Path(path)), limit), name=Path(path).stem, rate=rate, seed=seed):
            yield {
                "customer": customers[order.customer],
                "sku": order.sku,
                "quantity": order.quantity,
                "card_token": f"tok_{order.customer}",
                "amount": order.amount,
                "note": order.number,
            }

    @step
    def report(self, orders: MapResults[Order]) -> dict[str, Any]:
        return dict(orders.summary())
