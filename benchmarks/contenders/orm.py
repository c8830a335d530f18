"""The same rows through `Model.objects.create`, into the journal's own table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import django
from django.db import connection

from benchmarks.contenders.entry import COLUMNS, row

__all__ = ["contender"]


class Orm:
    def __init__(self, create: Any) -> None:
        self._create = create

    def execute(self, steps: int) -> None:
        execution_id = uuid4()
        for seq in range(steps + 1):
            self._create(**dict(zip(COLUMNS, row(execution_id, seq), strict=True)))

    def close(self) -> None:
        connection.close()


def contender(environment: Mapping[str, str]) -> Orm:
    django.setup()
    from django_reactor.models import JournalEntry

    return Orm(JournalEntry.objects.create)
