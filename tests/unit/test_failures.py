"""What people are shown of an exception."""

from __future__ import annotations

import json
import linecache
import threading
from collections.abc import Callable
from functools import wraps
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import TypeAdapter

from django_reactor import Failure, Reactor, Redacted, Step, fail, step
from django_reactor.core.redaction import MAX_TEXT, REDACTED, Redactor
from django_reactor.engine import failures
from django_reactor.engine.failures import FOLDED, MAX_FRAMES, describe, qualified_name
from django_reactor.exceptions import ArgumentError, StepFailed
from tests.engine_support import Bench

pytestmark = pytest.mark.usefixtures("own_registry")

HERE = __file__
NOTHING = Redactor.of([])
SECRET = "tok_4711_0815"


def raised(body: Callable[[], Any]) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # each test says what it raises
        body()
    return caught.value


def shown(body: Callable[[], Any], redactor: Redactor = NOTHING) -> dict[str, Any]:
    return describe(raised(body), redactor)


def failure_of(body: Callable[[Any], Any]) -> Failure:
    class Shop(Reactor[Any]):
        @step
        def pay(self) -> Any:
            return body(self)

    result = Bench(Shop).start()
    assert isinstance(result, Failure)
    return result


def marked(failure: Failure | dict[str, Any]) -> str:
    snippet = failure.snippet if isinstance(failure, Failure) else failure["snippet"]
    (line,) = [line for line in snippet.splitlines() if line.startswith(">")]
    return str(line)


# -- where -------------------------------------------------------------------------------------------------------------


def test_the_line_of_a_functions_own_exception_is_shown() -> None:
    class Shop(Reactor[Any]):
        @step
        def pay(self) -> None:
            raise ValueError("no")  # here: a step's function

    failure = Bench(Shop).start()
    assert isinstance(failure, Failure)
    assert failure.file == HERE
    assert "# here: a step's function" in marked(failure)
    assert failure.line is not None
    assert linecache.getline(HERE, failure.line).strip() in marked(failure)
    assert len(failure.snippet.splitlines()) == 7


def test_the_line_of_a_step_class_is_shown() -> None:
    class Pay(Step[Any]):
        def run(self) -> None:
            raise ValueError("no")  # here: a Step class

    class Shop(Reactor[Any]):
        pay = step(Pay)

    failure = Bench(Shop).start()
    assert isinstance(failure, Failure)
    assert "# here: a Step class" in marked(failure)


def test_the_line_that_called_fail_is_shown_however_deep() -> None:
    def declined(depth: int) -> None:
        if depth:
            declined(depth - 1)
        fail("declined")  # here: fail

    failure = failure_of(lambda self: declined(3))
    assert failure.file == HERE
    assert "# here: fail" in marked(failure)
    assert failure.message == "declined"
    assert failure.exception_class is None


def test_the_users_line_is_shown_when_a_library_raises() -> None:
    def body(self: Any) -> None:
        TypeAdapter(int).validate_python("five")  # here: into a library

    def standard(self: Any) -> None:
        json.loads("{")  # here: into the standard library

    assert "# here: into a library" in marked(failure_of(body))
    assert "# here: into the standard library" in marked(failure_of(standard))


def test_the_line_of_an_async_body_is_shown() -> None:
    async def body() -> None:
        raise ValueError("no")  # here: async

    assert "# here: async" in marked(failure_of(lambda self: body()))


def test_the_line_where_an_exception_arose_is_shown_though_fail_carried_it_out() -> None:
    def body(self: Any) -> None:
        try:
            raise ValueError("no")  # here: it arose
        except ValueError as error:
            fail(error)

    assert "# here: it arose" in marked(failure_of(body))


def test_a_file_that_cannot_be_read_has_a_line_and_no_snippet(tmp_path: Path) -> None:
    module = ModuleType("gone")
    exec(compile("def body():\n    raise ValueError('no')\n", str(tmp_path / "gone.py"), "exec"), vars(module))
    described = shown(module.body)
    assert (described["file"], described["line"]) == (str(tmp_path / "gone.py"), 2)
    assert described["snippet"] == ""


def test_code_without_a_file_is_no_place() -> None:
    scope: dict[str, Any] = {}
    exec("def body():\n    raise ValueError('no')\n", scope)
    described = shown(lambda: scope["body"]())
    assert described["file"] == HERE


def test_a_project_whose_name_begins_like_ours_is_the_users(tmp_path: Path) -> None:
    """`…/django_reactor_shop/steps.py` is not a file of `…/django_reactor/`."""
    path = failures.FRAMEWORK.rstrip("/\\") + "_shop/steps.py"
    module = ModuleType("steps")
    exec(compile("def body():\n    raise ValueError('no')\n", path, "exec"), vars(module))
    described = shown(module.body)
    assert described["file"] == path
    assert FOLDED not in described["backtrace"]


