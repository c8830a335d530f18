"""How PostgreSQL carries out what is asked of it, and how many rows it reads for that."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

__all__ = ["passed", "plans_of"]

EXECUTIONS, WAITS = "django_reactor_execution", "django_reactor_wait"


def plans_of(question: Callable[[], object]) -> list[dict[str, Any]]:
    """How the database carries out each statement that it makes. Nothing of it remains."""
    with transaction.atomic():
        with CaptureQueriesContext(connection) as captured:
            question()
        transaction.set_rollback(True)
    statements = [query["sql"] for query in captured if re.match(r"\s*(SELECT|UPDATE|WITH)", query["sql"])]
    assert statements
    return [explained(sql) for sql in statements]


def explained(sql: str) -> dict[str, Any]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}")
        (answer,) = cursor.fetchone()
        transaction.set_rollback(True)
    plan: dict[str, Any] = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
    return plan


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def passed(plan: dict[str, Any]) -> int:
    """Rows of executions and waits that a plan has read, used or not."""
    carried_out = (node for node in nodes(plan) if node["Actual Loops"])
    scans = [node for node in carried_out if node.get("Relation Name") in (EXECUTIONS, WAITS)]
    assert not [node for node in scans if node["Node Type"] == "Seq Scan"], plan
    read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in scans)
    return int(sum(rows * node["Actual Loops"] for rows, node in zip(read, scans, strict=True)))
