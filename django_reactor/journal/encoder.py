"""From a value to the tree that is stored as JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import is_dataclass
from datetime import date, datetime
from enum import Enum, Flag
from json import JSONEncoder
from typing import Any, Final

from django.db.models import Model
from django.utils.functional import LazyObject, Promise
from pydantic import BaseModel

from django_reactor.engine.map_results import StoredResults
from django_reactor.journal import structures
from django_reactor.journal.classes import class_reference, is_namedtuple, redacted_fields
from django_reactor.journal.references import References
from django_reactor.journal.refusals import refusal
from django_reactor.journal.scalars import SCALAR_WRITERS, is_text
from django_reactor.journal.tags import CLASS, TAG, VALUE, Refused, Tree, member, secret
from django_reactor.journal.translations import translation
from django_reactor.results import Failure

__all__ = ["MAX_DEPTH", "Encoder", "dumps"]

MAX_DEPTH: Final = 100
"""Containers inside each other. Reading and writing stay far from the interpreter's recursion limit."""

STAND_INS: Final = {
    "freezegun.api.FakeDatetime": SCALAR_WRITERS[datetime],
    "freezegun.api.FakeDate": SCALAR_WRITERS[date],
}
"""Types that stand in for a builtin one, and add nothing to it, while a user's tests stop the clock."""

_encode = JSONEncoder(ensure_ascii=True, allow_nan=False, check_circular=False, separators=(",", ":")).encode


def dumps(tree: Tree) -> str:
    """As text. The encoder's preparations cost more than a number does."""
    return str(tree) if type(tree) is int else _encode(tree)


