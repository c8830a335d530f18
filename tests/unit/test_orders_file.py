from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from testproject.shop.exceptions import OrdersFileError
from testproject.shop.orders_file import OrderLine, parse_orders, read_orders

GOOD = " 00004 0001 19970101  2   29.33\n"


def test_a_line_becomes_an_order() -> None:
    assert list(parse_orders([GOOD])) == [
        OrderLine(line=1, customer="00004", sample="0001", date=date(1997, 1, 1), units=2, dollars=Decimal("29.33"))
    ]


def test_an_order_may_cost_nothing() -> None:
    (order,) = parse_orders([" 00004 0001 19970101  2    0.00"])
    assert order.dollars == 0


def test_line_ends_of_windows_and_empty_lines_are_passed_over_and_lines_are_counted_with_them(tmp_path: Path) -> None:
    path = tmp_path / "orders.txt"
    path.write_bytes(b"\r\n 00004 0001 19970101  2   29.33\r\n\r\n 00021 0002 19970101  3   63.34\r\n")
    assert [(order.line, order.customer, order.dollars) for order in read_orders(path)] == [
        (2, "00004", Decimal("29.33")),
        (4, "00021", Decimal("63.34")),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("00004 0001 19970101  2", "4 columns where there should be 5: customer, sample, date, units, dollars"),
        ("00004 0001 19970101  2 29.33 1", "6 columns where there should be 5"),
        ("four 0001 19970101  2 29.33", "customer should be a number of up to nine digits, not 'four'"),
        ("00004 -001 19970101  2 29.33", "sample should be a number of up to nine digits, not '-001'"),
        ("00004 0001 19970230  2 29.33", "date should be a day as YYYYMMDD, not '19970230'"),
        ("00004 0001 1997011  2 29.33", "date should be a day as YYYYMMDD, not '1997011'"),
        ("00004 0001 19970101  0 29.33", "units should be 1 or more, not '0'"),
        ("00004 0001 19970101  1.5 29.33", "units should be a number of up to nine digits, not '1.5'"),
        ("00004 0001 19970101  2 -29.33", "dollars should be an amount such as 29.33, not '-29.33'"),
        ("00004 0001 19970101  2 29.333", "dollars should be an amount such as 29.33, not '29.333'"),
        ("00004 0001 19970101  2 NaN", "dollars should be an amount such as 29.33, not 'NaN'"),
        ("00004 0001 19970101  2 ２9.33", "dollars should be an amount such as 29.33"),
    ],
)
def test_a_bad_line_is_refused_naming_file_line_and_column(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "orders.txt"
    path.write_text(GOOD + line + "\n" + GOOD, encoding="utf-8")
    with pytest.raises(OrdersFileError) as refused:
        read_orders(path)
    assert str(refused.value).startswith(f"{path}, line 2: {problem}")


def test_a_file_without_orders_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "orders.txt"
    path.write_text("\n\n")
    with pytest.raises(OrdersFileError, match="holds no orders"):
        read_orders(path)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(OrdersFileError, match=r"absent\.txt: No such file"):
        read_orders(tmp_path / "absent.txt")
