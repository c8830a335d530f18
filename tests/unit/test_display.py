"""Stored values for people: readable, redacted, shortened, and independent of classes and rows."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy, ngettext_lazy, pgettext_lazy
from pydantic import SecretBytes, SecretStr

from django_reactor.core.redaction import REDACTED, Redactor
from django_reactor.journal.codec import Codec
from django_reactor.journal.display import display, secrets_in
from django_reactor.results import Success
from tests import codec_support as kinds
from tests.codec_support import stored


def shown(value: object, *secrets: object, limit: int | None = None) -> Any:
    return display(stored(value), Redactor.of(secrets), limit=limit)


def saved_user(pk: int) -> User:
    user = User(pk=pk, username="never shown")
    user._state.adding = False
    return user


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (1.5, 1.5),
        (float("nan"), "nan"),
        ("text", "text"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (date(2024, 5, 1), "2024-05-01"),
        (datetime(2024, 5, 1, 12, tzinfo=UTC), "2024-05-01T12:00:00+00:00"),
        (datetime(2024, 5, 1, 12, tzinfo=ZoneInfo("Europe/Berlin")), "2024-05-01T12:00:00+02:00"),
        (time(12, tzinfo=ZoneInfo("Europe/Berlin")), "12:00:00 Europe/Berlin"),
        (timedelta(days=1, seconds=5), "1 day, 0:00:05"),
        (b"abc", "<3 bytes>"),
        (bytearray(2000), "<2,000 bytes>"),
        (mark_safe("<b>"), "<b>"),
        ("file \udce9", "file \\udce9"),
        (kinds.Colour.RED, "Colour.RED"),
        (kinds.State.OPEN, "State.OPEN"),
        (kinds.Right.READ | kinds.Right.WRITE, "Right.READ|WRITE"),
        (kinds.Right(0), "Right(0)"),
        ((1, [2]), [1, [2]]),
        ({3}, [3]),
        (kinds.Point(1, 2), {"Point": {"x": 1, "y": 2}}),
        (kinds.Line("A", Decimal(2)), {"Line": {"sku": "A", "quantity": "2"}}),
        (kinds.Outer.Inner(1), {"Inner": {"value": 1}}),
        (kinds.Item(sku="A"), {"Item": {"sku": "A", "price": "0"}}),
        (kinds.opened(more=1), {"Open": {"known": 1, "more": 1}}),
        (kinds.opened(**{"$": (1,)}), {"Open": {"known": 1, "$": [1]}}),
        ({"$": 1, 2: 3}, {"$": 1, "2": 3}),
        ({(1, "a"): 1, kinds.Size.LARGE: 2}, {'[1, "a"]': 1, "Size.LARGE": 2}),
        ({1: "number", "1": "text"}, {"1": "number", "1 (2)": "text"}),
        (gettext_lazy("Yes"), "Yes"),
        (pgettext_lazy("context", "Yes"), "Yes"),
        (ngettext_lazy("%d day", "%d days", 2), "%d day"),
        (Success(1), {"Success": {"value": 1, "execution_id": None}}),
        (saved_user(5), "auth.User 5"),
        (SecretStr("shh"), REDACTED),
        (SecretBytes(b"shh"), REDACTED),
        (kinds.Card("Ada", "4111"), {"Card": {"holder": "Ada", "number": REDACTED}}),
        (kinds.Login(user="u", password="p"), {"Login": {"user": "u", "password": REDACTED, "pin": REDACTED}}),
    ],
)
def test_values_are_shown_as_people_read_them(value: object, expected: object) -> None:
    assert shown(value) == expected
    json.dumps(shown(value), allow_nan=False)


def test_an_integer_of_any_size_is_shown() -> None:
    assert shown(2**5000, limit=6) == "0x1000… 1,247 more characters"


def test_a_value_is_shown_though_its_class_and_model_are_gone() -> None:
    text = stored([kinds.Line("A"), kinds.Colour.RED, saved_user(5)])
    text = text.replace("tests.codec_support", "removed").replace("auth.User", "left.Person")
    assert display(text, Redactor()) == [{"Line": {"sku": "A", "quantity": 1}}, "Colour.RED", "left.Person 5"]


def test_redacted_arguments_are_hidden_without_knowing_the_class() -> None:
    values = {"sku": "A", "token": {"deep": ["tok_1"]}}
    text = Codec().encode_arguments(values, redacted={"token"}, at="inputs")
    assert display(text, Redactor()) == {"sku": "A", "token": REDACTED}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("my tok_1!", f"my {REDACTED}!"),
        ({"tok_1": 1, "a": ["tok_1"]}, {REDACTED: 1, "a": [REDACTED]}),
        ({"tok_1": 1, "tok_1tok_1": 2}, {REDACTED: 1, f"{REDACTED}{REDACTED}": 2}),
        (kinds.Line("tok_1"), {"Line": {"sku": REDACTED, "quantity": 1}}),
        (4111222233334444, REDACTED),
        ([4.25, 42.5], [REDACTED, 42.5]),
        ({4111222233334444: 1}, {REDACTED: 1}),
        (Decimal("4111222233334444"), REDACTED),
        (UUID(int=9), REDACTED),
        (saved_user(4111222233334444), f"auth.User {REDACTED}"),
    ],
)
def test_known_secrets_are_hidden_wherever_they_went_on(value: object, expected: object) -> None:
    assert shown(value, "tok_1", 4111222233334444, 4.25, UUID(int=9)) == expected


def test_keys_that_look_the_same_when_redacted_do_not_hide_each_other() -> None:
    assert shown({"tok_1": 1, "tok_2": 2}, "tok_1", "tok_2") == {REDACTED: 1, f"{REDACTED} (2)": 2}


def test_a_secret_is_hidden_before_the_text_is_cut() -> None:
    assert shown("abc tok_12345", "tok_12345", limit=8) == "abc [RED… 6 more characters"


def test_the_limit_shortens_texts_and_containers_and_counts_the_rest() -> None:
    assert shown("x" * 1239, limit=5) == "xxxxx… 1,234 more characters"
    assert shown(list(range(1236)), limit=2) == [0, 1, "… 1,234 more items"]
    assert shown({str(n): n for n in range(5)}, limit=2) == {"0": 0, "1": 1, "…": "3 more items"}
    assert shown({n: n for n in range(5)}, limit=2) == {"0": 0, "1": 1, "…": "3 more items"}
    assert shown(["12345", [1, 2]], limit=5) == ["12345", [1, 2]]


@pytest.mark.parametrize("text", ["", "{", "[NaN]", "[" * 100_000, "1" * 5000, "\ud800"])
def test_an_unreadable_text_is_a_note_and_no_error(text: str) -> None:
    assert display(text, Redactor()) == f"[unreadable: {len(text):,} characters that are not a stored value]"
    assert secrets_in(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[1,{"$":"newer","v":"tok_1"}]', [1, "[unknown kind of value: newer]"]),
        ('[1,{"$":"decimal"}]', [1, "[damaged decimal]"]),
        ('{"a":{"$":"datetime","v":5}}', {"a": "[damaged datetime]"}),
        ('{"$":["a"]}', "[damaged ['a']]"),
        ('{"$":"dataclass","c":5,"v":{}}', "[damaged dataclass]"),
        ('{"$":"secret"}', REDACTED),
        ('{"$":"tok_1"}', f"[unknown kind of value: {REDACTED}]"),
    ],
)
def test_a_damaged_part_is_a_note_beside_the_rest(text: str, expected: object) -> None:
    assert display(text, Redactor.of(["tok_1"])) == expected


def test_the_secrets_of_a_text_are_found_for_a_redactor() -> None:
    hidden = {
        "text": "plain text",
        "list": ["listed", ("tupled", {"in a set"})],
        "keys": {("keyed",): 1, "$": "dollar"},
        "dataclass": kinds.Line("in a dataclass"),
        "model": kinds.opened(extra="extra one"),
        "bytes": b"some bytes",
        "number": Decimal("12.345"),
        "moment": datetime(2024, 5, 1, 12),
        "surrogate": "file \udce9",
        "safe": mark_safe("<b>safe</b>"),
        "translated": pgettext_lazy("context", "message"),
        "user": saved_user(12345),
        "enum": kinds.Colour.GREEN,
    }
    visible: dict[str, Any] = {
        "card": kinds.Card("Ada Lovelace", "4111-1111"),
        "login": kinds.Login(user="grace", password="hopper"),
    }
    visible["pin"] = SecretStr("pin code")
    text = Codec().encode_arguments({"all": hidden, **visible}, redacted={"all"}, at="inputs")
    redactor = Redactor.of(secrets_in(text))
    for secret in (
        "plain text", "listed", "tupled", "in a set", "keyed", "dollar", "in a dataclass", "extra one", "some bytes",
        "12.345", "2024-05-01T12:00:00", "2024-05-01 12:00:00", "file \udce9", "<b>safe</b>", "message", "4111-1111",
        "hopper", "pin code",
    ):  # fmt: skip
        assert redactor.scrub(secret) == REDACTED, secret
    harmless = "Ada Lovelace, grace, tests.codec_support, quantity, 12345, GREEN"
    assert redactor.scrub(harmless) == harmless


def test_showing_touches_no_database(django_db_blocker: Any) -> None:
    with django_db_blocker.block():
        assert shown([saved_user(5)]) == ["auth.User 5"]
