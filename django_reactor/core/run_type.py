"""What reactors and Step classes have in common: how Python turns their class bodies into contracts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from django_reactor.core.annotations import MISSING, evaluate, local_names, result_type
from django_reactor.core.contract import Contract
from django_reactor.core.declared import Declaration, look_up
from django_reactor.core.inputs import InputField, own_inputs
from django_reactor.core.meta import Check, own_options
from django_reactor.core.plan import Output
from django_reactor.core.step_options import output_of
from django_reactor.exceptions import DefinitionError

__all__ = ["ClassBody", "RunType"]

PUBLIC = 2
"""The level of users' classes: below are the pure base (0) and the public class that derives from it (1)."""


class ClassBody(dict[str, Any]):
    """Refuses what Python would silently let the later definition win: a second `Meta`, a step's name given again."""

    def __init__(self, owner: str) -> None:
        super().__init__()
        self.owner = owner

    def __setitem__(self, name: str, value: Any) -> None:
        before = self.get(name)
        if before is not None and before is not value:
            if name == "Meta":
                raise DefinitionError(f"{self.owner} has two Meta classes; put all options into one")
            if isinstance(before, Declaration):
                raise DefinitionError(
                    f"{self.owner}.{name} is a step already, and would be replaced; give the second one another name"
                )
        super().__setitem__(name, value)


class RunType(type):
    """The metaclass below `ReactorType` and `StepType`."""

    OPTIONS: ClassVar[Mapping[str, Check]]
    RESERVED: ClassVar[frozenset[str]]
    OVERRIDABLE: ClassVar[frozenset[str]]
    """Reserved names that a class itself may define."""

    __level__: int
    __own_inputs__: dict[str, InputField]
    __own_steps__: dict[str, Declaration]
    __own_options__: dict[str, Any]
    __result_type__: Any
    __contract__: Contract

    @classmethod
    def __prepare__(mcls, name: str, bases: tuple[type, ...], /, **kwargs: Any) -> MutableMapping[str, object]:
        return ClassBody(name)

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **kwargs: Any) -> RunType:
        cls = super().__new__(mcls, name, bases, dict(namespace), **kwargs)
        cls.__level__ = 1 + max((base.__level__ for base in bases if isinstance(base, RunType)), default=-1)
        cls.__own_inputs__, cls.__own_steps__, cls.__own_options__ = {}, {}, {}
        cls.__result_type__ = result_type(cls) if cls.__level__ else cls.__parameters__[0]  # type: ignore[attr-defined]
        if cls.__level__ >= PUBLIC:
            cls._read(local_names(sys._getframe(1)))
            cls._define()
        return cls

    if not TYPE_CHECKING:  # checkers see the constructor of a dataclass, whose parameters `run` takes

        def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
            raise TypeError(f"{cls.__qualname__} has no instances of its own; {cls._instead()}")

    def _instead(cls) -> str:
        raise NotImplementedError

    def _define(cls) -> None:
        """Make the class's definition, when its body has been read."""
        raise NotImplementedError

    def _read(cls, names: Mapping[str, Any]) -> None:
        body = dict(vars(cls))
        for name in cls.RESERVED - cls.OVERRIDABLE:
            if name in body:
                raise DefinitionError(f"{cls.__qualname__}.{name} replaces a reserved name; choose another name")
        cls.__own_steps__ = {name: value for name, value in body.items() if isinstance(value, Declaration)}
        cls.__own_inputs__ = own_inputs(cls, names, cls.RESERVED)
        cls.__own_options__ = own_options(cls.__qualname__, body, cls.OPTIONS)
        if cls.__result_type__ is not MISSING:
            cls.__result_type__ = evaluate(cls.__result_type__, owner=cls, name="its result", names=names)

    def _lineage(cls) -> list[RunType]:
        """The classes that contribute inputs, steps and options, from bases to the class itself."""
        return [base for base in reversed(cls.__mro__) if isinstance(base, RunType)]

    def _make_contract(cls) -> Contract:
        fields: dict[str, InputField] = {}
        for base in cls._lineage():
            fields |= base.__own_inputs__
        for name, field in fields.items():
            found = look_up(cls, name)
            if isinstance(found, Declaration):
                raise cls._two_meanings(name)
            if found is not field:
                raise DefinitionError(
                    f"{cls.__qualname__}.{name} is an input, and {found!r} hides it; annotate it to change its default "
                    f"({name}: … = …), or use another name"
                )
        return Contract(cls.__qualname__, fields.values())

    def _two_meanings(cls, name: str) -> DefinitionError:
        return DefinitionError(f"{cls.__qualname__}.{name} is both an input and a step; rename one of them")

    def _result_output(cls) -> Output | None:
        """What validates the declared type of the result; None where it says nothing."""
        declared = cls.__result_type__
        if declared is MISSING or declared is Any or getattr(declared, "__parameters__", None):
            return None
        if not isinstance(declared, type) and type(declared).__name__ == "TypeVar":
            return None
        return output_of(f"{cls.__qualname__}: its result", declared)
