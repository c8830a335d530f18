"""The tree of errors: public, importable, and able to travel."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from django_reactor import Failure, coordination, engine, exceptions
from django_reactor.exceptions import ReactorError

PUBLIC = (
    "DefinitionError",
    "InputError",
    "ArgumentError",
    "StepFailed",
    "SerializationError",
    "Gone",
    "SignalInTransaction",
    "ExecutionFailed",
    "NotFinished",
    "ExecutionNotFound",
    "InvalidTransition",
    "AlreadyResumed",
    "InterruptTimedOut",
    "CorrelationConflict",
    "Interrupted",
    "WaitTimeout",
    "PoisonExecution",
    "WouldDeadlock",
    "LockUnavailable",
    "SemaphoreUnavailable",
    "RateLimited",
    "OutOfTurn",
    "StoreUnavailable",
    "ConfigurationError",
    "InternalError",
    "ReactorError",
)
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "InputError": ("shop.PlaceOrder", {"sku": ["unknown"], "__all__": ["too much"]}),
    "ExecutionFailed": (Failure("declined", step="charge"),),
    "NotFinished": (UUID(int=7), "paused"),
    "ExecutionNotFound": (UUID(int=7),),
    "InvalidTransition": (UUID(int=7), "completed", "cancel", "it is too late"),
    "AlreadyResumed": (UUID(int=7), "approval"),
    "InterruptTimedOut": (UUID(int=7), "approval"),
    "CorrelationConflict": ("approval", "request-7"),
    "ArgumentError": ("wrong", {"amount": ["negative"]}),
    "OutputError": ({"amount": ["negative"]},),
    "StepFailed": ("declined", "shop.Declined", False),
    "SerializationError": ("result.items[3]", "is a file", "charge"),
    "Gone": ("shop.Order", 7),
    "SignalInTransaction": ("halt",),
    "Interrupted": ("charge", "its process died"),
    **dict.fromkeys(("ContentionError", "LockUnavailable", "SemaphoreUnavailable"), ("not now", "customer:7", 1.5)),
    **dict.fromkeys(("RateLimited", "OutOfTurn", "StoreUnavailable"), ("not now", "customer:7", 1.5)),
}


def made(name: str) -> ReactorError:
    error: ReactorError = getattr(exceptions, name)(*ARGUMENTS.get(name, ("something happened",)))
    return error


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_error_can_be_imported_and_is_a_reactor_error(name: str) -> None:
    assert name in exceptions.__all__
    assert issubclass(getattr(exceptions, name), ReactorError)


def test_what_is_public_is_all_there_is() -> None:
    defined = {name for name, value in vars(exceptions).items() if isinstance(value, type)}
    assert {name for name in defined if issubclass(getattr(exceptions, name), ReactorError)} == set(exceptions.__all__)


def test_no_error_that_a_user_meets_is_defined_elsewhere() -> None:
    for package in (coordination, engine):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    defined = [error for error in all_below(ReactorError) if error.__module__.startswith("django_reactor.")]
    assert {f"{error.__module__}.{error.__qualname__}" for error in defined} == {
        f"{exceptions.__name__}.{name}" for name in exceptions.__all__ if name != "ReactorError"
    }


def all_below(error: type[ReactorError]) -> Iterator[type[ReactorError]]:
    for below in error.__subclasses__():
        yield below
        yield from all_below(below)


def test_the_tree_at_the_head_of_the_module_is_the_tree() -> None:
    """Each line there is one class, indented below its base."""
    path: list[str] = []
    drawn: dict[str, str] = {}
    lines = (exceptions.__doc__ or "").split("\n\n")[1].splitlines()
    for line in lines:
        stripped = line.lstrip(" │├└─")
        depth, name = (len(line) - len(stripped)) // 4 - 1, stripped.split()[0]
        path[depth:] = [name]
        if depth:
            drawn[name] = path[depth - 1]
    actual = {name: getattr(exceptions, name).__bases__[0].__name__ for name in exceptions.__all__}
    assert drawn == {name: base for name, base in actual.items() if base != "Exception"}


@pytest.mark.parametrize("name", exceptions.__all__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_survives_pickling_with_its_text_and_data(name: str, protocol: int) -> None:
    error = made(name)
    error.add_note("seen in the shop")
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize("name", exceptions.__all__)
def test_every_error_can_be_copied(name: str) -> None:
    error = made(name)
    again = copy.deepcopy(error)
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize("name", exceptions.__all__)
def test_every_error_has_one_line_as_its_message(name: str) -> None:
    text = str(made(name))
    assert text
    assert "\n" not in text


def test_what_concerns_no_field_is_told_without_a_name() -> None:
    errors = {"__all__": ["not a number"], "amount": ["negative", "odd"]}
    for error in (exceptions.InputError("Buy", errors), exceptions.OutputError(errors)):
        assert str(error).endswith(": not a number; amount: negative odd")
        assert error.field_errors == errors


def test_an_error_of_a_users_subclass_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(Declined("card 7", code=51)))
    assert (type(again), str(again), again.code) == (Declined, "card 7 was declined", 51)


class Declined(exceptions.StepFailed):
    def __init__(self, card: str, *, code: int) -> None:
        super().__init__(f"{card} was declined")
        self.code = code
