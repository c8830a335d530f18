"""What the decorators leave in a class body until the class is planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from django_reactor.core.plan import Kind
from django_reactor.exceptions import DefinitionError

__all__ = ["BodyDeclaration", "Declaration", "Handler", "TargetDeclaration", "look_up", "refuse_handler"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Function = TypeVar("Function", bound=Callable[..., Any])

WITHOUT_HANDLERS = {
    Kind.COMPOSE: "its steps are undone by their own undos",
    Kind.ASYNC_REACTOR: "it is independent, and undoes its steps by itself when it fails",
    Kind.MAP: "its elements are undone by their own undos",
    Kind.INTERRUPT: "it waits and does nothing itself; give the undo to a step that comes before or after it",
}


def look_up(cls: type, name: str) -> Any:
    """A class's attribute as it stands in the body that defines it, or None."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


@dataclass(frozen=True, slots=True)
class Handler:
    """An undo or compensate function, and the name by which an override in a subclass is found."""

    name: str
    function: Callable[..., Any]


class Declaration:
    """A step of any kind, as declared. It is read when its class is created, and does not change after."""

    def __init__(self, kind: Kind, target: Any, options: Mapping[str, Any], function: Any = None) -> None:
        self.kind = kind
        self.target = target
        self.options = options
        self.function = function
        self.attribute = ""
        self.owner: type = object
        self.aliases: list[str] = []
        self.handlers: dict[str, Handler] = {}

    def __set_name__(self, owner: type, name: str) -> None:
        self.aliases.append(name)
        if not self.attribute:
            self.attribute, self.owner = name, owner

    @overload
    def __get__(self, run: None, owner: type) -> Self: ...
    @overload
    def __get__(self, run: object, owner: type | None = None) -> Callable[..., Any]: ...
    def __get__(self, run: object, owner: type | None = None) -> Any:
        if run is None:
            return self
        if look_up(type(run), self.attribute) is self:
            raise AttributeError(
                f"self.{self.attribute} is a step, whose result is not an attribute of self; take it as a parameter: "
                f"def a_step(self, {self.attribute})"
            )
        # Overridden, so this is super().<step>: the plain function, bound.
        return MethodType(self._plain(), run)

    def _plain(self) -> Callable[..., Any]:
        if self.function is None:
            raise TypeError(f"the step {self.attribute!r} has no function of its own; it runs its target")
        function: Callable[..., Any] = self.function
        return function

    def undo(self, function: Function) -> Function:
        """Declares what reverses this step once it has completed, when a later step fails. The function may take
        `result`, this step's result, and the step's own parameters."""
        return self._with_handler("undo", function)

    def compensate(self, function: Function) -> Function:
        """Declares what cleans up after this step when it has failed for good. The function may take `error` and the
        step's own parameters."""
        return self._with_handler("compensate", function)

    def _with_handler(self, role: str, function: Function) -> Function:
        self._check_handler(role, function)
        self.handlers[role] = Handler(function.__name__, function)
        if function.__name__ == getattr(self.function, "__name__", None):
            # `@charge.undo def charge`, the habit from properties: the name must stay the step's.
            return self  # type: ignore[return-value]
        return function

    def _check_handler(self, role: str, function: Any) -> None:
        name = getattr(self.function, "__name__", None) or self.attribute or "a step"
        if not isinstance(function, FunctionType):
            raise DefinitionError(f"{role} of {name!r}: {function!r} is no function; write def after @{name}.{role}")
        place = function.__qualname__
        if self.aliases:
            raise DefinitionError(
                f"{place}: the {role} of {name!r} can only be declared in the class body that declares {name!r}; "
                f"here override its {role} as a method, or declare the step again"
            )
        if role in self.handlers:
            raise DefinitionError(
                f"{place}: {name!r} has the {role} {self.handlers[role].name!r} already; one {role} does all"
            )
        refuse_handler(place, role, self.kind, name)


def refuse_handler(place: str, role: str, kind: Kind, step: str) -> None:
    """Raise for an undo or compensate on a kind of step that has none."""
    if kind in WITHOUT_HANDLERS:
        raise DefinitionError(f"{place}: the {kind} {step!r} takes no {role}, for {WITHOUT_HANDLERS[kind]}; remove it")
    if role == "undo" and kind is Kind.ASYNC_STEP:
        raise DefinitionError(
            f"{place}: the async_step {step!r} takes no undo, for it is independent and no later failure undoes it; "
            "make it a step, or give it a compensate"
        )


class BodyDeclaration(Declaration, Generic[R_co]):
    """A step that has a function. Called from the class (`PlaceOrder.charge(run, card_token="…")`) it is that plain
    function, for tests."""

    __name__: str
    __qualname__: str

    def __init__(self, kind: Kind, target: Any, options: Mapping[str, Any], function: Callable[..., R_co]) -> None:
        super().__init__(kind, target, options, function)
        self.__wrapped__ = function
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(function, name):
                setattr(self, name, getattr(function, name))

    if TYPE_CHECKING:  # of super().charge checkers know the result too

        @overload
        def __get__(self, run: None, owner: type) -> Self: ...
        @overload
        def __get__(self, run: object, owner: type | None = None) -> Callable[..., R_co]: ...
        def __get__(self, run: object, owner: type | None = None) -> Any: ...

    def __call__(self, *args: Any, **kwargs: Any) -> R_co:
        result: R_co = self._plain()(*args, **kwargs)
        return result


class TargetDeclaration(Declaration):
    """A step without a function: complete where a target or an interrupt needs none, and a decorator else."""

    def __call__(self, function: Callable[..., R], /) -> BodyDeclaration[R]:
        if self.aliases:
            raise TypeError(f"the step {self.attribute!r} has no function of its own; it runs its target")
        return BodyDeclaration(self.kind, self.target, self.options, function)
