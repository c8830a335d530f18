"""Customers, products and their stock."""

from __future__ import annotations

from decimal import Decimal

from django.db import models, transaction
from django.db.models import F

from testproject.shop.exceptions import OutOfStock, UnknownProduct
from testproject.shop.money import MoneyField

__all__ = ["Customer", "Product", "Reservation", "Stock"]


class Customer(models.Model):
    number = models.CharField(max_length=20, unique=True)
    blocked = models.BooleanField(default=False, help_text="Orders of a blocked customer are refused.")

    def __str__(self) -> str:
        return f"customer {self.number}"


class Product(models.Model):
    sku = models.CharField("SKU", max_length=40, unique=True)
    title = models.CharField(max_length=200)
    price = MoneyField(help_text="For one unit, where an order names no amount.")

    def __str__(self) -> str:
        return self.sku


class Reservation(models.Model):
    """So many units of a product, taken off its stock. Held until it is released; an order keeps it held."""

    class State(models.TextChoices):
        HELD = "held"
        RELEASED = "released"

    key = models.CharField(max_length=200, unique=True, help_text="Asked for again, it is the same reservation.")
    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="reservations")
    quantity = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=State, default=State.HELD)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.quantity} × {self.product}"

    @property
    def total(self) -> Decimal:
        """At the list price."""
        return self.product.price * self.quantity


class Stock(models.Model):
    """How many units of a product there are.

    Changed by conditional updates only, never by saving a number that was read before: two buyers of the last unit
    cannot both get it, and a crash between two statements leaves either both or none.
    """

    product = models.OneToOneField(Product, on_delete=models.CASCADE, primary_key=True)
    received = models.PositiveIntegerField(default=0, help_text="Units that ever came in.")
    on_hand = models.PositiveIntegerField(default=0, help_text="Units that nobody has reserved.")

    class Meta:
        verbose_name_plural = "stock"

    def __str__(self) -> str:
        return f"{self.on_hand} × {self.product}"

    @classmethod
    def receive(cls, sku: str, quantity: int) -> None:
        """A delivery came in."""
        with transaction.atomic():
            cls.objects.get_or_create(product=_product(sku))
            cls.objects.filter(product__sku=sku).update(
                received=F("received") + quantity, on_hand=F("on_hand") + quantity
            )

    @classmethod
    def reserve(cls, sku: str, quantity: int, *, key: str) -> Reservation:
        """Take units off the stock. With a key that was used before, return its reservation and take nothing.

        Raises OutOfStock or UnknownProduct, and has then changed nothing.
        """
        product = _product(sku)
        with transaction.atomic():
            reservation, is_new = Reservation.objects.get_or_create(
                key=key, defaults={"product": product, "quantity": quantity}
            )
            if is_new and not (
                cls.objects.filter(product=product, on_hand__gte=quantity).update(on_hand=F("on_hand") - quantity)
            ):
                raise OutOfStock(f"out of stock: {sku}")
        return reservation

    @classmethod
    def release(cls, reservation: Reservation) -> None:
        """Put reserved units back; nothing happens when they were put back before."""
        with transaction.atomic():
            held = Reservation.objects.filter(pk=reservation.pk, state=Reservation.State.HELD)
            if held.update(state=Reservation.State.RELEASED):
                cls.objects.filter(product_id=reservation.product_id).update(
                    on_hand=F("on_hand") + reservation.quantity
                )


def _product(sku: str) -> Product:
    try:
        return Product.objects.get(sku=sku)
    except Product.DoesNotExist as exc:
        raise UnknownProduct(f"no product has the SKU {sku}") from exc
