"""Django's settings of this project's own contenders: connections are kept, and the cache of locks is Redis."""

import os
import sys

from benchmarks.settings import DATABASES, DEFAULT_AUTO_FIELD, SECRET_KEY, USE_TZ

__all__ = ["DATABASES", "DEFAULT_AUTO_FIELD", "SECRET_KEY", "USE_TZ"]

CONTENDER = sys.argv[-1]
DJANGO_REACTOR = {"COORDINATION": CONTENDER if CONTENDER == "redis" else "database"}
INSTALLED_APPS = ["django_reactor"]
CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ["BENCHMARK_REDIS"],
        "KEY_PREFIX": os.environ["BENCHMARK_PREFIX"],
    }
}
