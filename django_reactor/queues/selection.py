"""The adapter that the settings name."""

from __future__ import annotations

import difflib
import threading

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_reactor.conf import SETTING, settings
from django_reactor.exceptions import ConfigurationError
from django_reactor.queues.base import Backend

__all__ = ["SHORT_NAMES", "backend", "load"]

SHORT_NAMES = {
    "dramatiq": "django_reactor.queues.dramatiq.DramatiqBackend",
    "rq": "django_reactor.queues.rq.RqBackend",
    "tasks": "django_reactor.queues.django_tasks.TasksBackend",
    "immediate": "django_reactor.queues.immediate.ImmediateBackend",
}

EXTRAS = {"rq": "rq", "tasks": "tasks"}
"""What to install for an adapter whose library is not required."""

FOLLOWED = {SETTING, "DRAMATIQ_BROKER", "RQ", "RQ_QUEUES", "TASKS"}
"""Settings after whose change the adapter is made anew."""


class _Selection:
    """Calling it gives the adapter of this process, made at first use and again after `override_settings`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._backend: Backend | None = None

    def __call__(self) -> Backend:
        """Raises `ConfigurationError` if there is no such adapter, or its library is not installed."""
        if (made := self._backend) is not None:
            return made
        with self._lock:
            if self._backend is None:
                chosen = load(settings.load().BACKEND)
                chosen.prepare()
                self._backend = chosen
            return self._backend

    def prepare(self) -> None:
        """Make the adapter, if it can be made: what prevents it is the system checks' to say."""
        try:
            self()
        except ConfigurationError:
            self.forget()

    def forget(self) -> None:
        self._backend = None


def load(name: str) -> Backend:
    """A new adapter by its short name, or by the dotted path of its class. Raises `ConfigurationError`."""
    path = SHORT_NAMES.get(name, name)
    if "." not in path:
        close = difflib.get_close_matches(name, SHORT_NAMES, n=1)
        choice = f"use {', '.join(SHORT_NAMES)}, or the dotted path of a class"
        cure = f"did you mean {close[0]!r}?" if close else choice
        raise ConfigurationError(f"{SETTING}['BACKEND'] is {name!r}, which is no queue; {cure}")
    try:
        made: Backend = import_string(path)()
    except (ImportError, ImproperlyConfigured) as error:
        cure = f"install django-reactor-saga[{EXTRAS[name]}]" if name in EXTRAS else "correct the path"
        problem = f"{SETTING}['BACKEND'] is {name!r}, which cannot be loaded: {error}"
        raise ConfigurationError(f"{problem}; {cure}") from error
    return made


backend = _Selection()


def _forget(*, setting: str, **_: object) -> None:
    if setting in FOLLOWED:
        backend.forget()


setting_changed.connect(_forget)