def test_a_result_that_is_refused_points_to_the_function_that_gave_it() -> None:
    class Give(Step[int]):
        def run(self) -> int:  # here: a Step class
            return "five"  # type: ignore[return-value]

    def kept(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    class Shop(Reactor[Any]):
        @step  # here: a step's function
        @kept
        def pay(self) -> Any:
            return threading.Lock()

    class Other(Reactor[Any]):
        pay = step(Give)

    failure = Bench(Shop).start()
    assert isinstance(failure, Failure)
    assert failure.file == HERE
    assert "# here: a step's function" in marked(failure)
    for failed in (Bench(Other).start(), Give.call()):
        assert isinstance(failed, Failure)
        assert "# here: a Step class" in marked(failed)


def test_if_only_a_library_was_running_its_line_is_shown() -> None:
    error = raised(lambda: json.loads("{"))
    assert error.__traceback__ is not None
    inside = error.__traceback__.tb_next
    while inside is not None and inside.tb_frame.f_code.co_filename == HERE:
        inside = inside.tb_next
    described = describe(error.with_traceback(inside), NOTHING)
    assert "json" in described["file"]
    assert marked(described)


def test_a_snippet_begins_with_the_file(tmp_path: Path) -> None:
    path, module = tmp_path / "steps.py", ModuleType("steps")
    path.write_text("raising = lambda: 1 / 0\nafter = 2\n")
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    lines = shown(module.raising)["snippet"].splitlines()
    assert [line.split(maxsplit=2 if line.startswith(">") else 1)[-1] for line in lines] == [
        "raising = lambda: 1 / 0",
        "after = 2",
    ]
    assert lines[0].startswith(">     1  ")


def test_a_text_that_is_very_long_is_cut_and_says_so() -> None:
    whole, long = "m" * MAX_TEXT, "m" * (MAX_TEXT + 1234)
    assert describe(ValueError(whole), NOTHING)["message"] == whole
    assert describe(ValueError(long), NOTHING)["message"] == f"{whole}… 1,234 more characters"


def test_an_exception_that_was_never_raised_has_no_place() -> None:
    described = describe(ValueError("no"), NOTHING)
    assert (described["file"], described["line"], described["snippet"], described["backtrace"]) == (None, None, "", [])


# -- the backtrace -----------------------------------------------------------------------------------------------------


def test_our_own_frames_are_folded_into_one_line_each_run() -> None:
    failure = failure_of(lambda self: failure_of(lambda self: 1 / 0).unwrap())
    assert FOLDED in failure.backtrace
    assert not any(a == b == FOLDED for a, b in zip(failure.backtrace, failure.backtrace[1:], strict=False))
    assert not any(failures.FRAMEWORK in line for line in failure.backtrace)


def test_a_backtrace_has_at_most_a_hundred_frames_and_keeps_both_ends() -> None:
    def recurse(depth: int) -> None:
        if not depth:
            raise ValueError("the bottom")
        recurse(depth - 1)

    lines = shown(lambda: recurse(300))["backtrace"]
    assert len(lines) == MAX_FRAMES + 1
    assert "more frames" in lines[MAX_FRAMES // 2]
    assert lines[0].endswith("in raised")
    assert lines[-1].endswith("in recurse")


def test_a_recursion_without_end_is_described() -> None:
    def recurse(self: Any) -> None:
        recurse(self)

    failure = failure_of(recurse)
    assert failure.exception_class == "RecursionError"
    assert len(failure.backtrace) <= MAX_FRAMES + 1


def test_what_stands_behind_an_exception_is_named_nearest_first() -> None:
    def body() -> None:
        try:
            try:
                raise KeyError("first")
            except KeyError:
                raise TypeError("second")  # noqa: B904  # the context is what is tested
        except TypeError as error:
            raise ValueError("third") from error

    causes = [line for line in shown(body)["backtrace"] if line.startswith("caused by")]
    assert causes == ["caused by TypeError: second", "caused by KeyError: 'first'"]


def test_what_was_suppressed_is_not_named_and_a_circle_ends() -> None:
    def suppressed() -> None:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second") from None

    assert not any("KeyError" in line for line in shown(suppressed)["backtrace"])
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert describe(first, NOTHING)["backtrace"] == ["caused by ValueError: second"]


def test_of_what_stands_behind_an_exception_ten_are_named_and_no_circle_is_run_through() -> None:
    chain: list[BaseException] = [ValueError(str(number)) for number in range(15)]
    for error, cause in pairwise(chain):
        error.__cause__ = cause
    assert len(describe(chain[0], NOTHING)["backtrace"]) == 10
    chain[4].__cause__ = chain[2]
    assert describe(chain[0], NOTHING)["backtrace"] == [f"caused by ValueError: {number}" for number in range(1, 5)]


def test_what_stands_behind_a_fail_is_named() -> None:
    def body(self: Any) -> None:
        try:
            raise ConnectionError("refused")
        except ConnectionError:
            fail("the gateway is away")

    assert "caused by ConnectionError: refused" in failure_of(body).backtrace


# -- whatever an exception is ------------------------------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Endless(Exception):
    def __str__(self) -> str:
        return str(self)


class NoText(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]


class Foreign(Exception):
    """Has attributes of the names that ours have, and other things in them."""

    field_errors = ("not", "a", "mapping")


class Hostile(Exception):
    @property
    def field_errors(self) -> Any:
        raise RuntimeError("not now")


@pytest.mark.parametrize("kind", [Unprintable, Endless, NoText])
def test_an_exception_that_cannot_be_printed_is_named_all_the_same(kind: type[Exception]) -> None:
    def body(self: Any) -> None:
        raise kind

    failure = failure_of(body)
    assert "could not be read" in failure.message
    assert failure.exception_class == f"{__name__}.{kind.__qualname__}"


@pytest.mark.parametrize("kind", [Foreign, Hostile])
def test_attributes_of_a_foreign_exception_are_not_taken_for_ours(kind: type[Exception]) -> None:
    def body(self: Any) -> None:
        raise kind("no")

    failure = failure_of(body)
    assert (failure.message, failure.field_errors) == ("no", {})


def test_an_exception_without_a_text_is_told_by_its_class() -> None:
    assert shown(raising(ValueError()))["message"] == "ValueError"


def raising(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


def test_classes_are_named_in_full_but_for_builtins() -> None:
    class Local(Exception):
        pass

    assert qualified_name(ValueError) == "ValueError"
    assert qualified_name(ArgumentError) == "django_reactor.exceptions.ArgumentError"
    assert qualified_name(Local).endswith("test_classes_are_named_in_full_but_for_builtins.<locals>.Local")


def test_a_group_is_described_as_one() -> None:
    described = shown(raising(ExceptionGroup("both", [ValueError("one"), TypeError("two")])))
    assert described["exception_class"] == "ExceptionGroup"
    assert described["message"] == "both (2 sub-exceptions)"


def test_a_recorded_error_keeps_the_class_that_it_had() -> None:
    described = describe(StepFailed("declined", "shop.Declined"), NOTHING)
    assert described["exception_class"] == "shop.Declined"


def test_a_description_is_json() -> None:
    def body() -> None:
        raise ArgumentError("wrong", {"amount": ["negative"]})

    described = shown(body)
    assert json.loads(json.dumps(described)) == described
    assert described["field_errors"] == {"amount": ["negative"]}


# -- what must not be shown --------------------------------------------------------------------------------------------


class Charge(Reactor[Any]):
    token: Redacted[str]

    class Meta:
        name = "failures.Charge"

    @step
    def pay(self, token: str) -> None:
        card = f"card {token}"
        try:
            raise KeyError(card)
        except KeyError:
            raise ArgumentError(f"declined: {card}", {token: [f"{card} is blocked"]})  # noqa: B904  "tok_4711_0815"

    @pay.compensate
    def void(self, token: str) -> None:
        raise ValueError(f"cannot void {token}")


def test_no_field_of_a_failure_shows_a_secret() -> None:
    bench = Bench(Charge)
    failure = bench.start(token=SECRET)
    assert isinstance(failure, Failure)
    assert SECRET not in json.dumps(failure.as_dict())
    assert SECRET not in repr(failure)
    assert SECRET not in json.dumps([entry.error for entry in bench.entries])
    assert failure.message == f"declined: card {REDACTED}"
    assert failure.field_errors == {REDACTED: [f"card {REDACTED} is blocked"]}
    assert REDACTED in marked(failure)
    assert failure.inputs == failure.arguments == {"token": REDACTED}
    assert any(line.startswith("caused by KeyError") and REDACTED in line for line in failure.backtrace)
    assert failure.rollback_failures[0].message == f"cannot void {REDACTED}"


@pytest.mark.parametrize("say", ["skip", "halt", "snooze", "fail"])
def test_no_reason_shows_a_secret(say: str) -> None:
    from django_reactor import halt, skip, snooze

    told: list[str] = []

    class Shop(Reactor[Any]):
        token: Redacted[str]

        @step
        def pay(self, token: str) -> None:
            told.append(say)
            match say:
                case "skip":
                    skip(token)
                case "halt":
                    halt(token)
                case "snooze" if len(told) < 2:
                    snooze(1, token)
                case "fail":
                    fail(token)

    bench = Bench(Shop)
    result = bench.start(token=SECRET)
    row = bench.store.rows[bench.execution_id]
    shown_texts = [repr(result), row.record.snooze_reason, repr(bench.observer.events)]
    shown_texts += [repr((entry.reason, entry.error)) for entry in bench.entries]
    assert SECRET not in " ".join(shown_texts)
