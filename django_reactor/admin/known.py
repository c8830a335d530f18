"""Reactors by their stored labels: which labels there are, and what this process knows of one."""

from __future__ import annotations

from django.db import connections

from django_reactor.core import registry
from django_reactor.core.plan import Definition
from django_reactor.core.targets import definition_of_target
from django_reactor.exceptions import DefinitionError
from django_reactor.journal.orm import alias
from django_reactor.models import Execution

__all__ = ["definition_of", "stored_labels"]

MAX_LABELS = 500

LOOSE_SCAN = """
WITH RECURSIVE labels (label) AS (
    SELECT MIN({reactor}) FROM {table}
    UNION ALL
    SELECT (SELECT MIN({reactor}) FROM {table} WHERE {reactor} > labels.label)
    FROM labels WHERE labels.label IS NOT NULL
)
SELECT label FROM labels WHERE label IS NOT NULL LIMIT %s
"""


def stored_labels() -> list[str]:
    """The reactors that have executions, in order; also those whose modules are gone.

    From each label to the next one through the unique index that begins with it: as many steps as there are labels,
    however many executions. MySQL does this by itself for a DISTINCT, and doesn't see it in the recursion; the others
    would read every row for the DISTINCT.
    """
    connection = connections[alias()]
    if connection.vendor == "mysql":
        labels = Execution.objects.using(connection.alias).order_by("reactor").values_list("reactor", flat=True)
        return list(labels.distinct()[:MAX_LABELS])
    quote = connection.ops.quote_name
    sql = LOOSE_SCAN.format(reactor=quote("reactor"), table=quote(Execution._meta.db_table))
    with connection.cursor() as cursor:
        cursor.execute(sql, [MAX_LABELS])
        return [label for (label,) in cursor.fetchall()]


def definition_of(label: str) -> Definition | None:
    """What the reactor declares today, or the Step class that elements of a map run; None if its module was removed, or
    if two classes claim the label."""
    try:
        found = registry.find(label)
    except DefinitionError:
        return None
    return None if found is None else definition_of_target(found)
