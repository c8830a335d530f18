"""The peer `dbos`: a workflow of as many steps, on the same database, with its own defaults.

Nothing of ours or of Django is imported, so that it can run on an interpreter that has only dbos. It is imported when
it is needed, since the other contenders, and the type checker, do without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["contender"]


class Dbos:
    def __init__(self, workflow: Callable[[int], int], destroy: Callable[[], None]) -> None:
        self._workflow, self._destroy = workflow, destroy

    def execute(self, steps: int) -> None:
        if (value := self._workflow(steps)) != steps:
            raise AssertionError(f"{value!r} is not {steps}")

    def close(self) -> None:
        self._destroy()


def contender(environment: Mapping[str, str]) -> Dbos:
    DBOS = import_module("dbos").DBOS
    config: Any = {"name": "benchmark", "log_level": "ERROR", "console_log_level": "ERROR"} | _database(environment)
    DBOS(config=config)

    def add(number: int) -> int:
        return number + 1

    add_one = DBOS.step()(add)

    def chain(steps: int) -> int:
        number = 0
        for _ in range(steps):
            number = add_one(number)
        return number

    workflow = DBOS.workflow()(chain)
    DBOS.launch()
    return Dbos(workflow, DBOS.destroy)


def _database(environment: Mapping[str, str]) -> dict[str, Any]:
    url = environment["BENCHMARK_URL"]
    if environment["DATABASE"] != "sqlite":
        return {"system_database_url": url}
    _set_pragmas(environment["BENCHMARK_PRAGMAS"])
    return {"system_database_url": f"{url}.dbos"}


def _set_pragmas(pragmas: str) -> None:
    """On every connection, as all contenders do; dbos itself sets neither the journal nor how to wait for the disk."""
    sqlalchemy = import_module("sqlalchemy")

    def set_pragmas(connection: Any, _: object) -> None:
        for pragma in pragmas.split(";"):
            connection.execute(pragma)

    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", set_pragmas)
