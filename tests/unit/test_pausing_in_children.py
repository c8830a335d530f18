"""Interrupts inside composed children and units: the owner pauses, and goes on in place; on the in-memory adapters."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from django_reactor import (
    Dispatched,
    Failure,
    Paused,
    Reactor,
    Success,
    async_reactor,
    async_step,
    compose,
    interrupt,
    skip,
    step,
)
from django_reactor.core.plan import Definition
from django_reactor.core.statuses import Status
from django_reactor.engine import resuming
from django_reactor.exceptions import AlreadyResumed, InputError, InvalidTransition
from django_reactor.results import Result
from tests.engine_support import Fleet


class Ship(Reactor[str]):
    order: str

    class Meta:
        returns = "sent"

    @step
    def packed(self, order: str) -> str:
        return f"packed {order}"

    @packed.undo
    def unpack(self, result: str) -> None: ...

    @interrupt(payload=int, correlation_id="ship-{packed}", max_attempts=2, timeout=60)
    def weighed(self, packed: str) -> None:
        if self.order == "light":
            skip("no scale needed", value=1)

    @step
    def sent(self, weighed: int) -> str:
        if weighed > 100:
            raise ValueError("too heavy")
        return f"sent {weighed} kg"

    @sent.undo
    def fetch_back(self, result: str) -> None: ...


class Place(Reactor[Any]):
    order: str = "A"
    breaks: bool = False

    @step
    def reserved(self, order: str) -> str:
        return f"reserved {order}"

    @reserved.undo
    def release(self, result: str) -> None: ...

    @compose(Ship)
    def shipping(self, reserved: str) -> dict[str, str]:
        return {"order": self.order}

    @step
    def beside(self, order: str) -> str:
        return "beside"

    @step
    def last(self, shipping: str) -> str:
        if self.breaks:
            raise ValueError("the end is broken")
        return f"done: {shipping}"


class Deep(Reactor[Any]):
    @compose(Place)
    def placing(self) -> dict[str, str]:
        return {"order": "D"}

    @interrupt
    def own(self) -> None: ...


class Tree(Fleet):
    """One execution of a reactor that has others in it."""

    others: tuple[Any, ...] = (Ship, Place, Deep)

    def part(self, step_name: str) -> UUID:
        (found,) = [row.record.id for row in self.store.rows.values() if row.record.parent_step == step_name]
        return found

    def told_by(self, execution_id: UUID) -> list[str]:
        return [
            " ".join(filter(None, (e.action.value, e.step, e.outcome.value))) for e in self.store.entries[execution_id]
        ]

    def status_of(self, execution_id: UUID) -> Status:
        return self.store.rows[execution_id].record.status

    def states(self) -> list[str]:
        return [stored.wait.state.value for stored in self.store.waits.values()]


def steps_of(result: Result[Any]) -> list[str]:
    assert isinstance(result, Paused)
    return [wait.step for wait in result.waits]


# -- the owner pauses --------------------------------------------------------------------------------------------------


def test_an_interrupt_in_a_child_pauses_the_root_which_does_all_else_first_and_goes_on_in_place() -> None:
    tree = Tree(Place)
    result = tree.start()
    assert isinstance(result, Paused)
    assert result.execution_id == tree.execution_id
    assert [(wait.step, wait.correlation_id) for wait in result.waits] == [("shipping.weighed", "ship-packed A")]
    child = tree.part("shipping")
    assert (tree.status, tree.status_of(child)) == (Status.PAUSED, Status.PAUSED)
    assert tree.told == ["run reserved success", "dispatch shipping", "run beside success"]
    assert tree.told_by(child) == ["run packed success", "pause weighed"]
    done = tree.resume(7)
    assert isinstance(done, Success)
    assert done.value["last"] == "done: sent 7 kg"
    assert tree.told_by(child)[2:] == ["resume weighed success", "run sent success"]
    assert tree.status_of(child) is Status.COMPLETED


@pytest.mark.parametrize("name", ["shipping.weighed", "weighed", None])
def test_the_root_answers_by_the_path_or_by_the_step(name: str | None) -> None:
    tree = Tree(Place)
    tree.start()
    with pytest.raises(InputError, match=r"did you mean 'shipping.weighed'"):
        tree.resume(7, step="shiping.weighed")
    assert tree.resume(7, step=name).is_success


def test_the_declaring_reactor_answers_by_the_correlation_id_with_the_roots_result() -> None:
    tree = Tree(Place)
    tree.start()
    result = resuming.resume_correlated(
        tree.services, tree._known, definition_of(Ship), 7, "ship-packed A", step="weighed"
    )
    assert isinstance(result, Success)
    assert (result.execution_id, result.value["last"]) == (tree.execution_id, "done: sent 7 kg")


def definition_of(reactor: type[Reactor[Any]]) -> Definition:
    definition = reactor.__reactor__
    assert definition is not None
    return definition


def test_a_child_takes_an_answer_for_its_owner_and_refuses_all_else() -> None:
    tree = Tree(Place)
    tree.start()
    child = tree.part("shipping")
    result = resuming.resume(tree.services, tree._known, child, 7, "weighed")
    assert result.execution_id == tree.execution_id
    assert result.is_success
    with pytest.raises(InvalidTransition):
        resuming.resume(tree.services, tree._known, child, 7, "weighed")


def test_interrupts_at_any_depth_are_open_at_once_and_each_is_answered() -> None:
    tree = Tree(Deep)
    first = tree.start()
    assert sorted(steps_of(first)) == ["own", "placing.shipping.weighed"]
    with pytest.raises(InputError, match="several interrupts are open"):
        tree.resume(1)
    assert steps_of(tree.resume("mine", step="own")) == ["placing.shipping.weighed"]
    assert steps_of(paused_again(tree)) == ["placing.shipping.weighed"]
    assert tree.resume(3).is_success
    assert tree.states() == ["applied", "applied"]


def paused_again(tree: Tree) -> Result[Any]:
    """As it is read later."""
    from django_reactor.core.history import fold
    from django_reactor.engine.conclusions import conclusion, open_waits

    record, entries = tree.services.journal.load(tree.execution_id)
    waits = open_waits(tree.services, record)
    return conclusion(record, fold(tree.definition.plan, entries), tree.services.new_codec(), waits)


def test_two_children_of_one_reactor_wait_side_by_side() -> None:
    class Both(Reactor[Any]):
        @compose(Ship)
        def left(self) -> dict[str, str]:
            return {"order": "L"}

        @compose(Ship)
        def right(self) -> dict[str, str]:
            return {"order": "R"}

    tree = Tree(Both)
    assert steps_of(tree.start()) == ["left.weighed", "right.weighed"]
    with pytest.raises(InputError, match=r"'left.weighed', 'right.weighed'"):
        tree.resume(1, step="weighed")
    assert steps_of(tree.resume(1, step="right.weighed")) == ["left.weighed"]
    assert tree.resume(2).unwrap() == {"left": "sent 2 kg", "right": "sent 1 kg"}


def test_a_worker_goes_on_in_the_child() -> None:
    tree = Tree(Place)
    tree.enqueue()
    assert isinstance(tree.work(), Paused)
    (known,) = tree.services.answers.of_owner(tree.execution_id)
    accepted = tree.services.answers.accept(known.address, "7", None)
    assert accepted.message is not None
    assert tree.status_of(tree.part("shipping")) is Status.PENDING
    tree.messenger.send(accepted.message)
    assert isinstance(tree.work(), Success)


# -- answers that fail, come early or come late ------------------------------------------------------------------------


def test_a_failure_after_the_resume_rolls_the_whole_tree_back() -> None:
    tree = Tree(Place)
    tree.start()
    result = tree.resume(101)
    assert isinstance(result, Failure)
    assert (result.step, result.message) == ("shipping.sent", "too heavy")
    assert tree.told_by(tree.part("shipping"))[3:] == ["run sent failure", "undo packed success"]
    assert tree.told[3:] == ["run shipping failure", "undo reserved success"]


def test_the_last_invalid_payload_for_a_child_rolls_the_whole_tree_back() -> None:
    tree = Tree(Place)
    tree.start()
    with pytest.raises(InputError):
        tree.resume("heavy")
    result = tree.resume("very heavy")
    assert isinstance(result, Failure)
    assert (result.step, result.attempts) == ("shipping.weighed", 2)
    assert result.arguments == {"payload": "very heavy"}
    assert tree.told[3:] == ["run shipping failure", "undo reserved success"]


def test_a_timeout_in_a_child_fails_the_root() -> None:
    tree = Tree(Place)
    tree.start()
    tree.clock.advance(60)
    assert tree.sweep().timed_out == 1
    assert isinstance(tree.work(), Failure)
    assert tree.states() == ["timed_out"]


def test_an_answer_that_comes_while_another_child_is_at_work_is_taken_before_the_pause() -> None:
    class Both(Reactor[Any]):
        @compose(Ship)
        def left(self) -> dict[str, str]:
            return {"order": "L"}

        @step
        def answering(self) -> str:
            assert isinstance(tree.resume(5, step="left.weighed"), Dispatched)
            return "answered"

    tree = Tree(Both)
    assert tree.start().unwrap() == {"left": "sent 5 kg", "answering": "answered"}


def test_an_answer_may_come_before_the_child_asks() -> None:
    class Early(Reactor[Any]):
        class Meta:
            app_label = "early"

        @step
        def slow(self) -> str:
            bench_child = tree.part("inner")
            assert isinstance(resuming.resume(tree.services, tree._known, bench_child, "x", "ask"), Dispatched)
            with pytest.raises(AlreadyResumed):
                resuming.resume(tree.services, tree._known, bench_child, "y", "ask")
            return "slow"

        @interrupt
        def ask(self, slow: str) -> None:
            raise AssertionError("nobody needs to be asked")

    class Outer(Reactor[Any]):
        inner = compose(Early)

    tree = Tree(Outer)
    tree.others = (Early,)
    assert tree.start().unwrap() == {"inner": {"slow": "slow", "ask": "x"}}


def test_a_skip_in_a_child_does_not_pause() -> None:
    tree = Tree(Place)
    result = tree.start(order="light")
    assert isinstance(result, Success)
    assert result.value["last"] == "done: sent 1 kg"


# -- what else may happen to a paused tree -----------------------------------------------------------------------------


def test_a_paused_tree_is_undone_child_first_and_nothing_waits() -> None:
    tree = Tree(Place)
    tree.start()
    tree.undo()
    child = tree.part("shipping")
    assert (tree.status, tree.status_of(child), tree.states()) == (Status.UNDONE, Status.UNDONE, ["closed"])
    assert tree.told_by(child)[2:] == ["rollback", "undo packed success"]
    assert tree.told[3:] == ["rollback", "undo shipping success", "undo reserved success"]


def test_a_paused_tree_is_cancelled_and_nothing_waits() -> None:
    tree = Tree(Place)
    tree.start()
    tree.cancel()
    child = tree.part("shipping")
    assert (tree.status, tree.status_of(child), tree.states()) == (Status.CANCELLED, Status.CANCELLED, ["closed"])
    with pytest.raises(InvalidTransition):
        tree.resume(1)


def test_a_later_failure_undoes_the_answered_child_and_a_retry_asks_in_a_new_one() -> None:
    tree = Tree(Place)
    tree.start(breaks=True)
    assert isinstance(tree.resume(7), Failure)
    assert tree.told[-3:] == ["run last failure", "undo shipping success", "undo reserved success"]
    again = tree.retry()
    assert steps_of(again) == ["shipping.weighed"]
    assert tree.states() == ["applied", "open"]


def test_a_sibling_that_fails_while_a_child_waits_undoes_it() -> None:
    class Sibling(Reactor[Any]):
        @compose(Ship)
        def left(self) -> dict[str, str]:
            return {"order": "L"}

        @interrupt
        def own(self) -> None: ...

        @step
        def breaks(self, own: str) -> None:
            raise ValueError("broken")

    tree = Tree(Sibling)
    assert sorted(steps_of(tree.start())) == ["left.weighed", "own"]
    result = tree.resume("go", step="own")
    assert isinstance(result, Failure), (tree.told, tree.told_by(tree.part("left")), tree.status)
    assert sorted(tree.states()) == ["applied", "closed"]
    assert tree.status_of(tree.part("left")) in (Status.UNDONE, Status.FAILED)


def test_a_pause_that_dies_before_it_is_written_is_made_up_for() -> None:
    tree = Tree(Place)
    tree.enqueue()
    assert isinstance(tree.work(), Paused)
    row = tree.store.rows[tree.execution_id]
    row.change(status=Status.RUNNING)
    tree.store.lease(row, tree.execution_id)
    assert steps_of(tree.recover() or Dispatched(None)) == ["shipping.weighed"]
    assert tree.status is Status.PAUSED


# -- units -------------------------------------------------------------------------------------------------------------


class Independent(Reactor[Any]):
    class Meta:
        returns = "ask"

    @interrupt(payload=str, correlation_id="unit")
    def ask(self) -> None: ...


class Parent(Reactor[Any]):
    unit = async_reactor(Independent)

    @step
    def reader(self, unit: str) -> str:
        return f"read {unit}"


def test_a_unit_pauses_by_itself_and_its_parent_waits_for_it() -> None:
    tree = Tree(Parent)
    tree.others = (Independent,)
    tree.enqueue()
    for _ in range(2):
        message = tree.messenger.sent.pop(0)
        tree.deliver_to(message.execution_id)
    unit = tree.part("unit")
    assert (tree.status, tree.status_of(unit)) == (Status.SCHEDULED, Status.PAUSED)
    tree.messenger.sent.clear()
    result = resuming.resume(tree.services, tree._known, unit, "yes", None)
    assert result == Success("yes", execution_id=unit)
    assert isinstance(tree.work(), Success)
    assert tree.told[-1] == "run reader success"


def test_an_open_interrupt_in_a_child_wins_over_a_reader_that_waits_for_its_unit() -> None:
    class Waits(Reactor[Any]):
        @async_step
        def unit(self) -> str:
            return "unit"

        @step
        def reader(self, unit: str) -> str:
            return unit

        @compose(Ship)
        def shipping(self) -> dict[str, str]:
            return {"order": "S"}

    tree = Tree(Waits)
    assert steps_of(tree.start()) == ["shipping.weighed"]
    again = tree.work()
    assert again is not None
    assert steps_of(again) == ["shipping.weighed"]
    assert tree.told == ["dispatch unit", "dispatch shipping", "run reader success"]
    assert tree.status_of(tree.part("shipping")) is Status.PAUSED


def test_a_reader_in_a_child_that_waits_for_its_unit_runs_while_the_tree_is_paused() -> None:
    class Reads(Reactor[Any]):
        @async_step
        def unit(self) -> str:
            return "unit"

        @step
        def reader(self, unit: str) -> str:
            return f"read {unit}"

    class Around(Reactor[Any]):
        reading = compose(Reads)

        @interrupt
        def ask(self) -> None: ...

    tree = Tree(Around)
    tree.others = (Reads,)
    assert steps_of(tree.start()) == ["ask"]
    again = tree.work()
    assert again is not None
    assert steps_of(again) == ["ask"]
    assert tree.told[-1] == "run reading success"
    assert tree.resume("x").unwrap() == {"reading": {"reader": "read unit"}, "ask": "x"}
