"""System checks: what can only be told when settings are read and all apps are loaded.

E001  two classes have one label
E002  the target of a step is a label that nothing has
E003  the target of a step, given by its label, cannot be run by this kind of step, or contradicts it
E004  a RateLimit.named names limits that RATE_LIMITS does not have
E005  the tz of a Period is no time zone
E100  the setting DJANGO_REACTOR has an unknown name, or a value of a wrong type
E101  the project does not use time zones
E102  the database of executions is of a kind that is not supported
W001  a step compensates but has no undo
W002  a Step class that runs as an async_step has an undo, which never runs
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections, router

from django_reactor import conf
from django_reactor.core import registry
from django_reactor.core.naming import suggestion
from django_reactor.core.options import Coordination
from django_reactor.core.plan import Definition, Kind, PlanStep, StepDefinition
from django_reactor.core.targets import TAKES, resolve_target
from django_reactor.exceptions import ConfigurationError, DefinitionError
from django_reactor.models import Execution

__all__ = [
    "CHECKS",
    "check_coordination",
    "check_database",
    "check_labels",
    "check_rollback",
    "check_settings",
    "check_targets",
]

DATABASES = ("postgresql", "mysql", "sqlite")


def check_labels(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """E001: a stored execution finds its class by the label, so there must be one class for it."""
    return [
        Error(
            f"{' and '.join(f'{cls.__module__}.{cls.__qualname__}' for cls in classes)} have the same label {label!r}.",
            hint="Rename one of them, or set its Meta.name.",
            obj=classes[-1],
            id="django_reactor.E001",
        )
        for label, classes in registry.duplicates().items()
    ]


def check_targets(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """E002, E003: targets that are given by their label."""
    return [
        message
        for definition, step in _steps()
        if isinstance(step.target, str)
        for message in _target_messages(definition, step)
    ]


def check_rollback(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """W001, W002: what a failure would leave as it is."""
    return [message for definition, step in _steps() for message in _rollback_messages(definition, step)]


def check_coordination(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """E004, E005: what a declaration takes from the settings and from the machine. Settings that cannot be read are
    E100's matter."""
    try:
        named = conf.settings.load().RATE_LIMITS
    except ConfigurationError:
        return []
    return [
        message
        for place, cls, coordination in _coordinated()
        for message in _coordination_messages(place, cls, coordination, named)
    ]


def check_settings(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """E100, E101: the project's settings."""
    configured = getattr(settings, conf.SETTING, {})
    of_ours, of_time = conf.problems(configured), conf.problems_of_time()
    return [
        *(Error(f"{problem}.", hint=cure, id="django_reactor.E100") for problem, cure in of_ours),
        *(Error(f"{problem}.", hint=cure, id="django_reactor.E101") for problem, cure in of_time),
    ]


def check_database(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """E102: statements are written for these databases only."""
    alias = router.db_for_write(Execution)
    vendor = connections[alias].vendor
    if vendor in DATABASES:
        return []
    hint = "Route the models of django_reactor to PostgreSQL, MariaDB, MySQL or SQLite."
    return [Error(f"Executions are stored on {alias!r}, which is {vendor}.", hint=hint, id="django_reactor.E102")]


CHECKS: tuple[Callable[..., list[CheckMessage]], ...] = (
    check_labels,
    check_targets,
    check_rollback,
    check_coordination,
    check_settings,
    check_database,
)


def _steps() -> Iterator[tuple[Definition, PlanStep]]:
    """All steps of all reactors, but those whose target is ambiguous, which E001 reports."""
    ambiguous = registry.duplicates()
    for reactor in registry.reactors():
        definition: Definition = reactor.__reactor__  # type: ignore[attr-defined]  # only reactors are listed
        for step in definition.plan.steps:
            if step.target not in ambiguous:
                yield definition, step


def _coordinated() -> Iterator[tuple[str, type, Coordination]]:
    """Each declaration, where it stands."""
    for reactor in registry.reactors():
        definition: Definition = reactor.__reactor__  # type: ignore[attr-defined]  # only reactors are listed
        yield f"{reactor.__qualname__}.Meta", reactor, definition.coordination
        for step in definition.plan.steps:
            yield f"{reactor.__qualname__}.{step.attribute}", reactor, step.coordination
    for cls in registry.step_classes():
        target: StepDefinition = cls.__step__  # type: ignore[attr-defined]  # only Step classes are listed
        yield f"{cls.__qualname__}.Meta", cls, target.coordination


def _coordination_messages(
    place: str, cls: type, coordination: Coordination, named: Mapping[str, Any]
) -> Iterator[CheckMessage]:
    for limit in coordination.rate_limit:
        if limit.name is not None and limit.name not in named:
            yield Error(
                f"{place} has a RateLimit named {limit.name!r}, but DJANGO_REACTOR['RATE_LIMITS'] has no such name"
                f"{suggestion(limit.name, named)}",
                hint="Add it there, or correct the name.",
                obj=cls,
                id="django_reactor.E004",
            )
    for period in coordination.period:
        if period.tz is not None and not _is_time_zone(period.tz):
            yield Error(
                f"{place} has a Period with the time zone {period.tz!r}, which this machine does not know.",
                hint="Write a name such as 'Europe/Paris'; install tzdata where the system has no time zones.",
                obj=cls,
                id="django_reactor.E005",
            )


def _is_time_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, OSError, TypeError, ValueError):  # unknown, a folder, no text, a path that leads elsewhere
        return False
    return True


def _target_messages(definition: Definition, step: PlanStep) -> Iterator[CheckMessage]:
    place = f"{definition.cls.__qualname__}.{step.attribute}"
    if registry.find(step.target) is None:
        yield Error(
            f"{place} runs the target {step.target!r}, but no {' or '.join(TAKES[step.kind])} has this label"
            f"{registry.near(step.target)}",
            hint="Correct the label, or add the app that declares it to INSTALLED_APPS.",
            obj=definition.cls,
            id="django_reactor.E002",
        )
        return
    try:
        resolve_target(step)
    except DefinitionError as error:
        problem, _, cure = str(error).rpartition("; ")
        yield Error(
            f"{place} runs the target {step.target!r}: {problem or cure}.",
            hint=f"{cure[:1].upper()}{cure[1:]}." if problem else None,
            obj=definition.cls,
            id="django_reactor.E003",
        )


def _rollback_messages(definition: Definition, step: PlanStep) -> Iterator[CheckMessage]:
    place = f"{definition.cls.__qualname__}.{step.attribute}"
    if step.kind is Kind.STEP and step.compensates and not step.undoable:
        yield Warning(
            f"{place} compensates its own failure, but has no undo: a later failure will not reverse it.",
            hint=f"Add @{step.attribute}.undo, or silence this if there is nothing to reverse.",
            obj=definition.cls,
            id="django_reactor.W001",
        )
    target = step.step_target
    if step.kind is Kind.ASYNC_STEP and target is not None and target.has_undo:
        yield Warning(
            f"{place} runs {target.cls.__qualname__} as an async_step, so its undo never runs.",
            hint="Make it a step if a later failure must reverse it.",
            obj=definition.cls,
            id="django_reactor.W002",
        )
