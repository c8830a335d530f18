"""What a type checker knows of reactors. It must object exactly where an error is ignored here: to ignore what is no
error is one itself.

Read by mypy only, see `test_typing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, assert_type

from pydantic import BaseModel, Field

from django_reactor import (
    Background,
    Dispatched,
    Failure,
    Halt,
    Lock,
    Paused,
    Reactor,
    Redacted,
    Result,
    Retry,
    Step,
    Success,
    async_reactor,
    async_step,
    compose,
    interrupt,
    map_step,
    step,
)
from django_reactor.models import Execution
from django_reactor.results import MapResults, OpenWait


class Order(BaseModel):
    number: int


class Decision(BaseModel):
    approved: bool


class ChargeCard(Step[int]):
    amount: Annotated[int, Field(ge=1)]
    token: Redacted[str] = ""

    class Meta:
        retry = Retry(max_attempts=3)
        lock = Lock("account:{amount}")

    def run(self) -> int:
        assert_type(self.token, str)
        return self.amount

    def undo(self, result: int) -> None: ...

    def compensate(self, error: BaseException) -> None: ...


class Fetch(Step[str]):
    async def run(self) -> str:
        return "text"


class WrongResult(Step[int]):
    def run(self) -> str:  # type: ignore[override]
        return ""


class ShipOrder(Reactor[Any]):
    receipt: int

    @step
    def send(self, receipt: int) -> int:
        return receipt


class PlaceOrder(Reactor[Order]):
    customer: int
    quantity: Annotated[int, Field(ge=1)]
    card: Redacted[str]
    tags: list[str] = Field(default_factory=list)
    note: str = ""
    RATE: ClassVar[int] = 3

    class Meta:
        returns = "create_order"
        background = Background(after="reserve")

    def clean(self) -> None:
        assert_type(self.quantity, int)
        self.note = "changed"  # type: ignore[misc]
        _ = self.qantity  # type: ignore[attr-defined]

    @step
    def reserve(self, customer: int, quantity: int) -> int:
        return customer * quantity

    @reserve.undo
    def release(self, result: int) -> None: ...

    @step(retry=Retry(max_attempts=3, backoff="exponential"), after=["reserve"], atomic=True)
    def charge(self, card: str, reserve: int) -> str:
        return f"{card} {reserve}"

    @charge.compensate
    def void(self, error: BaseException, card: str) -> None: ...

    @step(ChargeCard, retry=Retry())
    def fee(self, charge: str) -> dict[str, object]:
        return {"amount": len(charge)}

    amount = step(ChargeCard)

    @amount.undo
    def repay(self, result: int) -> None: ...

    by_label = step("shop.ChargeCard")

    @step
    async def create_order(self, fee: int) -> Order:
        return Order(number=fee)


class Rush(PlaceOrder):
    hours: int = 4

    class Meta:
        lock = Lock("customer:{customer}")

    @step
    def reserve(self, customer: int, quantity: int, hours: int) -> int:
        assert_type(super().reserve(customer, quantity), int)
        return hours

    def release(self, result: int) -> None:
        super().release(result)


class Onboard(Reactor[dict[str, Any]]):
    user: int

    @async_step(retry=Retry(max_attempts=5))
    def send_email(self, user: int) -> None: ...

    @compose(ShipOrder)
    def shipping(self, user: int) -> dict[str, int]:
        return {"receipt": user}

    provision = async_reactor("shop.Provision", after=["shipping"])

    @map_step(ShipOrder, fan_out=100, fail_fast=False)
    def imported(self, user: int) -> Iterator[dict[str, int]]:
        yield {"receipt": user}

    @interrupt(payload=Decision, correlation_id="r-{user}", timeout=timedelta(days=3), resume="background")
    def approval(self, shipping: object) -> None: ...

    signed = interrupt(timeout=60)

    @step
    def receipts(self, imported: MapResults[str]) -> list[str]:
        assert_type(imported[0], Success[str] | Failure | Halt)
        assert_type(imported[1:], Sequence[Success[str] | Failure | Halt])
        for result in imported.successes:
            assert_type(result, Success[str] | Halt)
        for index, failure in imported.failures.indexed():
            assert_type((index, failure), tuple[int, Failure])
        str(imported.failures[0].value)  # type: ignore[attr-defined]
        return list(imported.values())

    @step
    def counted(self, imported: MapResults) -> int:
        assert_type(imported[0], Success[Any] | Failure | Halt)
        return len(imported.failures)

    @step(tolerate=["send_email"])
    def finish(self, approval: Decision, send_email: object) -> bool:
        return approval.approved


def wrong_options() -> None:
    step(retires=3)  # type: ignore[call-overload]
    step(retry=3)  # type: ignore[call-overload]
    async_step(atomic=True)  # type: ignore[call-overload]
    compose(ShipOrder, retry=Retry())  # type: ignore[call-arg]
    compose(ChargeCard)  # type: ignore[arg-type]
    step(ShipOrder, name="ship")  # type: ignore[arg-type]
    map_step(ShipOrder, fan_out="many")  # type: ignore[arg-type]
    interrupt(resume="elsewhere")  # type: ignore[call-overload]


def plain_functions(run: PlaceOrder) -> None:
    assert_type(PlaceOrder.charge(run, card="tok", reserve=3), str)
    assert_type(PlaceOrder.fee(run, charge="x"), dict[str, object])
    PlaceOrder.release(run, result=3)


def results(result: Success[Order] | Failure | Dispatched) -> str:
    match result:
        case Success(order):
            assert_type(order, Order)
            return str(order.number)
        case Dispatched():
            return str(result.execution_id)
        case Failure():
            return result.message


def running() -> None:
    match PlaceOrder.run(customer=1, quantity=2, card="tok"):
        case Success(order):
            assert_type(order, Order)
        case Failure(message):
            assert_type(message, str)
    match Rush.run(customer=1, quantity=2, card="tok"):
        case Success(order):
            assert_type(order, Order)


def answering(execution: Execution) -> None:
    assert_type(execution.resume(Decision(approved=True)), Result[Any])
    execution.resume({"approved": True}, step="approval")
    match Onboard.resume({"approved": True}, correlation_id="r-17", step="approval"):
        case Success(value):
            assert_type(value, Any)
        case Paused() as paused:
            assert_type(paused.waits, Sequence[OpenWait])
            assert_type([wait.timeout_at for wait in paused.waits], list[datetime | None])
    Onboard.resume({"approved": True})  # type: ignore[call-arg]
    execution.resume({"approved": True}, correlation_id="r-17")  # type: ignore[call-arg]


async def answering_later(execution: Execution) -> None:
    assert_type(await execution.aresume(None), Result[Any])
    assert_type(await Onboard.aresume(None, "r-17"), Result[Any])
