"""This project: `Reactor.run`, each step reading the result of the one before it."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from functools import cache
from time import perf_counter
from typing import Any

import django
from django.db import connection

__all__ = ["Reactors", "contender"]


class Reactors:
    def __init__(self, locked: bool = False) -> None:
        self._locked = locked

    def execute(self, steps: int) -> None:
        _checked(_reactor(steps, self._locked).run(), steps)

    def reload(self, steps: int) -> float:
        """Seconds from an execution's id to all its results, decoded."""
        from django_reactor.models import Execution

        execution_id = _checked(_reactor(steps, self._locked).run(), steps).execution_id
        started = perf_counter()
        results = dict(Execution.objects.get(pk=execution_id).results)
        seconds = perf_counter() - started
        if len(results) != steps:
            raise AssertionError(f"{len(results)} of {steps} results came back")
        return seconds

    def close(self) -> None:
        connection.close()


def contender(environment: Mapping[str, str]) -> Reactors:
    django.setup()
    return Reactors()


def _checked(result: Any, steps: int) -> Any:
    """What is fast but wrong must not be measured."""
    if result.unwrap() != steps:
        raise AssertionError(f"{result!r} is not {steps}")
    return result


@cache
def _reactor(steps: int, locked: bool) -> Any:
    """A chain of so many steps, of which each adds one."""
    from django_reactor import Lock, Reactor, step

    name_of_class = f"{'Locked' if locked else ''}Chain{steps}"
    names = [f"step_{number:04}" for number in range(1, steps + 1)]

    def body(namespace: dict[str, Any]) -> None:
        namespace["__module__"] = __name__
        options: dict[str, Any] = {"name": f"benchmarks.{name_of_class}", "returns": names[-1]}
        namespace["Meta"] = type("Meta", (), options | ({"lock": Lock("chain")} if locked else {}))
        for previous, name in zip([None, *names], names, strict=False):
            namespace[name] = step(_adder(name, previous))

    return types.new_class(name_of_class, (Reactor[int],), {}, body)


def _adder(name: str, previous: str | None) -> Any:
    """As if it were written `def name(self, previous): return previous + 1`."""

    def add(self: object, **results: int) -> int:
        return sum(results.values()) + 1

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(each, kind) for each in ("self", previous) if each is not None]
    add.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    add.__name__ = name
    add.__qualname__ = name
    return add
