"""The results of a map's elements, read when they are asked for.

Only a reference is stored in the journal. What an element gave is in its own row; it is read in pages, and nothing that
was read is kept, so that a loop over fifty thousand of them takes no more memory than over fifty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast, overload

from typing_extensions import TypeVar

from django_reactor.core.statuses import Status
from django_reactor.engine.map_ports import MapKey, Slot, Slots
from django_reactor.engine.ports import Codec
from django_reactor.results import Failure, Halt, MapResults, Success

__all__ = ["StoredResults", "summarise"]

PAGE = 200
SAMPLES = 25
"""Failures in a summary, at most."""
FRAMES = 10
"""Lines of the backtrace of each, at most."""
SUCCEEDED = (Status.COMPLETED, Status.HALTED)
FAILED = tuple(status for status in Status if status not in SUCCEEDED)

ElementResult = Success[Any] | Failure | Halt
R = TypeVar("R", bound=ElementResult, default=ElementResult)


class StoredResults(MapResults[Any, R]):
    """Those of elements with rows."""

    def __init__(
        self,
        key: MapKey,
        total: int,
        *,
        slots: Slots,
        new_codec: Callable[[], Codec],
        statuses: Sequence[Status] | None = None,
    ) -> None:
        self.key, self.total = key, total
        self.statuses = None if statuses is None else tuple(statuses)
        self._slots, self._new_codec = slots, new_codec

    @property
    def successes(self) -> MapResults[Any, Success[Any] | Halt]:
        return self._only(SUCCEEDED)

    @property
    def failures(self) -> MapResults[Any, Failure]:
        return self._only(FAILED)

    def values(self) -> Iterator[Any]:
        return (result.unwrap() for result in self.successes)

    def indexed(self) -> Iterator[tuple[int, R]]:
        for slot, codec in self._pages():
            yield slot.index, cast(R, _result(slot, codec))

    def summary(self) -> Mapping[str, Any]:
        return self._slots.summary(self.key) or summarise(self._slots, self.key, self.total)

    def __len__(self) -> int:
        if self.statuses is None:
            return self.total
        return sum(number for status, number in self._slots.counts(self.key).items() if status in self.statuses)

    def __iter__(self) -> Iterator[R]:
        return (result for _, result in self.indexed())

    def __reversed__(self) -> Iterator[R]:
        for start in range(len(self), 0, -PAGE):
            yield from reversed(self[max(0, start - PAGE) : start])

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> list[R]: ...
    def __getitem__(self, index: int | slice) -> R | list[R]:
        if isinstance(index, slice):
            return self._slice(range(*index.indices(len(self))))
        position = index if index >= 0 else len(self) + index
        found = self._between(position, position + 1) if position >= 0 else []
        if not found:
            raise IndexError(f"element {index} of {len(self)}")
        return found[0]

    def __eq__(self, other: object) -> bool:
        """Whether they are the results of the same elements."""
        return isinstance(other, StoredResults) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"<results of {self.total:,} elements of {self.key.step}>"

    @property
    def _identity(self) -> tuple[MapKey, int, tuple[Status, ...] | None]:
        return self.key, self.total, self.statuses

    def _only(self, statuses: Sequence[Status]) -> StoredResults[Any]:
        kept = [status for status in statuses if self.statuses is None or status in self.statuses]
        return StoredResults(self.key, self.total, slots=self._slots, new_codec=self._new_codec, statuses=kept)

    def _slice(self, positions: range) -> list[R]:
        if not positions:
            return []
        first, last = min(positions[0], positions[-1]), max(positions[0], positions[-1])
        found = self._between(first, last + 1)
        return [found[position - first] for position in positions if position - first < len(found)]

    def _between(self, start: int, stop: int) -> list[R]:
        found: list[R] = []
        for first in range(start, stop, PAGE):
            codec = self._new_codec()
            found += [cast(R, _result(slot, codec)) for slot in self._page(first, min(PAGE, stop - first))]
        return found

    def _page(self, position: int, limit: int) -> Sequence[Slot]:
        """By position. In the whole that is the index, which leads there at once."""
        if self.statuses is None:
            return self._slots.slots(self.key, after=position - 1, limit=limit)
        return self._slots.slots(self.key, statuses=self.statuses, skip=position, limit=limit)

    def _pages(self) -> Iterator[tuple[Slot, Codec]]:
        after = -1
        while page := self._slots.slots(self.key, statuses=self.statuses, after=after, limit=PAGE):
            codec = self._new_codec()  # one for each page: it keeps the model instances that it has met
            yield from ((slot, codec) for slot in page)
            after = page[-1].index


def _result(slot: Slot, codec: Codec) -> ElementResult:
    match slot.status:
        case Status.COMPLETED:
            return Success(_value(slot, codec), execution_id=slot.execution_id)
        case Status.HALTED:
            return Halt(slot.reason, execution_id=slot.execution_id)
        case Status.FAILED:
            return Failure.from_dict(slot.failure or {"message": "failed"}, execution_id=slot.execution_id)
        case _:
            text = f"the element is {slot.status}" + (f": {slot.reason}" if slot.reason else "")
            return Failure(text, execution_id=slot.execution_id, retryable=False)


def _value(slot: Slot, codec: Codec) -> Any:
    """Raises `Gone` if it refers to a model instance that does not exist any more."""
    if slot.output is not None:
        return codec.decode(slot.output)
    return {step: None if text is None else codec.decode(text) for step, text in slot.results.items()}


def summarise(slots: Slots, key: MapKey, total: int) -> Mapping[str, Any]:
    counts = slots.counts(key)
    failed = sum(counts.get(status, 0) for status in FAILED)
    sampled = slots.slots(key, statuses=FAILED, limit=SAMPLES) if failed else ()
    return {
        "total": total,
        "succeeded": counts.get(Status.COMPLETED, 0),
        "halted": counts.get(Status.HALTED, 0),
        "failed": failed,
        "failures": [_sample(slot) for slot in sampled],
        "failures_truncated": failed > len(sampled),
    }


def _sample(slot: Slot) -> Mapping[str, Any]:
    failure = dict(slot.failure or {"message": f"the element is {slot.status}"})
    failure["backtrace"] = list(failure.get("backtrace", ()))[:FRAMES]
    return {**failure, "index": slot.index, "execution_id": str(slot.execution_id)}
