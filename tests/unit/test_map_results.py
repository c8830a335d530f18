"""The results of a map: lazy, in the order of the source, the same in any process."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from django_reactor.core.redaction import Redactor
from django_reactor.core.statuses import Relation, Status
from django_reactor.engine.map_ports import MapKey, Slot
from django_reactor.engine.map_results import PAGE, StoredResults
from django_reactor.engine.records import ExecutionRecord
from django_reactor.exceptions import SerializationError
from django_reactor.journal.memory_maps import MemorySlots
from django_reactor.journal.memory_store import MemoryRow, MemoryStore
from django_reactor.journal.stored import StoredValues
from django_reactor.results import Failure, Halt, Result, Success

KEY = MapKey(uuid4(), "imported", 2)


class CountingSlots(MemorySlots):
    """Counts how many slots were read, and how many at once."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.read: list[int] = []

    def slots(self, *args: object, **how: object) -> list[Slot]:
        found = list(super().slots(*args, **how))  # type: ignore[arg-type]
        self.read.append(len(found))
        return found


def kept(statuses: list[Status]) -> tuple[StoredResults, CountingSlots]:
    """The results of a map whose elements ended so."""
    store = MemoryStore()
    for index, status in enumerate(statuses):
        record = ExecutionRecord(
            id=UUID(int=index),
            root_id=KEY.execution_id,
            reactor="shop.Row",
            fingerprint="",
            status=status,
            inputs="{}",
            output=str(index * 10) if status is Status.COMPLETED else None,
            failure={"message": f"no {index}", "backtrace": [f"line {n}" for n in range(30)]},
            stop_reason="too late" if status is Status.CANCELLED else "",
            relation=Relation.ELEMENT,
            parent_id=KEY.execution_id,
            parent_step=KEY.step,
            parent_generation=KEY.generation,
            element_index=index,
        )
        store.rows[record.id] = MemoryRow(record, None, None)
        store.entries[record.id] = []
    slots = CountingSlots(store)
    codec = StoredValues(slots=slots)
    stored = codec.encode(StoredResults(KEY, len(statuses), slots=slots, new_codec=lambda: codec), at="result")
    found = StoredValues(slots=slots).decode(stored)
    assert isinstance(found, StoredResults)
    return found, slots


MIXED = [Status.COMPLETED, Status.FAILED, Status.HALTED, Status.COMPLETED, Status.CANCELLED]


def shown(result: Result[object]) -> object:
    match result:
        case Success(value):
            return value
        case Failure():
            return result.message
        case _:
            return type(result).__name__


def test_each_element_gives_its_result_in_the_order_of_the_source() -> None:
    results, _ = kept(MIXED)
    assert [shown(result) for result in results] == [0, "no 1", "Halt", 30, "the element is cancelled: too late"]
    assert [result.execution_id for result in results] == [UUID(int=index) for index in range(5)]
    assert len(results) == 5


def test_successes_and_failures_are_parts_that_are_read_alike() -> None:
    results, _ = kept(MIXED)
    assert [shown(result) for result in results.successes] == [0, "Halt", 30]
    assert [shown(result) for result in results.failures] == ["no 1", "the element is cancelled: too late"]
    assert (len(results.successes), len(results.failures)) == (3, 2)
    assert [index for index, _ in results.failures.indexed()] == [1, 4]
    assert shown(results.failures[-1]) == "the element is cancelled: too late"
    assert list(results.successes.failures) == []


def test_values_are_those_of_the_elements_that_succeeded() -> None:
    results, _ = kept(MIXED)
    assert list(results.values()) == [0, None, 30]


def test_nothing_failed_is_false_in_a_condition() -> None:
    results, _ = kept([Status.COMPLETED])
    assert results
    assert not results.failures
    assert not kept([])[0]


def test_an_element_that_goes_on_is_no_success() -> None:
    """Results are read when all have ended; then only an undo can be on its way."""
    results, _ = kept([Status.ROLLING_BACK])
    assert [shown(result) for result in results.failures] == ["the element is rolling_back"]
    assert not results.successes


@pytest.mark.parametrize(
    "look",
    [
        lambda each: each[0],
        lambda each: each[4],
        lambda each: each[-1],
        lambda each: each[-5],
        lambda each: each[1:3],
        lambda each: each[:],
        lambda each: each[-2:],
        lambda each: each[3:99],
        lambda each: each[::2],
        lambda each: each[::-1],
        lambda each: each[4:0:-3],
        lambda each: each[5:],
        lambda each: list(reversed(each)),
    ],
)
def test_it_is_indexed_and_sliced_like_a_list(look: Callable[[object], object]) -> None:
    results, _ = kept(MIXED)
    assert look(results) == look(list(results))
    assert look([0, 1, 2, 3, 4]) is not None


@pytest.mark.parametrize("index", [5, -6])
def test_an_index_beyond_its_end_is_an_error(index: int) -> None:
    results, _ = kept(MIXED)
    with pytest.raises(IndexError, match=f"element {index} of 5"):
        results[index]


def test_it_is_read_in_pages_and_one_element_alone() -> None:
    results, slots = kept([Status.COMPLETED] * (2 * PAGE + 1))
    assert sum(1 for _ in results) == 2 * PAGE + 1
    assert slots.read == [PAGE, PAGE, 1, 0]
    slots.read.clear()
    assert shown(results[2 * PAGE]) == 20 * PAGE
    assert slots.read == [1]
    slots.read.clear()
    assert len(results[10 : PAGE + 20]) == PAGE + 10
    assert slots.read == [PAGE, 10]
    assert len(results) == 2 * PAGE + 1


def test_a_loop_that_stops_early_reads_no_more() -> None:
    results, slots = kept([Status.COMPLETED] * (3 * PAGE))
    assert next(iter(results)) == Success(0, execution_id=UUID(int=0))
    assert slots.read == [PAGE]


def test_a_summary_counts_and_samples() -> None:
    results, _ = kept([Status.FAILED] * 30 + MIXED)
    summary = results.summary()
    counts = {name: summary[name] for name in ("total", "succeeded", "halted", "failed", "failures_truncated")}
    assert counts == {"total": 35, "succeeded": 2, "halted": 1, "failed": 32, "failures_truncated": True}
    assert [failure["index"] for failure in summary["failures"]] == list(range(25))
    assert summary["failures"][0]["message"] == "no 0"
    assert summary["failures"][0]["backtrace"] == [f"line {number}" for number in range(10)]


def test_a_reference_is_all_that_is_stored() -> None:
    results, slots = kept([Status.COMPLETED] * 500)
    text = StoredValues(slots=slots).encode(results, at="result")
    assert len(text) < 120
    assert slots.read == []
    assert StoredValues(slots=slots).decode(text) == results
    part = StoredValues(slots=slots).decode(StoredValues().encode(results.failures, at="result"))
    assert part == results.failures
    assert part != results
    assert StoredValues().display(text, Redactor()) == "results of 500 elements of imported"


def test_without_a_place_to_read_from_the_reference_is_refused() -> None:
    text = StoredValues().encode(kept([])[0], at="result")
    with pytest.raises(SerializationError, match="read by an execution only"):
        StoredValues().decode(text)


def test_a_halt_says_why() -> None:
    slot = Slot(index=0, execution_id=uuid4(), status=Status.HALTED, reason="enough")

    class One(CountingSlots):
        def slots(self, *args: object, **how: object) -> list[Slot]:
            return [slot]

    results = StoredResults(KEY, 1, slots=One(MemoryStore()), new_codec=StoredValues)
    assert results[0] == Halt("enough", execution_id=slot.execution_id)
