"""Settings of the demo and of the workers that it starts: the test project's, where processes die often."""

from testproject.mail import mail_into
from testproject.settings import *  # noqa: F403
from testproject.settings import DATABASES, DJANGO_REACTOR
from testproject.shop.demo import surroundings

globals().update(mail_into(surroundings.files() / "mail"))

DJANGO_REACTOR = DJANGO_REACTOR | {
    # So short that the recovery of what a killed worker held is seen. A real project keeps the defaults.
    "LEASE_TTL": 5,
    "SWEEP_INTERVAL": 2,
    # So short that waiting for each other takes little time, and so often that nobody gives up while the lock of a
    # killed worker lasts.
    "SNOOZE_DELAY": 0.1,
    "SNOOZE_JITTER": 0.2,
    "MAX_SNOOZES": 1000,
    "CARRY": ["language", "time_zone", "testproject.shop.faults.FaultsCarrier"],
}

SHOP_VISIT_SECONDS = 0.01  # at the stock and at the gateway

if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # Only a power cut can lose what was committed last, and then the demo is run again.
    DATABASES["default"]["OPTIONS"]["init_command"] += "; PRAGMA synchronous=NORMAL"
