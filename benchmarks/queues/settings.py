"""Django's settings of the contender `reactor`, as docs/workers recommends them: connections are kept."""

import os

from benchmarks.settings import DATABASES, DEFAULT_AUTO_FIELD, SECRET_KEY, USE_TZ
from testproject import brokers

__all__ = ["DATABASES", "DEFAULT_AUTO_FIELD", "SECRET_KEY", "USE_TZ"]

INSTALLED_APPS = ["django_dramatiq", "django_reactor", "benchmarks.queues"]
DATABASES["default"] |= {"CONN_MAX_AGE": 600}
DRAMATIQ_BROKER = brokers.dramatiq(
    "dramatiq.brokers.redis.RedisBroker",
    {"url": os.environ["BENCHMARK_REDIS"], "namespace": f"{os.environ['BENCHMARK_PREFIX']}-reactor"},
).settings["DRAMATIQ_BROKER"]
