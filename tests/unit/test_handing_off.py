"""Hand-off, delivery, retries and interruptions in workers, and the end of poison: on the in-memory adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import new_class
from typing import Any, cast
from uuid import uuid4

import pytest

from django_reactor import (
    Background,
    Dispatched,
    Failure,
    Paused,
    Reactor,
    Retry,
    Step,
    Success,
    async_reactor,
    async_step,
    compose,
    fail,
    halt,
    interrupt,
    map_step,
    skip,
    snooze,
    step,
)
from django_reactor.core.entries import Entry
from django_reactor.core.statuses import Status
from django_reactor.engine import delivering, interruptions, starting
from django_reactor.engine.execution_ports import Journal
from django_reactor.engine.records import Lease, Message
from django_reactor.engine.services import Limits
from django_reactor.exceptions import PoisonExecution
from django_reactor.journal.memory import MemoryMessenger
from django_reactor.queues import interruptions as of_libraries
from tests.engine_support import Bench, Fleet


def a_reactor(point: Background | None) -> type[Reactor[Any]]:
    class Handing(Reactor[Any]):
        class Meta:
            background = point

        @step
        def one(self) -> bool:
            return bool(self.context.in_worker)

        @one.undo
        def undo_one(self, result: bool) -> None: ...

        @step
        def side(self) -> bool:
            return bool(self.context.in_worker)

        @step
        def two(self, one: bool) -> bool:
            return bool(self.context.in_worker)

    return Handing


def test_after_a_step_the_rest_runs_in_a_worker() -> None:
    bench = Bench(a_reactor(Background(after="one")))
    result = bench.start()
    assert isinstance(result, Dispatched)
    assert dict(result.results) == {"one": False}
    assert (bench.status, bench.told) == (Status.PENDING, ["run one success", "hand_off"])
    assert len(bench.messenger.sent) == 1
    done = bench.work()
    assert isinstance(done, Success)
    assert done.value == {"one": False, "side": True, "two": True}


def test_before_a_step_that_step_is_the_first_in_a_worker() -> None:
    bench = Bench(a_reactor(Background(before="two")))
    assert bench.start().is_dispatched
    done = bench.work()
    assert isinstance(done, Success)
    assert done.value == {"one": False, "side": False, "two": True}


def test_a_hand_off_after_the_last_step_is_none() -> None:
    class Last(Reactor[Any]):
        class Meta:
            background = Background(after="only")

        @step
        def only(self) -> int:
            return 1

    bench = Bench(Last)
    assert bench.start().unwrap() == {"only": 1}
    assert bench.messenger.sent == []


def test_before_the_first_step_nothing_runs_in_the_caller() -> None:
    bench = Bench(a_reactor(Background(before="one")))
    assert dict(cast(Dispatched, bench.start()).results) == {}
    done = bench.work()
    assert isinstance(done, Success)
    assert done.value == {"one": True, "side": True, "two": True}


def skips() -> None:
    skip("nothing to do", value=False)


def halts() -> None:
    halt("enough")


def fails() -> None:
    fail("no")


@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        (skips, (Status.PENDING, Status.COMPLETED)),
        (halts, (Status.HALTED,)),
        (fails, (Status.FAILED,)),
    ],
)
def test_after_a_step_that_was_skipped_the_rest_runs_in_a_worker_and_an_end_there_is_the_callers(
    body: Callable[[], None], statuses: tuple[Status, ...]
) -> None:
    class Ending(Reactor[Any]):
        class Meta:
            background = Background(after="one")

        @step
        def one(self) -> bool:
            body()
            return False

        @step
        def two(self, one: bool) -> bool:
            return bool(self.context.in_worker)

    bench = Bench(Ending)
    bench.start()
    assert (bench.status, len(bench.messenger.sent)) == (statuses[0], len(statuses) - 1)
    bench.work()
    assert bench.status is statuses[-1]


def test_after_a_unit_is_after_its_dispatch() -> None:
    class Mailing(Reactor[Any]):
        class Meta:
            background = Background(after="mail")

        @async_step
        def mail(self) -> None: ...

        @step(after=["mail"])
        def two(self) -> bool:
            return bool(self.context.in_worker)

    bench = Bench(Mailing)
    assert isinstance(bench.start(), Dispatched)
    assert bench.told == ["dispatch mail", "hand_off"]


def test_a_caller_does_not_wait_for_the_unit_that_the_first_step_in_a_worker_reads() -> None:
    class Reading(Reactor[Any]):
        class Meta:
            background = Background(before="reader")

        @async_step
        def unit(self) -> str:
            return "done"

        @step
        def reader(self, unit: str) -> str:
            return unit

    bench = Bench(Reading)
    assert isinstance(bench.start(), Dispatched)
    assert (bench.clock.slept, bench.told) == ([], ["dispatch unit", "hand_off"])


def test_what_is_enqueued_runs_wholly_in_a_worker() -> None:
    bench = Bench(a_reactor(None))
    result = bench.enqueue()
    assert isinstance(result, Dispatched)
    assert (bench.status, bench.entries, bench.record.epoch) == (Status.PENDING, [], 0)
    done = bench.work()
    assert isinstance(done, Success)
    assert done.value == {"one": True, "side": True, "two": True}


class Own(Reactor[Any]):
    class Meta:
        queue_name = "own"

    @step
    def only(self) -> str:
        return "done"


def test_every_message_of_an_execution_and_its_units_goes_to_its_queue_with_its_priority() -> None:
    class Sending(Reactor[Any]):
        class Meta:
            background = Background(after="one")

        @step
        def one(self) -> None: ...

        @step(after=["one"], retry=Retry(max_attempts=2, delay=1))
        def two(self) -> None:
            if self.context.snoozes == 0:
                snooze(1)
            if self.context.attempt == 1:
                fail("no")

        @async_step(after=["two"])
        def unit(self) -> str:
            return "done"

        @async_reactor(Own, after=["two"])
        def own(self) -> dict[str, Any]:
            return {}

        @step
        def reader(self, unit: str, own: Any) -> str:
            return unit

    fleet = Fleet(Sending)
    fleet.others = (Own,)
    sent: list[Message] = []

    class Watched(MemoryMessenger):
        def send(self, message: Message) -> None:
            sent.append(message)
            super().send(message)

    fleet.messenger = Watched()
    fleet.services = replace(fleet.services, messenger=fleet.messenger)
    starting.start(fleet.services, fleet.definition, {}, starting.Call(queue_name="slow", priority=7))
    delivering.deliver(fleet.services, lambda label: None, fleet.execution_id)
    assert isinstance(fleet.work(), Success)
    own = fleet.unit("own").id
    assert len(sent) >= 8  # hand-off, put back, snooze, retry, two units, park, wake
    assert {(message.execution_id == own, message.queue_name, message.priority) for message in sent} == {
        (False, "slow", 7),
        (True, "own", 7),
    }


def test_a_message_that_comes_again_or_late_does_nothing() -> None:
    bench = Bench(a_reactor(None))
    bench.enqueue()
    assert bench.work() is not None
    assert bench.deliver() is None
    assert len(bench.told) == 3


def test_an_early_message_is_sent_once_more_with_the_rest_of_the_delay() -> None:
    bench = Bench(a_reactor(None))
    bench.enqueue()
    bench.messenger.sent.clear()
    bench.store.rows[bench.execution_id].wake_at = bench.clock.now() + timedelta(seconds=7)
    assert bench.deliver() is None
    assert [message.delay for message in bench.messenger.sent] == [7]
    assert bench.record.recoveries == 0
    assert bench.work() is not None


def test_a_message_for_what_does_not_exist_is_dropped() -> None:
    bench = Bench(a_reactor(None))
    assert delivering.deliver(bench.services, bench.find, uuid4()) is None
    assert bench.messenger.sent == []


def test_a_reactor_that_this_worker_does_not_know_is_put_back_and_nothing_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(a_reactor(None))
    bench.enqueue()
    bench.messenger.sent.clear()
    before = bench.record
    assert delivering.deliver(bench.services, lambda label: None, bench.execution_id) is None
    assert bench.record == before
    assert [message.delay for message in bench.messenger.sent] == [bench.services.limits().unknown_reactor_delay]
    assert bench.record.reactor in caplog.text
    assert bench.work() is not None


def test_of_the_messages_for_a_reactor_that_is_unknown_here_one_is_put_back_and_none_once_it_has_ended() -> None:
    bench = Bench(a_reactor(None))
    bench.enqueue()
    for _ in range(3):
        delivering.deliver(bench.services, lambda label: None, bench.execution_id)
    (_, put_back) = bench.messenger.sent
    assert put_back.delay == bench.services.limits().unknown_reactor_delay
    bench.clock.advance(put_back.delay)
    bench.messenger.sent.clear()
    assert bench.deliver() is not None
    delivering.deliver(bench.services, lambda label: None, bench.execution_id)
    assert bench.messenger.sent == []


def test_an_early_message_for_a_reactor_that_is_unknown_here_is_sent_with_the_rest_of_the_delay() -> None:
    bench = Bench(a_reactor(None))
    bench.enqueue()
    bench.messenger.sent.clear()
    bench.store.rows[bench.execution_id].wake_at = bench.clock.now() + timedelta(seconds=7)
    assert delivering.deliver(bench.services, lambda label: None, bench.execution_id) is None
    assert [message.delay for message in bench.messenger.sent] == [7]


class Piece(Step[int]):
    n: int

    def run(self) -> int:
        return self.n


class Whole(Reactor[Any]):
    n: int

    piece = step(Piece)


KINDS: dict[str, Callable[[], Any]] = {
    "step": lambda: step(lambda self, n: n),
    "step that names none": lambda: step(lambda self: None),
    "step class": lambda: step(Piece),
    "async_step": lambda: async_step(lambda self, n: n),
    "async_reactor": lambda: async_reactor(Whole),
    "compose": lambda: compose(Whole),
    "map": lambda: map_step(Piece)(lambda self, n: [{"n": n}]),
    "interrupt": lambda: interrupt(lambda self, n: None),
}


@pytest.mark.parametrize("damaged", ['{"n": ', "[]", "", '{"n": {"secret": '])
@pytest.mark.parametrize("kind", KINDS)
def test_inputs_that_cannot_be_read_fail_the_step_that_needs_them_at_once(kind: str, damaged: str) -> None:
    class Damaged(Reactor[Any]):
        n: int

        class Meta:
            abstract = True

    body = {"__module__": __name__, "__qualname__": f"Damaged {kind}", "reads": KINDS[kind]()}
    bench = Bench(new_class(f"Damaged {kind}", (Damaged,), {}, lambda names: names.update(body)))
    bench.enqueue(n=3)
    bench.store.rows[bench.execution_id].change(inputs=damaged)
    failure = bench.deliver()
    assert isinstance(failure, Failure)
    assert (failure.step, failure.exception_class) == ("reads", "django_reactor.exceptions.SerializationError")
    assert (bench.status, bench.record.recoveries) == (Status.FAILED, 0)


class Flaky(Reactor[Any]):
    failures: int

    @step(retry=Retry(max_attempts=3, backoff="fixed", delay=20, jitter=0))
    def call(self, failures: int) -> int:
        attempt: int = self.context.attempt
        if attempt <= failures:
            raise ConnectionError(f"attempt {attempt}")
        return attempt


def test_a_retry_in_a_worker_is_journaled_with_the_release_and_holds_no_thread() -> None:
    bench = Bench(Flaky)
    bench.enqueue(failures=2)
    bench.messenger.sent.clear()
    result = bench.deliver()
    assert isinstance(result, Dispatched)
    assert (bench.status, bench.told) == (Status.SCHEDULED, ["run call retrying"])
    assert bench.clock.slept == []
    assert [message.delay for message in bench.messenger.sent] == [20]
    done = bench.work()
    assert isinstance(done, Success)
    assert done.value == {"call": 3}
    assert bench.record.recoveries == 0


def test_a_retry_in_a_caller_is_slept() -> None:
    bench = Bench(Flaky)
    assert bench.start(failures=2).unwrap() == {"call": 3}
    assert bench.clock.slept == [20, 20]
    assert bench.messenger.sent == []


def test_a_failure_in_a_worker_undoes_what_the_caller_did() -> None:
    undone: list[bool] = []

    class Failing(Reactor[Any]):
        class Meta:
            background = Background(after="one")

        @step
        def one(self) -> str:
            return "done"

        @one.undo
        def undo_one(self, result: str) -> None:
            undone.append(self.context.in_worker)

        @step
        def two(self, one: str) -> None:
            raise RuntimeError("no")

    bench = Bench(Failing)
    bench.start()
    assert isinstance(bench.work(), Failure)
    assert undone == [True]


def test_what_is_retried_in_place_after_its_hand_off_stays_here() -> None:
    class Failing(Reactor[Any]):
        class Meta:
            background = Background(after="one")

        @step
        def one(self) -> str:
            return "done"

        @one.undo
        def undo_one(self, result: str) -> None: ...

        @step
        def two(self, one: str) -> None:
            if self.context.in_worker:
                raise RuntimeError("no")

    bench = Bench(Failing)
    bench.start()
    bench.work()
    assert bench.retry().is_success
    assert bench.told.count("hand_off") == 1


POINTS = [Background(), Background(after="one"), Background(before="two")]


def asking(point: Background, refusals: list[str]) -> Bench:
    """One that asks, and whose last step is refused as often as there are refusals."""

    class Asking(Reactor[Any]):
        class Meta:
            background = point

        @step
        def one(self) -> bool:
            return bool(self.context.in_worker)

        @one.undo
        def undo_one(self, result: bool) -> None: ...

        @step
        def two(self, one: bool) -> bool:
            return bool(self.context.in_worker)

        @interrupt
        def ask(self, two: bool) -> None: ...

        @step
        def last(self, ask: str) -> bool:
            if refusals:
                raise RuntimeError(refusals.pop())
            return bool(self.context.in_worker)

        @step
        def end(self, last: bool) -> bool:
            return bool(self.context.in_worker)

    return Bench(Asking)


@pytest.mark.parametrize("point", POINTS)
def test_what_was_enqueued_is_resumed_here_when_its_point_is_behind_it(point: Background) -> None:
    bench = asking(point, [])
    bench.enqueue()
    assert isinstance(bench.work(), Paused)
    resumed = bench.resume("go")
    assert resumed.unwrap() == {"one": True, "two": True, "ask": "go", "last": False, "end": False}
    assert "hand_off" not in bench.told


@pytest.mark.parametrize("point", POINTS)
def test_what_was_enqueued_is_retried_here_when_its_point_is_behind_it(point: Background) -> None:
    bench = asking(point, ["no"])
    bench.enqueue()
    assert isinstance(bench.work(), Paused)
    assert isinstance(bench.resume("go"), Failure)
    assert isinstance(bench.retry(), Paused)  # all that was undone, or rests on that, runs again, the point among it
    assert bench.resume("go").unwrap() == {"one": False, "two": False, "ask": "go", "last": False, "end": False}
    assert "hand_off" not in bench.told


@pytest.mark.parametrize("point", [Background(after="last"), Background(before="end")])
def test_a_resume_that_comes_to_the_point_hands_off_there(point: Background) -> None:
    bench = asking(point, [])
    assert isinstance(bench.start(), Paused)
    assert isinstance(bench.resume("go"), Dispatched)
    done = bench.work()
    assert isinstance(done, Success)
    assert (done.value["last"], done.value["end"]) == (False, True)


class ShutDown(BaseException):
    """As a worker's shutdown arrives in its threads."""


