"""The codec by properties: whatever it takes comes back, whatever it does not take is refused with its path."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from django_reactor.core.redaction import REDACTED, Redactor
from django_reactor.exceptions import SerializationError
from django_reactor.journal.codec import Codec
from django_reactor.journal.decoder import READERS
from django_reactor.journal.display import display, secrets_in
from django_reactor.journal.scalars import SCALAR_READERS
from django_reactor.results import Failure, Halt, Skipped, Success
from tests import codec_support as kinds

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe")
OFFSETS = st.builds(
    lambda seconds, name: timezone(timedelta(seconds=seconds), name) if name else timezone(timedelta(seconds=seconds)),
    st.integers(-86399, 86399),
    st.sampled_from(["", "CEST", "+0200"]),
)
TZINFOS = st.none() | st.sampled_from([ZoneInfo(key) for key in ZONES]) | OFFSETS

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20) | st.text('$\x00\ud83d\ude00"\\')
MEMBERS = st.sampled_from(
    [*kinds.Colour, *kinds.Size, *kinds.Level, *kinds.State, kinds.Right(0), kinds.Right(5), kinds.Bits(3)]
)
HASHABLE_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**3000), 2**3000),
    st.floats(),
    ANY_TEXT,
    st.datetimes(timezones=TZINFOS, allow_imaginary=True),
    st.times(timezones=TZINFOS),
    st.dates(),
    st.timedeltas(),
    st.decimals().filter(lambda number: not number.is_snan()),  # a signalling one cannot be hashed
    st.uuids(),
    st.binary(max_size=20),
    MEMBERS,
)
SCALARS = HASHABLE_SCALARS | st.decimals() | st.binary(max_size=20).map(bytearray) | ANY_TEXT.map(SecretStr)

HASHABLES = st.recursive(
    HASHABLE_SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        st.builds(kinds.Point, inner, inner),
        st.builds(kinds.Receipt, total=inner, lines=st.lists(inner, max_size=2).map(tuple)),
    ),
    max_leaves=5,
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(ANY_TEXT, inner, max_size=4),
        st.dictionaries(HASHABLES, inner, max_size=4),
        st.sets(HASHABLES, max_size=4),
        st.builds(kinds.Point, inner, inner),
        st.builds(kinds.Pair, inner, inner),
        st.builds(kinds.Line, inner, inner),
        st.builds(kinds.Outer.Inner, inner),
        st.builds(kinds.Item, sku=inner, price=inner),
        st.builds(kinds.Frozen, value=inner),
        st.builds(kinds.Open.model_validate, st.dictionaries(st.sampled_from(["a", "$", "ü"]), inner)),
        st.builds(Success, inner),
        st.builds(Skipped, inner, st.just("why")),
        st.builds(Failure, st.just("m"), arguments=st.dictionaries(st.sampled_from("ab"), inner)),
        st.builds(Halt, st.just("why")),
    )


VALUES = st.recursive(SCALARS, containers, max_leaves=12)


def same(one: Any, other: Any) -> bool:
    """Equal in type and value all the way down; unlike with ==, NaN is itself and 1 is not True."""
    return bool(portrait(one) == portrait(other))


def portrait(value: Any) -> Any:
    return type(value), features(value)


def features(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted((portrait(each) for each in value), key=repr)
    if isinstance(value, dict):
        return [portrait(part) for part in flat(value)]
    if isinstance(value, (list, tuple)):
        return [portrait(each) for each in value]
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, BaseModel):
        return sorted(value.model_fields_set), portrait(dict(value))
    if is_dataclass(value):
        return [portrait(getattr(value, each.name)) for each in fields(value)]
    return repr(value)


def flat(mapping: dict[Any, Any]) -> list[Any]:
    return [part for pair in mapping.items() for part in pair]


@given(VALUES)
def test_every_storable_value_comes_back_in_type_and_value(value: Any) -> None:
    text = Codec().encode(value, at="result")
    again = Codec().decode(text)
    assert same(again, value)
    assert Codec().encode(again, at="result") == text


@given(VALUES)
def test_stored_text_is_strict_json_in_ascii(value: Any) -> None:
    text = Codec().encode(value, at="result")
    json.loads(text, parse_constant=pytest.fail)
    assert text.isascii()


@given(st.dictionaries(st.sampled_from(["sku", "token", "note"]), VALUES), st.sets(st.sampled_from(["token", "note"])))
def test_arguments_come_back_whichever_are_redacted(values: dict[str, Any], redacted: set[str]) -> None:
    text = Codec().encode_arguments(values, redacted=redacted, at="inputs")
    assert same(dict(Codec().decode_arguments(text)), values)
    shown = display(text, Redactor())
    assert all(shown[name] == REDACTED for name in redacted & values.keys())


WRAPPERS: dict[str, Any] = {
    "[1]": lambda value: [0, value],
    "[0]": lambda value: (value,),
    ".name": lambda value: {"name": value, "other": 1},
    "['$']": lambda value: {"$": value},
    "[5]": lambda value: {5: value},
    ".sku": kinds.Line,
    ".y": lambda value: kinds.Point(1, value),
    ".price": lambda value: kinds.Item(sku=1, price=value),
    ".value": Success,
    ".arguments.a": lambda value: Failure("m", arguments={"a": value}),
}
UNSTORABLE = st.sampled_from([kinds.Unstorable(), object(), 1j, len, kinds.Line, ValueError("no"), range(2)])


@given(UNSTORABLE, st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=20))
def test_an_unstorable_value_is_refused_with_the_path_to_it(value: Any, way: list[str]) -> None:
    for segment in way:
        value = WRAPPERS[segment](value)
    with pytest.raises(SerializationError) as caught:
        Codec().encode(value, at="result")
    assert caught.value.path == "result" + "".join(reversed(way))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$", "v", "c", "x", "s", "k", "m", "f", "a"]), inner, max_size=4)
        | st.builds(
            lambda tag, rest: {**rest, "$": tag},
            st.sampled_from([*SCALAR_READERS, *sorted(READERS.keys() - {"model"}), "newer"]),
            st.dictionaries(
                st.sampled_from(["v", "c", "x", "s", "k", "f"]), inner | st.just("tests.codec_support:Line")
            ),
        )
    ),
    max_leaves=8,
)


@settings(max_examples=300)
@given(JSON.map(json.dumps) | st.text(max_size=20), st.none() | st.integers(0, 5))
def test_any_text_is_shown_or_noted_and_read_or_refused(text: str, limit: int | None) -> None:
    json.dumps(display(text, Redactor.of(["aaaa"]), limit=limit), allow_nan=False)
    assert isinstance(secrets_in(text), list)
    with suppress(SerializationError):
        Codec().decode(text)


@given(st.lists(st.text(min_size=4, max_size=8), min_size=1, max_size=4), st.data())
def test_no_secret_is_left_in_what_is_shown(secrets: list[str], data: st.DataObject) -> None:
    hidden = Codec().encode_arguments({"token": secrets}, redacted={"token"}, at="inputs")
    redactor = Redactor.of(secrets_in(hidden))
    carried = st.sampled_from(secrets) | st.builds("{}{}".format, st.text(max_size=3), st.sampled_from(secrets))
    value = data.draw(
        st.lists(
            carried
            | st.dictionaries(carried, carried, max_size=2)
            | st.dictionaries(st.tuples(carried), carried, max_size=2)
            | st.builds(kinds.Line, carried, carried)
            | st.builds(kinds.Item, sku=st.lists(carried, max_size=2)),
            max_size=3,
        )
    )
    for text in texts_of(display(Codec().encode(value, at="result"), redactor)):
        assert not any(secret in piece for secret in secrets for piece in text.split(REDACTED)), text


def texts_of(shown: Any) -> list[str]:
    if isinstance(shown, dict):
        return [text for part in flat(shown) for text in texts_of(part)]
    if isinstance(shown, list):
        return [text for part in shown for text in texts_of(part)]
    return [shown] if isinstance(shown, str) else []
