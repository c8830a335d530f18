"""A process killed at any instant around an interrupt: no question is lost, and no answer lost or taken twice."""

from __future__ import annotations

from collections import Counter

import pytest

from django_reactor import Dispatched, Failure, Paused, Reactor, Success, actions, sweeper
from django_reactor.core.statuses import Relation, Status
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.exceptions import AlreadyResumed, InvalidTransition
from django_reactor.models import Execution, JournalEntry, Wait
from tests.crash.processes import Processes, expire
from tests.crash.reactors import Asks, AsksInside, AsksLater, effects
from tests.crash.test_crashes import recovered

RESULTS: dict[type[Reactor], str] = {Asks: "shipped 7", AsksLater: "shipped 7", AsksInside: "signed, shipped 7"}
POINTS_TO_THE_PAUSE = (
    CrashPoint.STARTED,
    CrashPoint.DISPATCHED,
    CrashPoint.BODY_DONE,
    CrashPoint.RECORDED,
    CrashPoint.WAIT_OPENED,
    CrashPoint.PAUSED,
)
POINTS_OF_THE_ANSWER = (
    CrashPoint.ANSWERED,
    CrashPoint.BODY_DONE,
    CrashPoint.RECORDED,
    CrashPoint.BEFORE_END,
)


def root() -> Execution:
    return Execution.objects.get(relation=Relation.ROOT)


def forget() -> None:
    for model in (Wait, JournalEntry, Execution):
        model._default_manager.all().delete()


def once_more(before: Counter[str], expected: Counter[str]) -> Counter[str]:
    """What ran a second time; all that is expected must have run."""
    done = effects() - before
    assert not expected - done, done
    return done - expected


@pytest.mark.parametrize("reactor", [Asks, AsksInside], ids=lambda reactor: reactor.__name__)
@pytest.mark.parametrize("point", POINTS_TO_THE_PAUSE)
def test_a_run_that_was_killed_on_its_way_to_a_pause_pauses_once_and_goes_on(
    processes: Processes, reactor: type[Reactor], point: CrashPoint
) -> None:
    before, count = effects(), 1
    while processes.run(reactor, crash_at=(point, count)).was_killed:
        if root().status != Status.PAUSED:
            assert isinstance(recovered(root().pk), Paused), (point, count)
        assert root().status == Status.PAUSED
        assert Wait.objects.get().state == "open"
        assert root().resume(7) == Success(RESULTS[reactor], execution_id=root().pk)
        expected = Counter(["reserve", "ask", "ship 7"] + ["sign"] * (reactor is AsksInside))
        repeated = once_more(before, expected)
        assert repeated.total() <= 1, (point, count, repeated)
        assert "ship 7" not in repeated
        before, count = effects(), count + 1
        forget()
    assert count > 1 or (point, reactor) == (CrashPoint.DISPATCHED, Asks)
    forget()


@pytest.mark.parametrize("reactor", RESULTS, ids=lambda reactor: reactor.__name__)
@pytest.mark.parametrize("point", POINTS_OF_THE_ANSWER)
def test_an_answer_whose_process_was_killed_is_neither_lost_nor_taken_twice(
    processes: Processes, reactor: type[Reactor], point: CrashPoint
) -> None:
    count = 1
    while True:
        before = effects()
        assert processes.run(reactor).how == "exit 0"
        if not processes.act("resume", root().pk, "7", crash_at=(point, count)).was_killed:
            break
        with pytest.raises((AlreadyResumed, InvalidTransition)):
            root().resume(8)
        if root().status != Status.COMPLETED:
            assert isinstance(recovered(root().pk), Success), (point, count)
        assert root().result() == Success(RESULTS[reactor], execution_id=root().pk)
        assert (Wait.objects.get().state, Wait.objects.get().payload) == ("applied", "7")
        expected = Counter(["reserve", "ask", "ship 7"] + ["sign"] * (reactor is AsksInside))
        assert once_more(before, expected).total() <= (point in (CrashPoint.BODY_DONE, CrashPoint.BEFORE_END))
        count += 1
        forget()
    assert count > 1 or (reactor is AsksLater and point is not CrashPoint.ANSWERED)
    forget()


def test_an_answer_for_a_worker_whose_message_was_never_sent_is_found_by_the_sweeper(processes: Processes) -> None:
    assert processes.run(AsksLater).how == "exit 0"
    assert processes.act("resume", root().pk, "7", crash_at=(CrashPoint.ANSWERED, 1)).was_killed
    assert root().status == Status.PENDING
    Execution.objects.update(sent_at=None)
    delivered = []
    swept = sweeper.recovery(lambda message: delivered.append(message.execution_id)).sweep()
    assert (swept.delivered, delivered) == (1, [root().pk])


@pytest.mark.parametrize("point", [CrashPoint.ANSWERED, CrashPoint.ROLLBACK_BODY_DONE, CrashPoint.RECORDED])
def test_the_last_invalid_answer_rolls_back_whoever_dies_meanwhile(processes: Processes, point: CrashPoint) -> None:
    assert processes.run(Asks).how == "exit 0"
    before = effects()
    assert processes.act("resume", root().pk, "many", crash_at=(point, 1)).was_killed
    with pytest.raises((AlreadyResumed, InvalidTransition)):
        root().resume(7)
    expire(root().pk)
    assert isinstance(actions.deliver(root().pk), Failure)
    assert root().status == Status.FAILED
    assert once_more(before, Counter(["undo reserved"])).total() <= (point is CrashPoint.ROLLBACK_BODY_DONE)


def test_an_answer_is_taken_by_whoever_runs_the_execution_when_its_giver_dies(processes: Processes) -> None:
    """The runner is stopped in its function; the answer comes from elsewhere; the runner goes on."""
    runner = processes.run(Asks, stall_at="ask")
    assert runner.how == "stopped"
    assert root().resume(7) == Dispatched(root().pk)
    assert processes.go_on(runner).how == "exit 0"
    assert root().result() == Success("shipped 7", execution_id=root().pk)
    assert effects()["ask"] == 1
