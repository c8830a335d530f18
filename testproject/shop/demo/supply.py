"""Gives the shop what the planned orders need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

from django.db import transaction

from testproject.shop.faults import Faults
from testproject.shop.models import Customer, Product, Stock
from testproject.shop.planning import SOLD_OUT, PlannedOrder

__all__ = ["supply"]

PRICE = Decimal("14.99")


@transaction.atomic
def supply(orders: Sequence[PlannedOrder], *, rate: float, seed: int) -> dict[str, Customer]:
    """Customers (some of them blocked), products, and a delivery of the units that the orders want. Returns the
    customers by number."""
    wanted = Counter[str]()
    for order in orders:
        wanted[order.sku] += order.quantity
    Product.objects.bulk_create(
        [Product(sku=sku, title=f"Album {sku}", price=PRICE) for sku in sorted(wanted)], ignore_conflicts=True
    )
    for sku, units in wanted.items():
        Stock.receive(sku, units if sku != SOLD_OUT else 0)
    return _customers(sorted({order.customer for order in orders}), rate=rate, seed=seed)


def _customers(numbers: Sequence[str], *, rate: float, seed: int) -> dict[str, Customer]:
    Customer.objects.bulk_create(
        [
            Customer(number=number, blocked=Faults(rate=rate, seed=seed, order=number).strikes("customer"))
            for number in numbers
        ],
        ignore_conflicts=True,
    )
    return {customer.number: customer for customer in Customer.objects.all()}
