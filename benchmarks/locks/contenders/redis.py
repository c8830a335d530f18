"""This project's locks in Redis."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.locks.gates import Gated

__all__ = ["session"]


def session(environment: Mapping[str, str]) -> Gated:
    return Gated()
