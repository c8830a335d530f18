from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin

from testproject.shop.models import (
    Customer,
    GatewayCharge,
    GatewayRequest,
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
)

if TYPE_CHECKING:
    ShopAdmin = admin.ModelAdmin[Any]  # generic for checkers only
else:
    ShopAdmin = admin.ModelAdmin


@admin.register(Customer)
class CustomerAdmin(ShopAdmin):
    list_display = ("number", "blocked")
    list_filter = ("blocked",)
    search_fields = ("number",)


@admin.register(Product)
class ProductAdmin(ShopAdmin):
    list_display = ("sku", "title", "price")
    search_fields = ("sku", "title")


@admin.register(Stock)
class StockAdmin(ShopAdmin):
    list_display = ("product", "on_hand", "received")
    list_select_related = ("product",)


@admin.register(Reservation)
class ReservationAdmin(ShopAdmin):
    list_display = ("product", "quantity", "state", "created_at")
    list_filter = ("state",)
    list_select_related = ("product",)


@admin.register(Order)
class OrderAdmin(ShopAdmin):
    list_display = ("id", "customer", "product", "quantity", "total", "status", "created_at")
    list_filter = ("status",)
    list_select_related = ("customer", "product")
    search_fields = ("customer__number", "note", "execution_id")
    readonly_fields = ("execution_id",)
    raw_id_fields = ("customer", "reservation")


@admin.register(Payment)
class PaymentAdmin(ShopAdmin):
    list_display = ("charge_id", "order", "amount", "state", "created_at")
    list_filter = ("state",)
    list_select_related = ("order__product",)
    search_fields = ("charge_id",)
    raw_id_fields = ("order",)


@admin.register(Parcel)
class ParcelAdmin(ShopAdmin):
    list_display = ("id", "order", "state", "created_at")
    list_filter = ("state",)
    list_select_related = ("order__product",)
    search_fields = ("execution_id",)
    readonly_fields = ("execution_id",)
    raw_id_fields = ("order",)


@admin.register(SentMail)
class SentMailAdmin(ShopAdmin):
    list_display = ("order", "key", "sent_at")
    list_select_related = ("order__product",)
    search_fields = ("key",)
    raw_id_fields = ("order",)


@admin.register(PointsMovement)
class PointsMovementAdmin(ShopAdmin):
    list_display = ("customer", "points", "order", "created_at")
    list_select_related = ("customer", "order__product")
    search_fields = ("customer__number",)
    raw_id_fields = ("customer", "order")


@admin.register(LedgerPosting)
class LedgerPostingAdmin(ShopAdmin):
    list_display = ("customer", "number", "amount", "balance", "order", "created_at")
    list_select_related = ("customer", "order__product")
    search_fields = ("customer__number", "execution_id")
    readonly_fields = ("execution_id",)
    raw_id_fields = ("customer", "order")


@admin.register(Settlement)
class SettlementAdmin(ShopAdmin):
    list_display = ("day", "total", "created_at")
    readonly_fields = ("execution_id",)


class GatewayAdmin(ShopAdmin):
    """The gateway is another company's: its records can be read here, not changed."""

    def has_add_permission(self, request: object) -> bool:
        return False

    def has_change_permission(self, request: object, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: object, obj: object = None) -> bool:
        return False


@admin.register(GatewayCharge)
class GatewayChargeAdmin(GatewayAdmin):
    list_display = ("charge_id", "amount", "state", "reference", "created_at")
    list_filter = ("state",)
    search_fields = ("charge_id", "reference")


@admin.register(GatewayRequest)
class GatewayRequestAdmin(GatewayAdmin):
    list_display = ("id", "amount", "outcome", "reference", "received_at")
    list_filter = ("outcome",)
    search_fields = ("reference",)
