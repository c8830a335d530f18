"""What must never be shown: the declaration of it, and its removal from text.

Redaction works twice. By declaration: a value declared `Redacted[...]` is stored under a tag that says so, and is shown
as `[REDACTED]`. By value: a `Redactor` knows the strings inside such values and removes them from any text for people,
also where a value went on under another name or into a message. What a user transforms himself (cuts, hashes, encrypts)
cannot be followed.
"""

from __future__ import annotations

import html
import json
import typing
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from typing import Annotated, Final, TypeAlias, TypeVar
from urllib.parse import quote, quote_plus
from uuid import UUID

from pydantic import BaseModel, SecretBytes, SecretStr

__all__ = ["REDACTED", "Redacted", "Redactor", "declared_names", "holds_redacted", "is_redacted"]

T = TypeVar("T")

REDACTED: Final = "[REDACTED]"

MIN_LENGTH: Final = 4
"""Shorter strings are too common to be removed wherever they occur."""
MAX_TEXT: Final = 10_000
"""Characters of one text for people."""


@dataclass(frozen=True, slots=True)
class _Marker:
    def __repr__(self) -> str:
        return "Redacted"


Redacted: TypeAlias = Annotated[T, _Marker()]
"""`token: Redacted[str]` is a `str` to type checkers and Pydantic: stored in clear, usable in steps, never shown."""


def is_redacted(annotation: object) -> bool:
    """Whether the marker stands anywhere inside the annotation: `Redacted[str] | None`, `list[Redacted[str]]`.

    The annotation must be resolved with its extras (`typing.get_type_hints(..., include_extras=True)`).
    """
    pending, seen = [annotation], set()
    while pending:
        part = pending.pop()
        if id(part) in seen:  # a recursive `type` alias
            continue
        seen.add(id(part))
        if any(isinstance(extra, _Marker) for extra in getattr(part, "__metadata__", ())):
            return True
        pending.extend(_inside_annotation(part))
    return False


def holds_redacted(annotation: object) -> bool:
    """The same also for the fields of the classes in it, at any depth."""
    return any(is_redacted(part) for part in _all_parts(annotation))


def declared_names(annotation: object) -> frozenset[str]:
    """The names of those fields: they are no secrets."""
    return frozenset(name for part in _all_parts(annotation) for name in _fields_of(part))


def _all_parts(annotation: object) -> Iterator[object]:
    pending, seen = [annotation], set()
    while pending:
        part = pending.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        pending.extend(_inside_annotation(part))
        pending.extend(_fields_of(part).values())


def _fields_of(part: object) -> Mapping[str, object]:
    if not isinstance(part, type):
        return {}
    if issubclass(part, BaseModel):
        return {name: field.rebuild_annotation() for name, field in part.model_fields.items()}
    if not is_dataclass(part) and not hasattr(part, "__annotations__"):
        return {}
    try:
        return typing.get_type_hints(part, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError):  # names that exist for type checkers only
        return {}


def _inside_annotation(part: object) -> Iterator[object]:
    if isinstance(part, list):  # the parameters of a Callable
        yield from part
    elif not isinstance(part, type) or typing.get_origin(part) is not None:
        yield from typing.get_args(part)
        for attribute in ("__value__", "__supertype__"):  # `type X = ...` and NewType
            if (target := getattr(part, attribute, None)) is not None:
                yield target


