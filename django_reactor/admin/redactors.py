"""Which texts must not be shown: everything that an execution's own rows mark as secret."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final
from uuid import UUID

from django.db.models import Q

from django_reactor.core.redaction import Redactor
from django_reactor.journal.display import secrets_in
from django_reactor.journal.orm import alias
from django_reactor.models import Execution, JournalEntry

__all__ = ["redactor_of", "redactors_of"]

SECRET_MARK: Final = '"secret'
"""Stands in every stored text that holds a secret: the codec's tags are `secret`, `secretstr` and `secretbytes`."""


def redactor_of(execution: Execution) -> Redactor:
    """Knows the secrets of the inputs, of all arguments and of all values. One query, of the entries that have any."""
    return Redactor.of([*secrets_in(execution.inputs), *_in_entries([execution.pk])[execution.pk]])


def redactors_of(executions: Iterable[Execution]) -> Mapping[UUID, Redactor]:
    """The same for the rows of a list, in two queries: tags repeat inputs only, a failure's message anything."""
    rows = list(executions)
    inputs = Execution.objects.using(alias()).filter(pk__in=[row.pk for row in rows], inputs__contains=SECRET_MARK)
    found = _in_entries([row.pk for row in rows if row.failure])
    for pk, text in inputs.values_list("pk", "inputs"):
        found[pk].extend(secrets_in(text))
    return {row.pk: Redactor.of(found[row.pk]) for row in rows}


def _in_entries(executions: Collection[UUID]) -> defaultdict[UUID, list[object]]:
    found: defaultdict[UUID, list[object]] = defaultdict(list)
    entries = JournalEntry.objects.using(alias()).filter(execution__in=executions)
    marked = entries.filter(Q(arguments__contains=SECRET_MARK) | Q(value__contains=SECRET_MARK))
    for pk, *texts in marked.values_list("execution_id", "arguments", "value").iterator():
        for text in filter(None, texts):
            found[pk].extend(secrets_in(text))
    return found
