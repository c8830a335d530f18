"""From a stored tree back to the value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from json import JSONDecoder
from typing import Any, NoReturn
from uuid import UUID

from django.db.models import Model

from django_reactor.core.statuses import Status
from django_reactor.engine.map_ports import MapKey
from django_reactor.engine.map_results import StoredResults
from django_reactor.journal import structures
from django_reactor.journal.classes import loaded_class
from django_reactor.journal.references import Reference, References
from django_reactor.journal.scalars import SCALAR_READERS
from django_reactor.journal.tags import CLASS, TAG, VALUE, Tree, Unreadable
from django_reactor.journal.translations import Translation, make_translation

__all__ = ["Decoder", "ResultsOf", "has_tags", "loads"]

ResultsOf = Callable[[MapKey, int, Sequence[Status] | None], StoredResults]
"""Makes the results of so many elements of a map, of these statuses only if any are given."""


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_json = JSONDecoder(parse_constant=_not_json)


def loads(text: str) -> Tree:
    """From text. What was written here has no space around it, for which `decode` would look first."""
    try:
        tree, end = _json.raw_decode(text)
    except ValueError:
        return _json.decode(text)
    return tree if end == len(text) else _json.decode(text)


def has_tags(text: str) -> bool:
    """Whether the text may need restoring; without tags what `loads` gives is the value."""
    return f'"{TAG}"' in text


class Decoder:
    """Makes values. Changes no tree, so that one may be restored again after an error."""

    def __init__(self, references: References, results_of: ResultsOf | None = None) -> None:
        self._references = references
        self._results_of = results_of

    def value(self, tree: Tree) -> Any:
        """The value of a whole tree; its model instances are fetched together."""
        references = [self._reference(found) for found in _models_in(tree)]
        if len(references) > 1:
            self._references.fetch(references)
        return self.restore(tree)

    def restore(self, tree: Tree) -> Any:
        if type(tree) is list:
            return [self.restore(item) if type(item) in (list, dict) else item for item in tree]
        if type(tree) is not dict:
            return tree
        if TAG in tree:
            return self._tagged(tree)
        return {name: self.restore(item) if type(item) in (list, dict) else item for name, item in tree.items()}

    def _tagged(self, tree: dict[str, Tree]) -> Any:
        tag = tree[TAG]
        if read := SCALAR_READERS.get(tag):
            return read(tree)
        if restore := READERS.get(tag):
            return restore(self, tree)
        raise Unreadable(f"the tag {tag!r} is not known: a newer version of django_reactor has stored it; install that")

    def _content(self, tree: Tree) -> Any:
        return self.restore(tree[VALUE])

    def _dict(self, tree: Tree) -> dict[Any, Any]:
        return {self.restore(key): self.restore(content) for key, content in tree[VALUE]}

    def _namedtuple(self, tree: Tree) -> Any:
        return structures.make_namedtuple(loaded_class(tree[CLASS], "namedtuple"), self._content(tree))

    def _dataclass(self, tree: Tree) -> Any:
        cls = loaded_class(tree[CLASS], "dataclass")
        return structures.make_dataclass(cls, self._content(tree), self.restore(tree.get("x", {})))

    def _pydantic(self, tree: Tree) -> Any:
        state = structures.PydanticState(
            fields=self._content(tree),
            fields_set=set(tree["s"]),
            extra=self.restore(tree.get("x", {})),
            private=self.restore(tree.get("p", {})),
        )
        return structures.make_pydantic(loaded_class(tree[CLASS], "pydantic"), state)

    def _enum(self, tree: Tree) -> Any:
        return structures.make_enum(loaded_class(tree[CLASS], tree[TAG]), tree[VALUE])

    def _model(self, tree: Tree) -> Model:
        return self._references.find(self._reference(tree))

    def _reference(self, tree: Tree) -> Reference:
        return Reference(tree["m"], self._content(tree), tree.get("d"))

    def _map(self, tree: Tree) -> StoredResults:
        execution_id, step, generation, total = tree[VALUE]
        if self._results_of is None:
            raise Unreadable("the results of a map are read by an execution only")
        statuses = [Status(status) for status in tree["s"]] if "s" in tree else None
        return self._results_of(MapKey(UUID(execution_id), step, generation), total, statuses)

    def _lazy(self, tree: Tree) -> Any:
        return make_translation(Translation(tree["f"], self._content(tree), self.restore(tree["k"])))


READERS: Mapping[str, Callable[[Decoder, Tree], Any]] = {
    "secret": Decoder._content,
    "tuple": lambda decoder, tree: tuple(decoder._content(tree)),
    "set": lambda decoder, tree: set(decoder._content(tree)),
    "frozenset": lambda decoder, tree: frozenset(decoder._content(tree)),
    "dict": Decoder._dict,
    "namedtuple": Decoder._namedtuple,
    "dataclass": Decoder._dataclass,
    "pydantic": Decoder._pydantic,
    "enum": Decoder._enum,
    "flag": Decoder._enum,
    "model": Decoder._model,
    "lazy": Decoder._lazy,
    "map": Decoder._map,
}


def _models_in(tree: Tree) -> Iterator[Tree]:
    pending = [tree]
    while pending:
        part = pending.pop()
        if type(part) is list:
            pending.extend(part)
        elif type(part) is dict:
            if part.get(TAG) == "model":
                yield part
            else:
                pending.extend(part.values())
