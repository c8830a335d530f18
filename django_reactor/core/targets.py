"""Targets: the Step or Reactor class that a declaration runs, given as a class or by its label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from django_reactor.core.contract import Contract
from django_reactor.core.keys import check_coordination
from django_reactor.core.meta import PRIMITIVES
from django_reactor.core.options import Coordination
from django_reactor.core.plan import Definition, Kind, Plan, PlanStep, Source, StepDefinition
from django_reactor.exceptions import DefinitionError

__all__ = ["TAKES", "check_target", "contract_of", "definition_of_target", "resolve_target", "with_step_target"]

TAKES: Mapping[Kind, tuple[str, ...]] = {
    Kind.STEP: ("Step",),
    Kind.ASYNC_STEP: ("Step",),
    Kind.COMPOSE: ("Reactor",),
    Kind.ASYNC_REACTOR: ("Reactor",),
    Kind.MAP: ("Reactor", "Step"),
    Kind.INTERRUPT: (),
}
CURES = {
    (Kind.STEP, "Reactor"): "; use compose(…) to run a reactor as a part of this one",
    (Kind.ASYNC_STEP, "Reactor"): "; use async_reactor(…)",
    (Kind.COMPOSE, "Step"): "; use step(…)",
    (Kind.ASYNC_REACTOR, "Step"): "; use async_step(…)",
}


def contract_of(target: Any) -> Contract:
    """The contract of a target class that `check_target` accepted."""
    contract: Contract = target.__contract__
    return contract


def check_target(where: str, kind: Kind, target: Any) -> None:
    """Refuse a class that this kind of step cannot run. Labels are looked up later, by `resolve_target`."""
    if isinstance(target, str):
        if not target:
            raise DefinitionError(f"{where}: the label of its target is empty; write it as in 'shop.ShipOrder'")
        return
    if not TAKES[kind]:
        raise DefinitionError(f"{where}: {kind} takes no target; got {target!r}")
    found = _what(target)
    if found not in TAKES[kind]:
        raise DefinitionError(
            f"{where}: {kind} runs a {' or '.join(TAKES[kind])} class, or its label; got "
            f"{found or repr(target)}{CURES.get((kind, found or ''), '')}"
        )
    if found == "Step" and not target.__step__.has_run:
        raise DefinitionError(f"{where}: {target.__qualname__} has no run(); write it, or use a subclass that has one")


def _what(target: Any) -> str | None:
    """What a target is, None for anything that cannot be one. `__reactor__` of an abstract reactor is None."""
    if not isinstance(target, type):
        return None
    if isinstance(getattr(target, "__step__", None), StepDefinition):
        return "Step"
    if isinstance(getattr(target, "__reactor__", None), Definition):
        return "Reactor"
    return f"the abstract reactor {target.__qualname__}" if hasattr(target, "__reactor__") else None


def resolve_target(step: PlanStep) -> PlanStep:
    """The step with a class as its target, and with what that class declares.

    Steps whose target was given as a class are returned as they are; a label is looked up, so this works only once all
    apps are loaded. DefinitionError if there is no such class, or this kind of step cannot run it.
    """
    if not isinstance(step.target, str):
        return step
    from django_reactor.core import registry

    where = f"step {step.attribute!r}"
    found = registry.find(step.target)
    if found is None:
        raise DefinitionError(
            f"{where}: no {' or '.join(TAKES[step.kind])} has the label {step.target!r}{registry.near(step.target)}"
        )
    check_target(where, step.kind, found)
    contract = contract_of(found)
    check_coordination(step.coordination, f"{where}: ", contract.names, contract.redacted)
    return with_step_target(where, replace(step, target=found))


def with_step_target(where: str, step: PlanStep) -> PlanStep:
    """The step with retry, coordination and type of result of its Step class; DefinitionError where both say it."""
    target = step.step_target
    if target is None:
        return step
    name = target.cls.__qualname__
    for role in ("undo", "compensate"):
        if getattr(step, role) is not None and getattr(target, f"has_{role}"):
            raise DefinitionError(
                f"{where}: {name} has its own {role}; remove one of the two, or override it in a subclass of {name}"
            )
    if step.output is not None and target.output is not None:
        raise DefinitionError(f"{where}: {name} says the type of its result already; remove output=…")
    return replace(
        step,
        retry=step.retry if step.retry_declared or target.retry is None else target.retry,
        output=step.output if step.output is not None else target.output,
        coordination=_together(where, name, step.coordination, target.coordination),
    )


def _together(where: str, name: str, own: Coordination, targets: Coordination) -> Coordination:
    for primitive in PRIMITIVES:
        if getattr(own, primitive) and getattr(targets, primitive):
            raise DefinitionError(f"{where}: {name} declares {primitive} in its Meta already; remove one of the two")
    return Coordination(**{p: getattr(own, p) or getattr(targets, p) for p in PRIMITIVES})


_alone: WeakKeyDictionary[type, Definition] = WeakKeyDictionary()


def definition_of_target(target: Any) -> Definition:
    """What an execution of this class runs: a reactor; for a Step class, one that has it as its only step."""
    if _what(target) == "Reactor":
        definition: Definition = target.__reactor__
        return definition
    known = _alone.get(target)
    if known is None:
        known = _alone[target] = _definition_of_step(target.__step__)
    return known


def _definition_of_step(declared: StepDefinition) -> Definition:
    name = declared.label.rpartition(".")[2]
    step = PlanStep(
        name=name,
        attribute=name,
        position=0,
        sources={source: Source(source, is_input=True) for source in declared.contract.names},
        target=declared.cls,
    )
    plan = Plan(steps=(with_step_target(name, step),), returns=name)
    return Definition(cls=declared.cls, contract=declared.contract, plan=plan, name=declared.label)
