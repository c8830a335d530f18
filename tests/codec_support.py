"""Values of every storable kind, as a user might define them, and the codec from end to end."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum, auto
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import pytest
from django.db import models
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretStr, field_validator

from django_reactor.core.redaction import Redacted
from django_reactor.exceptions import SerializationError
from django_reactor.journal.codec import Codec

T = TypeVar("T")


class Colour(Enum):
    RED = 1
    GREEN = (2.5, ["unhashable"])
    CRIMSON = 1  # noqa: PIE796  # an alias is meant


class Size(StrEnum):
    SMALL = "s"
    LARGE = "l"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Right(Flag):
    READ = auto()
    WRITE = auto()
    SHARE = auto()


class Bits(IntFlag):
    ONE = 1
    TWO = 2


class State(models.TextChoices):
    OPEN = "open", "Is open"
    SHUT = "shut", "Is shut"


class Point(NamedTuple):
    x: Any
    y: Any = 0


Pair = namedtuple("Pair", ["left", "right"])


class LoosePoint(Point):
    """No `__slots__`, so it may have attributes."""


class Credentials(NamedTuple):
    user: str
    password: Redacted[str]


@dataclass
class Line:
    sku: Any
    quantity: Any = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    total: Any
    lines: Any = ()


@dataclass
class Counted:
    """Counts its `__post_init__` in all it makes, so that running it again shows."""

    start: int
    factor: InitVar[int] = 2
    product: int = field(init=False)
    kind: ClassVar[str] = "counted"
    unset: int = field(init=False, repr=False, compare=False)

    def __post_init__(self, factor: int) -> None:
        self.start += 1
        self.product = self.start * factor
        self.beside = [self.product]

    @cached_property
    def costly(self) -> object:
        return object()


@dataclass
class Card:
    holder: str
    number: Redacted[str]


@dataclass
class Listing(list[int]):
    name: str


@dataclass
class Broken(Exception):
    code: int


class Item(BaseModel):
    sku: Any
    price: Any = Decimal(0)


class Basket(BaseModel):
    items: list[Item] = Field(default_factory=list)
    note: str = Field(default="", alias="Note")


class Doubling(BaseModel):
    """Validation changes the value, so that validating again shows."""

    amount: int
    _seen: list[int] = PrivateAttr(default_factory=list)
    _never: int = PrivateAttr()

    @field_validator("amount")
    @classmethod
    def double(cls, value: int) -> int:
        return value * 2

    def model_post_init(self, context: Any) -> None:
        self._seen.append(self.amount)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    known: int = 1


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)

    value: Any


class Names(RootModel[list[str]]):
    pass


class Box(BaseModel, Generic[T]):
    content: T


class IntBox(Box[int]):
    pass


class Login(BaseModel):
    user: str
    password: Redacted[str]
    pin: SecretStr = SecretStr("")


class Outer:
    @dataclass
    class Inner:
        value: Any


@dataclass
class Tree:
    name: str
    children: list[Any] = field(default_factory=list)
    parent: Any = None


class Unstorable:
    """An object of a kind that nobody knows how to store; looking at it is an error."""

    def __repr__(self) -> str:
        raise AssertionError("was looked at")

    __str__ = __repr__


def local_class() -> type:
    @dataclass
    class Local:
        value: int

    return Local


def opened(**values: Any) -> Open:
    return Open.model_validate(values)


def stored(value: object, *, max_bytes: int = 1_000_000) -> str:
    return Codec(max_bytes=max_bytes).encode(value, at="result")


def restored(value: object) -> Any:
    """The value as another process would get it."""
    return Codec().decode(stored(value))


def refusal(value: object, *, max_bytes: int = 1_000_000) -> SerializationError:
    with pytest.raises(SerializationError) as caught:
        stored(value, max_bytes=max_bytes)
    return caught.value