@pytest.fixture
def _known_to_the_engine() -> Iterator[None]:
    interruptions.extend(lambda: (ShutDown,), lambda error: isinstance(error, ShutDown))
    yield
    interruptions.extend(of_libraries.loaded, of_libraries.is_shutdown)


@pytest.mark.usefixtures("_known_to_the_engine")
@pytest.mark.parametrize(("blow", "recoveries"), [(ShutDown, 0), (SystemExit, 1), (MemoryError, 1)])
def test_an_interruption_in_a_worker_rolls_nothing_back_and_is_delivered_again(
    blow: type[BaseException], recoveries: int
) -> None:
    struck: list[int] = []

    class Struck(Reactor[Any]):
        @step
        def one(self) -> str:
            return "done"

        @one.undo
        def undo_one(self, result: str) -> None:
            pytest.fail("an interruption is no failure")

        @step
        def two(self, one: str) -> str:
            struck.append(1)
            if len(struck) == 1:
                raise blow
            return "done"

    bench = Bench(Struck)
    bench.enqueue()
    bench.messenger.sent.clear()
    with pytest.raises(blow):
        bench.deliver()
    assert (bench.status, bench.told[-1]) == (Status.PENDING, "abort two")
    assert bench.record.recoveries == recoveries
    done = bench.work()
    assert isinstance(done, Success)
    assert bench.told == ["run one success", "abort two", "run two success"]


