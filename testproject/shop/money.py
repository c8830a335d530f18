"""Money: `Decimal` with two places in Python, whole cents in the database.

SQLite has no decimal type and would sum floats; a sum of whole cents is exact on every database.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models

if TYPE_CHECKING:
    from django.db.models.expressions import Combinable

    DecimalValuedField = models.Field[Decimal | int | Combinable, Decimal]
else:
    DecimalValuedField = models.Field

__all__ = ["ZERO", "MoneyField", "from_cents", "to_cents"]

ZERO = Decimal("0.00")


def from_cents(cents: int | Decimal) -> Decimal:
    return Decimal(cents).scaleb(-2).quantize(ZERO)


def to_cents(amount: Decimal | float) -> int:
    """Whole cents. Raises ValueError for fractions of a cent, and for every float: it is no money."""
    if isinstance(amount, float):
        raise ValueError(f"money is Decimal, not float: {amount!r}")
    cents = Decimal(amount).scaleb(2)
    if not cents.is_finite() or cents != cents.to_integral_value():
        raise ValueError(f"not an amount in whole cents: {amount}")
    return int(cents)


class MoneyField(DecimalValuedField):
    """Stores cents; sums of it are Decimal again."""

    description = "Money"

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def from_db_value(self, value: int | Decimal | None, expression: Any, connection: Any) -> Decimal | None:
        return None if value is None else from_cents(value)

    def to_python(self, value: Any) -> Decimal | None:
        if value is None:
            return None
        try:
            return from_cents(to_cents(value if isinstance(value, Decimal | float) else Decimal(str(value))))
        except (InvalidOperation, ValueError) as exc:
            raise ValidationError("%(value)s is not an amount of money.", params={"value": value}) from exc

    def get_prep_value(self, value: Any) -> Any:
        value = super().get_prep_value(value)
        return to_cents(value) if isinstance(value, Decimal | int | float) else value

    def value_to_string(self, obj: models.Model) -> str:
        return str(self.value_from_object(obj))

    def formfield(self, **kwargs: Any) -> Any:
        options: dict[str, Any] = {"form_class": forms.DecimalField, "decimal_places": 2}
        return super().formfield(**(options | kwargs))
