"""Keys: format strings over named values (`"customer:{customer.pk}"`), or callables that take them by name.

Keys are shown (in the admin, in logs, in errors), so a redacted value may be no part of one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from string import Formatter
from typing import Any

from django_reactor.core.meta import PRIMITIVES
from django_reactor.core.naming import suggestion
from django_reactor.core.options import Coordination, Primitive
from django_reactor.core.signatures import plain_parameters
from django_reactor.exceptions import ArgumentError, DefinitionError

__all__ = ["Key", "digest_of", "check_coordination", "check_key", "key_names", "render_key"]

Key = str | Callable[..., str]


def digest_of(key: str) -> str:
    """What makes a key unique in a table, of whatever length and script it is: a text of any length has no unique index
    on MySQL, whose comparison would besides take two keys for one that differ only in case, or by blanks at their
    ends."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def key_names(key: Key, where: str) -> tuple[str, ...]:
    """The names that a key takes, each once, in order. `where` begins the message of a DefinitionError."""
    if isinstance(key, str):
        return tuple(dict.fromkeys(_format_names(key, where)))
    return plain_parameters(key, where)


def _format_names(text: str, where: str) -> list[str]:
    names: list[str] = []
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise DefinitionError(
            f"{where}: {text!r} is no format string ({error}); write a brace that is meant as such twice"
        ) from None
    for _, field, specification, _ in parts:
        if field is None:
            continue
        name = field.replace("[", ".").partition(".")[0]
        if not name.isidentifier():
            raise DefinitionError(f"{where}: {{{field}}} in {text!r} names nothing; write the name of an input in it")
        names.append(name)
        names += _format_names(specification or "", where)
    return names


def check_key(key: Key, where: str, known: Collection[str], redacted: Collection[str]) -> tuple[str, ...]:
    """The names that a key takes, after a check that they exist and may be shown."""
    names = key_names(key, where)
    for name in names:
        if name not in known:
            raise DefinitionError(
                f"{where}: the key {_shown(key)} names {name!r}, unknown here{suggestion(name, known)}"
            )
        if name in redacted:
            raise DefinitionError(
                f"{where}: the key {_shown(key)} would show {name!r}, which is Redacted; use an id or the like"
            )
    return names


def check_coordination(
    coordination: Coordination, prefix: str, known: Collection[str], redacted: Collection[str]
) -> None:
    """`check_key` for the keys of all declared primitives. `prefix` and the option's name say where one stands."""
    for option in PRIMITIVES:
        primitives: tuple[Primitive, ...] = getattr(coordination, option)
        for primitive in primitives:
            check_key(primitive.key, f"{prefix}{option}", known, redacted)


def render_key(key: Key, values: Mapping[str, Any], where: str) -> str:
    """The key for these values, of which only those that it names are looked up. ArgumentError if there is none."""
    try:
        text = _rendered(key, values, where)
    except Exception as error:
        raise ArgumentError(
            f"{where}: the key {_shown(key)} cannot be made: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(text, str) or not text:
        raise ArgumentError(f"{where}: the key {_shown(key)} gave {text!r}; it must be a text that is not empty")
    return text


def _rendered(key: Key, values: Mapping[str, Any], where: str) -> object:
    if isinstance(key, str):
        return Formatter().vformat(key, (), values)
    return key(**{name: values[name] for name in key_names(key, where)})


def _shown(key: Key) -> str:
    return repr(key) if isinstance(key, str) else getattr(key, "__qualname__", type(key).__name__)
