"""The test project with the reactors of the acceptance tests, for their worker processes. The
environment may set some numbers of `DJANGO_REACTOR`, by their names."""

import os

from testproject.settings import *  # noqa: F403
from testproject.settings import DJANGO_REACTOR, INSTALLED_APPS

NUMBERS = {
    "LEASE_TTL": float,
    "SWEEP_INTERVAL": float,
    "SNOOZE_DELAY": float,
    "SNOOZE_JITTER": float,
    "MAX_SNOOZES": int,
}

INSTALLED_APPS = [*INSTALLED_APPS, "tests.worked", "tests.killed", "tests.proof"]
DJANGO_REACTOR = {
    **DJANGO_REACTOR,
    **{name: kind(os.environ[name]) for name, kind in NUMBERS.items() if os.environ.get(name)},
}
