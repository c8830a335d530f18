"""Values without parts, written and read. A type's two directions stand together."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from math import isfinite
from types import NoneType
from typing import Any, Final, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.utils.safestring import SafeString
from pydantic import SecretBytes, SecretStr

from django_reactor.journal.tags import TAG, VALUE, Refused, Tree, Unreadable

__all__ = ["SCALAR_READERS", "SCALAR_WRITERS", "is_text"]

V = TypeVar("V")
Moment = TypeVar("Moment", datetime, time)

PLAIN_BITS: Final = 2048
"""Integers beyond this are stored in hexadecimal: Python may refuse to read that many decimal digits."""


def _itself(value: V) -> V:
    return value


def is_text(text: str) -> bool:
    """Whether JSON holds the text. Lone surrogates (from file names, say) could join to another character in it."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def write_str(value: str) -> Tree:
    return value if is_text(value) else {TAG: "str", VALUE: value.encode("unicode_escape").decode("ascii")}


def read_str(tree: Tree) -> str:
    text: str = tree[VALUE].encode("ascii").decode("unicode_escape") if type(tree) is dict else tree
    return text


def write_int(value: int) -> Tree:
    return value if value.bit_length() <= PLAIN_BITS else {TAG: "int", VALUE: hex(value)}


def write_float(value: float) -> Tree:
    return value if isfinite(value) else {TAG: "float", VALUE: repr(value)}


def write_datetime(value: datetime) -> Tree:
    return {TAG: "datetime", VALUE: value.isoformat(), **_zone_of(value)}


def write_time(value: time) -> Tree:
    return {TAG: "time", VALUE: value.isoformat(), **_zone_of(value)}


def _zone_of(value: datetime | time) -> dict[str, Tree]:
    """A named zone by its name and a fixed offset with its name. Of any other kind (pytz, dateutil) the offset at that
    moment is kept: the instant is the same, the rules of the zone are not known any more."""
    fold = {"f": 1} if value.fold else {}
    zone = value.tzinfo
    if type(zone) is ZoneInfo and zone.key:
        return {"z": zone.key, **fold}
    if zone is not None and value.utcoffset() is None:
        raise Refused(f"a {type(value).__name__} whose {type(zone).__name__} gives no offset; use a zoneinfo.ZoneInfo")
    if type(zone) is timezone:
        name = zone.tzname(None)
        if name != timezone(zone.utcoffset(None)).tzname(None):
            return {"n": name, **fold}
    return fold


def read_datetime(tree: Tree) -> datetime:
    return _in_zone(datetime.fromisoformat(tree[VALUE]), tree)


def read_time(tree: Tree) -> time:
    return _in_zone(time.fromisoformat(tree[VALUE]), tree)


def _in_zone(value: Moment, tree: Tree) -> Moment:
    offset = value.utcoffset()
    if "z" in tree:
        value = value.replace(tzinfo=_zone(tree["z"]))
    elif "n" in tree and offset is not None:
        value = value.replace(tzinfo=timezone(offset, tree["n"]))
    return value.replace(fold=1) if "f" in tree else value


def _zone(key: str) -> ZoneInfo:
    try:
        return ZoneInfo(key)
    except ZoneInfoNotFoundError:
        raise Unreadable(f"this machine does not know the time zone {key!r}: install the package tzdata") from None


def write_timedelta(value: timedelta) -> Tree:
    return {TAG: "timedelta", VALUE: [value.days, value.seconds, value.microseconds]}


def read_timedelta(tree: Tree) -> timedelta:
    return timedelta(*tree[VALUE])


def _write_text(tag: str) -> Callable[[object], Tree]:
    return lambda value: {TAG: tag, VALUE: str(value)}


def _write_bytes(tag: str) -> Callable[[bytes], Tree]:
    return lambda value: {TAG: tag, VALUE: base64.b64encode(value).decode("ascii")}


def read_bytes(tree: Tree) -> bytes:
    return base64.b64decode(tree[VALUE], validate=True)


SCALAR_WRITERS: Mapping[type, Callable[[Any], Tree]] = {
    NoneType: _itself,
    bool: _itself,
    int: write_int,
    float: write_float,
    str: write_str,
    datetime: write_datetime,
    date: lambda value: {TAG: "date", VALUE: value.isoformat()},
    time: write_time,
    timedelta: write_timedelta,
    Decimal: _write_text("decimal"),
    UUID: _write_text("uuid"),
    bytes: _write_bytes("bytes"),
    bytearray: _write_bytes("bytearray"),
    SafeString: lambda value: {TAG: "safe", VALUE: write_str(str.__str__(value))},
    SecretStr: lambda value: {TAG: "secretstr", VALUE: write_str(value.get_secret_value())},
    SecretBytes: lambda value: {TAG: "secretbytes", VALUE: base64.b64encode(value.get_secret_value()).decode("ascii")},
}
"""By exact type: a subclass may carry more, which would be lost."""

SCALAR_READERS: Mapping[str, Callable[[Tree], Any]] = {
    "int": lambda tree: int(tree[VALUE], 16),
    "float": lambda tree: float(tree[VALUE]),
    "str": read_str,
    "datetime": read_datetime,
    "date": lambda tree: date.fromisoformat(tree[VALUE]),
    "time": read_time,
    "timedelta": read_timedelta,
    "decimal": lambda tree: Decimal(tree[VALUE]),
    "uuid": lambda tree: UUID(tree[VALUE]),
    "bytes": read_bytes,
    "bytearray": lambda tree: bytearray(read_bytes(tree)),
    "safe": lambda tree: SafeString(read_str(tree[VALUE])),
    "secretstr": lambda tree: SecretStr(read_str(tree[VALUE])),
    "secretbytes": lambda tree: SecretBytes(read_bytes(tree)),
}
