"""Whether steps can be put in an order: the search for a cycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

__all__ = ["find_cycle"]


def find_cycle(dependencies: Mapping[str, Iterable[str]]) -> list[str] | None:
    """A cycle as a path in which each name needs the next, its first name repeated at the end; None if there is none.

    Takes time in proportion to the number of dependencies, and no recursion.
    """
    try:
        TopologicalSorter(dependencies).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle[::-1]
    return None
