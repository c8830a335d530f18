"""What the documentation shows can be declared as it stands there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import cached_property
from types import SimpleNamespace
from typing import Annotated, Any

from django.contrib.auth.models import Group, User
from pydantic import BaseModel, Field

import django_reactor
from django_reactor import (
    Background,
    Lock,
    Reactor,
    Redacted,
    Retry,
    Step,
    async_reactor,
    async_step,
    compose,
    interrupt,
    map_step,
    skip,
    snooze,
    step,
)
from django_reactor.core.plan import Definition, Kind
from django_reactor.core.reactor import new_run

remote = SimpleNamespace(ready=lambda: True)


class Receipt(BaseModel):
    total: int


class Decision(BaseModel):
    approved: bool


class PayByCard(Step[Receipt]):
    """Charge a card."""

    amount: Annotated[int, Field(ge=1)]
    user: User
    token: Redacted[str] = ""

    class Meta:
        retry = Retry(max_attempts=3)
        lock = Lock("account:{user.pk}", ttl=60)

    def run(self) -> Receipt:
        return Receipt(total=self.amount)

    def compensate(self, error: BaseException) -> None: ...

    def undo(self, result: Receipt) -> None: ...


class Provision(Reactor[Any]):
    user_id: int

    @step
    def create(self, user_id: int) -> int:
        return user_id


class SendParcel(Reactor[Any]):
    receipt: Receipt

    @step
    def send(self, receipt: Receipt) -> None: ...


class ImportLine(Reactor[Any]):
    row: int

    @step
    def store(self, row: int) -> int:
        return row


class WholeOnboard(Reactor[Any]):
    """Every kind of step."""

    user: User
    upload: Group

    class Meta:
        background = Background(before="send_email")

    @step
    def price(self, user: User) -> Receipt:
        return Receipt(total=1)

    @step(PayByCard)
    def charge(self, price: Receipt) -> dict[str, Any]:
        return {"amount": price.total, "user": self.user}

    @compose(SendParcel)
    def shipping(self, charge: Receipt) -> dict[str, Any]:
        return {"receipt": charge}

    @async_step(retry=Retry(max_attempts=5))
    def send_email(self, user: User) -> None: ...

    @async_reactor(Provision)
    def provision(self, user: User) -> dict[str, Any]:
        return {"user_id": user.pk}

    @map_step(ImportLine, fan_out=100, fail_fast=False)
    def imported(self, upload: Group) -> Iterator[dict[str, Any]]:
        return ({"row": row} for row in range(upload.pk))

    @step
    def submit(self, user: User, price: Receipt) -> Receipt:
        return price

    @interrupt(
        payload=Decision,
        correlation_id="request-{submit.total}",
        timeout=timedelta(days=3),
        on_timeout=Decision(approved=False),
        resume="background",
        max_attempts=3,
    )
    def approval(self, submit: Receipt) -> None:
        if submit.total < 100:
            skip("below the limit", value=Decision(approved=True))

    @step(tolerate=["send_email"])
    def finish(self, approval: Decision, send_email: Any, imported: Any) -> None:
        if not remote.ready():
            snooze(30, "remote is starting")

    @cached_property
    def greeting(self) -> str:
        return f"Hello {self.user}"


def test_every_kind_of_step_can_be_declared() -> None:
    definition = vars(WholeOnboard)["__reactor__"]
    assert isinstance(definition, Definition)
    kinds = {found.name: found.kind for found in definition.plan.steps}
    assert set(kinds.values()) == set(Kind)
    assert definition.plan.by_name["approval"].dependencies == {"submit"}
    assert definition.plan.by_name["finish"].dependencies == {"approval", "send_email", "imported"}


def test_a_cached_property_of_the_class_works_on_self() -> None:
    run = new_run(WholeOnboard, {"user": "Ann"}, None)
    assert run.greeting is run.greeting
    assert run.greeting == "Hello Ann"


def test_all_public_names_of_declarations_can_be_imported() -> None:
    kinds = ("step", "async_step", "async_reactor", "compose", "map_step", "interrupt")
    values = ("Background", "Retry", "Redacted", "Lock", "Semaphore", "RateLimit", "Period", "OrderedLock")
    assert {"Reactor", "Step", *kinds, *values} <= set(django_reactor.__all__)