def test_an_execution_that_ends_its_process_again_and_again_fails_as_poison_and_is_rolled_back() -> None:
    effects: list[str] = []

    class Deadly(Reactor[Any]):
        @step
        def one(self) -> str:
            return "done"

        @one.undo
        def undo_one(self, result: str) -> None:
            effects.append("undone")

        @step
        def two(self, one: str) -> None:
            effects.append("began")
            raise SystemExit

        @two.compensate
        def tidy(self, error: BaseException) -> None:
            effects.append("compensated")

    bench = Bench(Deadly)
    bench.services = replace(bench.services, limits=lambda: Limits(max_recoveries=2))
    bench.enqueue()
    result = None
    deliveries = 0
    while bench.messenger.sent and deliveries < 20:
        deliveries += 1
        try:
            result = bench.work()
        except SystemExit:
            continue
    assert isinstance(result, Failure)
    assert result.exception_class == f"{PoisonExecution.__module__}.{PoisonExecution.__qualname__}"
    assert result.step == "two"
    assert effects[-2:] == ["compensated", "undone"]
    assert effects.count("began") <= 4
    assert bench.status is Status.FAILED


def test_an_undo_that_is_the_poison_is_listed_and_the_next_one_runs() -> None:
    effects: list[str] = []

    class Deadly(Reactor[Any]):
        @step
        def one(self) -> str:
            return "done"

        @one.undo
        def undo_one(self, result: str) -> None:
            effects.append("undone")

        @step
        def two(self, one: str) -> str:
            return "done"

        @two.undo
        def undo_two(self, result: str) -> None:
            raise SystemExit

        @step
        def three(self, two: str) -> None:
            raise RuntimeError("no")

    bench = Bench(Deadly)
    bench.services = replace(bench.services, limits=lambda: Limits(max_recoveries=2))
    bench.enqueue()
    result = None
    for _ in range(20):
        if not bench.messenger.sent:
            break
        try:
            result = bench.work()
        except SystemExit:
            continue
    assert isinstance(result, Failure)
    assert [(failure.step, failure.reason) for failure in result.rollback_failures] == [("two", "poison")]
    assert effects == ["undone"]


