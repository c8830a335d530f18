"""Ordered locks: executions of one key run one at a time, in the order in which they were started; on the in-memory
adapters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from django_reactor import (
    Background,
    Dispatched,
    Failure,
    Halt,
    Lock,
    OrderedLock,
    Reactor,
    Retry,
    Step,
    Success,
    async_reactor,
    async_step,
    compose,
    fail,
    interrupt,
    map_step,
    snooze,
    step,
)
from django_reactor.core.options import Coordination
from django_reactor.core.statuses import Status
from django_reactor.engine import acting, delivering, starting
from django_reactor.engine.coordination_ports import HoldKind, TicketState, Wanted
from django_reactor.engine.demands import orders_of
from django_reactor.engine.direct import call_step
from django_reactor.engine.services import Limits
from django_reactor.exceptions import OutOfTurn
from tests.engine_support import Fleet, Recorder

pytestmark = pytest.mark.usefixtures("own_registry")

KEY = "account:1"
Body = Callable[[Any], Any]


class Line(Fleet):
    """A fleet whose executions are known by the names that they were started with."""

    @property
    def turns(self) -> Any:
        return self.stores.turns

    def queue(self, *names: str, **inputs: Any) -> list[UUID]:
        return [self.enqueue(name=name, **inputs).execution_id for name in names]  # type: ignore[misc]

    def status_of(self, execution_id: UUID) -> Status:
        return self.store.rows[execution_id].record.status

    def waits(self, execution_id: UUID) -> bool:
        row = self.store.rows[execution_id]
        return row.token is None and row.wake_at is None and row.waiting_for.startswith("turn:")

    def states(self, key: str = KEY) -> list[TicketState]:
        return [place.ticket.state for place in self.turns._places(key)]

    def live(self, key: str = KEY) -> int:
        line = self.turns.line(key)
        return 0 if line is None else line.live

    def tidy(self) -> bool:
        """Nobody stands in any line."""
        return not any(place.is_live for line in self.turns._lines.values() for place in line.places)


def booking(log: list[str], body: Body = lambda run: None, then: Body = lambda run: None, **meta: Any) -> Any:
    class Booking(Reactor[Any]):
        name: str = "only"
        account: int = 1

        class Meta:
            ordered_lock = meta.get("ordered_lock", OrderedLock("account:{account}"))
            background = meta.get("background")
            lock = meta.get("lock", ())
            durability = meta.get("durability", "step")

        @step(retry=meta.get("retry", Retry(max_attempts=1)))
        def post(self) -> str:
            log.append(self.name)
            body(self)
            return self.name

        @post.undo
        def reverse(self) -> None:
            log.append(f"undo {self.name}")

        @step(after=["post"])
        def settle(self) -> None:
            then(self)

    return Booking


# -- workers -----------------------------------------------------------------------------------------------------------


def test_workers_run_them_in_the_order_of_their_start_whatever_the_order_of_their_messages() -> None:
    log: list[str] = []
    fleet = Line(booking(log))
    first, second, third = fleet.queue("a", "b", "c")
    assert fleet.deliver_to(second) is not None
    assert log == ["a"], "the head is delivered first, and the second waits"
    assert (fleet.status_of(first), fleet.status_of(second)) == (Status.COMPLETED, Status.SCHEDULED)
    assert isinstance(fleet.deliver_to(third), Dispatched)
    fleet.work()
    assert log == ["a", "b", "c"]
    assert fleet.tidy()
    assert fleet.store.rows[second].record.snoozes == fleet.store.rows[second].record.contentions == 0


def test_whoever_waits_holds_no_lock_and_is_not_due() -> None:
    log: list[str] = []
    fleet = Line(booking(log, lambda run: snooze(60), lock=Lock("other")))
    first, second = fleet.queue("a", "b")
    fleet.deliver_to(first)
    fleet.deliver_to(second)
    assert fleet.waits(second)
    assert [holder.owner for holder in fleet.stores.holds.holders(HoldKind.LOCK, "other")] == [first]
    assert fleet.deliver_to(second) is None


def test_another_key_does_not_wait() -> None:
    log: list[str] = []
    fleet = Line(booking(log, lambda run: snooze(60) if run.name == "a" else None))
    first, _ = fleet.queue("a", "b")
    fleet.deliver_to(first)
    (other,) = fleet.queue("c", account=2)
    assert isinstance(fleet.deliver_to(other), Success)


@pytest.mark.parametrize("rests", ["snooze", "retry", "pause", "unit"])
def test_whoever_rests_keeps_its_turn(rests: str) -> None:
    log: list[str] = []

    class Resting(Reactor[Any]):
        name: str

        class Meta:
            ordered_lock = OrderedLock(KEY)

        @step(retry=Retry(max_attempts=2, delay=60, jitter=0))
        def begin(self) -> None:
            log.append(f"begin {self.name}")
            if self.name == "a" and self.context.attempt == 1 and self.context.snoozes == 0:
                if rests == "snooze":
                    snooze(60)
                if rests == "retry":
                    fail("not yet")

        if rests == "pause":

            @interrupt
            def approval(self, begin: Any) -> None: ...

        if rests == "unit":

            @async_step
            def beside(self, begin: Any) -> int:
                return 1

            @step
            def read(self, beside: int) -> None: ...

        @step(after=["approval"] if rests == "pause" else ["read"] if rests == "unit" else ["begin"])
        def end(self) -> None:
            log.append(f"end {self.name}")

    fleet = Line(Resting)
    first, second = fleet.queue("a", "b")
    fleet.deliver_to(first)
    fleet.deliver_to(second)
    assert "begin b" not in log
    assert fleet.waits(second)
    if rests == "pause":
        fleet.work()
        assert fleet.status_of(first) is Status.PAUSED
        fleet.clock.advance(100_000)
        fleet.sweep()
        fleet.work()
        assert fleet.waits(second)
        fleet.resume(None)
    fleet.work()
    if rests == "pause":
        assert fleet.status_of(second) is Status.PAUSED
        assert log.index("end a") < log.index("begin b")
    else:
        assert log[-2:] == ["begin b", "end b"]
        assert log.index("end a") < log.index("begin b")


def test_several_keys_are_asked_in_one_order_so_that_two_never_wait_for_each_other() -> None:
    log: list[str] = []

    class Transfer(Reactor[Any]):
        name: str
        source: str
        target: str

        class Meta:
            ordered_lock = [OrderedLock("{source}"), OrderedLock("{target}")]

        @step
        def move(self) -> None:
            log.append(self.name)

    fleet = Line(Transfer)
    names = [("a", "x", "y"), ("b", "y", "x"), ("c", "x", "z"), ("d", "z", "y"), ("e", "z", "x")]
    ids = [fleet.enqueue(name=name, source=source, target=target).execution_id for name, source, target in names]
    for execution_id in reversed(ids):
        fleet.deliver_to(execution_id)  # type: ignore[arg-type]
    fleet.work()
    assert sorted(log) == ["a", "b", "c", "d", "e"]
    assert log.index("a") < log.index("b") < log.index("c") < log.index("e")
    assert log.index("b") < log.index("d") < log.index("e")
    assert fleet.tidy()


# -- callers -----------------------------------------------------------------------------------------------------------


def test_a_caller_out_of_turn_is_told_the_key_and_nothing_is_stored() -> None:
    log: list[str] = []
    fleet = Line(booking(log))
    (first,) = fleet.queue("a")
    with pytest.raises(OutOfTurn) as caught:
        fleet.start(name="b")
    assert caught.value.key == KEY
    assert "number 1" in str(caught.value)
    assert list(fleet.store.rows) == [first]
    assert fleet.turns.line(KEY).last == 1
    fleet.work()
    assert fleet.start(name="b").is_success
    assert log == ["a", "b"]


def test_callers_one_after_the_other_have_their_turns() -> None:
    log: list[str] = []
    fleet = Line(booking(log))
    assert all(fleet.start(name=name).is_success for name in "abc")
    assert log == ["a", "b", "c"]
    assert fleet.tidy()


@pytest.mark.parametrize("durability", ["step", "exit"])
def test_whoever_is_started_meanwhile_waits_for_a_caller(durability: str) -> None:
    log: list[str] = []

    def meanwhile(run: Any) -> None:
        if run.name == "a":
            (second,) = fleet.queue("b")
            fleet.deliver_to(second)
            assert fleet.waits(second)
            with pytest.raises(OutOfTurn):
                fleet.start(name="c")

    fleet = Line(booking(log, meanwhile, durability=durability))
    assert fleet.start(name="a").is_success
    fleet.work()
    assert log == ["a", "b"]
    assert fleet.tidy()


def test_a_hand_off_keeps_its_turn() -> None:
    log: list[str] = []
    fleet = Line(booking(log, then=lambda run: log.append(f"then {run.name}"), background=Background(after="post")))
    assert isinstance(fleet.start(name="a"), Dispatched)
    with pytest.raises(OutOfTurn):
        fleet.start(name="b")
    fleet.work()
    assert isinstance(fleet.start(name="b"), Dispatched)
    fleet.work()
    assert log == ["a", "then a", "b", "then b"]


def test_an_interrupted_caller_gives_its_turn_up_as_failed_and_a_retry_stands_at_the_end() -> None:
    log: list[str] = []

    def once(run: Any) -> None:
        if log == ["a"]:
            fleet.queue("b")
            raise KeyboardInterrupt

    fleet = Line(booking(log, once, ordered_lock=OrderedLock("account:{account}", strict=False)))
    with pytest.raises(KeyboardInterrupt):
        fleet.start(name="a")
    assert fleet.status is Status.ABORTED
    assert fleet.states() == [TicketState.FAILED, TicketState.QUEUED]
    assert isinstance(fleet.retry(), Dispatched)
    assert fleet.waits(fleet.execution_id)
    fleet.work()
    assert log == ["a", "b", "a"]
    assert fleet.status_of(fleet.execution_id) is Status.COMPLETED
    assert fleet.tidy()


# -- ends --------------------------------------------------------------------------------------------------------------


def test_a_failure_is_undone_before_the_next_has_its_turn_and_breaks_a_strict_chain() -> None:
    log: list[str] = []
    fleet = Line(booking(log, then=lambda run: fail("no") if run.name == "a" else None))
    _, second, third = fleet.queue("a", "b", "c")
    fleet.work()
    assert log == ["a", "undo a"]
    for execution_id in (second, third):
        assert fleet.status_of(execution_id) is Status.HALTED
    result = fleet.store.entries[second][-1]
    assert KEY in result.reason
    assert "number 1" in result.reason
    assert fleet.states() == [TicketState.FAILED, TicketState.DONE, TicketState.DONE]
    (fourth,) = fleet.queue("d")
    fleet.work()
    assert fleet.status_of(fourth) is Status.COMPLETED, "a new batch"


def test_a_chain_that_is_not_strict_goes_on() -> None:
    log: list[str] = []
    lenient = OrderedLock("account:{account}", strict=False)
    fleet = Line(booking(log, then=lambda run: fail("no") if run.name == "a" else None, ordered_lock=lenient))
    fleet.queue("a", "b")
    fleet.work()
    assert log == ["a", "undo a", "b"]


def test_the_chain_is_asked_about_once_only() -> None:
    """Whose turn has come may fail, hand off and retry as it likes."""
    log: list[str] = []

    def passed(run: Any) -> None:
        if run.name == "b" and run.context.attempt == 1:
            assert fleet.turns.line(KEY).first_failed is None
            fleet.turns.finish(first, failed=True)
            fail("once more")

    fleet = Line(booking(log, passed, retry=Retry(max_attempts=2, jitter=0)))
    first, second = fleet.queue("a", "b")
    fleet.turns.skip(KEY, 1)
    fleet.messenger.sent.pop(0)
    fleet.work()
    assert fleet.status_of(second) is Status.COMPLETED
    assert log == ["b", "b"]


def test_too_many_snoozes_for_a_lock_count_as_a_failure() -> None:
    log: list[str] = []
    fleet = Line(booking(log, lock=Lock("other")))
    fleet.limits = Limits(snooze_jitter=0, max_snoozes=2)
    fleet.stores.holds.take(UUID(int=7), 1, Wanted(kind=HoldKind.LOCK, key="other", ttl=100_000))
    first, second = fleet.queue("a", "b")
    fleet.work()
    assert fleet.status_of(first) is Status.FAILED
    assert fleet.status_of(second) is Status.HALTED
    assert log == []


def test_a_cancel_lets_the_next_go_and_breaks_no_chain() -> None:
    log: list[str] = []
    fleet = Line(booking(log))
    first, second, third = fleet.queue("a", "b", "c")
    acting.cancel(fleet.services, fleet.definition, first, "not this one")
    assert fleet.states() == [TicketState.DONE, TicketState.QUEUED, TicketState.QUEUED]
    fleet.work()
    assert log == ["b", "c"]
    assert {fleet.status_of(second), fleet.status_of(third)} == {Status.COMPLETED}
    assert fleet.tidy()


def test_a_waiting_one_can_be_cancelled() -> None:
    log: list[str] = []
    fleet = Line(booking(log, lambda run: snooze(60) if run.name == "a" and not run.context.snoozes else None))
    first, second = fleet.queue("a", "b")
    fleet.deliver_to(first)
    fleet.deliver_to(second)
    assert fleet.waits(second)
    acting.cancel(fleet.services, fleet.definition, second, "")
    assert fleet.status_of(second) is Status.CANCELLED
    fleet.work()
    assert log == ["a", "a"]
    assert fleet.tidy()


def test_a_retry_of_what_failed_draws_a_new_number_and_may_mend_its_chain() -> None:
    log: list[str] = []
    fails = ["a"]
    fleet = Line(booking(log, lambda run: fail("no") if run.name in fails else snooze(60) if run.name == "b" else None))
    first, second = fleet.queue("a", "b", account=1)
    fleet.deliver_to(first)
    assert fleet.status_of(first) is Status.FAILED
    fails.clear()
    assert isinstance(fleet.retry(), Dispatched), "the second comes first now"
    assert fleet.waits(first)
    fleet.work()
    assert fleet.status_of(second) is Status.HALTED
    assert fleet.status_of(first) is Status.COMPLETED
    assert fleet.states() == [TicketState.FAILED, TicketState.DONE, TicketState.DONE]


def test_a_retry_of_what_never_began_is_not_asked_about_the_chain_that_it_has_broken() -> None:
    log: list[str] = []
    fleet = Line(booking(log, lock=Lock("other")))
    fleet.limits = Limits(snooze_jitter=0, max_snoozes=0)
    held = fleet.stores.holds.take(UUID(int=7), 1, Wanted(kind=HoldKind.LOCK, key="other", ttl=100_000))
    first, second = fleet.queue("a", "b")
    fleet.deliver_to(first)
    assert fleet.status_of(first) is Status.FAILED
    assert held is not None
    fleet.stores.holds.release([held])
    fleet.retry()
    fleet.work()
    assert (fleet.status_of(first), fleet.status_of(second)) == (Status.COMPLETED, Status.HALTED)
    assert fleet.tidy()


def test_a_retry_of_what_was_interrupted_before_it_began_is_not_asked_about_the_chain_either() -> None:
    log: list[str] = []
    queued: list[UUID] = []

    class Interrupting(Recorder):
        def notice(self, event: str, reactor: type, execution_id: UUID, **details: Any) -> None:
            if event == "step_started" and not queued:
                queued.extend(fleet.queue("b"))
                raise KeyboardInterrupt

    fleet = Line(booking(log), observer=Interrupting())
    with pytest.raises(KeyboardInterrupt):
        fleet.start(name="a")
    assert fleet.status is Status.ABORTED
    assert isinstance(fleet.retry(), Dispatched)
    fleet.work()
    assert (fleet.status, fleet.status_of(queued[0])) == (Status.COMPLETED, Status.HALTED)
    assert fleet.tidy()


def test_who_has_begun_is_not_halted_by_a_chain_that_its_reactor_has_joined_since() -> None:
    log: list[str] = []
    fleet = Line(booking(log, ordered_lock=(), background=Background(after="post")))
    assert isinstance(fleet.start(name="a"), Dispatched)
    messages, fleet.messenger.sent = fleet.messenger.sent, []
    fleet.reactor.__reactor__ = booking(log, lambda run: fail("no") if run.name == "b" else None).__reactor__
    _, third = fleet.queue("b", "c")
    fleet.messenger.sent.pop()
    fleet.work()  # the second fails, and the third is in the line
    fleet.messenger.sent += messages
    fleet.work()
    assert fleet.status_of(third) is Status.HALTED
    assert fleet.status is Status.COMPLETED


def test_an_undo_needs_no_turn() -> None:
    log: list[str] = []
    fleet = Line(booking(log, lambda run: snooze(600) if run.name == "b" else None))
    fleet.start(name="a")
    (second,) = fleet.queue("b")
    fleet.deliver_to(second)
    fleet.undo()
    assert fleet.status is Status.UNDONE
    assert log == ["a", "b", "undo a"]


# -- poison ------------------------------------------------------------------------------------------------------------


def test_a_dead_head_is_passed_over_when_its_time_is_up_and_runs_when_it_is_delivered() -> None:
    log: list[str] = []
    fleet = Line(booking(log, lambda run: snooze(10_000) if run.name == "a" and not run.context.snoozes else None))
    first, second, _ = fleet.queue("a", "b", "c")
    fleet.deliver_to(first)
    fleet.messenger.sent.clear()  # lost
    fleet.deliver_to(second)
    assert fleet.waits(second)
    fleet.clock.advance(599)
    fleet.sweep()
    fleet.messenger.sent = [m for m in fleet.messenger.sent if m.execution_id == second]
    fleet.work()
    assert log == ["a"]
    fleet.clock.advance(2)
    fleet.sweep()
    fleet.work()
    assert log[:2] == ["a", "b"]
    fleet.clock.advance(10_000)
    fleet.sweep()
    fleet.work()
    assert sorted(log) == ["a", "a", "b", "c"]
    assert fleet.tidy()


def test_a_caller_passes_a_dead_head_over() -> None:
    log: list[str] = []
    fleet = Line(booking(log))
    (first,) = fleet.queue("a")
    with pytest.raises(OutOfTurn):
        fleet.start(name="b")
    del fleet.store.rows[first]
    assert fleet.start(name="b").is_success


def test_a_caller_that_passes_a_dead_head_over_and_is_out_of_turn_still_wakes_who_waits() -> None:
    log: list[str] = []
    fleet = Line(booking(log))
    first, second = fleet.queue("a", "b")
    fleet.store.rows[first].wake_at = fleet.clock.now() + timedelta(days=1)
    fleet.deliver_to(second)
    assert fleet.waits(second)
    fleet.messenger.sent.clear()
    del fleet.store.rows[first]
    with pytest.raises(OutOfTurn, match="number 2 comes first"):
        fleet.start(name="c")
    fleet.work()
    assert log == ["b"]


def test_a_lost_wake_is_made_up_for_by_a_sweep() -> None:
    log: list[str] = []
    fleet = Line(booking(log))
    first, second = fleet.queue("a", "b")
    fleet.turns.turn(KEY, first, strict=True)
    row = fleet.store.rows[first]
    row.token, row.expires_at = UUID(int=1), fleet.clock.now() + timedelta(hours=1)  # somebody runs it
    fleet.deliver_to(second)
    assert fleet.waits(second)
    fleet.turns.finish(first, failed=False)
    fleet.messenger.sent.clear()
    fleet.sweep()
    fleet.messenger.sent = [m for m in fleet.messenger.sent if m.execution_id == second]
    fleet.work()
    assert log == ["b"]


def test_however_many_dead_ones_stand_before_it_a_sweep_wakes_who_waits() -> None:
    log: list[str] = []
    fleet = Line(booking(log))
    *dead, last = fleet.queue("a", "b", "c")
    for each in dead:
        fleet.store.rows[each].wake_at = fleet.clock.now() + timedelta(days=1)
    fleet.deliver_to(last)
    assert fleet.waits(last)
    del fleet.store.rows[dead[0]]
    for seconds in (0, 601):
        assert log == []
        fleet.clock.advance(seconds)
        fleet.messenger.sent.clear()
        fleet.sweep()
        fleet.work()
    assert log == ["c"]


def test_who_was_passed_over_and_still_runs_enters_again_in_its_tree() -> None:
    log: list[str] = []
    child = booking(log)

    class Parent(Reactor[Any]):
        class Meta:
            ordered_lock = OrderedLock(KEY)

        @step
        def slow(self) -> None:
            other = starting.enqueue(
                fleet.services,
                child.__reactor__,
                child.__reactor__.contract.validate({"name": "next"}),
                starting.Call(),
            )
            assert isinstance(other, Dispatched)
            assert fleet.turns.skip(KEY, 1)

        @compose(child, after=["slow"])
        def booked(self) -> Any:
            return {"name": "child"}

        @step(after=["booked"], ordered_lock=OrderedLock(KEY))
        def also(self) -> None:
            log.append("also")

    fleet = Line(Parent)
    fleet.others = (child,)
    assert fleet.start().is_success
    assert log == ["child", "also"]
    assert fleet.turns.line(KEY).last == 2
    fleet.work()
    assert fleet.tidy()


# -- steps -------------------------------------------------------------------------------------------------------------


def stepwise(log: list[str], body: Body = lambda run: None, **options: Any) -> Any:
    class Stepwise(Reactor[Any]):
        name: str = "only"

        class Meta:
            background = options.get("background")

        @step
        def before(self) -> None:
            log.append(f"before {self.name}")

        @before.undo
        def unbefore(self) -> None:
            log.append(f"undo {self.name}")

        @step(after=["before"], ordered_lock=OrderedLock(KEY), retry=options.get("retry", Retry(max_attempts=1)))
        def post(self) -> None:
            log.append(f"post {self.name}")
            body(self)

        @post.compensate
        def unpost(self) -> None:
            log.append(f"compensate {self.name}")

        @step(after=["post"])
        def after(self) -> None:
            log.append(f"after {self.name}")
            options.get("then", lambda run: None)(self)

    return Stepwise


def test_a_step_draws_when_it_is_reached_and_its_place_ends_with_it() -> None:
    log: list[str] = []
    retry = Retry(max_attempts=2, delay=60, jitter=0)
    fleet = Line(
        stepwise(log, lambda run: fail("x") if (run.name, run.context.attempt) == ("b", 1) else None, retry=retry)
    )
    first, second = fleet.queue("a", "b")
    assert fleet.turns.line(KEY) is None
    fleet.deliver_to(second)
    fleet.deliver_to(first)
    assert fleet.waits(first)
    assert log == ["before b", "post b", "before a"]
    fleet.work()
    assert log[3:] == ["post b", "after b", "post a", "after a"]
    assert fleet.tidy()


def test_the_next_has_its_turn_as_soon_as_the_step_has_ended() -> None:
    log: list[str] = []

    class Stepwise(Reactor[Any]):
        name: str

        @step(ordered_lock=OrderedLock(KEY))
        def post(self) -> None:
            log.append(f"post {self.name}")
            if self.name == "a":
                fleet.deliver_to(second)
                assert fleet.waits(second)

        @step(after=["post"])
        def after(self) -> None:
            if self.name == "a":
                assert not fleet.waits(second), "it was woken"
                fleet.deliver_to(second)
                assert fleet.status_of(second) is Status.COMPLETED

    fleet = Line(Stepwise)
    first, second = fleet.queue("a", "b")
    fleet.deliver_to(first)
    assert log == ["post a", "post b"]
    assert fleet.status_of(first) is Status.COMPLETED


def test_a_step_out_of_turn_in_a_caller_fails_uncompensated_and_hands_its_place_back() -> None:
    log: list[str] = []
    retry = Retry(max_attempts=3, delay=0)
    fleet = Line(
        stepwise(log, lambda run: snooze(600) if run.name == "a" and not run.context.snoozes else None, retry=retry)
    )
    (first,) = fleet.queue("a")
    fleet.deliver_to(first)
    failure = fleet.start(name="b")
    assert isinstance(failure, Failure)
    assert failure.exception_class == "django_reactor.exceptions.OutOfTurn"
    assert failure.step == "post"
    assert log == ["before a", "post a", "before b", "undo b"]
    assert fleet.turns.line(KEY).last == 1
    fleet.work()
    assert fleet.tidy()


def test_after_a_step_that_failed_a_strict_chain_halts_what_reaches_it() -> None:
    log: list[str] = []
    fleet = Line(stepwise(log, lambda run: fail("no") if run.name == "a" else None))
    first, second = fleet.queue("a", "b")
    fleet.turns.draw(KEY, first, "post")
    fleet.turns.draw(KEY, second, "post")  # both have reached it before the first one fails
    fleet.work()
    assert (fleet.status_of(first), fleet.status_of(second)) == (Status.FAILED, Status.HALTED)
    assert log == ["before a", "post a", "compensate a", "undo a", "before b"]
    assert fleet.tidy()


def test_a_step_that_runs_again_after_a_retry_draws_again() -> None:
    log: list[str] = []
    fails = ["a"]
    fleet = Line(stepwise(log, lambda run: fail("no") if run.name in fails else None))
    assert fleet.start(name="a").is_failure
    fails.clear()
    assert fleet.retry().is_success
    assert fleet.states() == [TicketState.FAILED, TicketState.DONE]


def test_a_step_that_was_done_and_undone_draws_again_too() -> None:
    log: list[str] = []
    fails = ["a"]
    fleet = Line(stepwise(log, then=lambda run: fail("no") if run.name in fails else None))
    assert fleet.start(name="a").is_failure
    fails.clear()
    assert fleet.retry().is_success
    assert log.count("post a") == 2
    assert fleet.states() == [TicketState.DONE, TicketState.DONE]


def test_a_place_in_which_a_step_still_waits_is_no_turn_of_another() -> None:
    """It has another name now."""
    log: list[str] = []
    fleet = Line(stepwise(log))
    first, second = fleet.queue("a", "b")
    fleet.turns.draw(KEY, first, "post")
    fleet.turns.draw(KEY, second, "as it was called")
    fleet.store.rows[first].wake_at = fleet.clock.now() + timedelta(days=1)
    fleet.deliver_to(second)
    assert fleet.waits(second)
    assert log == ["before b"]


# -- trees -------------------------------------------------------------------------------------------------------------


def test_a_composed_child_and_a_step_enter_again_with_the_key_of_their_tree() -> None:
    log: list[str] = []
    child = booking(log)

    class Parent(Reactor[Any]):
        class Meta:
            ordered_lock = OrderedLock(KEY)

        @compose(child)
        def booked(self) -> Any:
            return {"name": "child"}

        @step(after=["booked"], ordered_lock=OrderedLock(KEY))
        def also(self) -> None:
            log.append("also")

    fleet = Line(Parent)
    fleet.others = (child,)
    assert fleet.start().is_success
    assert log == ["child", "also"]
    assert fleet.turns.line(KEY).last == 1
    assert fleet.tidy()


@pytest.mark.parametrize("where", ["worker", "caller"])
def test_a_composed_child_with_another_key_stands_in_its_line(where: str) -> None:
    log: list[str] = []
    child = booking(log, lambda run: snooze(600) if run.name == "a" and not run.context.snoozes else None)

    class Parent(Reactor[Any]):
        @step
        def first(self) -> None: ...

        @first.undo
        def unfirst(self) -> None:
            log.append("undo")

        @compose(child, after=["first"])
        def booked(self) -> Any:
            return {"name": "child"}

    fleet = Line(Parent)
    fleet.others = (child,)
    other = starting.enqueue(
        fleet.services, child.__reactor__, child.__reactor__.contract.validate({"name": "a"}), starting.Call()
    ).execution_id
    fleet.deliver_to(other)  # type: ignore[arg-type]
    if where == "caller":
        failure = fleet.start()
        assert isinstance(failure, Failure)
        assert failure.exception_class == "django_reactor.exceptions.OutOfTurn"
        assert log == ["a", "undo"]
        fleet.work()
    else:
        parent = fleet.enqueue().execution_id
        fleet.deliver_to(parent)  # type: ignore[arg-type]
        assert fleet.waits(parent)  # type: ignore[arg-type]
        fleet.work()
        assert log == ["a", "a", "child"]
        assert fleet.status_of(parent) is Status.COMPLETED  # type: ignore[arg-type]
    assert fleet.tidy()


def test_a_unit_draws_when_it_is_dispatched() -> None:
    log: list[str] = []
    target = booking(log)

    class Parent(Reactor[Any]):
        @async_reactor(target)
        def booked(self) -> Any:
            return {"name": "unit"}

        @async_step(ordered_lock=OrderedLock(KEY))
        def noted(self) -> None:
            log.append("noted")

    fleet = Line(Parent)
    fleet.others = (target,)
    fleet.start()
    booked, noted = fleet.unit("booked").id, fleet.unit("noted").id
    assert [place.ticket.execution_id for place in fleet.turns._places(KEY)] == [booked, noted]
    fleet.deliver_to(noted)
    fleet.work()
    assert log == ["unit", "noted"]
    assert fleet.tidy()


@pytest.mark.parametrize("kind", ["unit", "element"])
def test_what_is_cancelled_before_it_began_leaves_its_line_at_once(kind: str) -> None:
    log: list[str] = []
    target = booking(log, lambda run: fail("no") if run.name == "first" else None)
    waiting: list[UUID] = []

    class Parent(Reactor[Any]):
        if kind == "unit":

            @async_reactor(target)
            def booked(self) -> Any:
                return {"name": "unit"}

            @step(after=["booked"])
            def breaks(self) -> None:
                waiting.append(behind())
                fail("no")
        else:

            @map_step(target, fan_out=1)
            def booked(self) -> Any:
                return [{"name": "first", "account": 2}, {"name": "held back"}]

    fleet = Line(Parent)
    fleet.others = (target,)

    def behind() -> UUID:
        messages, fleet.messenger.sent = fleet.messenger.sent, []
        for message in messages:
            fleet.store.rows[message.execution_id].wake_at = fleet.clock.now() + timedelta(days=1)
        values = target.__reactor__.contract.validate({"name": "behind"})
        started = starting.enqueue(fleet.services, target.__reactor__, values, starting.Call()).execution_id
        assert started is not None
        fleet.deliver_to(started)
        assert fleet.waits(started)
        for message in messages:
            fleet.store.rows[message.execution_id].wake_at = fleet.clock.now()
        fleet.messenger.sent = messages if kind == "element" else []
        return started

    fleet.start()
    if kind == "element":
        waiting.append(behind())
    fleet.work()
    assert fleet.status_of(waiting[0]) is Status.COMPLETED
    assert log == (["behind"] if kind == "unit" else ["first", "behind"])
    assert fleet.tidy()


@pytest.mark.parametrize("kind", ["unit", "element"])
def test_what_is_dispatched_with_the_key_of_an_ancestor_fails_at_its_dispatch(kind: str) -> None:
    log: list[str] = []
    target = booking(log)

    class Parent(Reactor[Any]):
        class Meta:
            ordered_lock = OrderedLock(KEY)

        if kind == "unit":

            @async_reactor(target)
            def booked(self) -> Any:
                return {"name": "unit"}
        else:

            @map_step(target, fan_out=2)
            def booked(self) -> Any:
                return [{"name": "element"}]

    fleet = Line(Parent)
    fleet.others = (target,)
    failure = fleet.start()
    assert isinstance(failure, Failure)
    assert failure.exception_class == "django_reactor.exceptions.WouldDeadlock"
    assert "ordered lock" in failure.message
    assert fleet.tidy()


def test_elements_that_fan_out_run_in_their_order_and_beside_others_of_the_key() -> None:
    log: list[str] = []
    target = booking(log)

    class Parent(Reactor[Any]):
        @map_step(target, fan_out=3)
        def booked(self) -> Any:
            return [{"name": str(number)} for number in range(6)]

    fleet = Line(Parent)
    fleet.others = (target,)
    fleet.start()
    fleet.messenger.sent.reverse()
    fleet.work()
    assert log == [str(number) for number in range(6)]
    assert fleet.status is Status.COMPLETED
    assert fleet.tidy()


def test_inline_elements_take_their_turns_one_after_the_other() -> None:
    log: list[str] = []
    target = booking(log)

    class Parent(Reactor[Any]):
        @map_step(target)
        def booked(self) -> Any:
            return [{"name": str(number)} for number in range(3)]

    fleet = Line(Parent)
    fleet.others = (target,)
    assert fleet.start().is_success
    assert log == ["0", "1", "2"]
    assert fleet.tidy()


def test_a_halted_one_says_why() -> None:
    log: list[str] = []
    fleet = Line(booking(log, lambda run: fail("no") if run.name == "a" else None))
    first, second = fleet.queue("a", "b")
    fleet.deliver_to(first)
    result = fleet.deliver_to(second)
    assert isinstance(result, Halt)
    assert result.reason == f"ordered lock {KEY!r}: number 1 failed, before number 2"


def test_a_direct_call_of_a_step_is_out_of_turn_while_somebody_stands_in_its_line() -> None:
    class Post(Step[int]):
        class Meta:
            ordered_lock = OrderedLock(KEY)

        def run(self) -> int:
            return 1

    fleet = Line(booking([]))
    assert call_step(fleet.services, Post.__step__, {}).is_success
    fleet.queue("a")
    with pytest.raises(OutOfTurn):
        call_step(fleet.services, Post.__step__, {})
    fleet.work()
    assert call_step(fleet.services, Post.__step__, {}).is_success


# -- instants ----------------------------------------------------------------------------------------------------------


class Port:
    """Another one, with a method of its own in the place of one of its."""

    def __init__(self, port: Any, **methods: Any) -> None:
        self._port = port
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


def test_a_turn_that_comes_between_the_look_of_a_park_and_its_commit_is_seen_by_the_look_after_it() -> None:
    log: list[str] = []
    fleet = Line(booking(log))
    first, second = fleet.queue("a", "b")
    row = fleet.store.rows[first]
    row.token, row.expires_at = UUID(int=1), fleet.clock.now() + timedelta(hours=1)  # somebody runs it
    fleet.messenger.sent.clear()
    real = fleet.services.deliveries

    def park(lease: Any, release: Any, has_come: Callable[[], bool]) -> bool:
        at_once = real.park(lease, release, has_come)
        fleet.turns.finish(first, failed=False)  # whose wake finds nobody: what is not committed cannot be seen
        return at_once

    services = replace(fleet.services, deliveries=cast(Any, Port(real, park=park)))
    delivering.deliver(services, fleet.find, second)
    fleet.work()
    assert log == ["b"]


def test_a_start_in_a_caller_is_halted_by_one_that_came_before_it_and_failed_meanwhile() -> None:
    """Between its look at the line, in which nobody stood, and its own place there."""
    log: list[str] = []
    fleet = Line(booking(log))
    real, before = fleet.turns, UUID(int=7)

    def draw(key: str, execution_id: UUID, step: str = "") -> Any:
        real.draw(key, before)
        drawn = real.draw(key, execution_id, step)
        real.finish(before, failed=True)
        return drawn

    stores = replace(fleet.services.coordination, turns=cast(Any, Port(real, draw=draw)))
    fleet.services = replace(fleet.services, coordination=stores)
    halted = fleet.start(name="a")
    assert isinstance(halted, Halt)
    assert "number 1 failed" in halted.reason
    assert log == []
    assert fleet.tidy()


def test_a_step_in_a_caller_that_is_overtaken_on_its_way_into_the_line_hands_its_place_back_too() -> None:
    log: list[str] = []
    fleet = Line(stepwise(log))
    real = fleet.turns

    def draw(key: str, execution_id: UUID, step: str = "") -> Any:
        if step == "post":
            real.draw(key, UUID(int=5))
        return real.draw(key, execution_id, step)

    stores = replace(fleet.services.coordination, turns=cast(Any, Port(real, draw=draw)))
    fleet.services = replace(fleet.services, coordination=stores)
    failure = fleet.start(name="a")
    assert isinstance(failure, Failure)
    assert failure.exception_class == "django_reactor.exceptions.OutOfTurn"
    assert log == ["before a", "undo a"]


def test_who_has_lost_its_lease_draws_no_number() -> None:
    log: list[str] = []
    fleet = Line(stepwise(log))
    (first,) = fleet.queue("a")

    def turn(key: str, execution_id: UUID, step: str = "", *, strict: bool) -> Any:
        found = fleet.turns.turn(key, execution_id, step, strict=strict)
        if found is None:
            fleet.clock.advance(100)
            assert isinstance(fleet.deliver_to(first), Success)  # by another process, on the services of the fleet
        return found

    stores = replace(fleet.services.coordination, turns=cast(Any, Port(fleet.turns, turn=turn)))
    frozen = replace(fleet.services, coordination=stores)
    assert isinstance(delivering.deliver(frozen, fleet.find, first), Dispatched)
    assert log == ["before a", "post a", "after a"]
    assert fleet.tidy()


def test_lines_are_asked_in_the_order_of_their_keys_each_once() -> None:
    coordination = Coordination(ordered_lock=tuple(OrderedLock(key) for key in ("{b}", "{a}", "{c}", "{a}")))
    orders = orders_of(coordination, {"a": "1", "b": "2", "c": "1"}, "Shop")
    assert [order.key for order in orders] == ["1", "2"]


def test_two_that_wait_for_each_other_do_so_no_longer_than_their_time_as_heads() -> None:
    log: list[str] = []

    class Crossing(Reactor[Any]):
        outer: str
        inner: str

        class Meta:
            ordered_lock = OrderedLock("{outer}")

        @step
        def begin(self) -> None:
            if self.outer == "a":
                fleet.deliver_to(second)  # it has its outer turn now, and waits for ours
                assert fleet.waits(second)

        @step(after=["begin"], ordered_lock=OrderedLock("{inner}"))
        def end(self) -> None:
            log.append(self.outer)

    fleet = Line(Crossing)
    ids = [fleet.enqueue(outer=outer, inner=inner).execution_id for outer, inner in ("ab", "ba")]
    first, second = (execution_id for execution_id in ids if execution_id is not None)
    fleet.deliver_to(first)
    assert fleet.waits(first)
    waited = 0
    while not log:
        fleet.clock.advance(15)
        waited += 15
        fleet.sweep()
        fleet.work()
    assert 600 <= waited <= 630
    fleet.sweep()
    fleet.work()
    assert sorted(log) == ["a", "b"]
    assert fleet.tidy()
