"""Stored values for people: read from the text alone, redacted, shortened on request.

Nothing is restored here: no database is asked, no class is looked up, no `__str__` of a user's runs. So a value can be
shown whatever has become of its classes and rows, and a text that cannot be read is a note, not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from json import dumps
from typing import Any, Final

from django_reactor.core.redaction import REDACTED, Redactor
from django_reactor.journal.decoder import loads
from django_reactor.journal.scalars import SCALAR_READERS, is_text
from django_reactor.journal.tags import CLASS, TAG, VALUE, Tree, Unreadable

__all__ = ["display", "secrets_in"]

DAMAGED: Final = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError, Unreadable)
"""What a text that no codec has written can raise."""


def display(text: str, redactor: Redactor, *, limit: int | None = None) -> Any:
    """A JSON-compatible value for people. `limit` bounds the characters of each text and the items of each container;
    what is left out is counted in its place."""
    try:
        return _Viewer(redactor, limit).show(loads(text))
    except DAMAGED:
        return f"[unreadable: {len(text):,} characters that are not a stored value]"


def secrets_in(text: str) -> list[object]:
    """The plain values inside everything that is marked as secret in the text, for a `Redactor`."""
    try:
        return [_plain(tree) for tree in _secret_trees(loads(text))]
    except DAMAGED:
        return []


class _Viewer:
    def __init__(self, redactor: Redactor, limit: int | None) -> None:
        self._scrub = redactor.scrub
        self._limit = limit

    def show(self, tree: Tree) -> Any:
        if tree is None or tree is True or tree is False:
            return tree
        if type(tree) is str:
            return self._text(tree)
        if type(tree) is list:
            return self._list(tree)
        if type(tree) is dict:
            return self._tagged(tree) if TAG in tree else self._object(tree.items())
        number = str(tree)
        return tree if self._scrub(number) == number else self._scrub(number)

    def _text(self, text: str) -> str:
        if not is_text(text):
            text = text.encode("ascii", "backslashreplace").decode()
        return self._short(self._scrub(text))

    def _short(self, text: str) -> str:
        rest = self._beyond(len(text))
        return f"{text[: self._limit]}… {rest:,} more characters" if rest else text

    def _list(self, items: list[Tree]) -> list[Any]:
        shown = [self.show(item) for item in items[: self._limit]]
        rest = self._beyond(len(items))
        return [*shown, f"… {rest:,} more items"] if rest else shown

    def _object(self, items: Iterable[tuple[Any, Tree]]) -> dict[str, Any]:
        pairs = list(items)
        shown: dict[str, Any] = {}
        for key, content in pairs[: self._limit]:
            shown[_unused(self._name(key), shown)] = self.show(content)
        if rest := self._beyond(len(pairs)):
            shown[_unused("…", shown)] = f"{rest:,} more items"
        return shown

    def _name(self, key: Tree) -> str:
        name = self.show(key)
        return name if isinstance(name, str) else dumps(name, ensure_ascii=False)

    def _beyond(self, length: int) -> int:
        return 0 if self._limit is None else max(0, length - self._limit)

    def _tagged(self, tree: dict[str, Tree]) -> Any:
        tag = tree[TAG]
        try:
            if view := VIEWS.get(tag):
                return view(self, tree)
            return self._text(f"[unknown kind of value: {tag}]")
        except DAMAGED:
            return self._text(f"[damaged {tag}]")

    def _value_text(self, tree: Tree) -> str:
        return self._text(tree[VALUE])

    def _content(self, tree: Tree) -> Any:
        return self.show(tree[VALUE])

    def _zoned(self, tree: Tree) -> str:
        # A time has no offset of its own where its zone is a named one.
        return self._text(tree[VALUE] + (f" {tree['z']}" if "z" in tree else ""))

    def _timedelta(self, tree: Tree) -> str:
        return self._text(str(timedelta(*tree[VALUE])))

    def _bytes(self, tree: Tree) -> str:
        return f"<{len(SCALAR_READERS['bytes'](tree)):,} bytes>"

    def _pairs(self, tree: Tree) -> dict[str, Any]:
        return self._object((key, content) for key, content in tree[VALUE])

    def _instance(self, tree: Tree) -> dict[str, Any]:
        extra = tree.get("x", {}) if tree[TAG] == "pydantic" else {}
        extra = extra[VALUE] if TAG in extra else list(extra.items())
        return {self._text(_short_name(tree[CLASS])): self._object([*tree[VALUE].items(), *extra])}

    def _enum(self, tree: Tree) -> str:
        return self._text(f"{_short_name(tree[CLASS])}.{tree[VALUE]}")

    def _flag(self, tree: Tree) -> str:
        name = _short_name(tree[CLASS])
        return self._text(f"{name}.{tree['n']}" if tree.get("n") else f"{name}({tree[VALUE]})")

    def _model(self, tree: Tree) -> str:
        pk = self.show(tree[VALUE])
        return self._text(f"{tree['m']} {pk if isinstance(pk, str) else dumps(pk)}")

    def _map(self, tree: Tree) -> str:
        _, step, _, total = tree[VALUE]
        return self._text(f"results of {total:,} elements of {step}")

    def _lazy(self, tree: Tree) -> str:
        # The text to be translated: the last positional one, or the singular of a plural.
        return self._text(tree["k"]["singular"] if "singular" in tree["k"] else tree[VALUE][-1])


VIEWS: Mapping[str, Callable[[_Viewer, Tree], Any]] = {
    "secret": lambda viewer, tree: REDACTED,
    "secretstr": lambda viewer, tree: REDACTED,
    "secretbytes": lambda viewer, tree: REDACTED,
    **dict.fromkeys(("str", "int", "float", "date", "datetime", "decimal", "uuid"), _Viewer._value_text),
    **dict.fromkeys(("bytes", "bytearray"), _Viewer._bytes),
    **dict.fromkeys(("tuple", "set", "frozenset", "safe"), _Viewer._content),
    **dict.fromkeys(("namedtuple", "dataclass", "pydantic"), _Viewer._instance),
    "time": _Viewer._zoned,
    "timedelta": _Viewer._timedelta,
    "dict": _Viewer._pairs,
    "enum": _Viewer._enum,
    "flag": _Viewer._flag,
    "model": _Viewer._model,
    "lazy": _Viewer._lazy,
    "map": _Viewer._map,
}


def _short_name(reference: str) -> str:
    return reference.partition(":")[2].rpartition(".")[2]


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    """Keys of different types, and redacted ones, may look the same; none may hide another."""
    number, unused = 1, name
    while unused in taken:
        number += 1
        unused = f"{name} ({number})"
    return unused


def _secret_trees(tree: Tree) -> Iterator[Tree]:
    pending = [tree]
    while pending:
        part = pending.pop()
        if type(part) is list:
            pending.extend(part)
        elif type(part) is dict and part.get(TAG) == "secret":
            yield part[VALUE]
        elif type(part) is dict and part.get(TAG) in ("secretstr", "secretbytes"):
            yield part
        elif type(part) is dict:
            pending.extend(part.values())


def _plain(tree: Tree) -> object:
    """The content without its classes: scalars as they are, the rest as lists and dicts of them."""
    if type(tree) is list:
        return [_plain(item) for item in tree]
    if type(tree) is not dict:
        return tree
    tag = tree.get(TAG)
    if tag is None:
        return {name: _plain(item) for name, item in tree.items()}
    if read := SCALAR_READERS.get(tag):
        return read(tree)
    if tag in ("namedtuple", "dataclass", "pydantic"):  # names of fields are no secrets
        parts = [tree[VALUE], tree.get("x", {}), tree.get("p", {})]
        return [list(part.values()) if isinstance(part := _plain(each), dict) else part for each in parts]
    if tag in ("model", "enum", "flag", "map"):  # what they hold is elsewhere
        return []
    return _plain(tree[VALUE])
