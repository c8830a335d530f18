"""What people do about the line of an ordered lock: `django_reactor.coordination` and `manage.py reactor_order`."""

from __future__ import annotations

from io import StringIO
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from django_reactor import coordination
from django_reactor.coordination.database.turns import DatabaseTurns
from django_reactor.exceptions import LockUnavailable
from django_reactor.models import Ticket
from tests.contract.committed import PATIENCE, another_session, transactional_db

__all__ = ["transactional_db"]

KEY = "account:1"
pytestmark = pytest.mark.usefixtures("transactional_db")


def drawn(count: int = 2) -> list[UUID]:
    executions = [uuid4() for _ in range(count)]
    for execution_id in executions:
        DatabaseTurns().draw(KEY, execution_id)
    DatabaseTurns().head(KEY)
    return executions


def order(*words: str) -> str:
    out = StringIO()
    call_command("reactor_order", *words, stdout=out)
    return out.getvalue().strip()


def test_a_line_is_shown() -> None:
    assert coordination.peek(KEY) is None
    first, _ = drawn()
    line = coordination.peek(KEY)
    assert line is not None
    assert line.head is not None
    assert (line.live, line.last, line.head.number, line.head.execution_id) == (2, 2, 1, first)
    assert order("peek", KEY).startswith("in the line: 2, drawn last: 2, batch: 1; the turn of 1 (queued) since ")
    assert order("peek", KEY).endswith(f" UTC: {first}")


def test_a_failed_number_and_an_empty_line_are_shown() -> None:
    for execution_id in drawn():
        DatabaseTurns().finish(execution_id, failed=True)
    assert order("peek", KEY) == "in the line: 0, drawn last: 2, batch: 1, failed first: 1; nobody's turn"


def test_one_number_is_passed() -> None:
    drawn()
    assert order("skip", KEY, "1") == "passed number 1"
    line = coordination.peek(KEY)
    assert line is not None
    assert line.head is not None
    assert line.head.number == 2
    assert coordination.skip(KEY, 2)
    assert not coordination.skip(KEY, 2)


def test_all_numbers_are_passed() -> None:
    drawn(3)
    assert order("reset", KEY) == "passed 3; the line is empty"
    assert coordination.reset(KEY) == 0


@pytest.mark.parametrize("words", [("peek", "unknown"), ("skip", "unknown", "1"), ("reset", "unknown")])
def test_a_key_of_which_no_number_was_drawn_is_an_error(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="no number was ever drawn for the key 'unknown'"):
        order(*words)


def test_a_number_that_is_not_in_the_line_is_an_error_that_shows_the_line() -> None:
    drawn()
    with pytest.raises(
        CommandError, match=r"number 7 is not in the line of 'account:1'; in the line: 2, drawn last: 2"
    ):
        order("skip", KEY, "7")


@pytest.mark.parametrize("words", [(), ("jump", KEY), ("skip", KEY), ("skip", KEY, "one"), ("peek", "")])
def test_words_that_make_no_sense_are_errors(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        order(*words)


@pytest.mark.parametrize("key", ["", None, 7])
def test_what_is_no_key_is_refused(key: str) -> None:
    for call in (coordination.peek, coordination.reset, lambda k: coordination.skip(k, 1)):
        with pytest.raises(TypeError, match="a text that is not empty"):
            call(key)
    with pytest.raises(TypeError, match="a whole number"):
        coordination.skip(KEY, "1")  # type: ignore[arg-type]


def test_a_ticket_that_an_open_transaction_has_is_an_error_after_a_while(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if database == "sqlite":
        pytest.skip("SQLite has one writer at a time, and no locks on rows")
    monkeypatch.setattr("django_reactor.coordination.database.turns.PATIENCE", 0.1)
    first, _ = drawn()
    with another_session() as other, transaction.atomic():
        DatabaseTurns().finish(first, failed=False)
        for attempt in (lambda: coordination.skip(KEY, 1), lambda: coordination.reset(KEY)):
            assert isinstance(other(attempt).exception(PATIENCE), LockUnavailable)
        assert isinstance(other(lambda: order("reset", KEY)).exception(PATIENCE), CommandError)
    assert Ticket.objects.get(number=1).state == "done"
