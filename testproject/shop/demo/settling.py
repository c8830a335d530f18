"""Stands for a clock that asks for the settlement of the day, and for people who are not sure that it did."""

from __future__ import annotations

from testproject.shop.reactors import SettleDay

__all__ = ["settle_the_day"]

TIMES = 3


def settle_the_day() -> None:
    """More than once, at the same time."""
    for _ in range(TIMES):
        SettleDay.enqueue()
