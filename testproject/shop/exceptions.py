"""What can go wrong in the shop.

ShopError
├── UnknownProduct       no product has this SKU
├── OutOfStock           fewer on hand than asked for
├── OrderRefused         the warehouse does not take the order
├── OrdersFileError      a line of an orders file cannot be read
├── MailServerBusy       a mail was not taken; later it may be
└── GatewayError         the payment gateway
    ├── CardDeclined         for good: trying again does not help
    ├── KeyMisused           an idempotency key was used again for something else
    └── GatewayTimeout       no answer came: the card may have been charged, or not
"""

from __future__ import annotations

__all__ = [
    "CardDeclined",
    "GatewayError",
    "GatewayTimeout",
    "KeyMisused",
    "MailServerBusy",
    "OrderRefused",
    "OrdersFileError",
    "OutOfStock",
    "ShopError",
    "UnknownProduct",
]


class ShopError(Exception):
    """The root of the shop's errors."""


class UnknownProduct(ShopError):
    pass


class OutOfStock(ShopError):
    pass


class OrderRefused(ShopError):
    pass


class OrdersFileError(ShopError):
    pass


class MailServerBusy(ShopError):
    pass


class GatewayError(ShopError):
    """The payment gateway did not do what it was asked for."""


class CardDeclined(GatewayError):
    pass


class KeyMisused(GatewayError):
    pass


class GatewayTimeout(GatewayError):
    pass
