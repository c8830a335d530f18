"""Rate limits and periods of a whole execution: asked once, however often it is delivered; in memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from django_reactor import (
    Background,
    Dispatched,
    Failure,
    Halt,
    Lock,
    Period,
    RateLimit,
    Reactor,
    Success,
    compose,
    fail,
    halt,
    map_step,
    skip,
    snooze,
    step,
)
from django_reactor.core.statuses import Status
from django_reactor.engine.services import Limits
from django_reactor.exceptions import ConfigurationError, RateLimited
from tests.coordination_support import Rivals, values_of

pytestmark = pytest.mark.usefixtures("own_registry")


def a_job(during: Callable[[Any], Any] = lambda run: None, **meta: Any) -> type[Reactor[Any]]:
    class Job(Reactor[Any]):
        name: str = "nightly"

        class Meta:
            lock = meta.get("lock")
            rate_limit = meta.get("rate_limit")
            period = meta.get("period")
            background = meta.get("background")

        @step
        def work(self) -> Any:
            return during(self)

        @step(after=["work"])
        def report(self) -> Any:
            return meta.get("then", lambda run: None)(self)

    return Job


# -- rate limits -------------------------------------------------------------------------------------------------------


def test_a_caller_is_told_when_the_window_rolls_and_nothing_is_stored() -> None:
    fleet = Rivals(a_job(rate_limit=RateLimit("api", limits={"second": 2, "minute": 3})))
    fleet.clock.advance(10.25)
    assert fleet.start().is_success
    assert fleet.start().is_success
    with pytest.raises(RateLimited) as caught:
        fleet.start()
    assert (caught.value.key, caught.value.retry_after) == ("api", 0.75)
    fleet.clock.advance(0.75)
    assert fleet.start().is_success  # the refused one was counted in no window
    with pytest.raises(RateLimited) as caught:
        fleet.start()
    assert caught.value.retry_after == 49
    assert len(fleet.store.rows) == 3


DAY = 86400


@pytest.mark.parametrize(
    ("window", "seconds", "said"),
    [
        ("second", 1, "this second"),
        ("minute", 60, "this minute"),
        ("hour", 3600, "this hour"),
        ("day", DAY, "this day"),
        ("week", 7 * DAY, "this week"),
        ("month", 31 * DAY, "this month"),
        ("year", 366 * DAY, "this year"),
        (10, 10, "this window of 10 s"),
    ],
)
def test_each_window_that_may_be_declared_has_its_length_and_is_named(
    window: str | int, seconds: int, said: str
) -> None:
    fleet = Rivals(a_job(rate_limit=RateLimit("api", limits={window: 1})))
    fleet.clock.advance(-(fleet.clock.now().timestamp() % seconds))  # it has just begun
    assert fleet.start().is_success
    with pytest.raises(RateLimited, match=f"1 starts in {said} are used up") as caught:
        fleet.start()
    assert caught.value.retry_after == seconds


def test_a_worker_waits_exactly_until_the_window_rolls() -> None:
    fleet = Rivals(a_job(rate_limit=RateLimit("api", limits={"minute": 1})))
    fleet.clock.advance(30)
    fleet.start()
    fleet.enqueue()
    message = fleet.messenger.sent.pop()
    fleet.deliver_to(message.execution_id)
    (again,) = fleet.messenger.sent
    assert again.delay == 30
    fleet.work()
    assert all(row.record.status is Status.COMPLETED for row in fleet.store.rows.values())


def test_whoever_waits_for_a_lock_is_charged_once() -> None:
    fleet = Rivals(a_job(rate_limit=RateLimit("api", limits={"day": 1}), lock=Lock("l")))
    hold = fleet.lock("l")
    fleet.enqueue()
    fleet.messenger.sent.clear()
    for _ in range(3):
        fleet.deliver()
        fleet.clock.advance(10)
    assert fleet.told == ["admit success"]
    fleet.free(hold)
    assert isinstance(fleet.deliver(), Success)
    with pytest.raises(RateLimited):
        fleet.start()


def test_a_caller_that_waits_for_a_lock_is_charged_once() -> None:
    fleet = Rivals(a_job(rate_limit=RateLimit("api", limits={"day": 1}), lock=Lock("l", wait=2)))
    hold = fleet.lock("l")
    fleet.clock.on_sleep = lambda: fleet.free(hold) if sum(fleet.clock.slept) > 1 and fleet.holder("l") else None
    assert fleet.start().is_success


def test_a_snoozed_execution_is_charged_once() -> None:
    calls: list[int] = []

    def polls(run: Any) -> None:
        calls.append(1)
        if len(calls) < 3:
            snooze(1)

    fleet = Rivals(a_job(polls, rate_limit=RateLimit("api", limits={"day": 1})))
    fleet.start()
    assert isinstance(fleet.work(), Success)


def test_a_named_limit_is_looked_up_when_it_is_needed() -> None:
    fleet = Rivals(a_job(rate_limit=RateLimit.named("stripe")))
    fleet.named_limits = {"stripe": {"minute": 1}}
    assert fleet.start().is_success
    with pytest.raises(RateLimited, match="stripe"):
        fleet.start()


def test_a_name_that_nobody_knows_is_refused_in_a_caller_and_fails_in_a_worker() -> None:
    def unknown(name: str) -> Any:
        raise ConfigurationError(f"DJANGO_REACTOR['RATE_LIMITS'] names no {name!r}")

    fleet = Rivals(a_job(rate_limit=RateLimit.named("stripe")))
    fleet.named_limits = {"stripe": {"minute": 1}}
    fleet.enqueue()
    fleet.forget_names(unknown)
    with pytest.raises(ConfigurationError, match="stripe"):
        fleet.start()
    assert len(fleet.store.rows) == 1
    result = fleet.work()
    assert isinstance(result, Failure)
    assert "stripe" in result.message
    assert fleet.told == ["admit failure"]


# -- periods -----------------------------------------------------------------------------------------------------------


def test_a_second_run_in_the_same_bucket_is_halted_and_says_why() -> None:
    ran: list[int] = []
    fleet = Rivals(a_job(lambda run: ran.append(1), period=Period("report:{name}", every="day")))
    assert fleet.start().is_success
    second = fleet.start()
    assert isinstance(second, Halt)
    assert "report:nightly" in second.reason
    assert "2024-05-01" in second.reason
    assert second.execution_id is not None
    assert fleet.store.rows[second.execution_id].record.status is Status.HALTED
    assert len(ran) == 1
    assert isinstance(fleet.start(name="other"), Success)
    fleet.clock.advance(timedelta(days=1).total_seconds())
    assert isinstance(fleet.start(), Success)


@pytest.mark.parametrize("ends", [lambda run: fail("no"), lambda run: halt("enough")])
def test_only_a_success_closes_the_bucket(ends: Callable[[Any], Any]) -> None:
    fleet = Rivals(a_job(then=ends, period=Period("p", every="day")))
    fleet.start()
    fleet.reactor.__reactor__ = a_job(period=Period("p", every="day")).__reactor__
    assert isinstance(fleet.start(), Success)


def test_a_run_with_a_skipped_step_is_a_success_and_closes_it() -> None:
    fleet = Rivals(a_job(then=lambda run: skip("nothing new"), period=Period("p", every="day")))
    assert isinstance(fleet.start(), Success)
    assert isinstance(fleet.start(), Halt)


@pytest.mark.parametrize(
    ("tz", "today"),
    [(None, "2024-05-02"), ("Pacific/Pago_Pago", "2024-05-01"), ("Asia/Tokyo", "2024-05-01")],
)
def test_a_bucket_is_of_the_calendar_of_its_own_time_zone_or_else_of_the_projects(tz: str | None, today: str) -> None:
    fleet = Rivals(a_job(period=Period("p", every="day", tz=tz)))
    fleet.live_in(ZoneInfo("Pacific/Kiritimati"))
    assert isinstance(fleet.start(), Success)
    second = fleet.start()
    assert isinstance(second, Halt)
    assert today in second.reason


def test_the_bucket_in_which_it_was_let_in_is_the_one_it_closes() -> None:
    fleet = Rivals(a_job(lambda run: fleet.clock.advance(13 * 3600), period=Period("p", every="day")))
    assert isinstance(fleet.start(), Success)  # ends on the next day
    assert isinstance(fleet.start(), Success)


def test_a_bucket_that_closes_meanwhile_does_not_halt_who_was_let_in() -> None:
    fleet = Rivals(a_job(period=Period("p", every="day"), background=Background(after="work")))
    assert isinstance(fleet.start(), Dispatched)
    first = fleet.execution_id
    fleet.start()
    fleet.messenger.sent.reverse()
    fleet.work()
    assert fleet.store.rows[first].record.status is Status.COMPLETED
    assert {row.record.status for row in fleet.store.rows.values()} == {Status.COMPLETED}


def test_a_worker_halts_what_has_succeeded_already() -> None:
    fleet = Rivals(a_job(period=Period("p", every="day")))
    fleet.enqueue()
    fleet.start()
    fleet.enqueue()
    fleet.work()
    statuses = [row.record.status for row in fleet.store.rows.values()]
    assert statuses == [Status.HALTED, Status.COMPLETED, Status.HALTED]
    assert fleet.told == ["admit halted"]


def test_with_a_lock_a_bucket_is_never_used_twice() -> None:
    """It is looked at again when the lock is there: the one that had it may just have succeeded."""
    ran: list[int] = []
    fleet = Rivals(a_job(lambda run: ran.append(1), lock=Lock("l"), period=Period("p", every="day")))
    hold = fleet.lock("l")
    fleet.enqueue()
    fleet.messenger.sent.clear()
    fleet.deliver()
    assert fleet.told == ["admit success"]
    fleet.free(hold)
    fleet.start()  # another one, meanwhile
    fleet.clock.advance(10)
    assert isinstance(fleet.deliver(), Halt)
    assert fleet.told == ["admit success", "admit halted"]
    assert len(ran) == 1
    assert fleet.holder("l") is None


def test_a_composed_child_of_a_closed_period_halts_alone() -> None:
    child = a_job(lambda run: "worked", period=Period("p", every="day"))

    class Parent(Reactor[Any]):
        @compose(child)
        def job(self) -> Any:
            return {}

        @step
        def after(self, job: Any) -> Any:
            return job

    fleet = Rivals(Parent)
    assert values_of(fleet.start())["after"] == {"work": "worked", "report": None}
    assert values_of(fleet.start())["after"] is None


def test_an_element_of_a_closed_period_halts_alone() -> None:
    child = a_job(lambda run: "worked", period=Period("p:{name}", every="day"))

    class Parent(Reactor[Any]):
        @map_step(child)
        def jobs(self) -> Any:
            return [{"name": name} for name in ("a", "b", "a")]

        @step
        def after(self, jobs: Any) -> Any:
            return [type(one).__name__ for one in jobs]

    fleet = Rivals(Parent)
    assert values_of(fleet.start())["after"] == ["Success", "Success", "Halt"]


def test_an_execution_that_cannot_begin_for_the_rate_limit_fails_in_the_end() -> None:
    fleet = Rivals(a_job(rate_limit=RateLimit("api", limits={"minute": 1})))
    fleet.limits = Limits(max_snoozes=1, snooze_jitter=0)
    fleet.enqueue()
    fleet.messenger.sent.clear()
    for _ in range(2):
        fleet.start()
        fleet.deliver()
        fleet.clock.advance(60)
    assert fleet.status is Status.FAILED
    assert (fleet.record.failure or {})["exception_class"] == "django_reactor.exceptions.RateLimited"
