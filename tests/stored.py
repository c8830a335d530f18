"""From a result to its rows."""

from __future__ import annotations

from typing import Any

from django_reactor import Result
from django_reactor.models import Execution

__all__ = ["execution_of"]


def execution_of(result: Result[Any]) -> Execution:
    assert result.execution_id is not None, result
    return Execution.objects.get(pk=result.execution_id)
