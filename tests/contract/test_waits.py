"""The contract of the ports `Waits` and `Answers`: an interrupt is asked once, and answered once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from django_reactor.core.statuses import ENDS, FORWARD, Action, Relation, Status, Stop
from django_reactor.core.waits import ANSWERED, Wait, WaitState
from django_reactor.engine.execution_ports import Deliveries, Journal, LeaseLost, Refused
from django_reactor.engine.records import Lease, Move, NewExecution, Parent
from django_reactor.engine.waits import (
    Accepted,
    Address,
    Answers,
    NewWait,
    NotForward,
    NotOpen,
    Outdated,
    WaitKey,
    Waits,
)
from django_reactor.exceptions import CorrelationConflict
from django_reactor.journal.memory_waits import MemoryAnswers, MemoryWaits
from django_reactor.journal.waits import OrmAnswers, OrmWaits
from tests.contract.stores import INSTANT, OF_EXECUTIONS, Memory, Store, entry, lease_of, new_execution

pytestmark = pytest.mark.parametrize("store", OF_EXECUTIONS, indirect=True)

CHANGED_NOTHING = "and yet something was changed"
ERROR = {"message": "wrong"}


@pytest.fixture
def waits(store: Store) -> Waits:
    return MemoryWaits(store.store) if isinstance(store, Memory) else OrmWaits()


@pytest.fixture
def answers(store: Store) -> Answers:
    return MemoryAnswers(store.store) if isinstance(store, Memory) else OrmAnswers()


@pytest.fixture
def deliveries(store: Store) -> Deliveries:
    return store.deliveries


def key_of(new: NewExecution, step: str = "ask", generation: int = 0) -> WaitKey:
    return WaitKey(execution_id=new.id, step=step, generation=generation)


def asking(new: NewExecution, step: str = "ask", **fields: Any) -> NewWait:
    return NewWait(key=key_of(new, step), owner_id=new.id, reactor=new.reactor, **fields)


def address_of(new: NewExecution, step: str = "ask", generation: int = 0) -> Address:
    return Address(key=key_of(new, step, generation), owner_id=new.id)


def a_part_of(store: Store, new: NewExecution) -> NewExecution:
    parent = Parent(id=new.id, root_id=new.id, step="inner", generation=0)
    part = replace(
        new_execution(reactor="contract.Inner"), token=None, relation=Relation.COMPOSED, parent=parent, owner_id=new.id
    )
    store.journal(new).dispatch(lease_of(new), part, entry(1, action=Action.DISPATCH, value=str(part.id)))
    return part


@dataclass(frozen=True, slots=True)
class Situation:
    """All that an answer, a question or a pause may change."""

    rows: tuple[Any, ...]
    waits: tuple[Any, ...]


def situation(store: Store, answers: Answers, *executions: NewExecution) -> Situation:
    return Situation(
        tuple(store.row(each.id) for each in executions),
        tuple(answers.of_owner(each.id) for each in executions),
    )


# -- asking ------------------------------------------------------------------------------------------------------------


def test_a_wait_is_open_with_all_that_was_said_of_it(
    store: Store, waits: Waits, answers: Answers, new: NewExecution, lease: Lease
) -> None:
    asked = asking(new, correlation_id="order-17", timeout=60, payload_schema={"type": "integer"})
    assert waits.open(lease, asked) is WaitState.OPEN
    wait = waits.of(new.id, 0)["ask"]
    assert replace(wait, timeout_at=None) == Wait(step="ask", state=WaitState.OPEN, correlation_id="order-17")
    assert wait.timeout_at is not None
    assert abs(wait.timeout_at - store.now() - timedelta(seconds=60)) < timedelta(seconds=20)
    (known,) = answers.of_owner(new.id)
    assert (known.address, known.reactor, known.wait, known.path) == (address_of(new), new.reactor, wait, ())


def test_waits_are_those_of_one_generation(waits: Waits, new: NewExecution, lease: Lease) -> None:
    waits.open(lease, asking(new))
    assert waits.of(new.id, 1) == {}
    assert waits.open(lease, replace(asking(new), key=key_of(new, generation=1))) is WaitState.OPEN
    assert [list(waits.of(new.id, generation)) for generation in (0, 1)] == [["ask"], ["ask"]]


def test_a_wait_that_is_open_already_stays_as_it_is(waits: Waits, new: NewExecution, lease: Lease) -> None:
    waits.open(lease, asking(new, correlation_id="first", timeout=60))
    before = waits.of(new.id, 0)
    assert waits.open(lease, asking(new, correlation_id="second")) is WaitState.OPEN
    assert waits.of(new.id, 0) == before


def test_a_wait_that_was_closed_is_opened_again(waits: Waits, new: NewExecution, lease: Lease) -> None:
    waits.open(lease, asking(new, correlation_id="first"))
    assert waits.close(lease, key_of(new))
    assert waits.of(new.id, 0)["ask"].state is WaitState.CLOSED
    assert waits.open(lease, asking(new, correlation_id="first")) is WaitState.OPEN
    assert waits.of(new.id, 0)["ask"].state is WaitState.OPEN


def test_a_question_says_whether_its_answer_is_there(
    waits: Waits, answers: Answers, new: NewExecution, lease: Lease
) -> None:
    answers.accept(address_of(new), "1", None)
    assert waits.open(lease, asking(new)) is WaitState.ACCEPTED
    assert not waits.close(lease, key_of(new))
    assert waits.of(new.id, 0) == {"ask": Wait(step="ask", state=WaitState.ACCEPTED, payload="1")}


def test_an_open_correlation_id_is_unique_for_reactor_and_step(
    store: Store, waits: Waits, answers: Answers, new: NewExecution, lease: Lease
) -> None:
    waits.open(lease, asking(new, correlation_id="17"))
    others = {name: new_execution() for name in ("same", "other step", "other reactor", "later")}
    others["other reactor"] = replace(others["other reactor"], reactor="contract.Refund")
    for other in others.values():
        assert store.executions.start(other)
    with pytest.raises(CorrelationConflict, match="17"):
        waits.open(lease_of(others["same"]), asking(others["same"], correlation_id="17"))
    assert waits.of(others["same"].id, 0) == {}
    for name, step in (("other step", "another"), ("other reactor", "ask")):
        asked = asking(others[name], step, correlation_id="17")
        assert waits.open(lease_of(others[name]), asked) is WaitState.OPEN
    answers.accept(address_of(new), "1", None)
    assert waits.open(lease_of(others["later"]), asking(others["later"], correlation_id="17")) is WaitState.OPEN


def test_waits_without_a_correlation_id_never_meet(store: Store, waits: Waits, new: NewExecution, lease: Lease) -> None:
    other = new_execution()
    assert store.executions.start(other)
    assert waits.open(lease, asking(new)) is WaitState.OPEN
    assert waits.open(lease_of(other), asking(other)) is WaitState.OPEN


Use = Callable[[Waits, Lease, NewExecution], object]
USES: dict[str, Use] = {
    "open": lambda waits, lease, new: waits.open(lease, asking(new)),
    "close": lambda waits, lease, new: waits.close(lease, key_of(new, "other")),
    "pause": lambda waits, lease, new: waits.pause(lease, [key_of(new, "other")], with_parts=False),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_nothing_is_changed_without_the_lease_or_against_a_stop(
    store: Store, waits: Waits, answers: Answers, new: NewExecution, lease: Lease, use: Use
) -> None:
    waits.open(lease, asking(new, "other"))
    before = situation(store, answers, new)
    with pytest.raises(Refused):
        use(waits, Lease(new.id, uuid4()), new)
    assert situation(store, answers, new) == before, CHANGED_NOTHING
    store.executions.request_stop(new.id, Stop.CANCEL, "enough")
    before = situation(store, answers, new)
    with pytest.raises(Refused):
        use(waits, lease, new)
    assert situation(store, answers, new) == before, CHANGED_NOTHING


# -- pausing -----------------------------------------------------------------------------------------------------------


def test_a_pause_gives_the_lease_up_in_order(store: Store, waits: Waits, new: NewExecution, lease: Lease) -> None:
    waits.open(lease, asking(new))
    store.change(new.id, recoveries=4)
    assert waits.pause(lease, [key_of(new)], with_parts=False)
    row = store.row(new.id)
    assert (row.status, row.token, row.expires_at, row.wake_at) == (Status.PAUSED, None, None, None)
    assert row.record.recoveries == 0
    assert store.executions.claim(new.id, uuid4()) is None


@pytest.mark.parametrize("state", sorted(ANSWERED))
def test_a_pause_that_an_answer_has_overtaken_changes_nothing(
    store: Store, waits: Waits, answers: Answers, new: NewExecution, lease: Lease, state: WaitState
) -> None:
    waits.open(lease, asking(new, "open"))
    waits.open(lease, asking(new, timeout=0 if state is WaitState.TIMED_OUT else None))
    answer_with(answers, address_of(new), state)
    before = situation(store, answers, new)
    assert not waits.pause(lease, [key_of(new, "open"), key_of(new)], with_parts=False)
    assert situation(store, answers, new) == before, CHANGED_NOTHING
    assert waits.pause(lease, [key_of(new, "open")], with_parts=False)  # what it goes on with is no wait of its own


def answer_with(answers: Answers, address: Address, state: WaitState) -> None:
    match state:
        case WaitState.ACCEPTED:
            answers.accept(address, "1", None)
        case WaitState.REJECTED:
            assert answers.reject(address, ERROR, 1, None) is not None
        case _:
            answers.time_out(address)


def test_a_pause_that_also_waits_for_a_unit_ends_with_it(
    store: Store, waits: Waits, deliveries: Deliveries, new: NewExecution, lease: Lease
) -> None:
    part, unit, other = a_part_of(store, new), new_execution(), new_execution()
    for each in (unit, other):
        assert store.executions.start(each)
    waits.open(lease, asking(new))
    assert waits.pause(lease, [key_of(new)], waiting_for=f"unit:{unit.id}", with_parts=True)
    assert deliveries.wake(new.id, f"unit:{other.id}") is None
    assert store.row(new.id).status is Status.PAUSED
    message = deliveries.wake(part.id, f"unit:{unit.id}")
    assert message is not None
    assert message.execution_id == new.id
    row = store.row(new.id)
    assert (row.status, store.row(part.id).status, row.wake_at is not None) == (Status.PENDING, Status.PENDING, True)
    assert deliveries.wake(part.id, f"unit:{unit.id}") is None


def test_a_pause_does_not_come_about_when_the_unit_has_ended(
    store: Store, waits: Waits, answers: Answers, deliveries: Deliveries, new: NewExecution, lease: Lease
) -> None:
    unit = new_execution()
    assert store.executions.start(unit)
    store.change(unit.id, status=Status.COMPLETED)
    waits.open(lease, asking(new))
    before = situation(store, answers, new)

    assert not waits.pause(
        lease,
        [key_of(new)],
        waiting_for=f"unit:{unit.id}",
        has_come=lambda: deliveries.has_ended(unit.id),
        with_parts=False,
    )
    assert situation(store, answers, new) == before, CHANGED_NOTHING


def test_only_what_runs_can_pause(store: Store, waits: Waits, new: NewExecution, lease: Lease) -> None:
    store.change(new.id, status=Status.ROLLING_BACK)
    with pytest.raises(Refused):
        waits.pause(lease, [], with_parts=False)


def test_a_pause_and_an_answer_take_open_parts_along(
    store: Store, waits: Waits, answers: Answers, new: NewExecution, lease: Lease
) -> None:
    part = a_part_of(store, new)
    waits.open(lease.over(part.id), replace(asking(part), owner_id=new.id))
    assert waits.pause(lease, [key_of(part)], with_parts=True)
    assert store.row(part.id).status is Status.PAUSED
    (known,) = answers.of_owner(new.id)
    assert (known.address, known.reactor, known.path) == (
        Address(key=key_of(part), owner_id=new.id),
        part.reactor,
        ("inner",),
    )
    accepted = answers.accept(known.address, "1", None)
    assert accepted.message is not None
    assert accepted.message.execution_id == new.id
    assert [store.row(each.id).status for each in (new, part)] == [Status.PENDING, Status.PENDING]


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def paused(waits: Waits, new: NewExecution, lease: Lease) -> NewExecution:
    waits.open(lease, asking(new, correlation_id="17"))
    assert waits.pause(lease, [key_of(new)], with_parts=False)
    return new


def test_an_answer_makes_what_is_paused_due_and_brings_its_message(
    store: Store, waits: Waits, answers: Answers, paused: NewExecution
) -> None:
    accepted = answers.accept(address_of(paused), '"yes"', None)
    assert accepted.lease is None
    assert accepted.message is not None
    assert (accepted.message.execution_id, accepted.message.queue_name) == (paused.id, "default")
    assert waits.of(paused.id, 0)["ask"].payload == '"yes"'
    row = store.row(paused.id)
    assert (row.status, row.token) == (Status.PENDING, None)
    assert row.wake_at is not None
    assert row.wake_at <= store.now()
    assert store.executions.claim(paused.id, uuid4()) is not None


def test_an_answer_with_a_token_takes_the_lease_of_what_is_paused(
    store: Store, answers: Answers, paused: NewExecution
) -> None:
    token = uuid4()
    accepted = answers.accept(address_of(paused), "1", token)
    assert accepted == Accepted(lease=Lease(paused.id, token, 2))
    row = store.row(paused.id)
    assert (row.status, row.token, row.wake_at, row.record.recoveries) == (Status.RUNNING, token, None, 1)
    assert row.expires_at is not None
    assert row.expires_at > store.now()
    store.journal(paused).append(Lease(paused.id, token, 2), entry(1))


@pytest.mark.parametrize("token", [None, uuid4()], ids=["without a token", "with a token"])
def test_an_answer_leaves_what_is_busy_alone(
    store: Store, waits: Waits, answers: Answers, new: NewExecution, lease: Lease, token: Any
) -> None:
    waits.open(lease, asking(new))
    before = store.row(new.id)
    assert answers.accept(address_of(new), "1", token) == Accepted()
    assert store.row(new.id) == before


def test_an_answer_that_comes_early_is_kept(waits: Waits, answers: Answers, new: NewExecution) -> None:
    assert answers.accept(address_of(new), "1", None) == Accepted()
    assert waits.of(new.id, 0) == {"ask": Wait(step="ask", state=WaitState.ACCEPTED, payload="1")}
    with pytest.raises(Outdated):
        answers.accept(address_of(new, "other", generation=1), "1", None)
    assert list(waits.of(new.id, 1)) == []


def test_an_early_answer_for_a_part_that_has_ended_is_refused(
    store: Store, answers: Answers, new: NewExecution
) -> None:
    part = a_part_of(store, new)
    store.change(part.id, status=Status.COMPLETED)
    with pytest.raises(NotForward):
        answers.accept(Address(key=key_of(part), owner_id=new.id), "1", None)
    assert answers.of_owner(new.id) == []


Answer = Callable[[Answers, Address], object]
ANSWERS: dict[str, Answer] = {
    "accept": lambda answers, address: answers.accept(address, "2", None),
    "accept here": lambda answers, address: answers.accept(address, "2", uuid4()),
    "reject": lambda answers, address: answers.reject(address, ERROR, None, None),
    "reject for good": lambda answers, address: answers.reject(address, ERROR, 1, uuid4()),
    "time out": lambda answers, address: answers.time_out(address),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("state", [*sorted(ANSWERED), WaitState.APPLIED, WaitState.CLOSED])
def test_a_second_answer_changes_nothing(
    store: Store, waits: Waits, answers: Answers, new: NewExecution, lease: Lease, state: WaitState, answer: Answer
) -> None:
    waits.open(lease, asking(new, timeout=0 if state is WaitState.TIMED_OUT else None))
    if state is WaitState.CLOSED:
        waits.close(lease, key_of(new))
    else:
        answer_with(answers, address_of(new), WaitState.ACCEPTED if state is WaitState.APPLIED else state)
    if state is WaitState.APPLIED:
        store.journal(new).append(lease, entry(1, action=Action.RESUME, step="ask"))
    before = situation(store, answers, new)
    with pytest.raises(NotOpen) as refused:
        answer(answers, address_of(new))
    assert refused.value.state is state
    assert situation(store, answers, new) == before, CHANGED_NOTHING


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_what_does_not_go_forward_takes_no_answer(
    store: Store, waits: Waits, answers: Answers, new: NewExecution, lease: Lease, answer: Answer
) -> None:
    waits.open(lease, asking(new, timeout=0 if answer is ANSWERS["time out"] else None))
    for status in [*sorted(ENDS), Status.ROLLING_BACK]:
        store.change(new.id, status=status)
        before = situation(store, answers, new)
        with pytest.raises(NotForward):
            answer(answers, address_of(new))
        assert situation(store, answers, new) == before, CHANGED_NOTHING
    for status in FORWARD:
        store.change(new.id, status=status, stop=Stop.CANCEL)
        before = situation(store, answers, new)
        with pytest.raises(NotForward):
            answer(answers, address_of(new))
        assert situation(store, answers, new) == before, CHANGED_NOTHING


def test_invalid_payloads_are_counted_until_the_last_allowed_one(
    store: Store, waits: Waits, answers: Answers, paused: NewExecution
) -> None:
    for attempts in (1, 2):
        before = store.row(paused.id)
        assert answers.reject(address_of(paused), ERROR, 3, uuid4()) is None
        assert store.row(paused.id).status == before.status == Status.PAUSED
        assert waits.of(paused.id, 0)["ask"].attempts == attempts
    token = uuid4()
    assert answers.reject(address_of(paused), ERROR, 3, token) == Accepted(lease=Lease(paused.id, token, 2))
    wait = waits.of(paused.id, 0)["ask"]
    assert (wait.state, wait.attempts, wait.error) == (WaitState.REJECTED, 3, ERROR)


def test_an_invalid_payload_that_comes_early_is_not_counted(answers: Answers, new: NewExecution) -> None:
    with pytest.raises(NotOpen) as refused:
        answers.reject(address_of(new), ERROR, 1, None)
    assert refused.value.state is None
    assert answers.of_owner(new.id) == []


# -- time --------------------------------------------------------------------------------------------------------------


def test_what_is_overdue_is_found_the_longest_first_and_only_where_it_goes_forward(
    store: Store, waits: Waits, answers: Answers
) -> None:
    found = {name: new_execution() for name in ("second", "first", "third", "not yet", "never", "aborted", "stopped")}
    timeouts = {"second": -2.0, "first": -3.0, "third": -1.0, "not yet": 3600.0, "aborted": -9.0, "stopped": -9.0}
    for name, new in found.items():
        assert store.executions.start(new)
        waits.open(lease_of(new), asking(new, timeout=timeouts.get(name)))
    store.change(found["aborted"].id, status=Status.ABORTED)
    store.change(found["stopped"].id, stop=Stop.CANCEL)
    overdue = [address_of(found[name]) for name in ("first", "second", "third")]
    assert answers.overdue(10) == overdue
    assert answers.overdue(2) == overdue[:2]


def test_a_wait_times_out_once_its_time_is_over_and_takes_no_other_answer_then(
    store: Store, waits: Waits, answers: Answers, new: NewExecution, lease: Lease
) -> None:
    waits.open(lease, asking(new, timeout=3600))
    with pytest.raises(NotOpen) as early:
        answers.time_out(address_of(new))
    assert early.value.state is WaitState.OPEN
    waits.open(lease, asking(new, "overdue", timeout=0))
    for late in (ANSWERS["accept"], ANSWERS["reject for good"]):
        with pytest.raises(NotOpen) as refused:
            late(answers, address_of(new, "overdue"))
        assert refused.value.state is WaitState.OPEN
    assert waits.pause(lease, [key_of(new, "overdue")], with_parts=False)
    timed_out = answers.time_out(address_of(new, "overdue"))
    assert timed_out.message is not None
    assert (store.row(new.id).status, waits.of(new.id, 0)["overdue"].state) == (Status.PENDING, WaitState.TIMED_OUT)


# -- who is meant ------------------------------------------------------------------------------------------------------


def test_a_correlation_id_finds_its_waits_in_every_state_and_nobody_elses(
    store: Store, waits: Waits, answers: Answers, paused: NewExecution
) -> None:
    answers.accept(address_of(paused), "1", None)
    again, other = new_execution(), new_execution(reactor="contract.Refund")
    for new in (again, other):
        assert store.executions.start(new)
        waits.open(lease_of(new), asking(new, correlation_id="17"))
    found = answers.correlated("contract.Order", "17")
    assert [(known.address, known.wait.state) for known in found] == [
        (address_of(paused), WaitState.ACCEPTED),
        (address_of(again), WaitState.OPEN),
    ]
    for near in ("17 ", "１７", "18"):
        assert answers.correlated("contract.Order", near) == []


# -- what the journal does to waits ------------------------------------------------------------------------------------

RESUME = entry(1, action=Action.RESUME, step="ask")
Store_entry = Callable[[Journal, Lease], object]
WAYS: dict[str, Store_entry] = {
    "append": lambda journal, lease: journal.append(lease, RESUME),
    "reconsider": lambda journal, lease: journal.reconsider(lease, RESUME),
    "move": lambda journal, lease: journal.move(
        lease, Move(to=Status.COMPLETED, expected=[Status.RUNNING], closes_waits=True), RESUME
    ),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_whatever_stores_a_resume_marks_the_answer_as_applied(
    store: Store, waits: Waits, answers: Answers, new: NewExecution, lease: Lease, way: Store_entry
) -> None:
    for step in ("ask", "other"):
        waits.open(lease, asking(new, step))
        answers.accept(address_of(new, step), "1", None)
    way(store.journal(new), lease)
    states = {step: wait.state for step, wait in waits.of(new.id, 0).items()}
    assert states["ask"] is WaitState.APPLIED
    assert states["other"] is (WaitState.CLOSED if way is WAYS["move"] else WaitState.ACCEPTED)


def test_a_resume_without_the_lease_applies_nothing(
    store: Store, waits: Waits, answers: Answers, new: NewExecution, lease: Lease
) -> None:
    waits.open(lease, asking(new))
    answers.accept(address_of(new), "1", None)
    before = situation(store, answers, new)
    stranger = Lease(new.id, uuid4())
    with pytest.raises(Refused):
        store.journal(new).append(stranger, RESUME)
    with pytest.raises(LeaseLost):
        store.journal(new).reconsider(stranger, RESUME)
    assert situation(store, answers, new) == before, CHANGED_NOTHING


def test_a_resume_that_another_entry_has_overtaken_applies_nothing(
    store: Store, waits: Waits, answers: Answers, new: NewExecution, lease: Lease
) -> None:
    waits.open(lease, asking(new))
    answers.accept(address_of(new), "1", None)
    store.journal(new).append(lease, entry(1))
    before = situation(store, answers, new)
    with pytest.raises(Refused):
        store.journal(new).append(lease, RESUME)
    assert situation(store, answers, new) == before, CHANGED_NOTHING


def test_an_undo_closes_the_waits_of_the_whole_tree(
    store: Store, waits: Waits, answers: Answers, paused: NewExecution
) -> None:
    assert store.executions.take(paused.id, Action.ROLLBACK, uuid4(), INSTANT) is not None
    assert waits.of(paused.id, 0)["ask"].state is WaitState.CLOSED
    assert [known.is_open for known in answers.correlated(paused.reactor, "17")] == [False]


def test_a_move_closes_what_it_is_told_to_of_an_owner_and_its_parts_or_of_a_part(
    store: Store, waits: Waits, answers: Answers, new: NewExecution, lease: Lease
) -> None:
    part = a_part_of(store, new)
    waits.open(lease, asking(new))
    answers.accept(address_of(new), "1", None)
    waits.open(lease.over(part.id), replace(asking(part), owner_id=new.id))
    moving = Move(to=Status.ROLLING_BACK, expected=[Status.RUNNING])
    store.journal(new).move(lease, moving)
    states = [known.wait.state for known in answers.of_owner(new.id)]
    assert sorted(states) == [WaitState.ACCEPTED, WaitState.OPEN]
    closing = replace(moving, closes_waits=True)
    store.journal(new).move(lease.over(part.id), closing)
    states = [known.wait.state for known in answers.of_owner(new.id)]
    assert sorted(states) == [WaitState.ACCEPTED, WaitState.CLOSED]
    store.journal(new).move(lease, replace(closing, expected=[Status.ROLLING_BACK]))
    assert [known.wait.state for known in answers.of_owner(new.id)] == [WaitState.CLOSED] * 2