class Death(BaseException):
    """The process dies here."""


class DiesAfterAppend:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def append(self, lease: Lease, entry: Entry) -> None:
        self._journal.append(lease, entry)
        raise Death

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


def test_progress_between_deaths_is_no_poison() -> None:
    class Long(Reactor[Any]):
        @step
        def one(self) -> None: ...

        @step(after=["one"])
        def two(self) -> None: ...

        @step(after=["two"])
        def three(self) -> None: ...

    bench = Bench(Long)
    bench.services = replace(bench.services, limits=lambda: Limits(max_recoveries=1))
    bench.enqueue()
    real = bench.services.journal
    for recorded in range(1, 3):  # a process that dies after each entry
        bench.services = replace(bench.services, journal=cast(Journal, DiesAfterAppend(real)))
        with pytest.raises(Death):
            bench.recover()
        assert len(bench.entries) == recorded
    bench.services = replace(bench.services, journal=real)
    assert bench.recover() is not None
    assert bench.status is Status.COMPLETED


@pytest.mark.parametrize("snoozes", [20, 2 * Limits().max_snoozes + 1])
def test_snoozes_are_no_poison_and_a_step_may_ask_for_any_number(snoozes: int) -> None:
    class Patient(Reactor[Any]):
        @step
        def wait(self) -> int:
            if self.context.snoozes < snoozes:
                snooze(1)
            return int(self.context.snoozes)

    bench = Bench(Patient)
    bench.enqueue()
    done = bench.work()
    assert isinstance(done, Success)
    assert done.value == {"wait": snoozes}


