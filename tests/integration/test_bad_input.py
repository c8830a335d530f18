"""What cannot be run or stored gives an error that names the thing and the cure; nothing half is left."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.test import override_settings
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy

from django_reactor import Failure, Halt, Reactor, Retry, Skipped, fail, halt, interrupt, skip, snooze, step
from django_reactor.exceptions import ConfigurationError, ExecutionNotFound, InputError
from django_reactor.models import Execution, JournalEntry
from tests.stored import execution_of

pytestmark = pytest.mark.django_db


class Register(Reactor[Any]):
    user: User
    quantity: int
    limit: int = 10
    extra: Any = None

    class Meta:
        returns = "done"

    def clean(self) -> None:
        if self.quantity > self.limit:
            raise ValidationError({"quantity": f"at most {self.limit}"})
        if self.quantity < 0:
            raise ValidationError("not negative")

    @step
    def done(self, user: User) -> str:
        return user.username


@pytest.fixture
def user() -> User:
    return User.objects.create(username="ada")


def refused(**inputs: Any) -> Failure:
    result = Register.run(**inputs)
    assert isinstance(result, Failure)
    assert result.execution_id is None
    assert not Execution.objects.exists()
    return result


def test_all_errors_are_told_at_once_and_unknown_names_too() -> None:
    result = refused(quantity="many", colour="red", usr=1)
    assert set(result.field_errors) == {"user", "quantity", "colour", "usr"}
    assert "user" in result.field_errors["usr"][0]
    assert result.reactor == "test_bad_input.Register"
    assert result.exception_class == "django_reactor.exceptions.InputError"
    assert isinstance(result.cause, InputError)


def test_clean_checks_inputs_together(user: User) -> None:
    assert refused(user=user, quantity=11).field_errors == {"quantity": ["at most 10"]}
    assert refused(user=user, quantity=-1).field_errors == {"__all__": ["not negative"]}


def test_an_unsaved_model_instance_is_refused() -> None:
    assert "save it first" in refused(user=User(username="ghost"), quantity=1).field_errors["user"][0]


def test_an_instance_of_another_model_is_refused() -> None:
    assert "user" in refused(user=Group.objects.create(name="g"), quantity=1).field_errors


@pytest.mark.parametrize("value", [io.StringIO(), lambda: None, object()])
def test_an_input_that_cannot_be_stored_is_refused_with_its_path(user: User, value: object) -> None:
    result = refused(user=user, quantity=1, extra={"deep": [value]})
    assert list(result.field_errors) == ["extra['deep'][0]"] or list(result.field_errors) == ["extra.deep[0]"]
    assert type(value).__name__ in result.message


@override_settings(DJANGO_REACTOR={"MAX_PAYLOAD_BYTES": 1_000})
def test_inputs_that_are_too_large_are_refused_with_the_setting_to_change(user: User) -> None:
    result = refused(user=user, quantity=1, extra="x" * 2_000)
    assert "MAX_PAYLOAD_BYTES" in result.message


@pytest.mark.parametrize("key", ["", "k" * 256, "a\x00b", "a\udc80b"], ids=["empty", "long", "NUL", "surrogate"])
def test_an_idempotency_key_that_no_database_can_hold_is_refused(user: User, key: str) -> None:
    with pytest.raises(InputError, match="idempotency_key"):
        Register.using(idempotency_key=key)
    assert not Execution.objects.exists()


@pytest.mark.parametrize(
    "options",
    [
        {"queue_name": ""},
        {"queue_name": "q" * 101},
        {"queue_name": "a\x00b"},
        {"priority": 2**31},
        {"priority": "high"},
        {"idempotency_key": 17},
        {"run_after": -5},
        {"run_after": "soon"},
        {"run_after": True},
        {"run_after": datetime(2030, 1, 1)},
        {"run_after": datetime(9999, 1, 1, tzinfo=UTC)},
        {"run_after": timedelta.max},
    ],
    ids=repr,
)
def test_an_option_that_cannot_be_meant_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        Register.using(**options)


@pytest.mark.parametrize("tags", ["web", None, 5, [5], {"web": 1, 5: 2}], ids=repr)
def test_tags_that_are_no_texts_are_refused(tags: Any) -> None:
    with pytest.raises(TypeError, match="tags"):
        Register.using(tags=tags)


class Reason(Reactor[Any]):
    given: ClassVar[Any] = None

    @step
    def skipped(self) -> Any:
        return Skipped(1, self.given)

    @step
    def by_helper(self) -> None:
        skip(self.given)

    @step
    def halted(self) -> Any:
        return Halt(self.given)


@pytest.mark.parametrize(
    ("reason", "text"),
    [(gettext_lazy("closed"), "closed"), (mark_safe("closed"), "closed"), (5, "5"), (None, "")],
    ids=["lazy", "safe", "number", "none"],
)
def test_a_reason_is_stored_as_text_whatever_it_is(monkeypatch: pytest.MonkeyPatch, reason: Any, text: str) -> None:
    monkeypatch.setattr(Reason, "given", reason)
    result = Reason.run()
    assert result == Halt(text, execution_id=result.execution_id)
    execution = execution_of(result)
    assert [entry.reason for entry in execution.trace()] == [text, text, text]
    execution.undo(reason)
    execution.refresh_from_db()
    assert (execution.status, execution.trace()[-1].reason) == ("undone", text)
    waiting = execution_of(Asking.run())
    waiting.cancel(reason)
    waiting.refresh_from_db()
    assert (waiting.status, waiting.stop_reason) == ("cancelled", text)


class Asking(Reactor[Any]):
    signed = interrupt()


@pytest.mark.parametrize("correlation_id", ["a\x00b", "a\udc80b", "c" * 256])
def test_a_correlation_id_that_nobody_can_have_is_not_found(correlation_id: str) -> None:
    """It may come from anywhere, and must not break its caller's transaction."""
    with pytest.raises(ExecutionNotFound):
        Register.resume("yes", correlation_id)
    assert not Execution.objects.exists()


