"""The form of a stored value: strict JSON in ASCII (any database charset holds it), other types under a tag.

What JSON knows stands as itself: null, booleans, numbers, text, lists, and dicts whose keys are text. Everything else
is an object with the key "$", which names the type; a dict that has this key itself is stored as a `dict` tag.

    decimal, uuid, date, timedelta, bytes, …      {"$": "decimal", "v": "1.50"}
    datetime, time          "v" in ISO form, "z" the zone's name, "n" a fixed offset's name, "f" the fold
    int, float, str         numbers and texts that JSON cannot hold: huge, not finite, lone surrogates
    tuple, set, frozenset   "v": the items
    dict                    "v": [[key, value], …]
    enum, flag              "c": the class, "v": the member's name or the flag's number ("n": its name)
    namedtuple, dataclass   "c": the class, "v": the fields, "x": what else the instance had
    pydantic                "c", "v", and "s": the fields set, "x": the extra ones, "p": the private ones
    model                   "m": the model's label, "v": the primary key, "d": the database if it is not the usual one
    map                     "v": execution, step, generation, number of elements, "s": the only statuses that count
    lazy                    "f": the translation function, "v" and "k": its arguments
    secret                  "v": a value that must never be shown
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

__all__ = ["CLASS", "TAG", "VALUE", "Refused", "Tree", "Unreadable", "member", "secret"]

Tree: TypeAlias = Any
"""What `json` writes and reads."""

TAG: Final = "$"
VALUE: Final = "v"
CLASS: Final = "c"

MAX_SEGMENT: Final = 60
"""Characters of a dict key that a path shows."""


class Refused(Exception):
    """A value cannot be stored. On its way up each container adds where in it the value stands."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self._segments: list[str] = []

    def inside(self, segment: str) -> None:
        self._segments.append(segment)

    def path(self, start: str) -> str:
        return start + "".join(reversed(self._segments))


class Unreadable(Exception):
    """A stored value cannot be restored in this process."""


def member(key: object) -> str:
    """A name or key as a segment of a path."""
    if type(key) is str and key.isidentifier():
        return f".{key}"
    if type(key) in (str, int):
        shown = repr(key) if len(str(key)) <= MAX_SEGMENT else repr(str(key)[:MAX_SEGMENT])[:-1] + "…"
        return f"[{shown}]"
    return f"[<{type(key).__name__}>]"  # never the text of an unknown object


def secret(tree: Tree) -> Tree:
    return {TAG: "secret", VALUE: tree}
