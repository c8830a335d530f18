"""The codec: every storable value comes back as it was."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from types import MappingProxyType
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.utils.functional import Promise, SimpleLazyObject, lazy, lazystr
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy, ngettext_lazy, npgettext_lazy, override, pgettext_lazy
from pydantic import SecretBytes, SecretStr

from django_reactor.journal.codec import Codec
from django_reactor.results import Failure, Halt, RollbackFailure, Skipped, Success
from tests import codec_support as kinds
from tests.codec_support import refusal, restored, stored

BERLIN = ZoneInfo("Europe/Berlin")

SAME = [
    None,
    True,
    0,
    2**5000,
    -(2**5000),
    -0.0,
    float("inf"),
    float("-inf"),
    "",
    "nul \x00, \U0001f511 and ü",
    "file \udce9",
    "\ud83d\ude00",  # two lone surrogates, not the character that they would join to
    [],
    {},
    [1, [2, {"a": [None]}]],
    {"b": 1, "a": 2},
    {"$": "decimal", "v": "1"},
    {"a": {"$": 1}},
    {1: "int", "1": "text", (1, "a"): "tuple", None: "none", UUID(int=1): 1, kinds.Colour.RED: 2, b"k": 3},
    {kinds.Size.SMALL: 1},
    {"\udce9": 1},
    (),
    (1, (2, [3])),
    {1, "a", (2, 3)},
    frozenset({frozenset(), frozenset({1})}),
    Decimal("1.50"),
    Decimal("-0"),
    Decimal("1E+400"),
    Decimal("0E-10"),
    Decimal("Infinity"),
    UUID("12345678-1234-5678-1234-567812345678"),
    b"",
    b"\x00\xff",
    bytearray(b"ab"),
    date(1, 1, 1),
    datetime(2024, 2, 29, 12, 30, 0, 1),
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN),
    datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    datetime(2024, 10, 27, 2, 30, fold=1),
    datetime(1850, 1, 1, tzinfo=BERLIN),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30), "IST")),
    datetime(2024, 1, 1, tzinfo=timezone(-timedelta(seconds=1, microseconds=5))),
    time(23, 59, 59, 999999, fold=1),
    time(12, tzinfo=BERLIN),
    time(12, tzinfo=timezone(timedelta(hours=2), "CEST")),
    timedelta.max,
    timedelta.min,
    timedelta(microseconds=-1),
    kinds.Colour.CRIMSON,
    kinds.Colour.GREEN,
    kinds.Size.LARGE,
    kinds.Level.HIGH,
    kinds.Right.READ | kinds.Right.SHARE,
    kinds.Right(0),
    kinds.Bits(7),
    kinds.State.SHUT,
    kinds.Point(1, [Decimal(2)]),
    kinds.Pair("l", "r"),
    kinds.Line("A-1", [kinds.Line("B-2")]),
    kinds.Receipt(total=Decimal("9.99"), lines=(kinds.Line("A"),)),
    kinds.Outer.Inner({"deep": {1}}),
    kinds.Basket(items=[kinds.Item(sku="a", price=Decimal("1.10"))], Note="x"),
    kinds.Doubling(amount=4),
    kinds.opened(known=2, **{"$": 1, "other": (1,)}),
    kinds.Names(["a", "b"]),
    kinds.Frozen(value={1: 2}),
    kinds.IntBox(content=3),
    kinds.Box[int](content=3),
    SecretStr("shh"),
    SecretBytes(b"shh"),
    mark_safe("<b>bold</b>"),
    Success([1, kinds.Size.SMALL]),
    Halt("enough", execution_id=UUID(int=3)),
    Skipped((1,), "not today"),
]


@pytest.mark.parametrize("value", SAME, ids=lambda value: f"{type(value).__name__} {stored(value)[:40]}")
def test_a_storable_value_comes_back_as_it_was(value: object) -> None:
    again = restored(value)
    assert type(again) is type(value)
    assert again == value
    assert sorted(repr(again)) == sorted(repr(value))  # types inside too; equal sets may be listed in another order
    assert restored([{"inside": value}]) == [{"inside": value}]


@pytest.mark.parametrize("text", ["NaN", "-NaN", "sNaN", "NaN123"])
def test_a_decimal_that_is_no_number_keeps_its_kind(text: str) -> None:
    assert str(restored(Decimal(text))) == text


def test_a_float_that_is_no_number_stays_one() -> None:
    assert repr(restored(float("nan"))) == "nan"
    assert repr(restored(-0.0)) == "-0.0"


@pytest.mark.parametrize("value", SAME, ids=lambda value: type(value).__name__)
def test_stored_text_is_strict_json_in_ascii(value: object) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    text = stored(value)
    json.loads(text, parse_constant=refuse)
    assert text.isascii()


def test_a_set_is_stored_in_the_order_of_its_texts_not_of_its_hashes() -> None:
    names = [f"name {n}" for n in range(100)]
    assert json.loads(stored(set(names)))["v"] == sorted(names)


def test_keys_keep_their_order() -> None:
    assert list(restored({"bb": 1, "a": 2, 3: 4, "$": 5})) == ["bb", "a", 3, "$"]


class Odd(tzinfo):
    """A zone of a foreign kind."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return timedelta(hours=3) if moment else None

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str:
        return "Odd"


