"""Redaction: the declaration, and the removal of known secrets from text."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, NewType, Optional, TypedDict, Union
from urllib.parse import quote, quote_plus
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretBytes, SecretStr, TypeAdapter

from django_reactor.core.redaction import (
    MAX_TEXT,
    REDACTED,
    Redacted,
    Redactor,
    declared_names,
    holds_redacted,
    is_redacted,
)
from tests.codec_support import Colour, Size


@pytest.mark.parametrize(
    "annotation",
    [
        Redacted[str],
        Redacted[str] | None,
        Optional[Redacted[str]],  # noqa: UP045  # the older spelling is the case
        Union[int, Redacted[str]],  # noqa: UP007
        list[Redacted[str]],
        dict[str, tuple[Redacted[int], ...]],
        Redacted[list[str]],
        Annotated[Redacted[str], Field(min_length=3)],
        Redacted[Annotated[str, Field(min_length=3)]],
        Annotated[list[Redacted[str]] | None, "note"],
        NewType("Token", Redacted[str]),
        Callable[[Redacted[str]], int],
    ],
)
def test_the_marker_is_found_anywhere_inside_an_annotation(annotation: object) -> None:
    assert is_redacted(annotation)


@pytest.mark.parametrize("annotation", [str, str | None, list[str], Annotated[str, "Redacted"], Any, None, "Redacted"])
def test_an_annotation_without_the_marker_is_not_redacted(annotation: object) -> None:
    assert not is_redacted(annotation)


def test_pydantic_validates_a_redacted_value_as_its_own_type() -> None:
    assert TypeAdapter(Redacted[int]).validate_python("12") == 12


def test_without_secrets_the_text_itself_is_returned() -> None:
    text = "as it was " * 10
    assert Redactor().scrub(text) is text
    assert Redactor.of(["hidden"]).scrub(text) is text


def test_every_occurrence_is_replaced() -> None:
    assert Redactor.of(["tok_1"]).scrub("tok_1 and tok_1!") == f"{REDACTED} and {REDACTED}!"


def test_strings_shorter_than_four_characters_stay() -> None:
    assert Redactor.of(["abc", 123, b"xyz"]).scrub("abc 123 xyz") == "abc 123 xyz"


@dataclass
class Account:
    iban: str
    holder: Any


class Wallet(BaseModel, extra="allow"):
    phrase: str
    keys: list[SecretStr]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (["deep", ["deeper"]], "deeper"),
        ({"keyed": 1}, "keyed"),
        ({"a": {"b": ("inside",)}}, "inside"),
        ({"element"}, "element"),
        (frozenset({"frozen"}), "frozen"),
        (Account("DE02", Account("AT61", None)), "AT61"),
        (Wallet(phrase="correct horse", keys=[]), "correct horse"),
        (Wallet(phrase="", keys=[SecretStr("private")]), "private"),
        (Wallet(phrase="", keys=[], more="extra"), "extra"),  # type: ignore[call-arg]
        (SecretBytes(b"bytes in a model"), "bytes in a model"),
        (b"plain bytes", "plain bytes"),
        (b"\xff\xfe\xfd\xfc", "\xff\xfe\xfd\xfc"),
        (bytearray(b"mutable"), "mutable"),
        (4111111111111111, "4111111111111111"),
        (-273.15, "-273.15"),
        (Decimal("1234.50"), "1234.50"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (date(1980, 5, 1), "1980-05-01"),
        (datetime(1980, 5, 1, 12), "1980-05-01T12:00:00"),
        (datetime(1980, 5, 1, 12), "1980-05-01 12:00:00"),
        (Size.LARGE, None),
        (Colour.RED, None),
        (True, None),
        (None, None),
        pytest.param(10**5000, None, id="more digits than Python writes"),
    ],
)
def test_secrets_are_collected_from_inside_values(value: object, shown: str | None) -> None:
    redactor = Redactor.of([value])
    for harmless in ("True", "None", "LARGE"):
        assert redactor.scrub(harmless) == harmless
    if shown is not None:
        assert redactor.scrub(f"<{shown}>") == f"<{REDACTED}>"


def test_a_value_that_contains_itself_is_collected_once() -> None:
    loop: list[Any] = ["knotted"]
    loop.append(loop)
    assert Redactor.of([loop]).scrub("knotted") == REDACTED


TRICKY = "pä'ss\"w\\o/rd & <x>\n\U0001f511"


@pytest.mark.parametrize(
    "write",
    [
        str,
        repr,
        ascii,
        json.dumps,
        lambda text: json.dumps(text, ensure_ascii=False),
        quote,
        lambda text: quote(text, safe=""),
        quote_plus,
        html.escape,
        lambda text: html.escape(text, quote=False),
        lambda text: repr([text]),
        lambda text: repr(f'"{text}"'),
        lambda text: repr(f"'{text}'"),
    ],
)
@pytest.mark.parametrize("secret", [TRICKY, "it's", "zoë's\x07", 'say "so"', "back\\slash", "a b&c=d", "zoë!"])
def test_escaped_forms_are_replaced_too(write: Callable[[str], str], secret: str) -> None:
    scrubbed = Redactor.of([secret]).scrub(f"before {write(secret)} after")
    assert REDACTED in scrubbed
    left = scrubbed.removeprefix("before ").removesuffix(" after").replace(REDACTED, "")
    assert set(left) <= set("'\"[]\\"), left


def test_the_rest_of_an_overlapping_secret_does_not_survive() -> None:
    assert Redactor.of(["abcdef", "defghi"]).scrub("-abcdefghi-") == f"-{REDACTED}-"
    assert Redactor.of(["abab"]).scrub("ababab") == REDACTED
    assert Redactor.of(["secret", "secret-longer"]).scrub("secret-longer") == REDACTED


def test_added_secrets_join_the_known_ones() -> None:
    redactor = Redactor.of(["first"])
    redactor.add(["second"])
    assert redactor.scrub("first second") == f"{REDACTED} {REDACTED}"
    assert redactor
    assert not Redactor()


def test_scrubbing_again_changes_nothing_even_if_the_mark_is_a_secret() -> None:
    redactor = Redactor.of(["REDACTED", "hidden"])
    once = redactor.scrub("hidden REDACTED")
    assert once == f"{REDACTED} {REDACTED}"
    assert redactor.scrub(once) == once


def test_a_redactor_does_not_show_its_secrets() -> None:
    assert "hidden" not in repr(Redactor.of(["hidden"]))


@given(st.lists(st.text("ab'\"\\é\udc80", min_size=4), max_size=5), st.data())
def test_no_secret_is_left_in_scrubbed_text(secrets: list[str], data: st.DataObject) -> None:
    pieces = st.one_of(st.text("ab'\"\\é"), *(st.sampled_from([s, repr(s), json.dumps(s)]) for s in secrets))
    text = "".join(data.draw(st.lists(pieces, max_size=8)))
    redactor = Redactor.of(secrets)
    left = redactor.scrub(text).split(REDACTED)
    for secret in secrets:
        for form in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]):
            assert not any(form in piece for piece in left)
    assert redactor.scrub(redactor.scrub(text)) == redactor.scrub(text)


class Inner(BaseModel):
    code: Redacted[str]


class Middle(TypedDict):
    inner: list[Inner]


@dataclass
class Outside:
    middle: Middle | None
    plain: int = 0


HIDING: tuple[Any, ...] = (Inner, list[Inner], Middle, Outside, dict[str, Outside | None], Redacted[str])
PLAIN: tuple[Any, ...] = (str, int | None, list[str], datetime, None)


def test_what_is_redacted_is_found_in_the_fields_of_classes_at_any_depth() -> None:
    assert [annotation for annotation in HIDING if not holds_redacted(annotation)] == []
    assert [annotation for annotation in PLAIN if holds_redacted(annotation)] == []
    assert declared_names(Outside) == {"middle", "plain", "inner", "code"}


def test_a_brief_text_is_cut_after_its_secrets_are_gone() -> None:
    """Of a secret across the end, a part would stay that nobody would know."""
    redactor = Redactor.of(["hunter22-very-secret"])
    brief = redactor.brief("x" * (MAX_TEXT - 5) + "hunter22-very-secret" + "y" * 50)
    assert "hunter" not in brief
    assert brief.startswith("x" * (MAX_TEXT - 5))
    assert brief.endswith("… 55 more characters")
    assert redactor.brief("y" * MAX_TEXT) == "y" * MAX_TEXT
