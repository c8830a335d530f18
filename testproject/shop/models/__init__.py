"""The shop's tables: what it sells, what was ordered, and (a stand-in for another company's) the gateway's."""

from testproject.shop.models.catalogue import Customer, Product, Reservation, Stock
from testproject.shop.models.gateway import GatewayCharge, GatewayRequest
from testproject.shop.models.ledger import LedgerPosting, Settlement
from testproject.shop.models.orders import Order, Payment
from testproject.shop.models.shipping import Parcel
from testproject.shop.models.thanks import PointsMovement, SentMail
from testproject.shop.models.visits import Refusal, Visit

__all__ = [
    "Customer",
    "GatewayCharge",
    "GatewayRequest",
    "LedgerPosting",
    "Order",
    "Parcel",
    "Payment",
    "PointsMovement",
    "Product",
    "Refusal",
    "Reservation",
    "SentMail",
    "Settlement",
    "Stock",
    "Visit",
]
