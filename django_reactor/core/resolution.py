"""What the functions of a reactor may name: its inputs and its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any

from django_reactor.core.contract import Contract
from django_reactor.core.declared import Declaration, look_up
from django_reactor.core.naming import REACTOR_RESERVED, suggestion
from django_reactor.core.plan import Source
from django_reactor.core.signatures import method_parameters
from django_reactor.core.step_options import StepOptions
from django_reactor.core.targets import contract_of
from django_reactor.exceptions import DefinitionError

__all__ = ["Names"]


@dataclass(frozen=True)
class Names:
    """The names in one reactor. `chains` holds, by Python name, the declaration of each step and those that it
    overrides, the latest first."""

    cls: type
    contract: Contract
    chains: Mapping[str, Sequence[Declaration]]
    options: Mapping[str, StepOptions]

    @property
    def reactor(self) -> str:
        return self.cls.__qualname__

    @cached_property
    def stored(self) -> Mapping[str, str]:
        """Stored names by Python name."""
        return {attribute: options.name or attribute for attribute, options in self.options.items()}

    @cached_property
    def known(self) -> frozenset[str]:
        return frozenset([*self.contract.names, *self.chains])

    def where(self, attribute: str) -> str:
        return f"{self.reactor}.{attribute}"

    def declaration(self, attribute: str) -> Declaration:
        return self.chains[attribute][0]

    def step(self, name: str, where: str) -> str:
        """The stored name of a step that an option names."""
        if name in self.stored:
            return self.stored[name]
        if name in self.contract.fields:
            raise DefinitionError(f"{where} names {name!r}, which is an input; it takes names of steps")
        raise DefinitionError(f"{where} names {name!r}, which is no step{suggestion(name, self.stored)}")

    def source(self, name: str, where: str) -> Source:
        """Where a parameter comes from."""
        source = self._find(name)
        if source is not None:
            return source
        if name == "context":
            raise DefinitionError(f"{where} takes 'context', which is no input or step; read self.context")
        if name in ("result", "error"):
            raise DefinitionError(
                f"{where} takes {name!r}, which only an undo or a compensate gets; name an input or a step"
            )
        raise DefinitionError(f"{where} takes {name!r}, which is {self._undeclared(name) or self._unknown(name)}")

    def _unknown(self, name: str) -> str:
        return f"neither an input nor a step{suggestion(name, sorted(self.known))}"

    def _undeclared(self, name: str) -> str:
        """What was meant by something in the class body that declares nothing; '' if there is no such thing."""
        if name in REACTOR_RESERVED:
            return ""
        found = look_up(self.cls, name)
        if isinstance(found, FunctionType):
            return "a plain method; decorate it with @step, so that it is a step"
        return "" if found is None else f"no input without an annotation; write {name}: … = {found!r}"

    def sources(self, attribute: str) -> dict[str, Source]:
        """Those of a step: by its function's parameters, or else by its target's inputs."""
        declaration, where = self.declaration(attribute), self.where(attribute)
        if declaration.function is not None:
            parameters = method_parameters(declaration.function, where)
            self._check_self(declaration.function, where)
            return {name: self.source(name, where) for name in parameters}
        return {} if declaration.target is None else self._inputs_of(declaration.target, attribute)

    def _find(self, name: str) -> Source | None:
        if name in self.contract.fields:
            return Source(name, is_input=True)
        if name in self.stored:
            return Source(self.stored[name], is_input=False)
        return None

    def _check_self(self, function: FunctionType, where: str) -> None:
        first = function.__code__.co_varnames[:1]
        if first and function.__code__.co_argcount and self._find(first[0]):
            raise DefinitionError(f"{where} takes no self: its first parameter is {first[0]!r}; put self before it")

    def _inputs_of(self, target: Any, attribute: str) -> dict[str, Source]:
        contract, sources = contract_of(target), {}
        for name in contract.names:
            # A step does not feed itself, even if an input of its target has its name.
            source = None if name == attribute else self._find(name)
            if source is not None:
                sources[name] = source
            elif name in contract.required:
                raise DefinitionError(
                    f"{self.where(attribute)}: {target.__qualname__} needs {name!r}, but no input or step is named so; "
                    f"add one, or write a function that returns the inputs of {target.__qualname__}"
                )
        return sources
