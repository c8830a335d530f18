from __future__ import annotations

import pytest

from testproject.shop.exceptions import OutOfStock, UnknownProduct
from testproject.shop.models import Product, Reservation, Stock
from testproject.shop.money import ZERO

pytestmark = pytest.mark.django_db

SKU = "CD-1"


@pytest.fixture(autouse=True)
def _five_on_hand() -> None:
    Product.objects.create(sku=SKU, title="An album", price=ZERO)
    Stock.receive(SKU, 5)


def on_hand() -> int:
    return Stock.objects.get(product__sku=SKU).on_hand


def test_a_reservation_takes_units_off_the_stock() -> None:
    reservation = Stock.reserve(SKU, 2, key="k")
    assert (reservation.quantity, on_hand()) == (2, 3)


def test_a_reservation_asked_for_again_with_its_key_takes_nothing_more() -> None:
    assert Stock.reserve(SKU, 2, key="k") == Stock.reserve(SKU, 2, key="k")
    assert on_hand() == 3


def test_the_last_unit_can_be_reserved_and_not_one_more() -> None:
    Stock.reserve(SKU, 5, key="k")
    with pytest.raises(OutOfStock, match=SKU):
        Stock.reserve(SKU, 1, key="late")
    assert on_hand() == 0


def test_a_refused_reservation_leaves_nothing_behind() -> None:
    with pytest.raises(OutOfStock):
        Stock.reserve(SKU, 6, key="k")
    assert on_hand() == 5
    assert not Reservation.objects.exists()


def test_an_unknown_product_is_refused_by_name() -> None:
    with pytest.raises(UnknownProduct, match="CD-2"):
        Stock.reserve("CD-2", 1, key="k")


def test_a_released_reservation_can_be_reserved_again() -> None:
    Stock.release(Stock.reserve(SKU, 5, key="k"))
    Stock.reserve(SKU, 5, key="next")
    assert on_hand() == 0


def test_a_reservation_is_released_once_however_often_it_is_asked_for() -> None:
    reservation = Stock.reserve(SKU, 2, key="k")
    Stock.release(reservation)
    Stock.release(reservation)
    assert on_hand() == 5


def test_a_delivery_adds_to_what_was_received_and_is_on_hand() -> None:
    Stock.reserve(SKU, 2, key="k")
    Stock.receive(SKU, 4)
    stock = Stock.objects.get(product__sku=SKU)
    assert (stock.received, stock.on_hand) == (9, 7)
