"""Maps whose elements run here, one after another, on a real database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.db.models import F, QuerySet
from django.test import override_settings
from pydantic import Field

from django_reactor import (
    Failure,
    Halt,
    Reactor,
    Result,
    Retry,
    Step,
    Success,
    compose,
    fail,
    halt,
    map_step,
    skip,
    snooze,
    step,
)
from django_reactor.engine import map_loading
from django_reactor.models import Execution, MapRun
from django_reactor.results import MapResults
from tests.contract.committed import PATIENCE, another_session
from tests.stored import execution_of

pytestmark = pytest.mark.django_db(transaction=True)

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    CALLS.clear()
    with override_settings(DJANGO_REACTOR={"BACKEND": "immediate"}):
        yield


class Double(Step[int]):
    n: Annotated[int, Field(ge=0)]

    def run(self) -> int:
        CALLS.append(f"run {self.n}")
        if self.n == 13:
            fail("unlucky")
        if self.n == 77:
            halt("enough")
        if self.n == 88:
            skip("no need", value=-1)
        return self.n * 2

    def undo(self, result: int) -> None:
        CALLS.append(f"undo {result}")
        if result == 2 * 66:
            fail("stuck")


class Doubled(Reactor[list[Any]]):
    numbers: list[int]

    class Meta:
        returns = "shown"

    @map_step(Double)
    def doubled(self, numbers: list[int]) -> Iterable[dict[str, int]]:
        return ({"n": n} for n in numbers)

    @step
    def shown(self, doubled: MapResults) -> list[Any]:
        return [result.unwrap() for result in doubled]


class Tolerant(Doubled):
    @map_step(Double, fail_fast=False)
    def doubled(self, numbers: list[int]) -> Iterable[dict[str, int]]:
        return ({"n": n} for n in numbers)

    @step
    def shown(self, doubled: MapResults) -> list[Any]:
        return [type(result).__name__ for result in doubled]


def rows() -> list[Execution]:
    return list(Execution.objects.filter(relation="element").order_by("element_index"))


def test_each_element_is_an_execution_and_gives_a_result() -> None:
    result = Doubled.run(numbers=[1, 2, 3])
    assert isinstance(result, Success)
    assert result.value == [2, 4, 6]
    execution = execution_of(result)
    assert [(row.status, row.element_index, row.reactor) for row in rows()] == [
        ("completed", index, "test_maps.Double") for index in range(3)
    ]
    assert {(row.parent_id, row.owner_id, row.root_id) for row in rows()} == {(execution.pk,) * 3}
    assert [entry.action for entry in execution.trace()] == ["dispatch", "run", "run"]
    assert MapRun.objects.values_list("state", "total").get() == ("done", 3)


def test_an_empty_source_gives_no_results() -> None:
    assert Doubled.run(numbers=[]).unwrap() == []


def test_the_first_failure_fails_the_map_and_what_was_done_is_undone_the_last_first() -> None:
    result = Doubled.run(numbers=[1, 2, 13, 4])
    assert isinstance(result, Failure)
    assert (result.message, result.step) == ("element 2: unlucky", "doubled.Double")
    assert CALLS == ["run 1", "run 2", "run 13", "undo 4", "undo 2"]
    assert [row.status for row in rows()] == ["undone", "undone", "failed", "cancelled"]
    assert result.rollback_failures == []
    assert execution_of(result).status == "failed"


def test_without_fail_fast_every_element_runs() -> None:
    result = Tolerant.run(numbers=[1, 13, 77, 88])
    assert result.unwrap() == ["Success", "Failure", "Halt", "Success"]


# -- the source --------------------------------------------------------------------------------------------------------


class Given(Reactor[list[Any]]):
    """A map over whatever `SOURCE` gives."""

    class Meta:
        returns = "shown"

    @step
    def before(self) -> str:
        return "done"

    @before.undo
    def not_before(self) -> None:
        CALLS.append("undo before")

    @map_step(Double, after=["before"])
    def doubled(self) -> Any:
        return SOURCE[0]()

    @step
    def shown(self, doubled: Any) -> list[Any]:
        return list(doubled.values()) if isinstance(doubled, MapResults) else [doubled]


CHUNK = 20
"""Elements that are stored at once, in these tests."""


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_loading, "CHUNK", CHUNK)


SOURCE: list[Callable[[], Any]] = [lambda: None]


def given_value(result: Result[Any]) -> Any:
    return result.unwrap()


def given(source: Callable[[], Any]) -> Any:
    SOURCE[0] = source
    return Given.run()


class Countdown:
    def __iter__(self) -> Iterator[dict[str, int]]:
        return iter([{"n": 2}, {"n": 1}])


@pytest.mark.parametrize(
    "source",
    [
        lambda: [{"n": 2}, {"n": 1}],
        lambda: ({"n": n} for n in (2, 1)),
        lambda: ({"n": 2}, {"n": 1}),
        lambda: Countdown(),
        lambda: iter([{"n": 2}, {"n": 1}]),
        lambda: map(dict, [[("n", 2)], [("n", 1)]]),
    ],
)
def test_any_iterable_of_dicts_is_a_source(source: Callable[[], Any]) -> None:
    assert given(source).unwrap() == [4, 2]


def test_a_query_set_is_streamed() -> None:
    Group.objects.bulk_create(Group(id=number, name=str(number)) for number in range(1, 6))
    asked: list[int] = []

    class Streamed(QuerySet[Any]):
        def iterator(self, chunk_size: int | None = None) -> Iterator[Any]:
            asked.append(chunk_size or 0)
            return super().iterator(chunk_size=chunk_size)

    result = given(lambda: Streamed(Group).order_by("pk").values(n=F("pk")))
    assert result.unwrap() == [2, 4, 6, 8, 10]
    assert asked == [CHUNK]


def test_a_query_may_be_read_while_others_write(database: str) -> None:
    """SQLite with a write-ahead log would refuse to store what the query gives."""
    if database == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode = wal")
    count = 2 * CHUNK + 1
    Group.objects.bulk_create(Group(name=f"{number:04}") for number in range(count))

    def source() -> Iterator[dict[str, int]]:
        for number, _ in enumerate(Group.objects.order_by("pk").iterator(chunk_size=10)):
            if number in (5, CHUNK + 5):
                with another_session() as other:
                    other(lambda: Group.objects.create(name=f"beside {number}")).result(PATIENCE)  # noqa: B023
            yield {"n": 1000 + number}

    try:
        assert len(given(source).unwrap()) >= count
    finally:
        if database == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA journal_mode = delete")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda: None, "doubled() returned None; a map needs an iterable of dicts, one for each element"),
        (lambda: {"n": 1}, "doubled() returned dict; a map needs an iterable of dicts, one for each element"),
        (lambda: "abc", "doubled() returned str; a map needs an iterable of dicts, one for each element"),
        (lambda: 7, "doubled() returned int; a map needs an iterable of dicts, one for each element"),
        (
            lambda: [{"n": 1}, 2],
            "element 1 is of type int: doubled() must give a dict of test_maps.Double's inputs for each "
            "(of a query set: .values(…))",
        ),
        (lambda: [{"n": 1}, {"n": -2}], "element 1: Double: n: Input should be greater than or equal to 0"),
        (lambda: [{"m": 1}], "element 0: Double: n: Field required; m: Double has no such input; there are n"),
    ],
)
def test_a_wrong_source_fails_the_step_before_anything_begins(source: Callable[[], Any], message: str) -> None:
    result = given(source)
    assert isinstance(result, Failure)
    assert (result.message, result.step) == (message, "doubled")
    assert result.exception_class == "django_reactor.exceptions.ArgumentError"
    assert CALLS == ["undo before"]
    assert (rows(), MapRun.objects.count()) == ([], 0)


def broken(error: Callable[[], Any]) -> Callable[[], Any]:
    def source() -> Iterator[dict[str, int]]:
        for n in range(CHUNK + 10):
            yield {"n": n}
        error()

    return source


def test_what_was_stored_of_a_source_that_fails_is_discarded() -> None:
    result = given(broken(lambda: 1 / 0))
    assert isinstance(result, Failure)
    assert (result.exception_class, result.step) == ("ZeroDivisionError", "doubled")
    assert "1 / 0" in result.snippet
    assert CALLS == ["undo before"]
    assert (rows(), MapRun.objects.count()) == ([], 0)


def test_a_source_may_skip_the_map() -> None:
    assert given(broken(lambda: skip("nothing to do", value="instead"))).unwrap() == ["instead"]
    assert (CALLS, rows(), MapRun.objects.count()) == ([], [], 0)


def test_a_source_may_halt_the_execution() -> None:
    result = given(broken(lambda: halt("closed")))
    assert isinstance(result, Halt)
    assert result.reason == "closed"
    assert (CALLS, rows(), MapRun.objects.count()) == ([], [], 0)


def test_a_source_may_ask_to_be_read_later() -> None:
    late = [True]

    def source() -> Iterator[dict[str, int]]:
        yield {"n": 1}
        if late.pop():
            late.append(False)
            snooze(0, "not ready")
        yield {"n": 2}

    result = given(source)
    assert execution_of(result).result().unwrap() == [2, 4]
    assert CALLS == ["run 1", "run 2"]


def test_refused_inputs_fail_their_element_alone_where_the_map_does_not_fail_fast() -> None:
    class Lenient(Given):
        @map_step(Double, fail_fast=False, after=["before"])
        def doubled(self) -> Any:
            return [{"n": 1}, {"n": -1}, {"n": object()}, {"n": 2}]

        @step
        def shown(self, doubled: MapResults) -> list[Any]:
            return [*doubled.values(), *(failure.message for failure in doubled.failures)]

    first, last, too_small, no_number = given_value(Lenient.run())
    assert (first, last) == (2, 4)
    assert "n: Input should be greater than or equal to 0" in too_small
    assert "n: Input should be a valid integer" in no_number
    assert [row.status for row in rows()] == ["completed", "failed", "failed", "completed"]
    failed = rows()[1]
    assert failed.failure["field_errors"] == {"n": ["Input should be greater than or equal to 0"]}
    assert failed.finished_at is not None
    assert failed.started_at is None


def test_a_long_source_is_stored_in_chunks_before_its_first_element_begins(database: str) -> None:
    counts: list[int] = []

    def source() -> Iterator[dict[str, int]]:
        for n in range(2 * CHUNK + 1):
            if n % CHUNK == 0:
                counts.append(len(rows()))
            yield {"n": 1000 + n}
        assert not CALLS

    result = given(source)
    assert counts == ([0, 0, 0] if database == "sqlite" else [0, CHUNK, 2 * CHUNK])
    assert result.unwrap()[-1] == 2000 + 4 * CHUNK


# -- targets -----------------------------------------------------------------------------------------------------------


class Pair(Reactor[dict[str, int]]):
    """Without a declared result: all its results are."""

    left: int
    right: int = 1

    @step
    def sum(self, left: int, right: int) -> int:
        return left + right

    @step(retry=Retry(max_attempts=2, delay=0))
    def product(self, left: int, right: int) -> int:
        CALLS.append(f"product {left}")
        if left == 3 and self.context.attempt == 1:
            raise ValueError("once")
        return left * right

    @product.undo
    def not_product(self, left: int) -> None:
        CALLS.append(f"not product {left}")


class Pairs(Reactor[list[Any]]):
    fails: bool = False

    class Meta:
        returns = "all"

    @map_step("test_maps.Pair")
    def pairs(self) -> Iterable[dict[str, int]]:
        return [{"left": 2, "right": 5}, {"left": 3}]

    @step
    def all(self, pairs: MapResults, fails: bool) -> list[Any]:
        if fails:
            fail("too late")
        return list(pairs.values())


def test_a_reactor_is_a_target_and_retries_its_steps() -> None:
    assert Pairs.run().unwrap() == [{"sum": 7, "product": 10}, {"sum": 4, "product": 3}]
    assert CALLS == ["product 2", "product 3", "product 3"]
    assert [entry.action for entry in rows()[1].trace()] == ["run", "run", "run"]


def test_a_later_failure_undoes_all_elements_the_last_first() -> None:
    result = Pairs.run(fails=True)
    assert isinstance(result, Failure)
    assert CALLS[3:] == ["not product 3", "not product 2"]
    assert [row.status for row in rows()] == ["undone", "undone"]
    assert MapRun.objects.get().state == "undone"
    assert [(entry.action, entry.step) for entry in execution_of(result).trace()][-2:] == [
        ("run", "all"),
        ("undo", "pairs"),
    ]


def test_a_map_inside_an_element_runs_there_and_a_map_inside_that_too() -> None:
    class Inner(Reactor[list[int]]):
        numbers: list[int]

        class Meta:
            returns = "values"

        @map_step(Double, fan_out=3)
        def doubled(self, numbers: list[int]) -> Iterable[dict[str, int]]:
            return [{"n": n} for n in numbers]

        @step
        def values(self, doubled: MapResults) -> list[int]:
            return list(doubled.values())

    class Outer(Reactor[list[Any]]):
        class Meta:
            returns = "values"

        @map_step(Inner)
        def rows(self) -> Iterable[dict[str, list[int]]]:
            return [{"numbers": [1, 2]}, {"numbers": []}, {"numbers": [3]}]

        @step
        def values(self, rows: MapResults) -> list[Any]:
            return list(rows.values())

    result = Outer.run()
    assert result.unwrap() == [[2, 4], [], [6]]
    owners = set(Execution.objects.values_list("owner", flat=True))
    assert owners == {execution_of(result).pk}
    assert [run.fan_out for run in MapRun.objects.all()] == [None] * 4
    execution_of(result).undo()
    assert CALLS == ["run 1", "run 2", "run 3", "undo 6", "undo 4", "undo 2"]
    assert set(Execution.objects.values_list("status", flat=True)) == {"undone"}


def test_elements_may_be_composed_and_a_composed_child_may_have_maps() -> None:
    class Middle(Reactor[list[int]]):
        n: int

        class Meta:
            returns = "pairs"

        @compose(Pairs)
        def pairs(self, n: int) -> dict[str, bool]:
            return {"fails": n == 2}

    class Top(Reactor[Any]):
        @map_step(Middle, fail_fast=False)
        def middles(self) -> Iterable[dict[str, int]]:
            return [{"n": 1}, {"n": 2}]

    result = Top.run()
    middles = given_value(result)["middles"]
    assert middles[0].unwrap() == [{"sum": 7, "product": 10}, {"sum": 4, "product": 3}]
    assert (middles[1].message, middles[1].step) == ("too late", "pairs.all")


# -- results -----------------------------------------------------------------------------------------------------------


def test_results_are_read_again_from_the_rows_by_whoever_asks() -> None:
    result = Tolerant.run(numbers=[1, 13, 77, 88])
    read = execution_of(result).results["doubled"]
    assert isinstance(read, MapResults)
    assert [type(each).__name__ for each in read] == ["Success", "Failure", "Halt", "Success"]
    assert list(read.values()) == [2, None, -1]
    assert (read.failures[0].message, read.failures[0].step) == ("unlucky", "Double")
    assert read[2] == Halt("enough", execution_id=rows()[2].pk)
    assert read[0].execution_id == rows()[0].pk
    summary = MapRun.objects.get().summary
    assert {name: summary[name] for name in ("total", "succeeded", "halted", "failed")} == {
        "total": 4,
        "succeeded": 2,
        "halted": 1,
        "failed": 1,
    }
    assert summary == read.summary()


def test_a_map_may_be_the_declared_result() -> None:
    class Returned(Doubled):
        class Meta:
            returns = "doubled"

    result = Returned.run(numbers=[1, 2])
    assert list(given_value(result).values()) == [2, 4]
    assert list(given_value(execution_of(result).result()).values()) == [2, 4]


# -- rollback ----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_undone_is_listed_by_element_and_tried_again_by_the_next_undo() -> None:
    result = Doubled.run(numbers=[1, 66, 2])
    execution = execution_of(result)
    undone = execution.undo()
    assert isinstance(undone, Failure)
    assert [(one.step, one.element_index, one.message) for one in undone.rollback_failures] == [
        ("doubled.Double", 1, "stuck")
    ]
    assert [row.status for row in rows()] == ["undone", "failed", "undone"]
    assert CALLS[3:] == ["undo 4", "undo 132", "undo 2"]
    CALLS.clear()
    again = execution.undo()
    assert isinstance(again, Failure)
    assert len(again.rollback_failures) == 1
    assert CALLS == ["undo 132"]


def test_a_failed_map_runs_again_in_a_new_generation() -> None:
    class Second(Doubled):
        @map_step(Double)
        def doubled(self, numbers: list[int]) -> Iterable[dict[str, int]]:
            return [{"n": n if n != 13 or self.context.run_key.endswith(":0") else 14} for n in numbers]

    result = Second.run(numbers=[1, 13])
    assert isinstance(result, Failure)
    assert execution_of(result).retry().unwrap() == [2, 28]
    assert CALLS == ["run 1", "run 13", "undo 2", "run 1", "run 14"]
    assert {(row.parent_generation, row.status) for row in rows()} == {
        (0, "undone"),
        (0, "failed"),
        (1, "completed"),
    }


def test_a_result_that_is_kept_is_read_from_its_own_generation() -> None:
    class Flaky(Doubled):
        @step
        def shown(self, doubled: MapResults) -> list[Any]:
            if len(CALLS) < 4:
                CALLS.append("fail")
                fail("not yet")
            return list(doubled.values())

    failed = Flaky.run(numbers=[1, 2])
    retried = execution_of(failed).retry()
    assert retried.unwrap() == [2, 4]


class Stubborn(Step[int]):
    """Its undo fails the first time."""

    n: int

    def run(self) -> int:
        CALLS.append(f"run {self.n}")
        return self.n

    def undo(self, result: int) -> None:
        CALLS.append(f"undo {result}")
        if CALLS.count(f"undo {result}") == 1:
            fail("stuck")


class Again(Reactor[list[int]]):
    class Meta:
        returns = "sent"

    @map_step(Stubborn)
    def stubborn(self) -> Iterable[dict[str, int]]:
        return ({"n": n} for n in range(3))

    @step
    def sent(self, stubborn: MapResults[int]) -> list[int]:
        if CALLS.count("run 0") == 1:
            fail("not yet")
        return list(stubborn.values())


def test_a_retry_that_first_undoes_what_the_last_rollback_could_not_runs_every_element_again() -> None:
    execution = execution_of(Again.run())
    assert execution.status == "failed"
    assert execution.retry().unwrap() == [0, 1, 2]
    runs = ["run 0", "run 1", "run 2"]
    undos = ["undo 2", "undo 1", "undo 0"]
    assert [*runs, *undos, *undos, *runs] == CALLS