class Redactor:
    """Replaces known secrets in text, in the forms in which text usually carries them. Not thread-safe while `add`
    runs.

    Every form is searched on its own and what overlaps is removed as one, so that no rest of one secret survives
    beside another. With no secrets, `scrub` returns the text itself.
    """

    __slots__ = ("_forms",)

    def __init__(self) -> None:
        self._forms: list[str] = []

    @classmethod
    def of(cls, values: Iterable[object]) -> Redactor:
        redactor = cls()
        redactor.add(values)
        return redactor

    def branch(self) -> Redactor:
        """Another one that knows the same secrets, and what it learns is its own."""
        branch = Redactor()
        branch._forms = self._forms
        return branch

    def add(self, values: Iterable[object]) -> None:
        """Take every string of four or more characters inside these values: in containers (keys too), dataclasses,
        Pydantic models and their secret types, bytes, and the text of numbers, dates and UUIDs."""
        found = {form for secret in _secrets_inside(values) for form in _forms_of(secret)}
        self._forms = sorted(found.union(self._forms), key=lambda form: (-len(form), form))

    def held_by(self, values: Mapping[str, object]) -> frozenset[str]:
        """The names of those values that a secret is inside of."""
        if not self._forms:
            return frozenset()
        return frozenset(name for name, value in values.items() if self._is_inside(value))

    def _is_inside(self, value: object) -> bool:
        return any(form in text for text in _secrets_inside([value]) for form in self._forms)

    def scrub(self, text: str) -> str:
        """The text without any secret: each is replaced by `[REDACTED]`."""
        hits = [form for form in self._forms if form in text]
        return _without(text, hits) if hits else text

    def brief(self, text: str) -> str:
        """The same, and not more of it than people read: an exception or a reason may quote a whole document, and what
        a database refuses for its size would be lost."""
        text = self.scrub(text)
        return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… {len(text) - MAX_TEXT:,} more characters"

    def __bool__(self) -> bool:
        return bool(self._forms)

    def __repr__(self) -> str:
        return f"<Redactor of {len(self._forms)} forms>"


def _without(text: str, hits: Collection[str]) -> str:
    """The text with every stretch of overlapping hits replaced. A mark from an earlier time counts as a hit, so that
    a secret such as "REDACTED" leaves it whole."""
    pieces: list[str] = []
    position = 0
    for start, end in _merged(sorted(span for hit in (*hits, REDACTED) for span in _occurrences(text, hit))):
        pieces += text[position:start], REDACTED
        position = end
    return "".join([*pieces, text[position:]])


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _occurrences(text: str, secret: str) -> Iterator[tuple[int, int]]:
    # One past the start, not past the end: "abab" stands twice in "ababab".
    at = text.find(secret)
    while at >= 0:
        yield at, at + len(secret)
        at = text.find(secret, at + 1)


def _forms_of(secret: str) -> set[str]:
    """A secret as it looks in plain text, in Python and JSON literals, in a URL and in HTML."""
    forms = {
        secret,
        # Which quotes are escaped depends on the rest of the literal around the secret.
        repr(secret)[1:-1],
        repr('"' + secret)[2:-1],
        ascii(secret)[1:-1],
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        html.escape(secret),
        html.escape(secret, quote=False),
    }
    with suppress(UnicodeEncodeError):  # lone surrogates: no URL can hold them
        forms |= {quote(secret), quote(secret, safe=""), quote_plus(secret)}
    return forms


def _secrets_inside(values: Iterable[object]) -> Iterator[str]:
    pending: list[object] = list(values)
    seen: dict[int, object] = {}  # keeps each object alive, so that its id stays its own
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        yield from (text for text in _texts_of(value) if len(text) >= MIN_LENGTH)
        pending.extend(_parts_of(value))


def _texts_of(value: object) -> tuple[str, ...]:
    match value:
        case None | bool() | Enum():
            return ()
        case str():
            return (str.__str__(value),)
        case int():
            return (_digits(value),)
        case float() | Decimal() | UUID():
            return (str(value),)
        case date() | time():
            return (str(value), value.isoformat())
        case bytes() | bytearray():
            return (value.decode("utf-8", "replace"), value.decode("latin-1"), repr(bytes(value))[2:-1])
        case _:
            return ()


def _digits(number: int) -> str:
    try:
        return str(number)
    except ValueError:  # beyond the interpreter's limit, where no text can hold its digits either
        return ""


def _parts_of(value: object) -> Iterable[object]:
    match value:
        case Mapping():
            return [part for pair in value.items() for part in pair]
        case str() | bytes() | bytearray():
            return ()
        case Enum():
            return (value.value,)
        case list() | tuple() | set() | frozenset() | deque():
            return value
        case SecretStr() | SecretBytes():
            return (value.get_secret_value(),)
        case BaseModel():
            return [*vars(value).values(), *(value.__pydantic_extra__ or {}).values()]
        case _ if is_dataclass(value):
            return [getattr(value, each.name, None) for each in fields(value)]
        case _:
            return ()
