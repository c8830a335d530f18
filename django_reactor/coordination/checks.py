"""System checks of the store of coordination.

E300  the store is Redis, and no cache of the project is a Redis that it could use
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error

from django_reactor.conf import settings
from django_reactor.exceptions import ConfigurationError

__all__ = ["CHECKS", "check_store"]


def check_store(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """E300. Settings that cannot be read are E100's matter."""
    try:
        loaded = settings.load()
    except ConfigurationError:
        return []
    if loaded.COORDINATION != "redis":
        return []
    from django_reactor.coordination.redis.server import problem_with

    found = problem_with(loaded.REDIS_ALIAS)
    return [] if found is None else [Error(f"{found[0]}.", hint=found[1], id="django_reactor.E300")]


CHECKS: tuple[Callable[..., list[CheckMessage]], ...] = (check_store,)
