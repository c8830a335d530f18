"""A retry of an execution with units, on a real database: what it asks for is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from django.test import override_settings

from django_reactor import (
    Reactor,
    Success,
    async_reactor,
    interrupt,
    runtime,
    skip,
    step,
    sweeper,
    worker,
)
from django_reactor.core.reactor import definition_of
from django_reactor.engine import acting
from django_reactor.exceptions import InvalidTransition
from django_reactor.journal.orm import OrmJournal
from django_reactor.models import Execution
from tests.contract.committed import PATIENCE, another_session
from tests.contract.locks import session_id, until_blocked

pytestmark = pytest.mark.django_db(transaction=True)

DONE: list[str] = []
PLAYS: dict[str, type[BaseException]] = {}
"""What a body raises the next time."""


@pytest.fixture(autouse=True)
def _immediate() -> Iterator[None]:
    DONE.clear()
    PLAYS.clear()
    with override_settings(DJANGO_REACTOR={"BACKEND": "immediate"}):
        yield


def do(what: str) -> str:
    DONE.append(what)
    if what in PLAYS:
        raise PLAYS.pop(what)
    return what


class Unit(Reactor[Any]):
    asks: bool

    class Meta:
        returns = "second"

    @step
    def first(self) -> str:
        return do("first")

    @interrupt
    def ask(self, first: str) -> None:
        if not self.asks:
            skip("it is known", value="go")

    @step
    def second(self, ask: str) -> str:
        return do("second")


class Parent(Reactor[Any]):
    asks: bool = False

    class Meta:
        returns = "reader"

    @step
    def before(self) -> str:
        return do("before")

    @before.undo
    def undo_before(self, result: str) -> None:
        do("undo before")

    @async_reactor(Unit)
    def unit(self, asks: bool) -> dict[str, Any]:
        return {"asks": asks}

    @step
    def reader(self, unit: str, before: str) -> str:
        return f"{before}, {unit}"


def parent() -> Execution:
    return Execution.objects.get(relation="root")


def units() -> list[Execution]:
    return list(Execution.objects.filter(relation="async_reactor").order_by("parent_generation"))


def with_a_failed_unit() -> Execution:
    PLAYS["second"] = RuntimeError
    Parent.enqueue()
    assert (parent().status, [unit.status for unit in units()]) == ("failed", ["failed"])
    DONE.clear()
    return parent()


class Died(BaseException):
    """The process is dead."""


class DiesAtItsAppend(OrmJournal):
    def append(self, *_: Any) -> None:
        raise Died


class DiesAfterItsTransaction:
    def __getattr__(self, name: str) -> Any:
        return getattr(runtime.services().transactions, name)

    def carried_out(self, statements: Callable[[], None]) -> None:
        runtime.services().transactions.carried_out(statements)
        raise Died


def retried_by(**adapters: Any) -> None:
    acting.retry(replace(runtime.services(), **adapters), definition_of(Parent), parent().pk)


def test_a_retry_whose_process_dies_before_all_of_it_is_written_has_changed_nothing() -> None:
    before = with_a_failed_unit()
    entries = list(before.entries.values())
    with pytest.raises(Died):
        retried_by(journal=DiesAtItsAppend())
    after = parent()
    assert (after.status, after.generation, after.epoch) == ("failed", before.generation, before.epoch)
    assert list(after.entries.values()) == entries
    assert after.retry() == Success("before, second", execution_id=after.pk)


def test_whoever_goes_on_with_a_retry_whose_process_died_dispatches_what_failed_anew() -> None:
    with_a_failed_unit()
    with pytest.raises(Died):
        retried_by(transactions=cast(Any, DiesAfterItsTransaction()))
    assert (parent().status, len(units())) == ("running", 1)
    Execution.objects.filter(pk=parent().pk).update(lease_expires_at=datetime(2024, 1, 1, tzinfo=UTC))
    worker.deliver(parent().pk)
    assert parent().result() == Success("before, second", execution_id=parent().pk)
    assert [unit.status for unit in units()] == ["failed", "completed"]


def test_a_unit_that_was_interrupted_goes_on_in_a_worker_when_its_parent_is_retried() -> None:
    Parent.enqueue(asks=True)
    (unit,) = units()
    PLAYS["second"] = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        unit.resume("go")
    sweeper.recovery().sweep()
    assert (parent().status, [unit.status for unit in units()]) == ("failed", ["aborted"])
    assert parent().retry() == Success("before, second", execution_id=parent().pk)
    assert sorted(DONE) == ["before", "before", "first", "second", "second", "undo before"]
    (unit,) = units()
    assert [(entry.step, entry.action) for entry in unit.trace()][-4:] == [
        ("ask", "resume"),
        ("second", "abort"),
        ("", "retry"),
        ("second", "run"),
    ]


def test_a_retry_whose_process_dies_leaves_no_unit_half_let_go() -> None:
    Parent.enqueue(asks=True)
    PLAYS["second"] = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        units()[0].resume("go")
    sweeper.recovery().sweep()

    class DiesAtItsRelease(OrmJournal):
        def release(self, *_: Any) -> None:
            raise Died

    with pytest.raises(Died):
        retried_by(journal=DiesAtItsRelease())
    (unit,) = units()
    assert (parent().status, unit.status, unit.lease_token) == ("failed", "aborted", None)
    assert unit.trace()[-1].action == "abort"


def test_a_cancel_comes_before_a_retry_of_an_interrupted_rollback_or_after_it_but_not_in_between() -> None:
    PLAYS.update({"second": RuntimeError, "undo before": KeyboardInterrupt})
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages", "READ_TIMEOUT": 0.1}):
        with pytest.raises(KeyboardInterrupt):
            Parent.run()
        assert parent().status == "aborted"
        pk, cancels = parent().pk, list[Future[None]]()
        with another_session() as session, another_session() as elsewhere:
            number = session(session_id).result(PATIENCE)

            class IsCancelled(OrmJournal):
                def load(self, execution_id: Any) -> Any:
                    if not cancels:
                        cancels.append(session(Execution(pk=pk).cancel))
                        elsewhere(lambda: until_blocked(number)).result(PATIENCE)
                    return super().load(execution_id)

            retried_by(journal=IsCancelled())
            with pytest.raises(InvalidTransition):
                cancels[0].result(PATIENCE)
    assert parent().status == "failed"
