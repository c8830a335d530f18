"""Ranges of execution ids: a UUIDv7 begins with its time, so that a prefix, or a moment, is a range of the primary key.

The bounds are UUIDv7 themselves: MariaDB orders UUIDs of other versions differently.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final
from uuid import UUID

__all__ = ["MIN_PREFIX", "first_since", "is_whole", "range_of", "short"]

FIRST: Final = "00000000000070008000000000000000"
LAST: Final = "ffffffffffff7fffbfffffffffffffff"
TIME_BITS_BEGIN: Final = 80

MIN_PREFIX: Final = 8
"""Hexadecimal digits; fewer than these cover days, and look like ordinary words and numbers."""
SHORT: Final = 18
"""Characters of an id in a list: the millisecond and twelve random bits."""


def short(execution_id: UUID) -> str:
    """The beginning of an id, long enough to be told from its neighbours, and to be searched for."""
    return str(execution_id)[:SHORT]


def range_of(prefix: str) -> tuple[UUID, UUID] | None:
    """The first and the last id with this beginning, with or without dashes; None if no id begins like that."""
    digits = prefix.replace("-", "").lower()
    if not re.fullmatch(f"[0-9a-f]{{{MIN_PREFIX},{len(FIRST)}}}", digits):
        return None
    first, last = UUID(digits + FIRST[len(digits) :]), UUID(digits + LAST[len(digits) :])
    return (first, last) if first.version == 7 else None


def is_whole(text: str) -> bool:
    """Whether it is an id, and not only the beginning of one."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def first_since(moment: datetime) -> UUID:
    """No id that was made at this moment or later comes before it."""
    milliseconds = int(moment.timestamp() * 1000)
    return UUID(int=milliseconds << TIME_BITS_BEGIN | UUID(FIRST).int)
