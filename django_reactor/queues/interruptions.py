"""What libraries of queues raise inside a running body to end it: it says nothing about the step.

They are looked up when they are asked for, in the modules that the process has loaded, since only a library that runs
here can raise one; and whichever adapter is configured, since a project's own tasks may run a reactor.
"""

from __future__ import annotations

import sys

__all__ = ["is_shutdown", "loaded"]

INTERRUPTIONS = (("dramatiq.threading", "Interrupt"), ("rq.timeouts", "BaseTimeoutException"))
SHUTDOWNS = (("dramatiq.middleware.shutdown", "Shutdown"),)


def loaded() -> tuple[type[BaseException], ...]:
    """The classes that interrupt a body in this process."""
    return _loaded(INTERRUPTIONS)


def is_shutdown(error: BaseException) -> bool:
    """Whether it is the worker's end, which says nothing against the execution; a time limit may do so."""
    return isinstance(error, _loaded(SHUTDOWNS))


def _loaded(names: tuple[tuple[str, str], ...]) -> tuple[type[BaseException], ...]:
    return tuple(getattr(sys.modules[module], name) for module, name in names if module in sys.modules)
