from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal

import pytest
from django.db import IntegrityError

from testproject.shop import gateway
from testproject.shop.exceptions import CardDeclined, GatewayError, GatewayTimeout, KeyMisused
from testproject.shop.faults import TIMEOUTS, Faults, FaultsCarrier, GatewayFault, current, injected
from testproject.shop.models import GatewayCharge, GatewayRequest
from testproject.shop.money import to_cents

pytestmark = pytest.mark.django_db

PRICE = Decimal("29.33")
DECLINE, CHARGED, NOT_CHARGED = GatewayFault.DECLINE, GatewayFault.TIMEOUT_CHARGED, GatewayFault.TIMEOUT_NOT_CHARGED


@contextmanager
def attempts_meet(*expected: GatewayFault | None) -> Iterator[None]:
    """An order around which the first attempts at the gateway go wrong like this."""
    orders = (Faults(rate=0.5, seed=1, order=str(number)) for number in range(10_000))
    with injected(next(o for o in orders if [o.at_gateway(n + 1) for n in range(len(expected))] == [*expected])):
        yield


def captured() -> Decimal:
    return sum((charge.amount for charge in GatewayCharge.objects.filter(state="captured")), Decimal(0))


def outcomes() -> list[str]:
    return list(GatewayRequest.objects.order_by("pk").values_list("outcome", flat=True))


def test_a_charge_takes_the_amount_once() -> None:
    charge = gateway.charge("tok_1", PRICE, key="k")
    assert charge.amount == PRICE
    assert captured() == PRICE
    assert outcomes() == ["charged"]


def test_the_card_token_is_not_kept() -> None:
    gateway.charge("tok_secret", PRICE)
    (row,) = GatewayCharge.objects.values()
    assert "tok_secret" not in str(row)


def test_without_a_key_every_request_charges_again() -> None:
    first, second = gateway.charge("tok_1", PRICE), gateway.charge("tok_1", PRICE)
    assert first.charge_id != second.charge_id
    assert captured() == 2 * PRICE


def test_with_the_same_key_the_answer_is_the_first_charge() -> None:
    first, second = gateway.charge("tok_1", PRICE, key="k"), gateway.charge("tok_1", PRICE, key="k")
    assert first == second
    assert captured() == PRICE
    assert outcomes() == ["charged", "repeated"]


def test_a_key_is_refused_for_another_amount() -> None:
    gateway.charge("tok_1", PRICE, key="k")
    with pytest.raises(KeyMisused):
        gateway.charge("tok_1", PRICE + 1, key="k")
    assert captured() == PRICE


@pytest.mark.parametrize("take_back", [lambda charge: gateway.void("k"), lambda charge: gateway.refund(charge)])
def test_a_charge_that_was_taken_back_is_no_answer_to_its_key(take_back: Callable[[str], object]) -> None:
    take_back(gateway.charge("tok_1", PRICE, key="k").charge_id)
    with pytest.raises(KeyMisused):
        gateway.charge("tok_1", PRICE, key="k")
    assert captured() == 0


def test_a_declined_card_is_not_charged() -> None:
    with attempts_meet(DECLINE), pytest.raises(CardDeclined):
        gateway.charge("tok_1", PRICE, key="k")
    assert captured() == 0
    assert outcomes() == ["declined"]


def test_no_card_is_declined() -> None:
    with pytest.raises(CardDeclined):
        gateway.charge("", PRICE)
    assert captured() == 0


def test_a_timeout_may_have_charged() -> None:
    with attempts_meet(CHARGED), pytest.raises(GatewayTimeout):
        gateway.charge("tok_1", PRICE, key="k")
    assert captured() == PRICE
    assert outcomes() == ["timeout_charged"]


def test_a_timeout_may_not_have_charged() -> None:
    with attempts_meet(NOT_CHARGED), pytest.raises(GatewayTimeout):
        gateway.charge("tok_1", PRICE, key="k")
    assert captured() == 0
    assert outcomes() == ["timeout_not_charged"]


def test_the_caller_cannot_tell_one_timeout_from_the_other() -> None:
    seen = []
    for fault in TIMEOUTS:
        with attempts_meet(fault), pytest.raises(GatewayTimeout) as timeout:
            gateway.charge("tok_1", PRICE)
        seen.append((type(timeout.value), timeout.value.args))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("timeout", TIMEOUTS)
def test_a_request_sent_again_with_its_key_after_a_timeout_charges_once(timeout: GatewayFault) -> None:
    with attempts_meet(timeout, None):
        with pytest.raises(GatewayTimeout):
            gateway.charge("tok_1", PRICE, key="k")
        gateway.charge("tok_1", PRICE, key="k", attempt=2)
    assert captured() == PRICE


def test_a_request_sent_again_without_a_key_after_a_timeout_that_charged_charges_twice() -> None:
    with attempts_meet(CHARGED, None):
        with pytest.raises(GatewayTimeout):
            gateway.charge("tok_1", PRICE)
        gateway.charge("tok_1", PRICE, attempt=2)
    assert captured() == 2 * PRICE


