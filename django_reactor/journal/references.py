"""Model instances in stored values: a label and a primary key, no field of the row.

In the process that stored it, a reference leads back to the live instance; in any other it is fetched again, by the
model's `_base_manager`, so that no default manager hides it. It is read where Django would write it
(`router.db_for_write`), since a replica may not have yet what this very execution has just saved. A database that the
router would not name for the model alone (rows taken with `.using("archive")`) is stored with the reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

from django.apps import apps
from django.db import connections, router
from django.db.models import Model

from django_reactor.exceptions import Gone
from django_reactor.journal.tags import Refused, Unreadable

__all__ = ["Reference", "References"]

BATCH = 500
"""Primary keys in one query: databases bound their number (SQLite 999, Oracle 1,000)."""


class Reference(NamedTuple):
    label: str
    pk: Any
    database: str | None = None
    """Only where it is another than the router's for this model."""


class References:
    """The model instances that one codec has met. Of several instances of one row the last one met is given back."""

    def __init__(self) -> None:
        self._met: dict[Reference, Model] = {}

    def refer(self, instance: Model) -> Reference:
        """The reference to a saved instance, which is remembered."""
        model = type(instance)
        label = model._meta.label
        if apps.all_models.get(model._meta.app_label, {}).get(model._meta.model_name or "") is not model:
            raise Refused(f"{label} is not the installed model of this name (a migration's, perhaps)")
        pk = _pk_of(instance)
        if instance._state.adding or pk is None:
            raise Refused(f"this {label} is not saved, so nothing can refer to it: save it first, or pass its values")
        database = router.db_for_write(model, instance=instance)
        usual = database == router.db_for_write(model)
        reference = Reference(label, pk, None if usual else database)
        self._met[reference] = instance
        return reference

    def find(self, reference: Reference) -> Model:
        """The instance; raises `Gone` when its row does not exist any more."""
        known = self._known(reference)
        if known is None:
            self.fetch([reference])
            known = self._known(reference)
        if known is None:
            raise Gone(reference.label, reference.pk)
        return known

    def fetch(self, references: Iterable[Reference]) -> None:
        """Fetch all that are not known, in one query for each model and database (or for every 500 rows of them)."""
        wanted: dict[tuple[str, str | None], dict[Any, None]] = {}
        for reference in references:
            if self._known(reference) is None:
                wanted.setdefault((reference.label, reference.database), {})[reference.pk] = None
        for (label, database), pks in wanted.items():
            rows, rest = _rows_of(label, database), iter(pks)
            while batch := list(islice(rest, BATCH)):
                for instance in rows.filter(pk__in=batch):
                    self._met[Reference(label, _pk_of(instance), database)] = instance

    def _known(self, reference: Reference) -> Model | None:
        # An instance that was deleted, or copied by saving it under a new key, is no longer the one referred to. Its
        # row decides: it exists again when the deletion was rolled back.
        instance = self._met.get(reference)
        return instance if instance is not None and _pk_of(instance) == reference.pk else None


def _pk_of(instance: Model) -> Any:
    """The primary key in its field's own type (an instance made with a UUID's text keeps the text); None if unset."""
    values = tuple(field.to_python(getattr(instance, field.attname)) for field in instance._meta.pk_fields)
    if any(value is None for value in values):
        return None
    return values if len(values) > 1 else values[0]


def _rows_of(label: str, database: str | None) -> Any:
    try:
        model = apps.get_model(label)
    except LookupError:
        raise Unreadable(
            f"the model {label} is not installed in this process: keep it, and its app in INSTALLED_APPS, until no "
            "open execution needs it"
        ) from None
    if database is not None and database not in connections.settings:
        raise Unreadable(f"a stored {label} is in the database {database!r}, which DATABASES does not have any more")
    return model._base_manager.using(database or router.db_for_write(model))
