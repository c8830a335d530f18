"""System checks of declarations, by id."""

from __future__ import annotations

from typing import Any, cast

import pytest
from django.core.checks import CheckMessage
from django.test import override_settings

from django_reactor import Lock, Period, RateLimit, Reactor, Step, async_step, compose, map_step, step
from django_reactor.checks import CHECKS
from django_reactor.core import registry
from django_reactor.core.plan import PlanStep
from django_reactor.core.targets import resolve_target
from django_reactor.exceptions import DefinitionError
from tests.unit.made_up import reactor, step_class

pytestmark = pytest.mark.usefixtures("own_registry")


class Target(Step[int]):
    amount: int

    class Meta:
        lock = Lock("account:{amount}")

    def run(self) -> int:
        return 1

    def undo(self, result: int) -> None: ...

    def compensate(self, error: BaseException) -> None: ...


def found() -> list[CheckMessage]:
    return [message for check in CHECKS for message in check()]


def only(identifier: str) -> CheckMessage:
    (message,) = found()
    assert message.id == f"django_reactor.{identifier}"
    assert message.hint
    return message


def known(cls: type) -> None:
    """Register a class that was made before this test."""
    registry.register(cls)


def first_step(cls: type) -> PlanStep:
    made: PlanStep = cls.__reactor__.plan.steps[0]  # type: ignore[attr-defined]
    return made


def test_declarations_in_order_give_no_message() -> None:
    known(Target)

    class Fine(Reactor[Any]):
        @step("tests.Target")
        def pay(self) -> dict[str, int]:
            return {"amount": 1}

        @map_step("tests.Fine")
        def again(self) -> list[Any]:
            return []

        @compose("tests.Fine")
        def whole(self) -> dict[str, int]:
            return {}

    assert found() == []


def test_e001_two_classes_have_one_label() -> None:
    registry.set_app_label_resolver(None)
    reactor("PlaceOrder"), reactor("PlaceOrder", module="made_up.other")
    message = only("E001")
    assert "made_up.reactors.PlaceOrder and made_up.other.PlaceOrder" in message.msg
    assert "Meta.name" in message.hint  # type: ignore[operator]


def test_e001_steps_that_run_the_ambiguous_label_are_not_reported_too() -> None:
    registry.set_app_label_resolver(None)
    step_class("Pay"), step_class("Pay", module="made_up.other")

    class Local(Reactor[Any]):
        @step("made_up.Pay")
        def pay(self) -> dict[str, int]:
            return {}

    only("E001")


def test_e002_a_target_that_nothing_has() -> None:
    reactor("ShipOrder")

    class Local(Reactor[Any]):
        @compose("shop.ShippOrder")
        def ship(self) -> dict[str, int]:
            return {}

    message = only("E002")
    assert "Local.ship" in message.msg
    assert "did you mean 'shop.ShipOrder'?" in message.msg
    assert message.obj is Local


def test_e003_a_target_of_the_wrong_kind() -> None:
    reactor("ShipOrder")

    class Local(Reactor[Any]):
        @step("shop.ShipOrder")
        def ship(self) -> dict[str, int]:
            return {}

    message = only("E003")
    assert "Local.ship" in message.msg
    assert "use compose" in message.hint.lower()  # type: ignore[union-attr]


def test_e003_a_target_that_declares_what_the_step_declares() -> None:
    known(Target)

    class Local(Reactor[Any]):
        @step("tests.Target", lock=Lock("other:{amount}"))
        def pay(self) -> dict[str, int]:
            return {"amount": 1}

    assert "Target declares lock" in only("E003").msg


