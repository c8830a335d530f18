"""Composed children: parts of their parent, which run, resume and roll back inside it; on the in-memory adapters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pytest

from django_reactor import (
    Background,
    Dispatched,
    Failure,
    Halt,
    Reactor,
    Redacted,
    Retry,
    Success,
    async_step,
    compose,
    halt,
    skip,
    snooze,
    step,
)
from django_reactor.core.options import ONE_ATTEMPT
from django_reactor.core.reactor import definition_of
from django_reactor.core.statuses import Action, Relation, Status
from django_reactor.engine import acting
from django_reactor.engine.execution_ports import LeaseLost
from django_reactor.engine.services import Limits
from django_reactor.exceptions import InvalidTransition
from tests.engine_support import Fleet

done: list[str] = []
"""What bodies did, in order."""
broken: set[str] = set()
"""The bodies that fail."""


@pytest.fixture(autouse=True)
def _nothing_done() -> Iterator[None]:
    done.clear()
    broken.clear()
    yield
    done.clear()
    broken.clear()


def do(what: str) -> str:
    done.append(what)
    if what in broken:
        raise RuntimeError(f"{what} broke")
    return what


class Ship(Reactor[str]):
    receipt: str
    secret: Redacted[str] = "never-shown"

    class Meta:
        returns = "send"

    @step
    def pack(self, receipt: str) -> str:
        return do(f"pack {receipt}")

    @pack.undo
    def unpack(self, result: str) -> None:
        do(f"undo {result}")

    @step
    def send(self, pack: str) -> str:
        return do(f"send {pack}")

    @send.undo
    def recall(self, result: str) -> None:
        do(f"undo {result}")

    @send.compensate
    def search(self, error: BaseException) -> None:
        do("compensate send")


class Order(Reactor[str]):
    sku: str

    class Meta:
        returns = "thank"

    @step
    def charge(self, sku: str) -> str:
        return do(f"charge {sku}")

    @charge.undo
    def refund(self, result: str) -> None:
        do(f"undo {result}")

    @compose(Ship)
    def shipping(self, charge: str) -> dict[str, str]:
        return {"receipt": charge}

    @step
    def thank(self, shipping: str) -> str:
        return do(f"thank for {shipping}")


SENT = "send pack charge A"
FORWARD = ["charge A", "pack charge A", SENT, f"thank for {SENT}"]


def child_of(fleet: Fleet, step: str = "shipping") -> Any:
    return fleet.unit(step)


def test_a_composed_child_is_an_execution_whose_value_its_parents_readers_get() -> None:
    fleet = Fleet(Order)
    assert fleet.start(sku="A") == Success(f"thank for {SENT}", execution_id=fleet.execution_id)
    assert done == FORWARD
    assert fleet.told == ["run charge success", "dispatch shipping", "run shipping success", "run thank success"]
    child = child_of(fleet)
    assert (child.status, child.relation, child.parent_id) == (Status.COMPLETED, Relation.COMPOSED, fleet.execution_id)
    assert (child.root_id, child.parent_step, child.output) == (fleet.execution_id, "shipping", f'"{SENT}"')
    assert [entry.step for entry in fleet.store.entries[child.id]] == ["pack", "send"]


def test_a_child_without_returns_gives_the_dict_of_its_results() -> None:
    class Inner(Reactor[Any]):
        @step
        def one(self) -> int:
            return 1

        @step
        def two(self, one: int) -> dict[str, int]:
            return {"of": one}

    class Outer(Reactor[Any]):
        inner = compose(Inner)

    assert Fleet(Outer).start().unwrap() == {"inner": {"one": 1, "two": {"of": 1}}}


def test_a_halt_in_a_child_ends_the_child_only_and_gives_none() -> None:
    class Inner(Reactor[Any]):
        @step
        def enough(self) -> None:
            halt("nothing to ship")

    class Outer(Reactor[Any]):
        inner = compose(Inner)

        @step
        def after(self, inner: None) -> str:
            return f"got {inner}"

    fleet = Fleet(Outer)
    assert fleet.start().unwrap() == {"inner": None, "after": "got None"}
    assert child_of(fleet, "inner").status is Status.HALTED
    assert fleet.entries[1].reason == "nothing to ship"


def test_a_skipped_compose_starts_no_child() -> None:
    class Outer(Reactor[Any]):
        @compose(Ship)
        def shipping(self) -> Any:
            skip("picked up", value="at the counter")

    fleet = Fleet(Outer)
    assert fleet.start().unwrap() == {"shipping": "at the counter"}
    assert len(fleet.store.rows) == 1


def test_inputs_that_the_child_refuses_fail_the_step_before_a_child_exists() -> None:
    class Outer(Reactor[Any]):
        @compose(Ship)
        def shipping(self) -> Any:
            return {"receipt": 5, "unknown": 1}

    fleet = Fleet(Outer)
    failure = fleet.start()
    assert isinstance(failure, Failure)
    assert (failure.step, set(failure.field_errors)) == ("shipping", {"receipt", "unknown"})
    assert len(fleet.store.rows) == 1


def test_a_child_that_fails_rolls_itself_back_first_and_then_its_parent_does() -> None:
    broken.add(SENT)
    fleet = Fleet(Order)
    failure = fleet.start(sku="A")
    assert isinstance(failure, Failure)
    assert (failure.message, failure.step, failure.reactor) == (
        f"{SENT} broke",
        "shipping.send",
        fleet.definition.label,
    )
    assert isinstance(failure.cause, RuntimeError)
    assert 'raise RuntimeError(f"{what} broke")' in failure.snippet
    assert failure.rollback_failures == []
    assert done == [*FORWARD[:3], "compensate send", "undo pack charge A", "undo charge A"]
    assert (child_of(fleet).status, fleet.status) == (Status.FAILED, Status.FAILED)


def test_a_later_failure_undoes_the_child_newest_step_first() -> None:
    broken.add(FORWARD[3])
    fleet = Fleet(Order)
    failure = fleet.start(sku="A")
    assert isinstance(failure, Failure)
    assert done == [*FORWARD, f"undo {SENT}", "undo pack charge A", "undo charge A"]
    assert (child_of(fleet).status, fleet.status) == (Status.UNDONE, Status.FAILED)
    assert fleet.told[-2:] == ["undo shipping success", "undo charge success"]


def test_what_a_child_could_not_undo_is_listed_in_the_parent_under_its_path() -> None:
    broken.update([FORWARD[3], f"undo {SENT}"])
    fleet = Fleet(Order)
    failure = fleet.start(sku="A")
    assert isinstance(failure, Failure)
    (listed,) = failure.rollback_failures
    assert (listed.step, listed.kind, listed.message) == ("shipping.send", "undo", f"undo {SENT} broke")
    assert done[-2:] == ["undo pack charge A", "undo charge A"]  # the others were undone all the same
    assert (child_of(fleet).status, fleet.status) == (Status.FAILED, Status.FAILED)
    broken.clear()
    done.clear()
    assert fleet.undo() == Failure("the execution was undone", reactor=fleet.definition.label,
                                   execution_id=fleet.execution_id, retryable=False)  # fmt: skip
    assert done == [f"undo {SENT}"]
    assert (child_of(fleet).status, fleet.status) == (Status.UNDONE, Status.UNDONE)


def test_the_list_of_a_child_that_failed_by_itself_is_the_parents_too() -> None:
    broken.update([SENT, "undo pack charge A"])
    failure = Fleet(Order).start(sku="A")
    assert isinstance(failure, Failure)
    assert [(each.step, each.kind) for each in failure.rollback_failures] == [("shipping.pack", "undo")]


def test_retry_tries_a_half_undone_child_again_before_it_opens_another() -> None:
    broken.update([FORWARD[3], f"undo {SENT}"])
    fleet = Fleet(Order)
    assert fleet.start(sku="A").is_failure
    first = child_of(fleet)
    done.clear()
    assert fleet.retry().is_failure  # the undo fails again, and nothing else is tried
    assert done == [f"undo {SENT}"]
    broken.clear()
    done.clear()
    assert fleet.retry().is_success
    assert done == [f"undo {SENT}", *FORWARD]
    children = [row.record for row in fleet.store.rows.values() if row.record.parent_step == "shipping"]
    assert [child.status for child in children] == [Status.UNDONE, Status.COMPLETED]
    assert children[0].id == first.id


def test_retry_of_a_child_that_failed_opens_a_new_one() -> None:
    broken.add(SENT)
    fleet = Fleet(Order)
    assert fleet.start(sku="A").is_failure
    broken.clear()
    done.clear()
    assert fleet.retry().is_success
    assert done == FORWARD


def test_undo_of_a_completed_parent_undoes_its_children() -> None:
    fleet = Fleet(Order)
    assert fleet.start(sku="A").is_success
    done.clear()
    fleet.undo()
    assert done == [f"undo {SENT}", "undo pack charge A", "undo charge A"]
    assert (child_of(fleet).status, fleet.status) == (Status.UNDONE, Status.UNDONE)


@pytest.mark.parametrize("verb", [acting.cancel, acting.undo])
def test_a_part_stands_and_falls_with_its_root(verb: Callable[..., Any]) -> None:
    fleet = Fleet(Order)
    fleet.start(sku="A")
    with pytest.raises(InvalidTransition, match=str(fleet.execution_id)):
        verb(fleet.services, definition_of(Ship), child_of(fleet).id, "")
    with pytest.raises(InvalidTransition, match=str(fleet.execution_id)):
        acting.retry(fleet.services, definition_of(Ship), child_of(fleet).id)
    assert fleet.status is Status.COMPLETED


# -- leaving in the middle of a child ----------------------------------------------------------------------------------


def leaving(inner_step: Callable[[Any], Any], retry: Retry = ONE_ATTEMPT, background: Background | None = None) -> Any:
    """Three levels, the innermost of which runs this body between two steps."""

    point = background

    class Innermost(Reactor[Any]):
        class Meta:
            background = point

        @step
        def before(self) -> str:
            return do("before")

        @before.undo
        def undo_before(self, result: str) -> None:
            do("undo before")

        @step(retry=retry)
        def leaves(self, before: str) -> Any:
            return inner_step(self)

    class Middle(Reactor[Any]):
        innermost = compose(Innermost)

    class Outermost(Reactor[Any]):
        @step
        def first(self) -> str:
            return do("first")

        @first.undo
        def undo_first(self, result: str) -> None:
            do("undo first")

        @compose(Middle)
        def middle(self, first: str) -> dict[str, Any]:
            return {}

        @step
        def last(self, middle: Any) -> str:
            return do("last")

    return Outermost


def statuses(fleet: Fleet) -> list[Status]:
    return [row.record.status for row in fleet.store.rows.values()]


def test_a_retry_in_a_child_gives_up_the_lease_of_the_whole_and_goes_on_there() -> None:
    def fails_once(this: Any) -> str:
        if this.context.attempt == 1:
            raise RuntimeError("not yet")
        return do(f"attempt {this.context.attempt}")

    fleet = Fleet(leaving(fails_once, Retry(max_attempts=2, delay=7, jitter=0)))
    fleet.enqueue()
    fleet.messenger.sent.clear()
    assert isinstance(fleet.deliver(), Dispatched)
    assert statuses(fleet) == [Status.SCHEDULED] * 3
    assert [message.delay for message in fleet.messenger.sent] == [7]
    assert fleet.work().is_success  # type: ignore[union-attr]
    assert done == ["first", "before", "attempt 2", "last"]
    assert statuses(fleet) == [Status.COMPLETED] * 3


def test_a_snooze_in_a_child_leaves_the_whole_to_another_delivery() -> None:
    def waits(this: Any) -> str:
        if not this.context.snoozes:
            snooze(30, "not ready")
        return do("ready")

    fleet = Fleet(leaving(waits))
    assert isinstance(fleet.start(), Dispatched)
    assert (statuses(fleet), fleet.record.snooze_reason) == ([Status.SCHEDULED] * 3, "not ready")
    assert fleet.work().is_success  # type: ignore[union-attr]
    assert done == ["first", "before", "ready", "last"]


def test_a_hand_off_point_inside_a_child_hands_off_the_whole() -> None:
    fleet = Fleet(
        leaving(lambda this: do(f"in worker: {this.context.in_worker}"), background=Background(after="before"))
    )
    assert isinstance(fleet.start(), Dispatched)
    assert (done, statuses(fleet)) == (["first", "before"], [Status.PENDING] * 3)
    assert fleet.work().is_success  # type: ignore[union-attr]
    assert done == ["first", "before", "in worker: True", "last"]


def test_a_cancel_in_a_child_stops_the_whole_and_its_undo_reverses_the_open_child() -> None:
    fleet: Fleet

    def cancels(this: Any) -> str:
        fleet.cancel("enough")
        return do("in flight")

    fleet = Fleet(leaving(cancels))
    result = fleet.start()
    assert isinstance(result, Failure)
    assert statuses(fleet) == [Status.CANCELLED] * 3
    assert done == ["first", "before", "in flight"]
    done.clear()
    fleet.undo()
    assert done == ["undo before", "undo first"]
    assert statuses(fleet) == [Status.UNDONE] * 3


def test_an_interruption_in_a_child_aborts_the_whole_and_names_the_step_cut_off_in_its_journal() -> None:
    calls = iter([KeyboardInterrupt, None])

    def interrupted(this: Any) -> str:
        if (error := next(calls)) is not None:
            raise error
        return do("again")

    fleet = Fleet(leaving(interrupted))
    with pytest.raises(KeyboardInterrupt):
        fleet.start()
    assert statuses(fleet) == [Status.ABORTED] * 3
    innermost = list(fleet.store.rows)[-1]
    assert [(e.action, e.step) for e in fleet.store.entries[innermost]][-1] == (Action.ABORT, "leaves")
    assert fleet.retry().is_success
    assert done == ["first", "before", "again", "last"]


def test_undo_of_an_aborted_whole_reverses_the_open_child_first() -> None:
    def interrupted(this: Any) -> str:
        raise KeyboardInterrupt

    fleet = Fleet(leaving(interrupted))
    with pytest.raises(KeyboardInterrupt):
        fleet.start()
    done.clear()
    fleet.undo()
    assert done == ["undo before", "undo first"]
    assert statuses(fleet) == [Status.UNDONE] * 3


def test_a_step_that_kills_its_process_inside_a_child_ends_as_poison_and_is_rolled_back() -> None:
    def dies(this: Any) -> str:
        do("dies")
        raise LeaseLost  # whatever happens to the process: it writes nothing more

    fleet = Fleet(leaving(dies))
    fleet.services = replace(fleet.services, limits=lambda: Limits(max_recoveries=2))
    fleet.enqueue()
    for _ in range(5):
        fleet.recover()
    assert statuses(fleet) == [Status.FAILED] * 3
    assert done == ["first", "before", "dies", "dies", "dies", "undo before", "undo first"]
    assert fleet.record.failure is not None
    assert fleet.record.failure["step"] == "middle.innermost.leaves"


# -- units inside children ---------------------------------------------------------------------------------------------


class Mailing(Reactor[Any]):
    @async_step
    def mail(self) -> str:
        return do("mail")

    @step
    def file(self, mail: str) -> str:
        return do(f"file {mail}")


class Desk(Reactor[Any]):
    mailing = compose(Mailing)

    @step
    def meanwhile(self) -> str:
        return do("meanwhile")


def test_while_a_child_waits_for_its_unit_its_parent_does_the_rest_and_then_parks() -> None:
    fleet = Fleet(Desk)
    fleet.others = (Mailing,)
    fleet.enqueue()
    fleet.messenger.sent.pop(0)
    assert isinstance(fleet.deliver(), Dispatched)
    assert done == ["meanwhile"]
    assert fleet.status is Status.SCHEDULED
    assert fleet.store.rows[fleet.execution_id].waiting_for == f"unit:{fleet.unit('mail').id}"
    assert fleet.work().is_success  # type: ignore[union-attr]
    assert done == ["meanwhile", "mail", "file mail"]


def test_in_a_caller_a_childs_reader_looks_until_the_unit_has_ended() -> None:
    fleet = Fleet(Desk)
    fleet.others = (Mailing,)

    def unit_runs() -> None:
        fleet.deliver_to(fleet.unit("mail").id)

    fleet.clock.on_sleep = unit_runs
    assert fleet.start().is_success
    assert done == ["meanwhile", "mail", "file mail"]


def test_units_of_a_child_that_have_not_begun_are_cancelled_when_its_root_rolls_back() -> None:
    class Sends(Reactor[Any]):
        @async_step
        def mail(self) -> None: ...

    class Outer(Reactor[Any]):
        sends = compose(Sends)

        @step
        def breaks(self, sends: Any) -> None:
            raise RuntimeError("no")

    fleet = Fleet(Outer)
    assert fleet.start().is_failure
    assert fleet.unit("mail").status is Status.CANCELLED


@pytest.mark.parametrize("in_worker", [True, False])
def test_a_child_that_waits_for_its_unit_is_undone_at_once_when_its_sibling_fails(in_worker: bool) -> None:
    class Waits(Mailing):
        @step
        def before(self) -> None: ...

        @before.undo
        def undo_before(self) -> None:
            do("undo before")

    class Fails(Reactor[Any]):
        @step
        def first(self) -> None: ...

        @first.undo
        def undo_first(self) -> None:
            do("undo first")

        @step
        def breaks(self, first: None) -> None:
            assert fleet.services.executions.claim(fleet.unit("mail").id, uuid4()) is not None
            raise RuntimeError("no")

    class Outer(Reactor[Any]):
        waits = compose(Waits)
        fails = compose(Fails)

    fleet = Fleet(Outer)
    result = (fleet.enqueue(), fleet.deliver())[-1] if in_worker else fleet.start()
    assert isinstance(result, Failure)
    assert done == ["undo first", "undo before"]
    assert (fleet.unit("mail").status, fleet.clock.slept) == (Status.RUNNING, [])


# -- a crash after every write -----------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process is gone: nothing that it would have done next happens."""