def test_timeouts_one_after_the_other_under_one_key_charge_once() -> None:
    with attempts_meet(CHARGED, CHARGED, NOT_CHARGED):
        for attempt in (1, 2, 3):
            with pytest.raises(GatewayTimeout):
                gateway.charge("tok_1", PRICE, key="k", attempt=attempt)
    assert captured() == PRICE


def test_an_attempt_that_is_made_again_because_its_caller_died_meets_the_same_fault() -> None:
    for fault in GatewayFault:
        with attempts_meet(fault, None):
            for _ in range(2):
                with pytest.raises((CardDeclined, GatewayTimeout)):
                    gateway.charge("tok_1", PRICE, key=fault)
    assert outcomes() == [name for name in ("declined", "timeout_charged", "timeout_not_charged") for _ in range(2)]


def test_a_charge_that_was_made_is_not_declined_when_it_is_asked_for_again() -> None:
    first = gateway.charge("tok_1", PRICE, key="k")
    with attempts_meet(DECLINE):
        assert gateway.charge("tok_1", PRICE, key="k") == first


def test_a_void_takes_back_what_was_charged_under_the_key_and_nothing_else() -> None:
    gateway.charge("tok_1", PRICE, key="k")
    gateway.charge("tok_1", PRICE, key="other")
    gateway.charge("tok_1", PRICE)
    assert gateway.void("k")
    assert captured() == 2 * PRICE


def test_a_void_of_a_key_without_a_charge_does_nothing_however_often() -> None:
    assert not gateway.void("k")
    gateway.charge("tok_1", PRICE, key="k")
    assert gateway.void("k")
    assert not gateway.void("k")


def test_a_refund_gives_the_money_back_once() -> None:
    charge = gateway.charge("tok_1", PRICE, key="k")
    gateway.charge("tok_1", PRICE, key="other")
    gateway.refund(charge.charge_id)
    gateway.refund(charge.charge_id)
    assert captured() == PRICE


def test_a_refund_of_no_charge_is_an_error() -> None:
    with pytest.raises(GatewayError, match="ch_0"):
        gateway.refund("ch_0")


@pytest.mark.parametrize("amount", [Decimal(0), Decimal("-1.00"), Decimal("0.001"), Decimal("NaN"), 29.33])
def test_only_positive_amounts_in_whole_cents_are_charged(amount: Decimal) -> None:
    with pytest.raises(ValueError, match=r"above zero|whole cents|not float"):
        gateway.charge("tok_1", amount)
    assert not GatewayRequest.objects.exists()


def test_two_charges_under_one_key_cannot_be_stored() -> None:
    GatewayCharge.objects.create(key="k", card="c", amount=PRICE)
    with pytest.raises(IntegrityError):
        GatewayCharge.objects.create(key="k", card="c", amount=PRICE)


def test_the_same_seed_and_order_meet_the_same_faults_and_another_seed_meets_others() -> None:
    def met(seed: int) -> list[list[GatewayFault | None]]:
        orders = (Faults(rate=0.3, seed=seed, order=str(number)) for number in range(50))
        return [[order.at_gateway(attempt) for attempt in (1, 2, 3)] for order in orders]

    assert met(1) == met(1)
    assert met(1) != met(2)


def test_the_rate_is_how_many_orders_meet_a_fault() -> None:
    orders = [Faults(rate=0.3, seed=1, order=str(number)) for number in range(2000)]
    first = [order.at_gateway(1) for order in orders]
    assert 500 < sum(fault is not None for fault in first) < 700
    assert all(140 < first.count(fault) < 260 for fault in GatewayFault)
    assert 500 < sum(order.strikes("confirm") for order in orders) < 700


def test_without_faults_nothing_goes_wrong() -> None:
    assert not any(Faults(order=str(number)).at_gateway(attempt) for number in range(100) for attempt in (1, 2, 3))


def test_faults_are_in_force_in_their_block_only() -> None:
    with attempts_meet(DECLINE):
        pass
    gateway.charge("tok_1", PRICE)
    assert captured() == PRICE


def test_faults_travel_with_what_is_started_under_them_and_only_then() -> None:
    carrier, faults = FaultsCarrier(), Faults(rate=0.5, seed=7, order="o-1")
    assert carrier.capture() is None
    with injected(faults):
        carried = json.loads(json.dumps(carrier.capture()))
    assert current() != faults
    with carrier.restore(carried):
        assert current() == faults
    assert current() != faults


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(CardDeclined("the card was declined")))
    assert (type(error), str(error)) == (CardDeclined, "the card was declined")


def test_sums_of_money_are_exact() -> None:
    for _ in range(100):
        gateway.charge("tok_1", Decimal("0.10"))
    assert to_cents(captured()) == 1000
