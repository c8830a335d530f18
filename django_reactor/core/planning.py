"""Declarations become a plan.

1. Every step gets its stored name; no two may share one.
2. Each declaration is checked on its own: options, target, function, undo and compensate.
3. Its parameters are resolved to inputs and steps, which gives the dependencies.
4. The whole is checked: no cycle, and what `Meta` names exists.

All of it takes time in proportion to the number of steps and parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FunctionType

from django_reactor.core.contract import Contract
from django_reactor.core.declared import Declaration
from django_reactor.core.handlers import handlers_of
from django_reactor.core.keys import check_coordination, check_key
from django_reactor.core.meta import MetaOptions
from django_reactor.core.naming import check_stored_name
from django_reactor.core.options import ONE_ATTEMPT, Background
from django_reactor.core.ordering import find_cycle
from django_reactor.core.plan import Kind, Plan, PlanStep, Source
from django_reactor.core.resolution import Names
from django_reactor.core.step_options import StepOptions, checked_options
from django_reactor.core.targets import check_target, contract_of, with_step_target
from django_reactor.exceptions import DefinitionError

__all__ = ["make_plan"]

RETRIED = (Kind.STEP, Kind.ASYNC_STEP)


def make_plan(cls: type, chains: Mapping[str, Sequence[Declaration]], contract: Contract, meta: MetaOptions) -> Plan:
    """The plan of a reactor class; DefinitionError, naming class, thing and cure, if its declarations are wrong.

    `chains` holds, by Python name in order of declaration, each step and the declarations that it overrides, the latest
    first.
    """
    reactor = cls.__qualname__
    if not chains:
        raise DefinitionError(f"{reactor} has no steps; decorate a method with @step, or set Meta.abstract = True")
    options = {
        attribute: checked_options(f"{reactor}.{attribute}", chain[0].kind, chain[0].options)
        for attribute, chain in chains.items()
    }
    names = Names(cls, contract, chains, options)
    _check_names(names)
    steps = tuple(_plan_step(cls, names, meta, attribute, position) for position, attribute in enumerate(chains))
    _check_cycles(names, steps)
    return Plan(steps=steps, returns=_returns(names, meta.returns), background=_background(names, meta.background))


def _check_names(names: Names) -> None:
    owners: dict[str, str] = {}
    for attribute, stored in names.stored.items():
        check_stored_name(names.where(attribute), stored)
        if stored in owners:
            raise DefinitionError(
                f"{names.where(attribute)} has the stored name {stored!r}, which {owners[stored]!r} has already; "
                "set another name=…"
            )
        owners[stored] = attribute


def _plan_step(cls: type, names: Names, meta: MetaOptions, attribute: str, position: int) -> PlanStep:
    declaration, options, where = names.declaration(attribute), names.options[attribute], names.where(attribute)
    _check_body(where, declaration)
    sources = names.sources(attribute)
    correlation = _correlation_sources(names, options, where)
    handlers = handlers_of(cls, names.chains[attribute], sources, names.known)
    default = meta.retry if declaration.kind in RETRIED else None
    step = PlanStep(
        name=names.stored[attribute],
        attribute=attribute,
        position=position,
        kind=declaration.kind,
        body=declaration.function,
        undo=handlers["undo"].function,
        compensate=handlers["compensate"].function,
        undo_parameters=handlers["undo"].parameters,
        compensate_parameters=handlers["compensate"].parameters,
        sources=sources,
        dependencies=frozenset(
            [source.name for source in (*sources.values(), *correlation.values()) if not source.is_input]
            + [names.step(name, f"{where}: after") for name in options.after]
        ),
        target=declaration.target,
        retry=options.retry or default or ONE_ATTEMPT,
        retry_declared=options.retry is not None,
        atomic=options.atomic,
        output=options.output,
        tolerate=_tolerated(names, options, sources, where),
        coordination=options.coordination,
        fan_out=options.fan_out,
        fail_fast=options.fail_fast,
        payload=options.payload,
        payload_type=options.payload_type,
        correlation_id=options.correlation_id,
        correlation_sources=correlation,
        timeout=options.timeout,
        on_timeout=options.on_timeout,
        has_on_timeout=options.has_on_timeout,
        resume_in_background=options.resume == "background",
        max_attempts=options.max_attempts,
        doc=getattr(declaration.function, "__doc__", None) or "",
    )
    _check_step_coordination(names, step, where)
    return with_step_target(where, step) if isinstance(step.target, type) else step


def _check_body(where: str, declaration: Declaration) -> None:
    kind, function, target = declaration.kind, declaration.function, declaration.target
    if isinstance(target, FunctionType):
        raise DefinitionError(
            f"{where}: {kind} needs a target; write @{_decorator(kind)}(TheTarget) above the function"
        )
    if target is not None:
        check_target(where, kind, target)
    elif kind in (Kind.COMPOSE, Kind.ASYNC_REACTOR, Kind.MAP):
        raise DefinitionError(f"{where}: {kind} needs a target; write {_decorator(kind)}(TheTarget)")
    elif function is None and kind is not Kind.INTERRUPT:
        raise DefinitionError(
            f"{where} has neither a function nor a target; write def {where.rpartition('.')[2]}(self, …) below it"
        )
    if function is not None and not isinstance(function, FunctionType):
        raise DefinitionError(f"{where}: {function!r} is no function; write def, and call it from there")
    if function is None and kind is Kind.MAP:
        raise DefinitionError(
            f"{where}: a map needs a function, which returns the elements; write it below @map_step(…)"
        )
    if function is None and isinstance(target, str):
        raise DefinitionError(
            f"{where}: the inputs of {target!r} are not known yet; write a function that returns them, or give a class"
        )


def _decorator(kind: Kind) -> str:
    return "map_step" if kind is Kind.MAP else kind.value


def _tolerated(names: Names, options: StepOptions, sources: Mapping[str, Source], where: str) -> frozenset[str]:
    for name in options.tolerate:
        names.step(name, f"{where}: tolerate")
        if not names.declaration(name).kind.is_unit:
            raise DefinitionError(
                f"{where}: tolerate names {name!r}, whose failure fails the execution; only an async_step or an "
                "async_reactor can be tolerated"
            )
        if name not in sources:
            raise DefinitionError(f"{where}: tolerate names {name!r}, which it does not read; take it as a parameter")
    return frozenset(names.stored[name] for name in options.tolerate)


def _correlation_sources(names: Names, options: StepOptions, where: str) -> dict[str, Source]:
    if options.correlation_id is None:
        return {}
    taken = check_key(options.correlation_id, f"{where}: correlation_id", names.known, names.contract.redacted)
    return {name: names.source(name, where) for name in taken}


def _check_step_coordination(names: Names, step: PlanStep, where: str) -> None:
    """Keys of a step are made of its arguments and the reactor's inputs; with a Step class as target, of its inputs."""
    if isinstance(step.target, type):
        contract = contract_of(step.target)
        check_coordination(step.coordination, f"{where}: ", contract.names, contract.redacted)
    elif step.target is None:
        known = (*names.contract.names, *step.sources)
        check_coordination(step.coordination, f"{where}: ", known, names.contract.redacted)


