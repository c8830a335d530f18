"""A Step class that was cut off is compensated with the inputs that it had."""

from __future__ import annotations

from typing import Any

import pytest

from django_reactor import Failure, Reactor, Step, fail, step
from django_reactor.core.statuses import Status
from tests.engine_support import Bench

SEEN: list[Any] = []


class Charge(Step[str]):
    amount: int
    note: str = "none"

    def run(self) -> str:
        raise KeyboardInterrupt

    def compensate(self, error: BaseException) -> None:
        SEEN.append((self.amount, self.note, type(error).__name__))


class ByName(Reactor):
    amount: int

    charge = step(Charge)


class ByFunction(Reactor):
    amount: int

    @step
    def price(self, amount: int) -> int:
        return 2 * amount

    @step(Charge)
    def charge(self, price: int) -> dict[str, Any]:
        return {"amount": price, "note": "doubled"}


class ByAFunctionThatFailsLater(Reactor):
    amount: int

    @step(Charge)
    def charge(self, amount: int) -> dict[str, Any]:
        if SEEN:
            fail("not again")
        SEEN.append("once")
        return {"amount": amount}


def cut_off(reactor: Any) -> Bench:
    SEEN.clear()
    bench = Bench(reactor)
    with pytest.raises(KeyboardInterrupt):
        bench.start(amount=3)
    assert bench.status is Status.ABORTED
    return bench


@pytest.mark.parametrize(("reactor", "inputs"), [(ByName, (3, "none")), (ByFunction, (6, "doubled"))])
def test_a_step_class_that_was_cut_off_is_compensated_with_its_inputs(reactor: Any, inputs: tuple[int, str]) -> None:
    bench = cut_off(reactor)
    bench.undo()
    assert [(*inputs, "Interrupted")] == SEEN
    assert bench.status is Status.UNDONE


def test_inputs_that_cannot_be_made_again_are_a_rollback_failure() -> None:
    bench = cut_off(ByAFunctionThatFailsLater)
    result = bench.undo()
    assert isinstance(result, Failure)
    assert [(one.step, one.kind, one.message) for one in result.rollback_failures] == [
        ("charge", "compensate", "the inputs of Charge cannot be made again: not again")
    ]
