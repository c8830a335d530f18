"""Turns the lines of an orders file into orders for this shop."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from testproject.shop.faults import Faults
from testproject.shop.orders_file import OrderLine

__all__ = ["SOLD_OUT", "PlannedOrder", "plan"]

ALBUMS = tuple(f"CD-{number:02}" for number in range(1, 25))
SOLD_OUT = "CD-SOLD-OUT"
"""Nothing of this one is in stock. (Of one that had a few left, whoever comes first would get them, and workers that
put units back at their own pace would make each run end otherwise.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOrder:
    """`number` is the order's idempotency key and, with the seed, decides what goes wrong around it."""

    number: str
    customer: str
    sku: str
    quantity: int
    amount: Decimal
    faults: Faults


def plan(lines: Iterable[OrderLine], *, name: str, rate: float, seed: int) -> Iterator[PlannedOrder]:
    return (_planned(line, Faults(rate=rate, seed=seed, order=f"{name}-{line.line:05}")) for line in lines)


def _planned(line: OrderLine, faults: Faults) -> PlannedOrder:
    album = random.Random(faults.order).choice(ALBUMS)
    return PlannedOrder(
        number=faults.order,
        customer=line.customer,
        sku=SOLD_OUT if faults.strikes("stock") else album,
        quantity=line.units,
        amount=line.dollars,
        faults=faults,
    )
