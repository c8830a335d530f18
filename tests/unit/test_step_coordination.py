"""Coordination of steps: taken when the arguments are known, left after the entry, needed again to undo; in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_reactor import (
    Background,
    Dispatched,
    Failure,
    Lock,
    Period,
    RateLimit,
    Reactor,
    Retry,
    Semaphore,
    Skipped,
    Step,
    Success,
    async_step,
    fail,
    skip,
    step,
)
from django_reactor.core.statuses import Status
from django_reactor.engine.coordination_ports import HoldKind
from django_reactor.engine.direct import call_step
from django_reactor.engine.services import Limits
from django_reactor.exceptions import LockUnavailable, RateLimited
from tests.coordination_support import Rivals, values_of

pytestmark = pytest.mark.usefixtures("own_registry")


def nothing(run: Any) -> None:
    """A body that does nothing."""


def a_till(during: Callable[[Any], Any] = nothing, **options: Any) -> type[Reactor[Any]]:
    """Its second step coordinates by what the first has given."""
    hooks = {name: options.pop(name, nothing) for name in ("then", "undoing", "compensating")}
    options.setdefault("lock", Lock("account:{account}"))

    class Till(Reactor[Any]):
        number: int = 1

        @step
        def account(self, number: int) -> str:
            return f"A{number}"

        @account.undo
        def close(self) -> None: ...

        @step(**options)
        def charge(self, account: str) -> Any:
            return during(self)

        @charge.undo
        def refund(self, result: Any) -> None:
            hooks["undoing"](self)

        @charge.compensate
        def void(self, error: Any) -> None:
            hooks["compensating"](self)

        @step(after=["charge"])
        def ship(self) -> Any:
            return hooks["then"](self)

    return Till


class Backstage(Rivals):
    """Begins in a worker."""

    def start(self, **inputs: Any) -> Any:
        self.enqueue(**inputs)
        self.messenger.sent.clear()
        return self.deliver()


def test_a_step_holds_its_lock_while_it_runs_by_a_key_of_its_arguments() -> None:
    seen: list[Any] = []
    look: Callable[[Any], Any] = lambda run: seen.append(fleet.holder("account:A1"))  # noqa: E731
    fleet = Rivals(a_till(look, then=look))
    assert fleet.start().is_success
    assert seen == [fleet.execution_id, None]
    assert fleet.signals == ["lock_acquired", "lock_released"]
    assert [details["step"] for name, details in fleet.observer.events if "lock" in name] == ["charge", "charge"]


def test_a_caller_waits_for_the_lock_of_a_step_and_then_the_step_fails_uncompensated() -> None:
    fleet = Rivals(a_till(lock=Lock("account:{account}", wait=1), retry=Retry(max_attempts=3)))
    hold = fleet.lock("account:A1")
    result = fleet.start()
    assert isinstance(result, Failure)
    assert (result.step, result.exception_class) == ("charge", "django_reactor.exceptions.LockUnavailable")
    assert (result.retryable, result.rollback_failures) == (False, [])
    assert sum(fleet.clock.slept) == pytest.approx(1, abs=0.11)
    assert fleet.told == ["run account success", "run charge failure", "undo account success"]
    assert isinstance(result.cause, LockUnavailable)
    fleet.free(hold)
    assert fleet.start().is_success


def test_a_worker_puts_the_execution_off_at_the_step_and_does_not_run_it_twice() -> None:
    ran: list[int] = []
    fleet = Backstage(a_till(lambda run: ran.append(1)))
    hold = fleet.lock("account:A1")
    assert isinstance(fleet.start(), Dispatched)
    assert (fleet.status, fleet.record.contentions) == (Status.SCHEDULED, 1)
    assert fleet.told == ["run account success"]
    fleet.limits = Limits(max_snoozes=2, snooze_jitter=0)
    for _ in range(5):
        fleet.clock.advance(5)
        fleet.deliver()
    fleet.free(hold)
    fleet.clock.advance(5)
    assert isinstance(fleet.deliver(), Success)
    assert ran == [1]


def test_the_first_step_of_an_execution_that_never_begins_fails_in_the_end() -> None:
    class Only(Reactor[Any]):
        @step(lock=Lock("key"))
        def only(self) -> None: ...

    fleet = Backstage(Only)
    fleet.limits = Limits(max_snoozes=1, snooze_jitter=0)
    fleet.lock("key", ttl=1e6)
    fleet.start()
    result = fleet.work() or fleet.deliver()
    assert isinstance(result, Failure)
    assert (result.step, result.exception_class) == ("only", "django_reactor.exceptions.LockUnavailable")
    assert fleet.told == ["run only failure"]


def test_the_locks_of_the_reactor_are_kept_while_a_step_waits_for_its_own() -> None:
    class Both(Reactor[Any]):
        class Meta:
            lock = Lock("outer")

        @step(lock=Lock("inner"))
        def work(self) -> Any:
            return [fleet.holder("outer"), fleet.holder("inner")]

    fleet = Backstage(Both)
    hold = fleet.lock("inner")
    fleet.start()
    assert fleet.holder("outer") == fleet.execution_id
    fleet.free(hold)
    fleet.clock.advance(5)
    assert isinstance(fleet.deliver(), Success)
    assert (fleet.holder("outer"), fleet.holder("inner")) == (None, None)


def test_a_step_enters_with_what_its_reactor_holds_and_leaves_it_held() -> None:
    class Both(Reactor[Any]):
        class Meta:
            lock = Lock("key")

        @step(lock=Lock("key"))
        def first(self) -> Any: ...

        @step(after=["first"])
        def second(self) -> Any:
            return fleet.holder("key")

    fleet = Rivals(Both)
    assert values_of(fleet.start())["second"] == fleet.execution_id
    assert fleet.holder("key") is None


@pytest.mark.parametrize("key", ["{account.nothing}", lambda account: "", lambda account: 1 / 0])
def test_a_key_that_cannot_be_made_fails_the_step_before_its_body(key: Any) -> None:
    ran: list[int] = []
    fleet = Rivals(a_till(lambda run: ran.append(1), lock=Lock(key), retry=Retry(max_attempts=3)))
    result = fleet.start()
    assert isinstance(result, Failure)
    assert (result.step, result.retryable, result.attempts) == ("charge", False, 1)
    assert fleet.told == ["run account success", "run charge failure", "undo account success"]
    assert not ran


def test_every_attempt_takes_the_lock_and_frees_it() -> None:
    tries: list[Any] = []

    def fails_once(run: Any) -> None:
        tries.append(fleet.holder("account:A1"))
        if len(tries) == 1:
            raise RuntimeError

    fleet = Backstage(a_till(fails_once, retry=Retry(max_attempts=2, delay=9, jitter=0)))
    fleet.start()
    assert fleet.status is Status.SCHEDULED
    assert fleet.holder("account:A1") is None
    fleet.clock.advance(9)
    assert isinstance(fleet.deliver(), Success)
    assert tries == [fleet.execution_id] * 2
    assert fleet.signals == ["lock_acquired", "lock_released"] * 2


def test_an_atomic_step_holds_its_lock_until_its_entry_is_there() -> None:
    seen: list[Any] = []
    fleet = Rivals(a_till(lambda run: seen.append(fleet.holder("account:A1")), atomic=True))
    assert fleet.start().is_success
    assert seen == [fleet.execution_id]
    assert fleet.holder("account:A1") is None


# -- rate limits and periods -------------------------------------------------------------------------------------------


def test_a_rate_limit_is_charged_once_an_attempt_however_often_it_is_put_off() -> None:
    tries: list[int] = []

    def fails_once(run: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError

    fleet = Backstage(
        a_till(
            fails_once,
            rate_limit=RateLimit("api", limits={"day": 2}),
            retry=Retry(max_attempts=2, delay=9, jitter=0),
        )
    )
    hold = fleet.lock("account:A1")
    fleet.start()
    for _ in range(3):
        fleet.clock.advance(5)
        fleet.deliver()
    assert fleet.told == ["run account success", "admit charge success"]
    fleet.free(hold)
    fleet.clock.advance(5)
    fleet.deliver()
    fleet.clock.advance(9)
    assert isinstance(fleet.deliver(), Success)
    assert fleet.told[1:] == [
        "admit charge success",
        "run charge retrying",
        "admit charge success",
        "run charge success",
        "run ship success",
    ]


def test_a_worker_waits_at_the_step_until_the_window_rolls_and_a_caller_fails() -> None:
    reactor = a_till(rate_limit=RateLimit("api", limits={"minute": 1}), lock=None)
    fleet = Rivals(reactor)
    assert fleet.start().is_success
    fleet.clock.advance(20)
    result = fleet.start()
    assert isinstance(result, Failure)
    assert isinstance(result.cause, RateLimited)
    fleet.enqueue()
    message = fleet.messenger.sent.pop()
    fleet.deliver_to(message.execution_id)
    (again,) = fleet.messenger.sent
    assert again.delay == 40


def test_a_closed_period_skips_the_step_alone() -> None:
    ran: list[int] = []
    fleet = Rivals(a_till(lambda run: ran.append(1), period=Period("p:{account}", every="day"), lock=None))
    assert fleet.start().is_success
    second = fleet.start()
    assert isinstance(second, Success)
    assert len(ran) == 1
    assert fleet.start(number=2).is_success
    assert len(ran) == 2
    skipped = next(e for e in fleet.store.entries[second.execution_id] if e.step == "charge")  # type: ignore[index]
    assert (skipped.outcome, "p:A1" in skipped.reason) == ("skipped", True)


@pytest.mark.parametrize(
    ("ends", "closes"), [(nothing, True), (lambda run: skip("nothing to do"), True), (lambda run: fail("no"), False)]
)
def test_a_success_and_a_skip_by_the_body_close_the_period_of_a_step(ends: Any, closes: bool) -> None:
    ran: list[int] = []

    def during(run: Any) -> Any:
        ran.append(1)
        return ends(run)

    fleet = Rivals(a_till(during, period=Period("p", every="day"), lock=None))
    fleet.start()
    fleet.start()
    assert len(ran) == (1 if closes else 2)


# -- undo and compensation ---------------------------------------------------------------------------------------------


def test_undo_and_compensation_hold_the_steps_lock() -> None:
    seen: list[Any] = []
    look: Callable[[Any], Any] = lambda run: seen.append(fleet.holder("account:A1"))  # noqa: E731
    fleet = Rivals(a_till(undoing=look, then=lambda run: fail("no")))
    fleet.start()
    assert seen == [fleet.execution_id]
    seen.clear()
    fleet = Rivals(a_till(lambda run: fail("no"), compensating=look))
    fleet.start()
    assert seen == [fleet.execution_id]
    assert fleet.holder("account:A1") is None


@pytest.mark.parametrize("kind", HoldKind)
@pytest.mark.parametrize(("rollback_wait", "waits"), [(None, 60), (2, 2), (0, 0)])
def test_an_undo_waits_for_what_its_step_held_and_is_listed_if_it_cannot_be_had(
    rollback_wait: Any, waits: float, kind: HoldKind
) -> None:
    undone: list[int] = []

    def ends(run: Any) -> None:
        assert fleet.lock("account:A1", ttl=1e6, kind=kind)
        fail("no")

    key = "account:{account}"
    of_kind: dict[HoldKind, Any] = {
        HoldKind.LOCK: {"lock": Lock(key, rollback_wait=rollback_wait)},
        HoldKind.SEMAPHORE: {"lock": None, "semaphore": Semaphore(key, limit=1, rollback_wait=rollback_wait)},
    }
    fleet = Rivals(a_till(**of_kind[kind], then=ends, undoing=lambda run: undone.append(1)))
    result = fleet.start()
    assert isinstance(result, Failure)
    assert result.message == "no"
    (listed,) = result.rollback_failures
    assert (listed.step, listed.kind, listed.reason) == ("charge", "undo", "coordination_unavailable")
    assert listed.key == "account:A1"
    assert sum(fleet.clock.slept) == pytest.approx(waits, abs=0.11)
    assert not undone
    assert fleet.told[-2:] == ["undo charge failure", "undo account success"]  # the others are undone
    fleet.clock.advance(1e6)
    fleet.undo()
    assert undone == [1]
    assert fleet.status is Status.UNDONE


def test_an_undo_that_waits_long_enough_gets_the_lock() -> None:
    undone: list[int] = []

    def ends(run: Any) -> None:
        fleet.lock("account:A1", ttl=1.5)
        fail("no")

    fleet = Rivals(a_till(then=ends, undoing=lambda run: undone.append(1)))
    result = fleet.start()
    assert isinstance(result, Failure)
    assert not result.rollback_failures
    assert undone == [1]


# -- Step classes ------------------------------------------------------------------------------------------------------


class ChargeCard(Step[str]):
    account: str = "A1"
    amount: int

    class Meta:
        lock = Lock("account:{account}")

    def run(self) -> str:
        return f"{self.account}: {self.amount}"

    def undo(self, result: str) -> None: ...


def test_the_keys_of_a_step_class_are_made_of_its_inputs_with_their_defaults() -> None:
    class Till(Reactor[Any]):
        @step(ChargeCard)
        def charge(self) -> Any:
            return {"amount": "5"}

        @step
        def end(self, charge: str) -> None:
            fail("no")

    fleet = Rivals(Till)
    fleet.lock("account:A1")
    result = fleet.start()
    assert isinstance(result, Failure)
    assert result.exception_class == "django_reactor.exceptions.LockUnavailable"
    fleet.clock.advance(61)
    fleet.observer.events.clear()
    assert fleet.start().is_failure
    assert fleet.signals == ["lock_acquired", "lock_released"] * 2  # body and undo


def test_a_step_class_that_is_called_directly_is_an_execution_of_its_own() -> None:
    fleet = Rivals(a_till())
    definition: Any = ChargeCard.__step__
    assert call_step(fleet.services, definition, {"amount": 5}) == Success("A1: 5")
    assert fleet.holder("account:A1") is None
    fleet.lock("account:A1")
    with pytest.raises(LockUnavailable) as caught:
        call_step(fleet.services, definition, {"amount": 5})
    assert caught.value.key == "account:A1"
    assert call_step(fleet.services, definition, {"account": "A2", "amount": 5}).is_success


def test_a_direct_call_is_limited_and_done_once_a_period() -> None:
    class Report(Step[str]):
        name: str

        class Meta:
            rate_limit = RateLimit("reports", limits={"minute": 2})
            period = Period("report:{name}", every="day")

        def run(self) -> str:
            return self.name

    fleet = Rivals(a_till())
    definition: Any = Report.__step__
    assert call_step(fleet.services, definition, {"name": "a"}) == Success("a")
    skipped = call_step(fleet.services, definition, {"name": "a"})
    assert isinstance(skipped, Skipped)
    assert "report:a" in skipped.reason
    assert call_step(fleet.services, definition, {"name": "b"}) == Success("b")
    with pytest.raises(RateLimited):
        call_step(fleet.services, definition, {"name": "c"})


def test_a_unit_takes_the_lock_of_its_step_for_itself() -> None:
    seen: list[Any] = []

    class Mailing(Reactor[Any]):
        customer: str = "ada"

        @async_step(lock=Lock("mail:{customer}:{text}"))
        def mail(self, text: str) -> None:
            seen.append(fleet.holder("mail:ada:hello"))

        @step
        def text(self) -> str:
            return "hello"

    fleet = Rivals(Mailing)
    assert fleet.start().is_success
    hold = fleet.lock("mail:ada:hello")
    unit = fleet.unit("mail")
    fleet.messenger.sent.clear()
    fleet.deliver_to(unit.id)
    assert fleet.unit("mail").contentions == 1
    fleet.free(hold)
    fleet.work()
    assert seen == [unit.id]
    assert fleet.unit("mail").status is Status.COMPLETED


def test_the_slot_of_a_semaphore_is_left_after_the_step() -> None:
    fleet = Rivals(a_till(lock=None, semaphore=Semaphore("s", limit=1)))
    assert fleet.start().is_success
    assert fleet.start().is_success
    assert fleet.signals == ["semaphore_acquired", "semaphore_released"] * 2


def test_a_hand_off_before_a_step_with_a_lock_leaves_the_waiting_to_the_worker() -> None:
    class Till(Reactor[Any]):
        class Meta:
            background = Background(before="charge")

        @step
        def account(self) -> str:
            return "A1"

        @step(lock=Lock("account:{account}"))
        def charge(self, account: str) -> None: ...

    fleet = Rivals(Till)
    hold = fleet.lock("account:A1")
    assert isinstance(fleet.start(), Dispatched)
    assert fleet.record.contentions == 0
    fleet.clock.advance(1)
    fleet.messenger.sent.clear()
    fleet.deliver()
    assert fleet.record.contentions == 1
    fleet.free(hold)
    assert isinstance(fleet.work(), Success)
