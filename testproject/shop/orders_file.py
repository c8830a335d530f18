"""Reads files of orders: one order a line, five columns separated by blanks.

     00004 0001 19970101  2   29.33

These are the customer's number, its number in the sample, the date (YYYYMMDD), units and dollars. The purchases that
the music shop CDNOW published for research have this format. Empty lines are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

from testproject.shop.exceptions import OrdersFileError

__all__ = ["COLUMNS", "OrderLine", "iter_orders", "parse_orders", "read_orders"]

COLUMNS = ("customer", "sample", "date", "units", "dollars")
DIGITS = re.compile(r"[0-9]{1,9}")
DOLLARS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,2})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLine:
    line: int
    customer: str
    sample: str
    date: date
    units: int
    dollars: Decimal


def read_orders(path: Path) -> list[OrderLine]:
    """All orders of a file, in its order. Raises OrdersFileError with file and line of the first that is wrong."""
    orders = list(iter_orders(path))
    if not orders:
        raise OrdersFileError(f"{path}: holds no orders")
    return orders


def iter_orders(path: Path) -> Iterator[OrderLine]:
    """The orders of a file, one after another, as the file is read. Raises OrdersFileError at the first that is
    wrong."""
    try:
        with path.open(encoding="ascii", errors="replace") as lines:
            yield from parse_orders(lines, name=str(path))
    except OSError as exc:
        raise OrdersFileError(f"{path}: {exc.strerror}") from exc


def parse_orders(lines: Iterable[str], *, name: str = "orders") -> Iterator[OrderLine]:
    for number, text in enumerate(lines, start=1):
        if text.strip():
            try:
                yield _parse(number, text.split())
            except ValueError as exc:
                raise OrdersFileError(f"{name}, line {number}: {exc}") from exc


def _parse(line: int, columns: list[str]) -> OrderLine:
    if len(columns) != len(COLUMNS):
        raise ValueError(f"{len(columns)} columns where there should be {len(COLUMNS)}: {', '.join(COLUMNS)}")
    customer, sample, day, units, dollars = columns
    return OrderLine(
        line=line,
        customer=_digits("customer", customer),
        sample=_digits("sample", sample),
        date=_date(day),
        units=_units(units),
        dollars=_dollars(dollars),
    )


def _digits(column: str, text: str) -> str:
    if not DIGITS.fullmatch(text):
        raise ValueError(f"{column} should be a number of up to nine digits, not {text!r}")
    return text


def _date(text: str) -> date:
    if len(text) == 8 and DIGITS.fullmatch(text):
        with suppress(ValueError):  # eight digits, but no day of the calendar
            return datetime.strptime(text, "%Y%m%d").date()
    raise ValueError(f"date should be a day as YYYYMMDD, not {text!r}")


def _units(text: str) -> int:
    if int(_digits("units", text)) < 1:
        raise ValueError(f"units should be 1 or more, not {text!r}")
    return int(text)


def _dollars(text: str) -> Decimal:
    if not DOLLARS.fullmatch(text):
        raise ValueError(f"dollars should be an amount such as 29.33, not {text!r}")
    return Decimal(text).quantize(Decimal("0.01"))