@dataclass(slots=True)
class CrashingJournal:
    """Lets a process die right before, or right after, its n-th write."""

    journal: Any
    at: int
    before: bool
    writes: int = field(default=0)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.journal, name)
        if name not in ("append", "move", "release", "dispatch", "reconsider"):
            return method

        def write(*args: Any) -> Any:
            self.writes += 1
            if self.writes == self.at and self.before:
                raise Crash
            result = method(*args)
            if self.writes == self.at:
                raise Crash
            return result

        return write


def crashed_at(fleet: Fleet, at: int, *, before: bool) -> bool:
    """Run with a crash at this write and a recovery after it; whether there was such a write."""
    sound = fleet.services
    fleet.services = replace(sound, journal=CrashingJournal(sound.journal, at, before))
    try:
        fleet.start(sku="A")
    except Crash:
        fleet.services = sound
        fleet.recover()
        return True
    return False


def outcome(fleet: Fleet) -> tuple[list[Status], str | None, list[str]]:
    failure = fleet.record.failure or {}
    return statuses(fleet), fleet.record.output, [each["step"] for each in failure.get("rollback_failures", ())]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("breaks", ["", SENT, FORWARD[3], f"{FORWARD[3]}&undo {SENT}"])
def test_a_crash_at_any_write_repeats_at_most_the_body_in_flight(breaks: str, before: bool) -> None:
    broken.update(breaks.split("&") if breaks else ())
    unharmed = Fleet(Order)
    unharmed.start(sku="A")
    expected = Counter(done)
    at, crashed = 0, True
    while crashed:
        at += 1
        done.clear()
        fleet = Fleet(Order)
        crashed = crashed_at(fleet, at, before=before)
        repeated = Counter(done)
        repeated.subtract(expected)
        assert set(repeated.values()) <= {0, 1}
        assert sum(repeated.values()) <= 1
        assert outcome(fleet) == outcome(unharmed)
    assert at > 6


def test_a_secret_of_the_parent_is_not_shown_by_its_child() -> None:
    class Inner(Reactor[Any]):
        note: str

        @step
        def breaks(self, note: str) -> None:
            raise RuntimeError(f"could not read {note}")

    class Outer(Reactor[Any]):
        card: Redacted[str]

        @compose(Inner)
        def inner(self, card: str) -> dict[str, str]:
            return {"note": f"card {card}"}

    fleet = Fleet(Outer)
    failure = fleet.start(card="4242-4242")
    assert isinstance(failure, Failure)
    assert failure.message == "could not read [REDACTED]", "an input that holds a secret is one"
    assert "4242" not in str(child_of(fleet, "inner").failure)


def test_halts_of_the_parent_leave_its_children_alone() -> None:
    class Outer(Reactor[Any]):
        shipping = compose(Ship)
        receipt: str

        @step
        def enough(self, shipping: str) -> None:
            halt("done early")

    assert isinstance(Fleet(Outer).start(receipt="R"), Halt)
