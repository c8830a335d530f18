"""The words of the engine, as the choices of a column."""

from __future__ import annotations

import enum

__all__ = ["choices"]


def choices(words: type[enum.StrEnum]) -> list[tuple[str, str]]:
    return [(word.value, word.value.replace("_", " ")) for word in words]
