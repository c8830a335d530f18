"""What a worker needs from where an execution was started: `DJANGO_REACTOR["CARRY"]`.

A carrier has `capture() -> JSON-compatible value` and `restore(value)`, a context manager around step bodies and undos.
Shipped: `language`, `time_zone`, and `opentelemetry` for whoever has installed the extra `otel`. Others are named by
their dotted path.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import tzinfo
from functools import cache
from types import TracebackType
from typing import Any, Protocol

from django.utils import timezone, translation
from django.utils.module_loading import import_string

from django_reactor.conf import settings
from django_reactor.exceptions import ConfigurationError

__all__ = ["Carrier", "ConfiguredCarriers", "Language", "OpenTelemetry", "TimeZone"]


class Carrier(Protocol):
    """Made once a process, and used by all its threads."""

    def capture(self) -> Any:
        """What to carry, as a JSON-compatible value; None if there is nothing. Called where an execution is started;
        what it raises is raised there."""

    def restore(self, value: Any) -> AbstractContextManager[object]:
        """The block around one body in a worker; `value` is what `capture` has given."""


class Language:
    """The active translation."""

    def capture(self) -> str | None:
        return translation.get_language()

    def restore(self, value: str | None) -> AbstractContextManager[object]:
        return _Speaking(value)


class _Speaking:
    """As `translation.override`, which would activate a language also where it is the active one: as it mostly is in a
    worker, around every body."""

    __slots__ = ("_before", "_language")

    def __init__(self, language: str | None) -> None:
        self._language = language

    def __enter__(self) -> None:
        self._before = translation.get_language()
        _speak(self._language, self._before)

    def __exit__(self, *raised: object) -> None:
        _speak(self._before, translation.get_language())


def _speak(wanted: str | None, active: str | None) -> None:
    if wanted == active:
        return
    if wanted is None:
        translation.deactivate_all()
    else:
        translation.activate(wanted)


class TimeZone:
    """The current time zone, where it has a name."""

    def capture(self) -> str | None:
        zone: tzinfo = timezone.get_current_timezone()
        return zone.key if isinstance(zone, zoneinfo.ZoneInfo) else None

    def restore(self, value: str) -> AbstractContextManager[object]:
        return _Being(value)


class _Being:
    """In a time zone: as `timezone.override`, but that it touches nothing where it is the active one."""

    __slots__ = ("_before", "_zone")

    def __init__(self, zone: str) -> None:
        self._zone = zone

    def __enter__(self) -> None:
        self._before = timezone.get_current_timezone()
        if getattr(self._before, "key", None) != self._zone:
            timezone.activate(zoneinfo.ZoneInfo(self._zone))

    def __exit__(self, *raised: object) -> None:
        if timezone.get_current_timezone() is self._before:
            return
        if self._before is timezone.get_default_timezone():
            timezone.deactivate()
        else:
            timezone.activate(self._before)


class OpenTelemetry:
    """The trace in which it was started, and its baggage, as the process's propagators write them (by default W3C's
    `traceparent`, `tracestate` and `baggage`): spans of a body in a worker belong to the span of whoever started it."""

    def __init__(self) -> None:
        try:
            from opentelemetry import context, propagate
        except ImportError as error:
            raise ImportError(f"{error}; install django-reactor-saga[otel]") from error
        self._inject, self._extract = propagate.inject, propagate.extract
        self._attach, self._detach = context.attach, context.detach

    def capture(self) -> dict[str, str] | None:
        written: dict[str, str] = {}
        self._inject(written)
        return written or None

    @contextmanager
    def restore(self, value: Mapping[str, str]) -> Iterator[None]:
        token = self._attach(self._extract(value))
        try:
            yield
        finally:
            self._detach(token)


SHIPPED: Mapping[str, type[Carrier]] = {
    "language": Language,
    "time_zone": TimeZone,
    "opentelemetry": OpenTelemetry,
}


@cache
def carrier(name: str) -> Carrier:
    """By its short name, or by the dotted path that the settings give."""
    try:
        made: Carrier = (SHIPPED.get(name) or import_string(name))()
    except ImportError as error:
        known = ", ".join(SHIPPED)
        raise ConfigurationError(f"DJANGO_REACTOR['CARRY'] names {name!r}: {error}; shipped are {known}") from error
    return made


class ConfiguredCarriers:
    """The engine's port `Carriers`."""

    def capture(self) -> Mapping[str, Any]:
        captured = {name: carrier(name).capture() for name in settings.load().CARRY}
        return {name: value for name, value in captured.items() if value is not None}

    def restored(self, carried: Mapping[str, Any]) -> AbstractContextManager[None]:
        """What these settings no longer carry is left alone."""
        return _All([carrier(name).restore(carried[name]) for name in settings.load().CARRY if name in carried])


class _All:
    """These blocks around one body, the last one innermost. An `ExitStack` costs a multiple; here none of them may
    swallow an error."""

    __slots__ = ("_blocks", "_entered")

    def __init__(self, blocks: Sequence[AbstractContextManager[object]]) -> None:
        self._blocks = blocks
        self._entered: list[AbstractContextManager[object]] = []

    def __enter__(self) -> None:
        try:
            for block in self._blocks:
                block.__enter__()
                self._entered.append(block)
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._entered:
            return
        try:
            self._entered.pop().__exit__(kind, error, traceback)
        finally:
            self.__exit__(kind, error, traceback)
