"""Stands for whoever approves of large orders."""

from __future__ import annotations

import json

from django_reactor.models import Wait
from testproject.shop.faults import Faults
from testproject.shop.reactors import Approval

__all__ = ["answer_all"]


def answer_all(*, rate: float, seed: int) -> int:
    """Answer every order that has paused, and return how many did. Some are refused: another kind of fault."""
    answered = 0
    waits = Wait.objects.filter(state="open", step="approval", execution__status="paused")
    for wait in waits.select_related("execution"):
        number = json.loads(wait.execution.inputs)["note"]
        refused = Faults(rate=rate, seed=seed, order=number).strikes("approval")
        wait.execution.resume(Approval(approved=not refused), step="approval")
        answered += 1
    return answered
