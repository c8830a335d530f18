"""The mail that confirms an order.

A mail server takes a mail and forgets it. Whoever dies between "the server took it" and "we wrote that down" cannot
find out, and sends it again: at least once is all there is. What can be had: the table of what was sent keeps it from
being sent again wherever a record was made, and both copies bear one Message-ID, by which mail programs know them as
the same mail.
"""

from __future__ import annotations

from django.core.mail import EmailMessage

from testproject.shop.models import Order, SentMail

__all__ = ["SENDER", "message_id", "send"]

SENDER = "orders@shop.example"


def send(order: Order, *, key: str) -> None:
    """Nothing happens when a mail under this key is known to have been sent."""
    if SentMail.objects.filter(key=key).exists():
        return
    EmailMessage(
        subject=f"Your order {order.pk} is confirmed",
        body=f"Thank you for your order: {order.quantity} of {order.product}, {order.total} in all.\n",
        from_email=SENDER,
        to=[f"{order.customer.number}@customers.example"],
        headers={"Message-ID": message_id(key)},
    ).send()
    SentMail.objects.get_or_create(key=key, defaults={"order": order})


def message_id(key: str) -> str:
    """The same for the same key. Colons are not allowed in it."""
    return f"<{key.replace(':', '.')}@shop.example>"
