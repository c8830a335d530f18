"""Elements of one map that end at the same instant, and an owner that parks meanwhile."""

from __future__ import annotations

from collections import Counter
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from django_reactor.core.statuses import Status
from django_reactor.engine.map_ports import Taken
from django_reactor.engine.records import Lease, Message, NewExecution, Release
from django_reactor.journal.due import free_and_due
from django_reactor.models import Execution
from tests.contract.committed import PATIENCE, Between, another_session, together
from tests.contract.locks import session_id
from tests.contract.map_support import World
from tests.contract.stores import Orm, lease_of, new_execution

ROUNDS = 10


@pytest.fixture
def new(orm: Orm) -> NewExecution:
    new = new_execution()
    assert orm.executions.start(new)
    return new


@pytest.fixture
def lease(new: NewExecution) -> Lease:
    return lease_of(new)


def park(world: World) -> bool:
    """As an owner does: it looks again once that is committed, since an end before that may have woken nobody."""
    release = Release(to=Status.SCHEDULED, wake_in=None, waiting_for=world.record.waiting_for)
    if world.park(release):
        return True
    if world.store.elements.is_settled(world.record.id):
        world.store.deliveries.wake(world.lease.execution_id, world.record.waiting_for)
    return False


def end(world: World, index: int, lease: Lease) -> None:
    """As a runner does: the end, and then, if nobody was let go, a look at the map."""
    following = world.finish(index, Status.COMPLETED, lease)
    if following is None and world.store.elements.is_settled(world.record.id):
        world.store.elements.wake(world.record)


def brought_in(following: Message | Taken | None) -> UUID:
    assert following is not None
    return following.lease.execution_id if isinstance(following, Taken) else following.execution_id


def is_due(world: World) -> bool:
    return Execution.objects.filter(free_and_due(), pk=world.lease.execution_id).exists()


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_of_two_last_finishers_one_wakes_the_owner_at_least(orm: Orm, lease: Lease, round_: int) -> None:
    world = World.opened(orm, lease, 2, fan_out=2)
    leases = [world.claim(0), world.claim(1)]
    assert not park(world)
    together(2, lambda number: end(world, number, leases[number]))
    assert is_due(world)


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_an_owner_that_parks_when_the_last_element_ends_is_due(orm: Orm, lease: Lease, round_: int) -> None:
    world = World.opened(orm, lease, 1)
    last = world.claim(0)
    together(2, lambda number: park(world) if number else end(world, 0, last))
    assert is_due(world)


@pytest.mark.parametrize("number", range(1, 7))
def test_an_element_that_goes_on_while_its_map_is_looked_at_is_not_overlooked(
    orm: Orm, lease: Lease, number: int
) -> None:
    """Whichever status it leaves for another one between two statements."""
    world = World.opened(orm, lease, 1)
    with connection.execute_wrapper(Between(number, lambda: world.claim(0))):
        assert not orm.elements.is_settled(world.record.id)


@pytest.mark.parametrize("takes", [False, True], ids=["let go", "taken"])
def test_elements_that_end_at_once_bring_in_one_each(orm: Orm, lease: Lease, takes: bool) -> None:
    """The window neither grows nor leaks, and no element is brought in twice."""
    width = 4
    world = World.opened(orm, lease, 3 * width, fan_out=width)
    going = {index: world.claim(index) for index in range(width)}

    def finish(number: int) -> Message | Taken | None:
        token = uuid4() if takes else None
        if token is None:
            return world.finish(number, Status.COMPLETED, going[number])
        return world.take_after(number, Status.COMPLETED, token, going[number])

    followed = together(width, finish)
    brought_in = [
        each.lease.execution_id if isinstance(each, Taken) else each and each.execution_id for each in followed
    ]
    assert None not in brought_in
    assert len(set(brought_in)) == width
    counts = Counter(world.statuses)
    in_flight = counts[Status.RUNNING] + len(world.let_go)
    assert (counts[Status.COMPLETED], in_flight) == (width, width)


@pytest.mark.parametrize("takes", [False, True], ids=["let go", "taken"])
def test_an_element_that_another_end_is_about_to_bring_in_is_passed_over(orm: Orm, lease: Lease, takes: bool) -> None:
    """An uncommitted end holds its successor; the others do not wait for it."""
    world = World.opened(orm, lease, 4, fan_out=2)
    first, second = world.claim(0), world.claim(1)
    with another_session() as other:
        other(session_id).result(PATIENCE)  # skips SQLite, where there is one writer
        with transaction.atomic():
            mine = world.finish(0, Status.COMPLETED, first)
            token = uuid4() if takes else None
            if token is None:
                theirs = other(lambda: world.finish(1, Status.COMPLETED, second)).result(PATIENCE)
            else:
                taken = other(lambda: world.take_after(1, Status.COMPLETED, token, second)).result(PATIENCE)
                assert isinstance(taken, Taken)
                theirs = Message(execution_id=taken.lease.execution_id, queue_name="rows")
    assert mine is not None
    assert theirs is not None
    assert {mine.execution_id, theirs.execution_id} == {world.id_of(2), world.id_of(3)}
