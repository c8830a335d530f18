"""A redacted value occurs nowhere in what is stored for display, logged, signalled or returned."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import pytest
from django.core.exceptions import ValidationError
from django.test import override_settings
from django.urls import reverse
from pydantic import AfterValidator, BaseModel, SecretStr

from django_reactor import (
    Failure,
    Reactor,
    Redacted,
    Retry,
    Step,
    async_reactor,
    async_step,
    compose,
    fail,
    halt,
    map_step,
    skip,
    snooze,
    step,
)
from django_reactor.core.statuses import Relation
from django_reactor.exceptions import InputError, SerializationError
from django_reactor.models import Execution
from django_reactor.signals import SIGNALS
from tests.integration.admin_support import client_of
from tests.stored import execution_of

pytestmark = pytest.mark.django_db

MARK = "zqxj"
"""Part of each secret. No time and no id can have it by chance."""
SECRET = f'tok_"{MARK}"/ü€ \\x'
NUMBER = 4711_0815_4711_0815


class Gateway(Step[dict[str, str]]):
    token: Redacted[str]
    how: str

    def run(self) -> dict[str, str]:
        token = self.token
        match self.how:
            case "raise":
                raise ValueError(f"refused {token!r}") from KeyError(token)
            case "fail":
                fail(f"refused {token}")
        return {"auth": token}

    def undo(self, result: dict[str, str]) -> str:
        raise RuntimeError(f"cannot take {result['auth']} back")


class Paying(Reactor[Any]):
    token: Redacted[str]
    how: str

    @step
    def renamed(self, token: str) -> dict[str, list[str]]:
        return {"under another name": [token]}

    @step(retry=Retry(max_attempts=2, delay=0))
    def careless(self, renamed: dict[str, list[str]]) -> None:
        (secret,) = renamed["under another name"]
        match self.how:
            case "snooze":
                snooze(0, f"waiting for {secret}")
            case "careless":
                raise ValueError("leaked", renamed)
            case "halt":
                halt(f"stopped by {secret}")
            case "skip":
                skip(f"skipped for {secret}")

    @step(Gateway, after=["careless"])
    def gateway(self, token: str) -> dict[str, str]:
        return {"token": token, "how": self.how}

    @step
    def last(self, gateway: dict[str, str]) -> None:
        raise RuntimeError(f"after {gateway}")


@pytest.mark.parametrize("how", ["careless", "halt", "skip", "snooze", "raise", "fail", "undo"])
def test_a_secret_is_nowhere_in_what_people_are_shown(how: str, caplog: pytest.LogCaptureFixture) -> None:
    signalled: list[str] = []

    def listen(sender: type, **details: Any) -> None:
        entry = details.pop("entry", None)
        signalled.append(repr(details))
        if entry is not None:
            signalled.append(f"{entry.error} {entry.reason}")

    for signal in SIGNALS.values():
        signal.connect(listen, sender=Paying)
    try:
        with caplog.at_level(logging.DEBUG):
            result = Paying.run(token=SECRET, how=how)
            execution = execution_of(result)
            execution.undo(f"because of {SECRET}") if how == "halt" else None
    finally:
        for signal in SIGNALS.values():
            signal.disconnect(listen, sender=Paying)
    execution.refresh_from_db()
    shown = [repr(result), str(result), repr(execution.result()), str(execution), caplog.text, *signalled]
    shown += [repr(result.as_dict()), repr(result.inputs)] if isinstance(result, Failure) else []
    shown += [execution.snooze_reason, execution.stop_reason, repr(execution.failure)]
    for entry in execution.trace():
        shown += [str(entry), entry.reason, repr(entry.error)]
    forms = {SECRET, repr(SECRET)[1:-1], MARK, "tok_"}
    leaks = [text for text in shown for form in forms if form in text]
    assert leaks == []
    assert any("[REDACTED]" in text for text in shown)
    assert len(signalled) > 3


class Token(BaseModel):
    value: SecretStr


def test_a_secret_that_a_step_returns_is_not_shown_by_a_later_failure() -> None:
    class Making(Reactor):
        @step
        def token(self) -> Token:
            return Token(value=SecretStr(SECRET))

        @step
        def use(self, token: Token) -> None:
            raise RuntimeError(f"refused {token.value.get_secret_value()}")

    result = Making.run()
    assert isinstance(result, Failure)
    assert result.message == "refused [REDACTED]"
    assert MARK not in repr(execution_of(result).failure)


class Carried(Reactor[str]):
    """Does not know that what it is given is a secret."""

    class Meta:
        returns = "use"

    header: str
    fails: bool = False

    @step
    def use(self, header: str) -> str:
        if self.fails:
            raise RuntimeError(f"refused {header}")
        return f"sent {header}"


class GoesOn(Reactor[Any]):
    token: Redacted[str]

    @compose(Carried)
    def child(self) -> dict[str, Any]:
        return {"header": f"Bearer {self.token}"}

    @map_step(Carried, fail_fast=False)
    def elements(self) -> list[dict[str, Any]]:
        return [{"header": self.token, "fails": fails} for fails in (False, True)] + [{"heading": self.token}]

    @async_reactor(Carried)
    def reactor_unit(self) -> dict[str, Any]:
        return {"header": self.token, "fails": True}

    @async_step(retry=Retry(max_attempts=1))
    def step_unit(self, child: str) -> None:
        raise RuntimeError(f"refused {child}")


def test_a_secret_that_goes_on_to_a_child_an_element_or_a_unit_is_shown_on_none_of_their_pages(
    transactional_db: None, caplog: pytest.LogCaptureFixture
) -> None:
    with override_settings(DJANGO_REACTOR={"BACKEND": "immediate"}), caplog.at_level(logging.DEBUG):
        GoesOn.run(token=SECRET)
    executions = Execution.objects.all()
    assert {execution.relation for execution in executions} == {*Relation}
    client = client_of("view")
    for execution in executions:
        page = client.get(reverse("admin:django_reactor_execution_change", args=[execution.pk])).content.decode()
        assert "[REDACTED]" in page, execution
        assert "[unreadable" not in page, execution
        for text in (page, repr(execution.failure), caplog.text):
            assert MARK not in text, execution


def test_a_value_that_is_redacted_remains_usable() -> None:
    seen: list[str] = []

    class Uses(Reactor):
        token: Redacted[str | None] = None

        @step
        def use(self, token: str | None) -> None:
            seen.extend([str(token), str(self.token)])

    Uses.run(token=SECRET)
    assert seen == [SECRET, SECRET]


Lowered = Redacted[Annotated[str, AfterValidator(str.lower)]]


class Sealing(Step[Any]):
    """Its secrets are a default, and what its contract makes of what it is given."""

    how: str
    given: Lowered
    default: Redacted[str] = f"tok_default_{MARK}"

    def run(self) -> None:
        text = f"{self.given} {self.default}"
        match self.how:
            case "raise":
                raise ValueError(text)
            case "fail":
                fail(text)
            case "halt":
                halt(text)
            case "skip":
                skip(text)
            case "snooze":
                snooze(1, text)


class Sealed(Reactor[Any]):
    how: str
    given: Lowered
    default: Redacted[str] = f"tok_default_{MARK}"

    seal = step(Sealing)

    @step(after=["seal"])
    def again(self, how: str) -> None:
        Sealing.run(self)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["raise", "fail", "halt", "skip", "snooze"])
def test_a_default_and_what_a_contract_makes_of_a_secret_are_shown_nowhere(how: str) -> None:
    given = f"TOK_GIVEN_{MARK}"
    called = Sealing.call(how=how, given=given)
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.integration.test_delivery_costs.Outbox"}):
        ran: Any = Sealed.run(how=how, given=given)
    refused = [Sealing.call(how=how, given=given, default=5), Sealed.run(how=how, given=given, default=5)]
    execution = execution_of(ran)
    shown = [repr(each) + str(each) for each in (called, ran, *refused)]
    shown += [repr(each.as_dict()) for each in (called, ran, *refused) if isinstance(each, Failure)]
    shown += [execution.snooze_reason, repr(execution.failure)]
    shown += [f"{entry.reason} {entry.error}" for entry in execution.trace()]
    assert [text for text in shown if MARK in text] == []
    assert "[REDACTED] [REDACTED]" in shown[0]


def test_messages_about_invalid_inputs_do_not_show_them() -> None:
    class Strict(Reactor):
        token: Redacted[int]
        other: int

        def clean(self) -> None:
            raise ValidationError(f"bad {self.token}")

        @step
        def one(self) -> None: ...

    for inputs in ({"token": SECRET, "other": "x"}, {"token": NUMBER, "other": 1}):
        result = Strict.run(**inputs)
        assert isinstance(result, Failure)
        assert isinstance(result.cause, InputError)
        shown = (
            repr(result) + str(result) + repr(result.as_dict()) + repr(result.cause) + repr(result.cause.__context__)
        )
        assert MARK not in shown
        assert str(NUMBER) not in shown
        assert isinstance(result.cause, InputError)
        assert result.cause.__cause__ is None


def test_a_path_to_what_cannot_be_stored_does_not_show_a_secret() -> None:
    class Nested(Reactor):
        token: Redacted[dict[Annotated[str, AfterValidator(lambda key: key[::-1])], Any]]

        @step
        def one(self) -> None: ...

    given = {f"tok_{MARK}": object()}
    result = Nested.run(token=given)
    assert isinstance(result, Failure)
    assert isinstance(result.cause, SerializationError)
    with pytest.raises(InputError) as enqueued:
        Nested.enqueue(token=given)
    shown = repr(result) + repr(result.as_dict()) + repr(enqueued.value.field_errors)
    for error in (result.cause, enqueued.value):
        shown += repr(error) + repr(error.__context__) + repr(getattr(error.__context__, "__context__", None))
    assert MARK not in shown
    assert MARK[::-1] not in shown
    assert "object" in result.message


def test_a_key_that_would_show_a_secret_is_refused_when_it_is_declared() -> None:
    from django_reactor.exceptions import DefinitionError

    with pytest.raises(DefinitionError, match="token"):

        class Keyed(Reactor):
            token: Redacted[str]

            class Meta:
                idempotency_key = "pay-{token}"

            @step
            def one(self) -> None: ...
