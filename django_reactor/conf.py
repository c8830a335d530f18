"""`settings.DJANGO_REACTOR` as one typed, lazy object; wrong names and types are system-check errors."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from django.conf import settings as django_settings
from django.core.signals import setting_changed

from django_reactor.core.options import KNOWN_WINDOWS, is_count, is_text, is_window, window_given_twice
from django_reactor.exceptions import ConfigurationError

__all__ = ["Settings", "problems", "settings"]

SETTING = "DJANGO_REACTOR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Durations are in seconds, sizes in bytes, `RETENTION_DAYS` in days."""

    BACKEND: str = "dramatiq"
    QUEUE_NAME: str = "default"
    COORDINATION: str = "database"
    REDIS_ALIAS: str = "default"
    LEASE_TTL: float = 60
    SWEEP_INTERVAL: float = 15
    SWEEP_LIMIT: int = 1000
    SWEEPER: bool = True
    READ_TIMEOUT: float = 30
    PARK_TIMEOUT: float = 3600
    SNOOZE_DELAY: float = 5
    SNOOZE_JITTER: float = 5
    MAX_SNOOZES: int = 20
    RATE_LIMITS: Mapping[str, Any] = field(default_factory=dict)
    CARRY: Sequence[str] = ("language", "time_zone")
    MAX_RECOVERIES: int = 5
    MAX_PAYLOAD_BYTES: int = 1_000_000
    RETENTION_DAYS: float | None = 30


POSITIVE = (
    "LEASE_TTL",
    "SWEEP_INTERVAL",
    "SWEEP_LIMIT",
    "READ_TIMEOUT",
    "PARK_TIMEOUT",
    "MAX_PAYLOAD_BYTES",
    "RETENTION_DAYS",
)


CHOICES = {"COORDINATION": ("database", "redis")}


def problems(configured: object) -> list[tuple[str, str]]:
    """What is wrong with a value of the setting: problem and cure."""
    if not isinstance(configured, Mapping):
        return [(f"{SETTING} must be a dict, not {type(configured).__name__}", f"{SETTING} = {{'QUEUE_NAME': …}}")]
    known = {f.name for f in fields(Settings)}
    hints = get_type_hints(Settings)
    found: list[tuple[str, str]] = []
    for name, value in configured.items():
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            cure = f"Did you mean {close[0]!r}?" if close else f"Known names: {', '.join(sorted(known))}."
            found.append((f"{SETTING} has no option {name!r}", cure))
        elif not _fits(value, hints[name]):
            found.append((f"{SETTING}[{name!r}] is {value!r}", f"It must be {_named(hints[name])}."))
        elif name in CHOICES and value not in CHOICES[name]:
            found.append((f"{SETTING}[{name!r}] is {value!r}", f"It must be {' or '.join(map(repr, CHOICES[name]))}."))
        elif name == "RATE_LIMITS":
            found += _problems_of_limits(value)
        elif name in POSITIVE and value is not None and value <= 0:
            found.append((f"{SETTING}[{name!r}] is {value!r}", "It must be positive."))
        elif isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
            found.append((f"{SETTING}[{name!r}] is {value!r}", "It must not be negative."))
    return found


def problems_of_time() -> list[tuple[str, str]]:
    """What is wrong with how the project counts time."""
    if django_settings.USE_TZ:
        return []
    cure = "Set USE_TZ = True: leases and due times are instants, which local times are not when clocks change."
    return [("django_reactor needs time zones", cure)]


def _problems_of_limits(named: Mapping[Any, Any]) -> list[tuple[str, str]]:
    """Each name has its windows, each window how many may start in it."""
    found: list[tuple[str, str]] = []
    for name, limits in named.items():
        where = f"{SETTING}['RATE_LIMITS'][{name!r}]"
        if not is_text(name):
            found.append((f"{SETTING}['RATE_LIMITS'] has the name {name!r}", "A name is a text that is not empty."))
        elif not isinstance(limits, Mapping) or not limits:
            found.append((f"{where} is {limits!r}", 'It must be a dict such as {"second": 3, "minute": 100}.'))
        else:
            unknown = [window for window in limits if not is_window(window)]
            found += [(f"{where} has no window {window!r}", f"It knows {KNOWN_WINDOWS}.") for window in unknown]
            if (twice := window_given_twice(filter(is_window, limits))) is not None:
                found.append((f"{where} has the window {twice!r} twice", "Two that are as long are one."))
            wrong = {window: limit for window, limit in limits.items() if not is_count(limit)}
            cure = "It must be a whole number from 1."
            found += [(f"{where}[{window!r}] is {limit!r}", cure) for window, limit in wrong.items()]
    return found


def _fits(value: object, hint: Any) -> bool:
    if isinstance(hint, UnionType):
        return any(_fits(value, option) for option in get_args(hint))
    kind = get_origin(hint) or hint
    if kind is bool:
        return isinstance(value, bool)
    if kind in (int, float):
        return isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
    if kind is Sequence:
        return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    return isinstance(value, kind)


def _named(hint: Any) -> str:
    if isinstance(hint, UnionType):
        return " or ".join(_named(option) for option in get_args(hint))
    kind = get_origin(hint) or hint
    names = {float: "a number", int: "a whole number", bool: "True or False", str: "a string", type(None): "None"}
    return names.get(kind, "a dict" if kind is Mapping else "a list of strings")


class _LazySettings:
    """Reads `settings.DJANGO_REACTOR` at first use, and again after `override_settings`."""

    _loaded: Settings | None = None

    def load(self) -> Settings:
        if self._loaded is None:
            configured = getattr(django_settings, SETTING, {})
            if found := [*problems(configured), *problems_of_time()]:
                raise ConfigurationError("; ".join(f"{problem}. {cure}" for problem, cure in found))
            self._loaded = Settings(**configured)
        return self._loaded

    def forget(self) -> None:
        self._loaded = None


settings = _LazySettings()


def _forget(*, setting: str, **_: object) -> None:
    if setting in (SETTING, "USE_TZ"):
        settings.forget()


setting_changed.connect(_forget)