class Returning(Reactor[Any]):
    """A step that returns what it is told, after one that can be undone."""

    what: str

    @step
    def first(self) -> str:
        return "done"

    @first.undo
    def undo_first(self, result: str) -> None: ...

    @step(retry=Retry(max_attempts=3, delay=0))
    def made(self, first: str, what: str) -> Any:
        match what:
            case "handle":
                return {"items": [1, 2, 3, {"handle": io.StringIO()}]}
            case "queryset":
                return User.objects.all()
            case "unsaved":
                return User(username="ghost")
            case "large":
                return "x" * 2_000_000
            case "generator":
                return (number for number in range(3))
            case "cycle":
                cycle: list[Any] = []
                cycle.append(cycle)
                return cycle

    @made.compensate
    def tidy(self, error: BaseException) -> None: ...


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("handle", "StringIO"),
        ("queryset", "QuerySet"),
        ("unsaved", "save"),
        ("large", "MAX_PAYLOAD_BYTES"),
        ("generator", "generator"),
        ("cycle", "itself"),
    ],
)
def test_a_result_that_cannot_be_stored_fails_its_step_once_and_is_rolled_back(what: str, told: str) -> None:
    result = Returning.run(what=what)
    assert isinstance(result, Failure)
    assert told in result.message
    assert "step 'made'" in result.message
    assert (result.step, result.attempts, result.retryable) == ("made", 1, False)
    assert result.exception_class == "django_reactor.exceptions.SerializationError"
    actions = JournalEntry.objects.order_by("seq").values_list("step", "action", "outcome")
    assert list(actions) == [
        ("first", "run", "success"),
        ("made", "run", "failure"),
        ("made", "compensate", "success"),
        ("first", "undo", "success"),
    ]


