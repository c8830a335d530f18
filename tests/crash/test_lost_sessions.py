"""The database's server ends the session of a worker in the middle of a body, and takes new ones at once. That says
nothing about the step: nothing is written, nothing is compensated, and the execution goes on as after a crash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import pytest
from django.db import Error
from django.test import override_settings

from django_reactor import Reactor, actions, step
from django_reactor.core.statuses import Status
from django_reactor.models import Execution
from tests.contract.committed import PATIENCE, another_session
from tests.contract.sessions import kill_session, session_id
from tests.crash.processes import expire, only_execution
from tests.crash.reactors import effects, leave

_pending: set[str] = set()
"""Effects after which the session ends, once."""


def leave_and_lose_the_session(effect: str) -> None:
    leave(effect)
    if effect in _pending:
        _pending.remove(effect)
        kill_session(session_id())


class Order(Reactor):
    fails: bool = False

    class Meta:
        app_label = "lost_sessions"

    @step
    def reserve(self) -> None:
        leave_and_lose_the_session("reserve")

    @reserve.undo
    def release(self) -> None:
        leave_and_lose_the_session("release")

    @step(atomic=True, after=["reserve"])
    def book(self) -> None:
        leave_and_lose_the_session("book")

    @book.undo
    def unbook(self) -> None:
        leave_and_lose_the_session("unbook")

    @step(after=["book"])
    def charge(self, fails: bool) -> None:
        leave_and_lose_the_session("charge")
        if fails:
            raise ValueError("no lorry")

    @charge.compensate
    def void(self) -> None:
        leave_and_lose_the_session("void")


FORWARD = Counter(["reserve", "book", "charge"])
BACK = Counter(["void", "unbook", "release"])


@pytest.fixture(autouse=True)
def _messages_are_left_to_the_test() -> Iterator[None]:
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        yield
        _pending.clear()


def deliver(execution_id: UUID) -> None:
    with another_session() as worker:
        worker(lambda: actions.deliver(execution_id)).result(PATIENCE)


@pytest.mark.parametrize("effect", [*FORWARD, *BACK])
def test_a_session_that_is_lost_in_a_body_is_no_failure_of_its_step(effect: str, database: str) -> None:
    if database == "sqlite":
        pytest.skip("SQLite has no session that could be lost")
    fails = effect in BACK
    Order.enqueue(fails=fails)
    execution = only_execution()
    _pending.add(effect)
    with pytest.raises(Error):
        deliver(execution.pk)
    left = Execution.objects.get()
    assert left.status == (Status.ROLLING_BACK if fails else Status.RUNNING)
    assert left.lease_token is not None
    assert effect not in _pending

    expire(execution.pk)
    deliver(execution.pk)
    assert only_execution().status == (Status.FAILED if fails else Status.COMPLETED)
    again = Counter([effect] if effect not in ("book", "unbook") else [])
    assert effects() == FORWARD + (BACK if fails else Counter()) + again
    assert len(execution.trace()) == (6 if fails else 3)
