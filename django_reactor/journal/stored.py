"""The codec as the engine's port: encoding and decoding, and what people may see of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_reactor.core.redaction import Redactor
from django_reactor.core.statuses import Status
from django_reactor.engine.map_ports import MapKey, Slots
from django_reactor.engine.map_results import StoredResults
from django_reactor.journal.codec import Codec
from django_reactor.journal.display import display, secrets_in

__all__ = ["StoredValues"]

DISPLAY_LIMIT = 2_000
"""Characters of a string, or items of a container, that are shown in a failure."""


class StoredValues(Codec):
    """`slots` are where the results of maps are read from, if they can be."""

    def __init__(self, *, max_bytes: int = 1_000_000, slots: Slots | None = None) -> None:
        def results_of(key: MapKey, total: int, statuses: Sequence[Status] | None) -> StoredResults:
            assert slots is not None
            return StoredResults(key, total, slots=slots, new_codec=another, statuses=statuses)

        def another() -> StoredValues:
            return StoredValues(max_bytes=max_bytes, slots=slots)

        super().__init__(max_bytes=max_bytes, results_of=None if slots is None else results_of)

    def display(self, text: str, redactor: Redactor) -> Any:
        return display(text, redactor, limit=DISPLAY_LIMIT)

    def secrets(self, text: str) -> Sequence[object]:
        return secrets_in(text)
