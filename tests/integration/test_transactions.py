"""Runs inside the caller's transactions, atomic steps, and durability at exit, on every database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from django_reactor import Failure, Reactor, Retry, Step, fail, halt, map_step, skip, step, succeed
from django_reactor.models import Execution, JournalEntry
from tests.stored import execution_of

pytestmark = pytest.mark.django_db(transaction=True)


class Groups(Reactor):
    """Creates groups; `broken` names how the second step fails."""

    broken: str = ""

    @step
    def first(self) -> int:
        return Group.objects.create(name="first").pk

    @first.undo
    def drop_first(self, result: int) -> None:
        Group.objects.filter(pk=result).delete()

    @step
    def second(self, first: int, broken: str) -> str:
        Group.objects.create(name="second")
        match broken:
            case "raises":
                raise RuntimeError("broken")
            case "database":
                Group.objects.create(name="second")  # the name is unique
        return "done"


def names() -> set[str]:
    return set(Group.objects.values_list("name", flat=True))


def test_an_outer_rollback_leaves_no_trace() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert Groups.run().is_success
        assert Execution.objects.count() == 1
        raise ZeroDivisionError
    assert not Execution.objects.exists()
    assert not JournalEntry.objects.exists()
    assert names() == set()


def test_an_outer_commit_keeps_everything() -> None:
    with transaction.atomic():
        result = Groups.run()
    execution = execution_of(result)
    assert (execution.status, len(execution.trace())) == ("completed", 2)


@pytest.mark.parametrize("broken", ["raises", "database"])
def test_a_failing_step_leaves_the_callers_transaction_usable_and_the_rollback_runs(broken: str) -> None:
    with transaction.atomic():
        Group.objects.create(name="caller's")
        result = Groups.run(broken=broken)
        assert isinstance(result, Failure)
        assert names() == {"caller's"}  # the second's writes went with its savepoint, the first's were undone
        Group.objects.create(name="after")
    assert names() == {"caller's", "after"}
    execution = execution_of(result)
    assert [(e.step, e.action, e.outcome) for e in execution.trace()] == [
        ("first", "run", "success"),
        ("second", "run", "failure"),
        ("first", "undo", "success"),
    ]


def test_without_a_transaction_the_writes_of_a_failing_step_remain_as_they_were_made() -> None:
    assert Groups.run(broken="raises").is_failure
    assert names() == {"second"}  # the body ran in autocommit: what to do about it is for its compensation


def view(request: HttpRequest) -> HttpResponse:
    result = Groups.run(broken=request.GET.get("broken", ""))
    if request.GET.get("explode"):
        raise RuntimeError("after the run")
    return HttpResponse(str(result.is_success))


urlpatterns = [path("", view)]


@override_settings(ROOT_URLCONF=__name__)
def test_with_atomic_requests_the_view_decides() -> None:
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    client = Client(raise_request_exception=False)
    try:
        assert client.get("/", {"broken": "database"}).content == b"False"
        assert Execution.objects.get().status == "failed"
        assert client.get("/", {"explode": "1"}).status_code == 500
        assert Execution.objects.count() == 1
        assert client.get("/").content == b"True"
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert names() == {"first", "second"}
    assert Execution.objects.count() == 2


class Atomic(Reactor):
    """An atomic step that writes and then ends as told."""

    how: str

    @step
    def before(self) -> None: ...

    @step(atomic=True, after=["before"], retry=Retry(max_attempts=2, delay=0, on=[ConnectionError]))
    def write(self, how: str) -> str:
        Group.objects.create(name=f"{how} {self.context.attempt}")
        match how:
            case "raise":
                raise RuntimeError("no")
            case "retry" if self.context.attempt == 1:
                raise ConnectionError("again")
            case "skip":
                skip("enough")
            case "halt":
                halt("enough")
            case "succeed":
                succeed("ok")
            case "fail":
                fail("no")
            case "swallow":
                with suppress(IntegrityError):
                    Group.objects.create(name="swallow 1")
            case "unstorable":
                return object()  # type: ignore[return-value]
        return "ok"


@pytest.mark.parametrize(
    ("how", "status", "written"),
    [
        ("plain", "completed", {"plain 1"}),
        ("succeed", "completed", {"succeed 1"}),
        ("skip", "completed", {"skip 1"}),
        ("halt", "halted", {"halt 1"}),
        ("retry", "completed", {"retry 2"}),
        ("raise", "failed", set()),
        ("fail", "failed", set()),
        ("unstorable", "failed", set()),
    ],
)
def test_an_atomic_steps_writes_commit_with_its_entry_or_not_at_all(how: str, status: str, written: set[str]) -> None:
    result = Atomic.run(how=how)
    assert execution_of(result).status == status
    assert names() == written


@pytest.mark.parametrize("in_transaction", [False, True])
def test_an_atomic_step_that_swallowed_a_database_error_fails_since_nothing_can_be_committed(
    in_transaction: bool,
) -> None:
    if in_transaction:
        with transaction.atomic():
            result = Atomic.run(how="swallow")
            Group.objects.count()  # the caller's transaction is usable
    else:
        result = Atomic.run(how="swallow")
    assert isinstance(result, Failure)
    assert names() == set()


def write_one_name_twice() -> str:
    Group.objects.create(name="twice")
    with suppress(IntegrityError):
        Group.objects.create(name="twice")
    return "all is well"


class WriteTwice(Step[str]):
    def run(self) -> str:
        return write_one_name_twice()


class Swallows(Reactor):
    """Goes on after a database error where it is told to."""

    where: str

    @step
    def body(self, where: str) -> str:
        return write_one_name_twice() if where == "body" else ""

    @body.undo
    def undo(self, where: str) -> None:
        if where == "undo":
            write_one_name_twice()

    @step(WriteTwice, after=["body"])
    def target(self, where: str) -> dict[str, Any]:
        if where == "function of a target":
            write_one_name_twice()
        if where != "target":
            skip("nothing to write", value="")
        return {}

    @map_step(WriteTwice)
    def source(self, target: str, where: str) -> Iterator[dict[str, Any]]:
        if where == "source of a map":
            write_one_name_twice()
            yield {}

    @step
    def last(self, source: object, where: str) -> None:
        if where == "undo":
            fail("undo it")


@pytest.mark.parametrize(
    ("where", "failed"),
    [("body", "body"), ("target", "target"), ("function of a target", "target"), ("source of a map", "source")],
)
def test_a_step_that_swallowed_a_database_error_in_a_callers_transaction_fails_since_its_writes_are_lost(
    where: str, failed: str
) -> None:
    with transaction.atomic():
        Group.objects.create(name="caller's")
        result = Swallows.run(where=where)
        assert isinstance(result, Failure)
        assert (result.step, result.exception_class) == (failed, "django.db.transaction.TransactionManagementError")
        assert "an atomic() block of its own" in result.message
    assert names() == {"caller's"}
    assert execution_of(result).status == "failed"


def test_an_undo_that_swallowed_a_database_error_in_a_callers_transaction_has_failed() -> None:
    with transaction.atomic():
        result = Swallows.run(where="undo")
        assert isinstance(result, Failure)
        assert [(each.step, each.kind) for each in result.rollback_failures] == [("body", "undo")]
    assert names() == set()


def test_a_step_class_called_directly_that_swallowed_a_database_error_in_a_transaction_has_failed() -> None:
    with transaction.atomic():
        assert WriteTwice.call().is_failure
    assert names() == set()


def test_without_a_transaction_a_swallowed_database_error_breaks_nothing() -> None:
    assert WriteTwice.call().unwrap() == "all is well"
    assert names() == {"twice"}


class Deferred(Reactor):
    @step(atomic=True)
    def write(self) -> None:
        through = User.groups.through
        group = Group.objects.create(name="dangling")
        through.objects.bulk_create([through(user_id=987654, group_id=group.pk)])

    @write.compensate
    def tidy(self, error: BaseException) -> None:
        Group.objects.create(name=type(error).__name__)


def test_a_commit_that_the_database_refuses_is_the_steps_failure() -> None:
    result = Deferred.run()
    assert isinstance(result, Failure)
    assert result.exception_class == "django.db.utils.IntegrityError"
    assert names() == {"IntegrityError"}
    execution = execution_of(result)
    assert [(e.action, e.outcome) for e in execution.trace()] == [("run", "failure"), ("compensate", "success")]


HELPERS: dict[str, Callable[[str], object]] = {"succeed": succeed, "skip": skip, "halt": halt, "fail": fail}


class OwnBlock(Reactor):
    how: str

    @step
    def write(self, how: str) -> str:
        with transaction.atomic():
            Group.objects.create(name="inside")
            HELPERS[how]("now")
        return "unreachable"


@pytest.mark.parametrize("how", ["succeed", "skip", "halt"])
@pytest.mark.parametrize("in_transaction", [False, True])
def test_leaving_a_block_of_the_bodys_own_by_a_helper_fails_instead_of_losing_writes(
    how: str, in_transaction: bool
) -> None:
    if in_transaction:
        with transaction.atomic():
            result = OwnBlock.run(how=how)
    else:
        result = OwnBlock.run(how=how)
    assert isinstance(result, Failure)
    assert result.exception_class == "django_reactor.exceptions.SignalInTransaction"
    assert f"{how}()" in result.message
    assert names() == set()


def test_fail_may_leave_a_block_of_the_bodys_own() -> None:
    result = OwnBlock.run(how="fail")
    assert isinstance(result, Failure)
    assert result.message == "now"
    assert names() == set()


class AtExit(Reactor):
    broken: bool = False

    class Meta:
        durability = "exit"

    @step
    def one(self) -> int:
        return Execution.objects.count()

    @one.undo
    def undo_one(self, result: int) -> None: ...

    @step
    def two(self, one: int, broken: bool) -> int:
        if broken:
            raise RuntimeError("no")
        return Execution.objects.count()


def test_with_durability_exit_everything_is_stored_in_one_transaction_at_the_end() -> None:
    result = AtExit.run()
    assert result.unwrap() == {"one": 0, "two": 0}
    execution = execution_of(result)
    assert (execution.status, len(execution.trace())) == ("completed", 2)
    assert execution.result() == result


def test_with_durability_exit_a_failure_and_its_rollback_are_stored_too() -> None:
    result = AtExit.run(broken=True)
    execution = execution_of(result)
    assert execution.status == "failed"
    assert [(e.step, e.action) for e in execution.trace()] == [("one", "run"), ("two", "run"), ("one", "undo")]
    assert execution.result() == result


def test_with_durability_exit_an_idempotency_key_is_claimed_at_the_start() -> None:
    result = AtExit.using(idempotency_key="once").run()
    assert result.unwrap() == {"one": 1, "two": 1}
    assert AtExit.using(idempotency_key="once").run() == result


def test_with_durability_exit_an_atomic_step_still_commits_with_its_entry() -> None:
    class AtomicAtExit(Reactor[Any]):
        class Meta:
            durability = "exit"

        @step
        def plain(self) -> int:
            return Execution.objects.count()

        @step(atomic=True, after=["plain"])
        def atomic(self) -> int:
            return Execution.objects.count()

        @step(after=["atomic"])
        def last(self) -> int:
            return JournalEntry.objects.count()

    assert AtomicAtExit.run().unwrap() == {"plain": 0, "atomic": 1, "last": 2}


def test_actions_take_part_in_the_callers_transaction() -> None:
    execution = execution_of(Groups.run())
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        execution.undo()
        raise ZeroDivisionError
    execution.refresh_from_db()
    assert execution.status == "completed"
    assert names() == {"first", "second"}