def _check_cycles(names: Names, steps: tuple[PlanStep, ...]) -> None:
    attributes = {step.name: step.attribute for step in steps}
    cycle = find_cycle({step.attribute: [attributes[name] for name in sorted(step.dependencies)] for step in steps})
    if cycle:
        raise DefinitionError(
            f"{names.reactor}: its steps wait for each other: {' → '.join(cycle)}; remove one of these parameters or "
            "after=[…] names"
        )


def _returns(names: Names, returns: str | None) -> str | None:
    if returns is None:
        return None
    where = f"{names.reactor}.Meta.returns"
    stored = names.step(returns, where)
    kind = names.declaration(returns).kind
    if kind.is_unit:
        raise DefinitionError(
            f"{where} names {returns!r}, an {kind}, whose result may come after the execution has ended; "
            "add a step that reads it, and return that"
        )
    return stored


def _background(names: Names, background: Background | None) -> Background | None:
    if background is None:
        return None
    where = f"{names.reactor}.Meta.background"
    stored = {}
    for point in ("after", "before"):
        name = getattr(background, point)
        if name is None:
            continue
        stored[point] = names.step(name, where)
        if names.declaration(name).kind is Kind.INTERRUPT:
            raise DefinitionError(
                f'{where} names {name!r}, an interrupt; set resume="background" on {name!r}, so that a worker goes on '
                "after the answer"
            )
    return Background(**stored)