class Tongue:
    """A carrier of one word."""

    def __init__(self) -> None:
        self.word = "caller's"

    def capture(self) -> Mapping[str, Any]:
        return {"tongue": self.word}

    @contextmanager
    def restored(self, carried: Mapping[str, Any]) -> Iterator[None]:
        before, self.word = self.word, carried["tongue"]
        try:
            yield
        finally:
            self.word = before


def test_bodies_and_undos_in_a_worker_run_in_what_was_carried() -> None:
    tongue = Tongue()
    heard: list[str] = []

    class Speaking(Reactor[Any]):
        @step
        def one(self) -> None:
            heard.append(tongue.word)

        @one.undo
        def undo_one(self, result: None) -> None:
            heard.append(tongue.word)

        @step(after=["one"])
        def two(self) -> None:
            raise RuntimeError("no")

    bench = Bench(Speaking)
    bench.services = replace(bench.services, carriers=tongue)
    bench.enqueue()
    tongue.word = "worker's"
    bench.work()
    assert heard == ["caller's", "caller's"]
    assert tongue.word == "worker's"


def test_a_worker_that_was_asked_to_stop_leaves_the_rest_after_the_step_that_runs() -> None:
    stopping: list[bool] = []

    class Long(Reactor[Any]):
        @step
        def one(self) -> None:
            stopping.append(True)

        @step(after=["one"])
        def two(self) -> None: ...

    bench = Bench(Long)
    bench.services = replace(bench.services, is_stopping=lambda: bool(stopping))
    bench.enqueue()
    bench.messenger.sent.clear()
    result = bench.deliver()
    assert isinstance(result, Dispatched)
    assert (bench.status, bench.told, bench.record.recoveries) == (Status.PENDING, ["run one success"], 0)
    stopping.clear()
    assert bench.work() is not None
    assert bench.status is Status.COMPLETED