class Encoder:
    """Makes trees. Not thread-safe."""

    def __init__(self, references: References, max_bytes: int) -> None:
        self._references = references
        self._max_containers = max_bytes // 2
        self._containers = 0
        self._open: set[int] = set()

    def begin(self) -> None:
        self._containers = 0
        self._open.clear()

    def tree(self, value: object) -> Tree:
        write = SCALAR_WRITERS.get(type(value))
        return write(value) if write is not None else self._nested(value)

    def fields(self, values: Mapping[str, object], redacted: Collection[str] = ()) -> Tree:
        """An object of named values. Names must be text that is no tag."""
        name, written = "", {}
        try:
            for name, value in values.items():
                write = SCALAR_WRITERS.get(type(value))
                tree = write(value) if write is not None else self._nested(value)
                written[name] = secret(tree) if name in redacted else tree
        except Refused as refused:
            refused.inside(member(name))
            raise
        return written

    def _nested(self, value: object) -> Tree:
        """Within bounds of depth and of number: few objects that hold each other many times make a huge text."""
        mark = id(value)
        if mark in self._open:
            raise Refused(f"this {type(value).__name__} contains itself, which no text can show: store ids instead")
        if len(self._open) == MAX_DEPTH:
            raise Refused(f"nested more than {MAX_DEPTH} deep: flatten it, or store it elsewhere")
        self._containers += 1
        if self._containers > self._max_containers:
            raise Refused(f"more than MAX_PAYLOAD_BYTES ({self._max_containers * 2:,}) bytes: store it elsewhere")
        self._open.add(mark)
        write = CONTAINER_WRITERS.get(type(value)) or _writer_for(type(value))
        tree = write(self, value)
        self._open.discard(mark)
        return tree

    def _items(self, values: Iterable[object]) -> list[Tree]:
        written: list[Tree] = []
        try:
            for value in values:
                write = SCALAR_WRITERS.get(type(value))
                written.append(write(value) if write is not None else self._nested(value))
        except Refused as refused:
            refused.inside(f"[{len(written)}]")
            raise
        return written

    def _dict(self, value: dict[Any, Any]) -> Tree:
        for key in value:
            if type(key) is not str or key == TAG or not (key.isascii() or is_text(key)):
                return {TAG: "dict", VALUE: self._pairs(value)}
        return self.fields(value)

    def _pairs(self, value: dict[Any, Any]) -> list[Tree]:
        pairs, key = [], None
        try:
            for key, content in value.items():
                pairs.append([self._key(key), self.tree(content)])
        except Refused as refused:
            refused.inside(member(key))
            raise
        return pairs

    def _key(self, key: object) -> Tree:
        try:
            return self.tree(key)
        except Refused as refused:
            refused.inside(".key")
            raise

    def _set(self, value: Collection[object]) -> Tree:
        # In the order of their text, so that equal sets have equal texts in every process.
        return {TAG: type(value).__name__, VALUE: sorted(self._items(value), key=dumps)}

    def _tuple(self, value: tuple[object, ...]) -> Tree:
        return {TAG: "tuple", VALUE: self._items(value)}

    def _namedtuple(self, value: Any) -> Tree:
        cls: type[Any] = type(value)
        structures.check_namedtuple(value)
        stored = self.fields(dict(zip(cls._fields, value, strict=True)), redacted_fields(cls))
        return {TAG: "namedtuple", CLASS: class_reference(cls), VALUE: stored}

    def _dataclass(self, value: Any) -> Tree:
        cls = type(value)
        tree = {TAG: "dataclass", CLASS: class_reference(cls)}
        tree[VALUE] = self.fields(structures.dataclass_fields(value), redacted_fields(cls))
        if rest := structures.dataclass_rest(value):
            tree["x"] = self.fields(rest)
        return tree

    def _failure(self, value: Failure) -> Tree:
        """Without `cause`, the exception, which belongs to the process that raised it."""
        stored = {**structures.dataclass_fields(value), "cause": None}
        for name in ("arguments", "inputs", "field_errors"):
            stored[name] = dict(stored[name])
        return {TAG: "dataclass", CLASS: class_reference(type(value)), VALUE: self.fields(stored)}

    def _pydantic(self, value: BaseModel) -> Tree:
        cls, state = type(value), structures.pydantic_state(value)
        tree = {TAG: "pydantic", CLASS: class_reference(cls), VALUE: self.fields(state.fields, redacted_fields(cls))}
        tree["s"] = sorted(state.fields_set)
        if state.extra:
            tree["x"] = self._dict(dict(state.extra))
        if state.private:
            tree["p"] = self.fields(state.private)
        return tree

    def _enum(self, value: Enum) -> Tree:
        reference = class_reference(type(value))
        if isinstance(value, Flag):
            return {TAG: "flag", CLASS: reference, VALUE: value.value, "n": value.name}
        return {TAG: "enum", CLASS: reference, VALUE: structures.enum_name(value)}

    def _model(self, value: Model) -> Tree:
        label, pk, database = self._references.refer(value)
        try:
            tree = {TAG: "model", "m": label, VALUE: self.tree(pk)}
        except Refused as refused:
            refused.inside(".pk")
            raise
        return tree if database is None else {**tree, "d": database}

    def _map(self, value: StoredResults) -> Tree:
        """A reference: the elements keep their results."""
        key = value.key
        tree = {TAG: "map", VALUE: [str(key.execution_id), key.step, key.generation, value.total]}
        return tree if value.statuses is None else {**tree, "s": [status.value for status in value.statuses]}

    def _lazy(self, value: Promise) -> Tree:
        found = translation(value)
        if found is None:
            return self.tree(str(value))
        return {TAG: "lazy", "f": found.function, VALUE: self._items(found.args), "k": self.fields(found.kwargs)}

    def _wrapped(self, value: Any) -> Tree:
        """What a lazy object (`request.user`) stands for."""
        return self.tree(value.__reduce__()[1][0])

    def _stand_in(self, value: Any) -> Tree:
        return STAND_INS[_qualified(type(value))](value)


Writer = Callable[[Encoder, Any], Tree]

CONTAINER_WRITERS: Mapping[type, Writer] = {
    list: Encoder._items,
    dict: Encoder._dict,
    tuple: Encoder._tuple,
    set: Encoder._set,
    frozenset: Encoder._set,
    Failure: Encoder._failure,
    StoredResults: Encoder._map,
}

KIND_WRITERS: tuple[tuple[type, Writer], ...] = (
    (Enum, Encoder._enum),
    (BaseModel, Encoder._pydantic),
    (Model, Encoder._model),
    (LazyObject, Encoder._wrapped),
    (Promise, Encoder._lazy),
)


def _writer_for(cls: type) -> Writer:
    for kind, write in KIND_WRITERS:
        if issubclass(cls, kind):
            return write
    if is_dataclass(cls):
        return Encoder._dataclass
    if is_namedtuple(cls):
        return Encoder._namedtuple
    if _qualified(cls) in STAND_INS:
        return Encoder._stand_in
    return _refuse


def _refuse(_: Encoder, value: object) -> Tree:
    raise Refused(refusal(value))


def _qualified(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