def test_an_instance_that_was_deleted_before_a_later_read_fails_the_reader_as_gone(user: User) -> None:
    class Deleting(Reactor):
        user: User

        @step
        def delete(self) -> None:
            self.user.delete()

        @step(after=["delete"], retry=Retry(max_attempts=3, delay=0))
        def read(self, user: User) -> None: ...

        @read.compensate
        def tidy(self, error: BaseException) -> None: ...

    result = Deleting.run(user=user)
    assert isinstance(result, Failure)
    assert (result.step, result.attempts) == ("read", 1)
    assert result.exception_class == "django_reactor.exceptions.Gone"
    assert "auth.User" in result.message
    assert not JournalEntry.objects.filter(action="compensate").exists()  # its body never started


def test_a_result_whose_row_was_deleted_is_told_when_it_is_read_later(user: User) -> None:
    from django_reactor.exceptions import Gone

    class Made(Reactor):
        user: User

        class Meta:
            returns = "same"

        @step
        def same(self, user: User) -> User:
            return user

        @step
        def other(self) -> int:
            return 1

    execution = execution_of(Made.run(user=user))
    user.delete()
    assert execution.results["other"] == 1
    with pytest.raises(Gone, match=r"auth\.User"):
        execution.result()


@pytest.mark.parametrize(
    ("configured", "told"),
    [
        ({"LEASE_TLL": 5}, "LEASE_TTL"),
        ({"LEASE_TTL": "60"}, "a number"),
        ({"LEASE_TTL": 0}, "positive"),
        ({"MAX_SNOOZES": -1}, "negative"),
        ({"SWEEPER": 1}, "True or False"),
        ([], "dict"),
    ],
)
def test_a_wrong_setting_is_a_check_error_and_stops_the_first_use(configured: Any, told: str) -> None:
    from django.core.checks import run_checks

    with override_settings(DJANGO_REACTOR=configured):
        errors = [error for error in run_checks() if error.id == "django_reactor.E100"]
        assert len(errors) == 1
        assert told in f"{errors[0].msg} {errors[0].hint}"
        with pytest.raises(ConfigurationError, match="DJANGO_REACTOR"):
            Returning.run(what="")
    assert not Execution.objects.exists()


def test_a_project_without_time_zones_is_told_so() -> None:
    from django.core.checks import run_checks

    with override_settings(USE_TZ=False):
        assert "django_reactor.E101" in [error.id for error in run_checks()]
        with pytest.raises(ConfigurationError, match="USE_TZ = True"):
            Returning.run(what="")
    assert not Execution.objects.exists()


DOCUMENT = "<html>" + "x" * 2**24  # more than a packet of MariaDB


class Wordy(Reactor):
    """Says all that the other side has answered."""

    how: str

    @step
    def ask(self, how: str) -> None: ...

    @ask.undo
    def take_back(self, how: str) -> None:
        if how == "undo":
            skip(DOCUMENT)

    @step(after=["ask"])
    def answer(self, how: str) -> None:
        said: dict[str, Callable[[str], Any]] = {"skip": skip, "halt": halt, "fail": fail}
        if how in said:
            said[how](DOCUMENT)
        if how == "snooze":
            snooze(60, DOCUMENT)
        if how == "undo":
            fail("undo it")


@pytest.mark.parametrize("how", ["skip", "halt", "fail", "undo", "snooze"])
def test_of_what_a_step_says_no_more_is_kept_than_people_read(how: str) -> None:
    execution = execution_of(Wordy.run(how=how))
    texts = [execution.snooze_reason, *execution.entries.values_list("reason", flat=True)]
    texts.append((execution.failure or {}).get("message", ""))
    longest = max(texts, key=len)
    assert longest.startswith("<html>xxx")
    assert longest.endswith("more characters")
    assert len(longest) < 11_000


@pytest.mark.parametrize("asked", ["undo", "cancel"])
def test_of_a_reason_to_stop_no_more_is_kept_than_people_read(asked: str) -> None:
    execution = execution_of(Wordy.run(how="snooze"))
    execution.cancel(DOCUMENT if asked == "cancel" else "")
    if asked == "undo":
        execution.undo(DOCUMENT)
    execution.refresh_from_db()
    texts = [execution.stop_reason, *execution.entries.values_list("reason", flat=True)]
    assert 10_000 < max(map(len, texts)) < 11_000
