"""How a body ends, whatever it is made of and however it does it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from django_reactor import (
    Dispatched,
    Failure,
    Halt,
    Paused,
    Reactor,
    Retry,
    Skipped,
    Step,
    Success,
    fail,
    halt,
    skip,
    snooze,
    step,
    succeed,
)
from django_reactor.core.statuses import Status
from tests.engine_support import Bench

pytestmark = pytest.mark.usefixtures("own_registry")

Body = Callable[[], Any]


def a_reactor(body: Body, **options: Any) -> Any:
    """The body under test stands between a step to be undone and one that reads its result."""

    class Shop(Reactor[Any]):
        @step
        def before(self) -> str:
            return "before"

        @before.undo
        def undo_before(self) -> None: ...

        @step(after=["before"], **options)
        def middle(self) -> Any:
            return body()

        @middle.compensate
        def clean_up(self) -> None: ...

        @middle.undo
        def undo_middle(self) -> None: ...

        @step
        def reader(self, middle: Any) -> Any:
            return ["read", middle]

    return Shop


def played(body: Body, **options: Any) -> tuple[Any, list[str]]:
    bench = Bench(a_reactor(body, **options))
    result: Any = bench.start()
    return result, [line for line in bench.told if line != "run before success"]


SUCCEEDED = ["run middle success", "run reader success"]
SKIPPED = ["run middle skipped", "run reader success"]
HALTED = ["run middle halted"]
FAILED = ["run middle failure", "compensate middle success", "undo before success"]

ENDS: dict[str, tuple[Body, Body, list[str]]] = {
    "success": (lambda: succeed(5), lambda: Success(5), SUCCEEDED),
    "a bare value": (lambda: succeed(5), lambda: 5, SUCCEEDED),
    "nothing": (lambda: succeed(), lambda: None, SUCCEEDED),
    "skip": (lambda: skip("why", value=5), lambda: Skipped(5, "why"), SKIPPED),
    "halt": (lambda: halt("why"), lambda: Halt("why"), HALTED),
    "failure": (lambda: fail("why"), lambda: Failure("why"), FAILED),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_helper_and_the_result_that_is_returned_instead_are_the_same(name: str) -> None:
    helper, returned, journal = ENDS[name]
    results = []
    for body in (helper, returned):
        result, told = played(body)
        assert told == journal
        results.append(result)
    first, second = results
    assert type(first) is type(second)
    if isinstance(first, Success):
        assert first.unwrap() == second.unwrap()
    if isinstance(first, Halt):
        assert (first.reason, second.unwrap()) == ("why", None)
    if isinstance(first, Failure) and isinstance(second, Failure):
        assert (first.message, first.exception_class) == (second.message, second.exception_class) == ("why", None)


@pytest.mark.parametrize("falsy", [None, False, 0, "", [], {}])
def test_a_falsy_value_is_a_value(falsy: Any) -> None:
    result, told = played(lambda: falsy)
    assert told == SUCCEEDED
    assert result.unwrap()["reader"] == ["read", falsy]


@pytest.mark.parametrize("unfinished", [Dispatched(None), Paused(None)])
def test_the_result_of_an_unfinished_execution_is_the_result_of_no_step(unfinished: Any) -> None:
    result, told = played(lambda: unfinished)
    assert told == FAILED
    assert isinstance(result, Failure)
    assert type(unfinished).__name__ in result.message


# -- from anywhere -----------------------------------------------------------------------------------------------------


def deep(depth: int, end: Body) -> Any:
    return end() if depth == 0 else deep(depth - 1, end)


def through_except() -> None:
    try:
        skip("why", value=5)
    except Exception:  # noqa: BLE001  # that is the point
        raise AssertionError from None


def in_finally() -> None:
    try:
        raise ValueError
    finally:
        skip("why", value=5)


def in_a_generator() -> list[int]:
    def numbers() -> Iterator[int]:
        yield 1
        skip("why", value=5)

    return list(numbers())


async def in_a_coroutine() -> None:
    await asyncio.sleep(0)
    skip("why", value=5)


async def in_a_task() -> None:
    await asyncio.create_task(in_a_coroutine())


async def in_a_gathering() -> None:
    await asyncio.gather(in_a_coroutine(), asyncio.sleep(0))


async def in_a_task_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(in_a_coroutine())


async def in_a_nested_task_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(in_a_task_group())


async def in_a_thread_of_a_coroutine() -> None:
    await asyncio.to_thread(lambda: skip("why", value=5))


@pytest.mark.parametrize(
    "body",
    [
        lambda: deep(200, lambda: skip("why", value=5)),
        through_except,
        in_finally,
        in_a_generator,
        in_a_coroutine,
        in_a_task,
        in_a_gathering,
        in_a_task_group,
        in_a_nested_task_group,
        in_a_thread_of_a_coroutine,
    ],
)
def test_a_helper_ends_the_step_from_wherever_it_is_called(body: Body) -> None:
    result, told = played(body)
    assert told == SKIPPED
    assert result.unwrap()["reader"] == ["read", 5]


def test_cleanup_runs_when_a_helper_leaves() -> None:
    cleaned: list[str] = []

    def body() -> None:
        try:
            skip()
        finally:
            cleaned.append("file")

    played(body)
    assert cleaned == ["file"]


def test_a_helper_in_a_thread_that_a_body_started_by_itself_is_refused_there() -> None:
    def body() -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(succeed, 5).result()

    result, told = played(body)
    assert told == FAILED
    assert isinstance(result, Failure)
    assert "outside of a step body" in result.message


def test_another_thread_may_run_a_body_meanwhile() -> None:
    both = threading.Barrier(2, timeout=20)

    def body() -> None:
        both.wait()
        skip("why", value=threading.get_ident())

    with ThreadPoolExecutor(2) as pool:
        first, second = [pool.submit(played, body) for _ in range(2)]
        assert first.result()[1] == second.result()[1] == SKIPPED
        assert first.result()[0].unwrap()["middle"] != second.result()[0].unwrap()["middle"]


def test_an_execution_that_a_body_runs_has_helpers_of_its_own() -> None:
    def body() -> Any:
        inner, told = played(lambda: fail("inside"))
        assert told == FAILED
        return inner.is_failure

    result, _ = played(body)
    assert result.unwrap()["middle"] is True


@pytest.mark.parametrize("value", [5, "five"])
def test_an_async_body_returns_its_value_and_raises_its_error(value: Any) -> None:
    async def body() -> int:
        await asyncio.sleep(0)
        return int(value)

    assert played(body)[1] == (SUCCEEDED if value == 5 else FAILED)


# -- exceptions --------------------------------------------------------------------------------------------------------


class Stop(BaseException):
    pass


def recurse() -> None:
    recurse()


def raising(error: BaseException) -> Body:
    def body() -> None:
        raise error

    return body


async def raising_in_a_task() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(raising(ValueError("one"))))


@pytest.mark.parametrize(
    "body",
    [
        raising(ValueError("no")),
        raising(Stop("no")),
        raising(ExceptionGroup("two", [ValueError("one"), TypeError("two")])),
        raising(BaseExceptionGroup("one", [Stop("no")])),
        raising(StopIteration(5)),
        raising(TimeoutError()),
        recurse,
        raising_in_a_task,
    ],
)
def test_whatever_else_leaves_a_body_fails_the_step(body: Body) -> None:
    result, told = played(body)
    assert told == FAILED
    assert isinstance(result, Failure)
    assert result.cause is not None


async def interrupted_task() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(raising(MemoryError())))


def raising_async(error: BaseException) -> Body:
    async def body() -> None:
        await asyncio.sleep(0)
        raise error

    return body


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (raising(KeyboardInterrupt()), KeyboardInterrupt),
        (raising(SystemExit(3)), SystemExit),
        (raising(GeneratorExit()), GeneratorExit),
        (raising(MemoryError()), MemoryError),
        (raising(asyncio.CancelledError()), asyncio.CancelledError),
        (raising_async(KeyboardInterrupt()), KeyboardInterrupt),
        (raising_async(SystemExit(3)), SystemExit),
        (raising_async(asyncio.CancelledError()), asyncio.CancelledError),
        (interrupted_task, MemoryError),
    ],
)
def test_an_interruption_goes_on_and_neither_fails_nor_undoes_anything(body: Body, kind: type[BaseException]) -> None:
    bench = Bench(a_reactor(body))
    with pytest.raises(kind):
        bench.start()
    assert bench.status is Status.ABORTED
    assert bench.told == ["run before success", "abort middle"]


def test_an_interruption_that_a_reactor_run_by_a_body_met_interrupts_both() -> None:
    inner = Bench(a_reactor(raising(KeyboardInterrupt())))
    outer = Bench(a_reactor(inner.start))
    with pytest.raises(KeyboardInterrupt):
        outer.start()
    assert inner.status is outer.status is Status.ABORTED


# -- before the body ---------------------------------------------------------------------------------------------------


class Charge(Step[Any]):
    amount: int

    class Meta:
        name = "bodies.Charge"
        retry = Retry()

    def run(self) -> None: ...

    def compensate(self, error: BaseException) -> None: ...


@pytest.mark.parametrize(
    "target_inputs",
    [lambda: {"amount": "much"}, dict, lambda: {"amount": 5, "currency": "EUR"}, lambda: 5, lambda: fail("no")],
)
def test_a_step_whose_arguments_cannot_be_made_is_neither_retried_nor_compensated(target_inputs: Body) -> None:
    class Shop(Reactor[Any]):
        @step(Charge)
        def charge(self) -> Any:
            return target_inputs()

    bench = Bench(Shop)
    bench.start()
    assert bench.told == ["run charge failure"]


# -- snooze ------------------------------------------------------------------------------------------------------------


def test_a_snooze_runs_the_step_again_later_without_an_entry_or_an_attempt() -> None:
    seen: list[tuple[int, int]] = []

    class Shop(Reactor[Any]):
        @step
        def wait(self) -> str:
            seen.append((self.context.attempt, self.context.snoozes))
            if len(seen) < 3:
                snooze(30, "not ready")
            return "ready"

    bench = Bench(Shop)
    assert bench.start().is_dispatched
    assert (bench.status, bench.entries) == (Status.SCHEDULED, [])
    assert [message.delay for message in bench.messenger.sent] == [30]
    assert (bench.record.snoozes, bench.record.snooze_reason) == (1, "not ready")
    result = bench.work()
    assert result is not None
    assert result.unwrap() == {"wait": "ready"}
    assert bench.told == ["run wait success"]
    assert seen == [(1, 0), (1, 1), (1, 2)]
    assert bench.clock.slept == []
    assert bench.record.snoozes == 2


def test_an_undo_may_snooze_too() -> None:
    tries: list[int] = []

    class Shop(Reactor[Any]):
        @step
        def reserve(self) -> None: ...

        @reserve.undo
        def release(self) -> None:
            tries.append(1)
            if len(tries) < 2:
                snooze(5)

        @step(after=["reserve"])
        def pay(self) -> None:
            fail("no")

    bench = Bench(Shop)
    bench.start()
    assert bench.status is Status.ROLLING_BACK
    bench.work()
    assert bench.told == ["run reserve success", "run pay failure", "undo reserve success"]
    assert (len(tries), bench.clock.slept) == (2, [])


def test_a_halt_in_an_undo_is_a_failure_of_the_undo() -> None:
    class Shop(Reactor[Any]):
        @step
        def reserve(self) -> None: ...

        @reserve.undo
        def release(self) -> None:
            halt("enough")

        @step(after=["reserve"])
        def pay(self) -> None:
            fail("no")

    bench = Bench(Shop)
    result = bench.start()
    assert isinstance(result, Failure)
    assert [(failed.step, failed.reason) for failed in result.rollback_failures] == [("reserve", "raised")]


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [lambda: "5", lambda: skip("why", value="5")])
def test_a_value_is_coerced_to_the_declared_type_also_when_the_step_is_skipped(body: Body) -> None:
    assert played(body, output=int)[0].unwrap()["reader"] == ["read", 5]


@pytest.mark.parametrize("body", [lambda: "five", lambda: skip("why", value="five")])
def test_a_value_of_another_type_fails_the_step_which_has_run_and_is_compensated(body: Body) -> None:
    result, told = played(body, output=int)
    assert told == FAILED
    assert isinstance(result, Failure)
    assert result.exception_class == "django_reactor.exceptions.OutputError"
    assert not result.retryable


def test_a_value_that_cannot_be_stored_fails_the_step_and_names_the_place() -> None:
    result, told = played(lambda: {"items": [1, threading.Lock()]})
    assert told == FAILED
    assert isinstance(result, Failure)
    assert "middle" in result.message
    assert "items" in result.message


def test_what_a_reader_does_to_a_value_no_other_reader_sees() -> None:
    class Shop(Reactor[Any]):
        @step
        def items(self) -> list[str]:
            return ["a"]

        @step
        def spoil(self, items: list[str]) -> None:
            items.append("b")

        @step(after=["spoil"])
        def count(self, items: list[str]) -> int:
            return len(items)

    result: Any = Bench(Shop).start()
    assert result.unwrap()["count"] == 1
