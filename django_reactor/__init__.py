"""Business transactions that must not end half done: reactors, their steps, and what they return.

Importing this needs no settings and loads no model.
"""

from django_reactor.api import Reactor, Step
from django_reactor.core.declarations import async_reactor, async_step, compose, interrupt, map_step, step
from django_reactor.core.options import Background, Lock, OrderedLock, Period, RateLimit, Retry, Semaphore
from django_reactor.core.outcomes import fail, halt, skip, snooze, succeed
from django_reactor.core.redaction import Redacted
from django_reactor.results import Dispatched, Failure, Halt, Paused, Result, Skipped, Success

__all__ = [
    # what is declared
    "Reactor",
    "Step",
    "async_reactor",
    "async_step",
    "compose",
    "interrupt",
    "map_step",
    "step",
    # how it runs
    "Background",
    "Redacted",
    "Retry",
    # coordination
    "Lock",
    "OrderedLock",
    "Period",
    "RateLimit",
    "Semaphore",
    # what comes back
    "Dispatched",
    "Failure",
    "Halt",
    "Paused",
    "Result",
    "Skipped",
    "Success",
    # how a body ends
    "fail",
    "halt",
    "skip",
    "snooze",
    "succeed",
]
