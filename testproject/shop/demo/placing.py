"""Brings the planned orders to `PlaceOrder`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from testproject.shop.faults import injected
from testproject.shop.models import Customer
from testproject.shop.planning import PlannedOrder
from testproject.shop.reactors import PlaceOrder

__all__ = ["finish_aborted", "place_each"]


def place_each(orders: Iterable[PlannedOrder], customers: Mapping[str, Customer]) -> Iterator[PlannedOrder]:
    """Each order after its stock is reserved here; the rest of it is the workers'."""
    for order in orders:
        _place(order, customers[order.customer])
        yield order


def finish_aborted() -> int:
    """Go on with executions that Ctrl-C cut off in an earlier run. Returns how many there were."""
    aborted = list(PlaceOrder.executions.filter(status="aborted"))
    for execution in aborted:
        execution.retry()
    return len(aborted)


def _place(order: PlannedOrder, customer: Customer) -> None:
    with injected(order.faults):
        PlaceOrder.using(idempotency_key=order.number).run(
            customer=customer,
            sku=order.sku,
            quantity=order.quantity,
            card_token=f"tok_{customer.number}",
            amount=order.amount,
            note=order.number,
        )
