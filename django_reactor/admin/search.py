"""What the search box finds.

1. `id:`, `key:` and `tag:` before a term say what it is: the beginning of an id, an exact idempotency key, an exact
   tag.
2. A plain term is looked for among ids (eight or more hexadecimal digits) and idempotency keys, both through indexes.
3. Only if that finds nothing is it taken for a tag: tags have no index, so that a whole column has to be read.

Inputs and results are not searched: they hold secrets.
"""

from __future__ import annotations

import json

from django.db.models import F, Q, QuerySet, Value
from django.db.models.functions import StrIndex
from django.utils.translation import gettext_lazy as _

from django_reactor.admin import ids
from django_reactor.admin.known import stored_labels
from django_reactor.models import Execution

__all__ = ["HELP", "found"]

HELP = _(
    "An id or its beginning (8 digits or more), an exact idempotency key, or else an exact tag; "
    "“id:…”, “key:…” and “tag:…” look for one of them only. Children are found too."
)

Executions = QuerySet[Execution, Execution]


def found(executions: Executions, text: str) -> Executions:
    kind, colon, term = text.strip().partition(":")
    term = term.strip()
    match kind.lower() if colon and term else "":
        case "id":
            return executions.filter(_has_id(term))
        case "key":
            return executions.filter(_has_key(term))
        case "tag":
            return _tagged(executions, term)
    return _plainly(executions, text.strip())


def _plainly(executions: Executions, term: str) -> Executions:
    indexed = executions.filter(_has_id(term) | _has_key(term))
    return indexed if indexed.exists() else _tagged(executions, term)


def _has_id(prefix: str) -> Q:
    bounds = ids.range_of(prefix.rstrip("…"))
    return Q(pk__range=bounds) if bounds else Q(pk__in=())


def _has_key(key: str) -> Q:
    """The index of keys begins with the reactor: naming all of them makes it usable."""
    return Q(reactor__in=stored_labels(), idempotency_key=key)


def _tagged(executions: Executions, tag: str) -> Executions:
    """Those whose stored list has this very element: as JSON, with its quotes, it stands nowhere else. The position is
    asked for as well, since LIKE has no case on SQLite, nor has the position on MySQL."""
    element = json.dumps(tag)
    position = StrIndex(F("tags"), Value(element))
    return executions.alias(tag_position=position).filter(tags__contains=element, tag_position__gt=0)