def test_e003_a_key_over_what_the_target_does_not_take() -> None:
    step_class("Quiet")

    class Local(Reactor[Any]):
        @step("shop.Quiet", lock=Lock("{amuont}"))
        def pay(self) -> dict[str, int]:
            return {}

    assert "'amuont'" in only("E003").msg


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "; there are none"),
        ({"RATE_LIMITS": {"partner": {"second": 1}}}, "; did you mean 'partner'?"),
    ],
)
def test_e004_limits_that_nobody_has_named(settings: dict[str, Any], problem: str) -> None:
    class Local(Reactor[Any]):
        @step(rate_limit=RateLimit.named("partners"))
        def pay(self) -> None: ...

    with override_settings(DJANGO_REACTOR=settings):
        message = only("E004")
    assert message.msg == (
        f"{Local.__qualname__}.pay has a RateLimit named 'partners', but DJANGO_REACTOR['RATE_LIMITS'] has no such name"
        f"{problem}"
    )
    assert message.obj is Local


@pytest.mark.parametrize("tz", ["Europe/Pariss", "", "../etc/passwd", "/etc/passwd", "Europe", "a\0b"])
def test_e005_a_period_of_a_time_zone_that_is_none(tz: str) -> None:
    class Local(Step[int]):
        class Meta:
            period = Period("report", tz=tz)

        def run(self) -> int:
            return 1

    assert repr(tz) in only("E005").msg


def test_e004_and_e005_of_whole_reactors() -> None:
    class Local(Reactor[Any]):
        class Meta:
            rate_limit = RateLimit.named("partner")
            period = [Period("report", tz="Mars/Olympus"), Period("other", tz="Europe/Paris"), Period("third")]

        @step
        def pay(self) -> None: ...

    with override_settings(DJANGO_REACTOR={}):
        assert [message.id for message in found()] == ["django_reactor.E004", "django_reactor.E005"]
        assert {message.msg.partition(" has ")[0] for message in found()} == {f"{Local.__qualname__}.Meta"}
    with override_settings(DJANGO_REACTOR={"RATE_LIMITS": {"partner": {"minute": 1}}}):
        assert [message.id for message in found()] == ["django_reactor.E005"]


def test_w001_a_step_that_compensates_and_has_no_undo() -> None:
    class Local(Reactor[Any]):
        @step
        def pay(self) -> None: ...

        @pay.compensate
        def void(self) -> None: ...

        @step
        def other(self) -> None: ...

        @other.compensate
        @other.undo
        def back(self) -> None: ...

    message = only("W001")
    assert "Local.pay" in message.msg
    assert "@pay.undo" in message.hint  # type: ignore[operator]


@pytest.mark.parametrize("by_label", [False, True])
def test_w001_holds_for_a_step_class_too(by_label: bool) -> None:
    half = step_class("Half", compensate=lambda self, error: None)
    target = "shop.Half" if by_label else cast("type[Step[Any]]", half)

    class Local(Reactor[Any]):
        @step(target)
        def pay(self) -> dict[str, int]:
            return {}

    assert "Local.pay" in only("W001").msg


def test_w001_does_not_concern_what_is_independent() -> None:
    class Local(Reactor[Any]):
        @async_step
        def send(self) -> None: ...

        @send.compensate
        def unsend(self) -> None: ...

    assert found() == []


def test_w002_an_undo_that_never_runs() -> None:
    class Local(Reactor[Any]):
        amount: int
        pay = async_step(Target)

    message = only("W002")
    assert "Local.pay" in message.msg
    assert "Target" in message.msg


def test_a_label_is_resolved_to_its_class_with_all_that_it_declares() -> None:
    known(Target)

    class Local(Reactor[Any]):
        @step("tests.Target")
        def pay(self) -> dict[str, int]:
            return {"amount": 1}

    resolved = resolve_target(first_step(Local))
    assert resolved.target is Target
    assert [lock.key for lock in resolved.coordination.lock] == ["account:{amount}"]
    assert resolved.output is not None
    assert (resolved.undoable, resolved.compensates) == (True, True)
    assert first_step(Local).undoable
    assert resolve_target(resolved) is resolved


def test_a_label_of_nothing_is_refused_when_it_is_resolved() -> None:
    class Local(Reactor[Any]):
        @step("tests.Nothing")
        def pay(self) -> dict[str, int]:
            return {}

    with pytest.raises(DefinitionError, match=r"no Step has the label 'tests\.Nothing'"):
        resolve_target(first_step(Local))
