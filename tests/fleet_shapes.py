"""Random reactors for a fleet: which steps, units and hand-off points there are, and what their bodies do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from types import new_class
from typing import Any, Protocol

from hypothesis import strategies as st

from django_reactor import Background, Reactor, Retry, async_reactor, async_step, step
from django_reactor.core.plan import Kind
from django_reactor.engine.context import Context
from tests.engine_world import Act, StepShape, name_of

__all__ = ["FleetShape", "Stage", "fleets", "make_reactor"]

Steps = tuple[StepShape, ...]
RETRY_DELAY = 2
"""Seconds."""


class Stage(Protocol):
    """Where bodies act: they leave effects there, and end as their script says."""

    def act(self, role: str, context: Context, arguments: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Point:
    """Where a caller hands off: before or after a step, or at once."""

    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class FleetShape:
    """Two reactors. Each `async_reactor` step of the parent starts the child."""

    parent: Steps
    child: Steps
    point: Point | None
    child_point: Point | None


class Given(Reactor[Any]):
    given: str = ""

    class Meta:
        abstract = True


def make_reactor(name: str, shapes: Steps, point: Point | None, stage: Stage, child: type | None = None) -> Any:
    body: dict[str, Any] = {"__module__": __name__, "__qualname__": f"make_reactor.<locals>.{name}"}
    body["Meta"] = type("Meta", (), {"background": _background(point)})
    for position, shape in enumerate(shapes):
        own, undo, compensate = name_of(position), f"undo_{name_of(position)}", f"compensate_{name_of(position)}"
        declared = _declared(own, shape, stage, child)
        if shape.undo and shape.kind is Kind.STEP:
            body[undo] = declared.undo(_function(undo, ("result",), _reversing("undo", stage)))
        if shape.compensate and shape.kind is not Kind.ASYNC_REACTOR:
            body[compensate] = declared.compensate(_function(compensate, ("error",), _reversing("compensate", stage)))
        body[own] = declared
    return new_class(name, (Given,), {}, lambda names: names.update(body))


def _background(point: Point | None) -> Background | None:
    if point is None:
        return None
    return Background(
        before=None if point.before is None else name_of(point.before),
        after=None if point.after is None else name_of(point.after),
    )


def _declared(name: str, shape: StepShape, stage: Stage, child: type | None) -> Any:
    read = tuple(name_of(position) for position in sorted(shape.reads))
    options: dict[str, Any] = {"after": [name_of(position) for position in sorted(shape.after - shape.reads)]}
    if shape.tolerates:
        options["tolerate"] = list(read)
    if shape.kind is Kind.ASYNC_REACTOR:
        assert child is not None
        return async_reactor(child, **options)(_function(name, read, _giving(stage)))
    if shape.kind is Kind.STEP:
        options["atomic"] = shape.atomic
    options["retry"] = Retry(max_attempts=shape.max_attempts, jitter=0, delay=RETRY_DELAY)
    kind: Callable[..., Any] = step if shape.kind is Kind.STEP else async_step
    return kind(**options)(_function(name, read, _running(stage)))


def _running(stage: Stage) -> Callable[..., Any]:
    return lambda self, **arguments: stage.act("run", self.context, arguments)


def _giving(stage: Stage) -> Callable[..., Any]:
    return lambda self, **arguments: {"given": stage.act("run", self.context, arguments)}


def _reversing(role: str, stage: Stage) -> Callable[..., Any]:
    return lambda self, **arguments: stage.act(role, self.context, arguments)


def _function(name: str, parameters: tuple[str, ...], body: Callable[..., Any]) -> Callable[..., Any]:
    """The body under a name and with parameters of its own."""
    made: Any = body
    made.__name__ = name
    made.__qualname__ = f"Random.{name}"
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    made.__signature__ = inspect.Signature([inspect.Parameter(each, kind) for each in ("self", *parameters)])
    return body


# -- drawing them ------------------------------------------------------------------------------------------------------

OF_BODIES = (
    *[Act.SUCCEED] * 6,
    Act.FAIL_EARLY,
    Act.FAIL_LATE,
    Act.VETO,
    Act.SKIP,
    Act.HALT,
    Act.SNOOZE,
    Act.BREAK_COMMIT,
)
OF_ROLLBACKS = (*[Act.SUCCEED] * 3, Act.FAIL_EARLY, Act.FAIL_LATE, Act.SNOOZE, Act.BREAK_COMMIT)
STEPS_OF_PARENTS = (Kind.STEP, Kind.STEP, Kind.STEP, Kind.ASYNC_STEP, Kind.ASYNC_STEP, Kind.ASYNC_REACTOR)
STEPS_OF_CHILDREN = (Kind.STEP, Kind.STEP, Kind.ASYNC_STEP)


def _scripts(acts: tuple[Act, ...]) -> list[tuple[Act, ...]]:
    """None, or one or two acts."""
    return [(), *((act,) for act in acts), *product(acts, acts)]


RUNNING, UNDOING = _scripts(OF_BODIES), _scripts(OF_ROLLBACKS)


@st.composite
def _steps(draw: st.DrawFn, kinds: tuple[Kind, ...], most: int) -> Steps:
    """Declared in any order: a step may be declared after its reader. Few numbers are drawn, since that takes longer
    than all that is done with them."""
    order = draw(st.permutations(range(draw(st.integers(1, most)))))
    found: dict[int, StepShape] = {}
    for place, position in enumerate(order):
        traits, choice = Digits(draw(st.integers(0, 10**9))), Digits(draw(st.integers(0, 10**9)))
        reads, after = _some(traits, order[:place]), _some(traits, order[:place])
        kind = kinds[traits.below(len(kinds))]
        units = bool(reads) and all(found[other].kind is not Kind.STEP for other in reads)
        found[position] = StepShape(
            kind=kind,
            after=after,
            reads=reads,
            tolerates=bool(traits.below(2)) and units,
            undo=bool(traits.below(2)),
            compensate=bool(traits.below(2)),
            atomic=traits.below(4) == 3 and kind is Kind.STEP,
            max_attempts=(1, 1, 2, 3)[traits.below(4)],
            run=RUNNING[choice.below(len(RUNNING))],
            undoing=UNDOING[choice.below(len(UNDOING))],
            compensating=UNDOING[choice.below(len(UNDOING))],
        )
    return tuple(found[position] for position in range(len(order)))


@dataclass(slots=True)
class Digits:
    """One number, taken apart."""

    rest: int

    def below(self, base: int) -> int:
        self.rest, digit = divmod(self.rest, base)
        return digit


def _some(digits: Digits, among: list[int]) -> frozenset[int]:
    """Two of them, or fewer."""
    places = [digits.below(len(among) + 1) for _ in "ab"]
    return frozenset(among[place - 1] for place in places if place)


def _points(steps: Steps) -> st.SearchStrategy[Point | None]:
    somewhere = st.integers(0, len(steps) - 1)
    before, after = somewhere.map(lambda at: Point(before=at)), somewhere.map(lambda at: Point(after=at))
    return st.one_of(st.none(), st.just(Point()), before, after)


@st.composite
def fleets(draw: st.DrawFn) -> FleetShape:
    parent, child = draw(_steps(STEPS_OF_PARENTS, 6)), draw(_steps(STEPS_OF_CHILDREN, 3))
    return FleetShape(parent, child, draw(_points(parent)), draw(_points(child)))
