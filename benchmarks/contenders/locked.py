"""This project: the reactor of `reactor`, under a lock."""

from __future__ import annotations

from collections.abc import Mapping

import django

from benchmarks.contenders.reactor import Reactors

__all__ = ["contender"]


def contender(environment: Mapping[str, str]) -> Reactors:
    django.setup()
    return Reactors(locked=True)
