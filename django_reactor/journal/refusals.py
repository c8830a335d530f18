"""What to tell a user whose value cannot be stored: its type, why, and what to do instead.

Nothing here calls `__str__` or `__repr__` of the value, or reads anything from it.
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Collection, Iterator, Mapping, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from uuid import UUID

from django.core.files import File
from django.db.models import Manager, QuerySet
from pydantic import AnyUrl
from pydantic_core import Url

__all__ = ["refusal", "too_large"]

CONVERTIBLE: tuple[type, ...] = (
    str, int, float, list, dict, tuple, set, frozenset, bytes, bytearray,
    datetime, date, time, timedelta, Decimal, UUID,
)  # fmt: skip
"""Types of which a subclass is not stored: what it adds would be lost silently."""

UNLIKE_TO_CONVERT = (datetime, date, time, timedelta, UUID)
"""Their constructors do not take one of their own kind."""

CURES: tuple[tuple[tuple[type, ...], str], ...] = (
    ((QuerySet,), "is a query, not its rows: return list(…) of it, its .values(), or what it filters by"),
    ((Manager,), "is a way to make queries: return the rows, or their primary keys"),
    ((io.IOBase, File), "is an open file: save it and return its name or path"),
    ((BaseException,), "is an exception: raise it, call fail(), or return its text"),
    ((Awaitable,), "must be awaited first"),
    ((type,), "is a class: return its name"),
    ((Iterator,), "can be read only once, and its end may be far: return list(…) of it"),
    ((Mapping,), "is a mapping of its own kind: return dict(…) of it"),
    ((Set,), "is a set of its own kind: return set(…) of it"),
    (
        (PurePath, IPv4Address, IPv6Address, IPv4Network, IPv6Network, AnyUrl, Url),
        "stands for a text: return str(…) of it",
    ),
    ((memoryview,), "is a view into memory: return bytes(…) of it"),
    ((Collection,), "is a collection of its own kind: return list(…) of it"),
    ((ModuleType,), "is a module: return its name"),
    ((FunctionType, BuiltinFunctionType, MethodType, partial), "is a function: return what it gives, or its name"),
)
"""The first that fits is said."""


def refusal(value: object) -> str:
    kind = type(value)
    name = kind.__name__
    for base in CONVERTIBLE:
        if issubclass(kind, base):
            return f"{name} is a kind of {base.__name__} that may carry more: return {_conversion(base)}"
    for kinds, cure in CURES:
        if issubclass(kind, kinds):
            return f"{name} {cure}"
    return f"{name} cannot be stored: return plain values, a dataclass, a Pydantic model or a saved Django model"


def _conversion(base: type) -> str:
    return f"a plain {base.__name__}" if base in UNLIKE_TO_CONVERT else f"{base.__name__}(…) of it"


def too_large(size: int, limit: int) -> str:
    return (
        f"{size:,} bytes as stored, more than MAX_PAYLOAD_BYTES ({limit:,}): store it elsewhere (a model, a file) and "
        "return a reference to it"
    )
