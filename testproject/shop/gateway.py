"""A payment gateway that behaves as gateways do.

It stands for another company's service: what it did, it did, whether or not the caller's transaction commits. Here
its state is in tables of the shop's database, so that holds only where a call commits at once: `charge`, `void` and
`refund` **must not be called inside `transaction.atomic()`**, nor from a step with `atomic=True`.

What a caller must be ready for (`faults` decides when it happens):

1. A card may be declined. That is final.
2. A request may time out, after it charged the card or before; the caller cannot tell which.
3. A request that is sent again charges again, unless it has the idempotency key of an earlier one: then the answer is
   the first charge. After a timeout, either send the request again with its key, or `void` the key.
4. It has `LINES`, and takes `CALLS_A_SECOND` for a charge. It turns nobody away, but writes down who was there when.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from testproject.shop import faults
from testproject.shop.exceptions import CardDeclined, GatewayError, GatewayTimeout, KeyMisused
from testproject.shop.faults import GatewayFault
from testproject.shop.models.gateway import GatewayCharge, GatewayRequest
from testproject.shop.models.visits import Visit
from testproject.shop.money import to_cents

__all__ = ["CALLS_A_SECOND", "LINES", "PLACE", "Charge", "charge", "refund", "void"]

LINES = 2
CALLS_A_SECOND = 15
PLACE = "gateway"
"""Where its visitors are."""

Outcome = GatewayRequest.Outcome
State = GatewayCharge.State


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What the gateway answers."""

    charge_id: str
    amount: Decimal


def charge(
    card_token: str, amount: Decimal, *, key: str | None = None, reference: UUID | None = None, attempt: int = 1
) -> Charge:
    """Take money from a card. `reference` is the caller's own and only recorded; `attempt` is the caller's count, and
    only decides which fault it meets: one that died and asks again meets the same.

    Raises CardDeclined, GatewayTimeout (the outcome is unknown) or KeyMisused (the key was used for another amount,
    or its charge was voided or refunded).
    """
    if to_cents(amount) <= 0:
        raise ValueError(f"a charge must be above zero; got {amount}")
    with Visit.of(PLACE, reference):
        return _charged(GatewayRequest(reference=reference, key=key, amount=amount), card_token, attempt)


def _charged(request: GatewayRequest, card_token: str, attempt: int) -> Charge:
    first = _first_charge(request.key, request.amount)
    fault = faults.current().at_gateway(attempt)
    if fault is GatewayFault.TIMEOUT_NOT_CHARGED:
        _answer(request, Outcome.TIMEOUT_NOT_CHARGED)
        raise GatewayTimeout("the gateway did not answer in time")
    if first is None and (fault is GatewayFault.DECLINE or not card_token):
        _answer(request, Outcome.DECLINED)
        raise CardDeclined("the card was declined")
    made = first or _capture(request, card_token)
    if fault is GatewayFault.TIMEOUT_CHARGED:
        _answer(request, Outcome.TIMEOUT_CHARGED)
        raise GatewayTimeout("the gateway did not answer in time")
    _answer(request, Outcome.REPEATED if first else Outcome.CHARGED)
    return Charge(charge_id=made.charge_id, amount=made.amount)


def void(key: str) -> bool:
    """Take back the charge that was made under this key. Returns whether there was one to take back: there is none
    if the request never got as far, or if this was called before."""
    return bool(GatewayCharge.objects.filter(key=key, state=State.CAPTURED).update(state=State.VOIDED))


def refund(charge_id: str) -> None:
    """Give the money back; nothing happens when it was given back before."""
    charges = GatewayCharge.objects.filter(charge_id=charge_id)
    if not charges.filter(state=State.CAPTURED).update(state=State.REFUNDED) and not charges.exists():
        raise GatewayError(f"there is no charge {charge_id}")


def _first_charge(key: str | None, amount: Decimal) -> GatewayCharge | None:
    first = GatewayCharge.objects.filter(key=key).first() if key is not None else None
    if first and first.amount != amount:
        raise KeyMisused("the idempotency key was used for another amount before")
    if first and first.state != State.CAPTURED:
        raise KeyMisused(f"the charge made under the idempotency key was {first.state}")
    return first


def _capture(request: GatewayRequest, card_token: str) -> GatewayCharge:
    return GatewayCharge.objects.create(
        key=request.key,
        reference=request.reference,
        card=hashlib.sha256(card_token.encode()).hexdigest()[:16],
        amount=request.amount,
    )


def _answer(request: GatewayRequest, outcome: Outcome) -> None:
    request.outcome = outcome
    request.save()