def test_a_zone_of_a_foreign_kind_keeps_the_instant_and_the_offset() -> None:
    moment = datetime(2024, 5, 1, 12, tzinfo=Odd())
    assert restored(moment) == moment
    assert restored(moment).utcoffset() == timedelta(hours=3)
    assert "Odd gives no offset" in refusal(time(12, tzinfo=Odd())).problem


def test_a_dataclass_comes_back_without_running_its_post_init_again() -> None:
    value = kinds.Counted(1, factor=3)
    assert value.costly is value.costly
    again = restored(value)
    assert (again.start, again.product, again.beside) == (2, 6, [6])
    assert not hasattr(again, "unset")
    assert again.costly is not value.costly  # a cached property is made again, not stored


def test_a_pydantic_model_comes_back_without_validating_again() -> None:
    value = kinds.Doubling(amount=2)
    again = restored(value)
    assert (again.amount, again._seen, again.model_fields_set) == (4, [4], {"amount"})
    assert not hasattr(again, "_never")
    again._seen.append(1)
    assert restored(kinds.Basket()).model_fields_set == set()
    assert restored(kinds.opened(extra=1)).model_fields_set == {"extra"}


def test_a_generic_dataclass_or_model_keeps_its_parameters_apart() -> None:
    assert type(restored(kinds.Box[int](content=1))) is kinds.Box[int]


def test_a_failure_inside_a_list_comes_back_without_its_cause() -> None:
    failure = Failure(
        "broke",
        exception_class="ValueError",
        arguments=MappingProxyType({"a": 1}),
        field_errors={"x": ["bad"]},
        backtrace=("one",),
        rollback_failures=[RollbackFailure(step="s", kind="undo", reason="raised", message="m")],
        cause=ValueError("broke"),
    )
    [again] = restored([failure])
    assert again == failure
    assert again.cause is None


def test_a_translation_stays_lazy() -> None:
    values = [
        gettext_lazy("Yes"),
        pgettext_lazy("alphabet", "Yes"),
        ngettext_lazy("%d day", "%d days", 2),
        npgettext_lazy("time", "%d day", "%d days", 1),
    ]
    with override("fr"):
        text = stored(values)
    assert "Oui" not in text
    again = Codec().decode(text)
    assert all(isinstance(each, Promise) for each in again)
    for language in ("fr", "de", "en"):
        with override(language):
            assert [str(each) for each in again] == [str(each) for each in values]
    with override("de"):
        assert str(again[0]) == "Ja"


def test_a_plural_whose_number_comes_later_stays_lazy() -> None:
    named = ngettext_lazy("%(n)d day", "%(n)d days", "n")
    assert [restored(named) % {"n": n} for n in (1, 2)] == ["1 day", "2 days"]
    assert restored(ngettext_lazy("%d day", "%d days")) % 3 == "3 days"


def test_another_lazy_text_is_stored_as_what_it_says() -> None:
    assert restored(format_lazy("{}-{}", "a", 1)) == "a-1"
    assert type(restored(lazystr("text"))) is str
    assert "this lazy value is no text" in refusal(lazy(lambda: 5, int)()).problem


def test_a_lazy_object_is_stored_as_what_it_stands_for() -> None:
    assert type(restored(SimpleLazyObject(lambda: kinds.Line("A")))) is kinds.Line


def test_types_that_stand_in_for_a_stopped_clock_are_stored_as_the_real_ones() -> None:
    # Made here by their name, as freezegun makes them, which is no requirement of the tests.
    fake_datetime = type("FakeDatetime", (datetime,), {"__module__": "freezegun.api"})
    fake_date = type("FakeDate", (date,), {"__module__": "freezegun.api"})
    assert type(restored(fake_datetime(2024, 1, 1))) is datetime
    assert restored([fake_date(2024, 1, 1)]) == [date(2024, 1, 1)]


def test_safe_text_stays_safe_and_plain_text_plain() -> None:
    assert type(restored(mark_safe("<b>é\udce9"))) is SafeString
    assert type(restored("<b>")) is str
