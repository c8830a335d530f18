"""A source that is read to its end before the first of its elements is stored: on disk meanwhile, not in memory.

For databases in which a query that is still being read keeps its own connection from writing: SQLite with a
write-ahead log, once any other connection has written.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from tempfile import TemporaryFile
from typing import IO, Protocol
from uuid import UUID

from django_reactor.core.plan import Definition
from django_reactor.engine.bodies import Ended
from django_reactor.engine.map_ports import NewElement

__all__ = ["Source", "Spooled"]


class Source(Protocol):
    """Elements in chunks, until it `is_exhausted`; `count` is how many it has given."""

    target: Definition
    count: int
    is_exhausted: bool

    def read(self) -> list[NewElement] | Ended:
        """The next chunk; or how it ended instead."""


class Spooled:
    """Another source, through a file that nobody else can open."""

    def __init__(self, source: Source) -> None:
        self.target = source.target
        self.count = 0
        self.is_exhausted = False
        self._source = source
        self._chunks: Generator[list[NewElement]] | None = None

    def read(self) -> list[NewElement] | Ended:
        if self._chunks is None:
            file = TemporaryFile("w+", encoding="ascii")  # noqa: SIM115 (closed when the last chunk is read)
            ended = self._fill(file)
            if ended is not None:
                file.close()
                return ended
            self._chunks = _chunks_in(file)
        elements = next(self._chunks)
        self.count += len(elements)
        self.is_exhausted = self.count == self._source.count
        if self.is_exhausted:
            self._chunks.close()
        return elements

    def _fill(self, file: IO[str]) -> Ended | None:
        while not self._source.is_exhausted:
            elements = self._source.read()
            if isinstance(elements, Ended):
                return elements
            file.write(json.dumps([(str(e.id), e.index, e.inputs, e.failure) for e in elements]) + "\n")
        return None


def _chunks_in(file: IO[str]) -> Generator[list[NewElement]]:
    with file:
        file.seek(0)
        for line in file:
            yield [
                NewElement(id=UUID(element_id), index=index, inputs=inputs, failure=failure)
                for element_id, index, inputs, failure in json.loads(line)
            ]
