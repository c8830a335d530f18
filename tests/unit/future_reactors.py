"""A module in which all annotations are strings."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, ClassVar

import pydantic

from django_reactor import Reactor, Redacted, Step, step


class Ticket(Reactor[Any]):
    seat: Annotated[int, pydantic.Field(ge=1)]
    day: datetime.date | None = None
    card: Redacted[str] = ""
    holder: Person | None = None
    RATE: ClassVar[Undefined] = 3  # type: ignore[name-defined]  # noqa: F821

    class Person:
        """A class of the body itself, which annotations may name."""

    @step
    def book(self, seat: int) -> int:
        return seat


class Pay(Step[int]):
    amount: Annotated[int, pydantic.Field(ge=1)]

    def run(self) -> int:
        return self.amount
