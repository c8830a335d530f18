"""Django's settings in a worker of the benchmark. The environment names the store (see `stores`)."""

import os

from testproject.databases import database

SECRET_KEY = "for-benchmarks-only"
INSTALLED_APPS = ["django_reactor"]
DATABASES = {"default": database(os.environ)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

if pragmas := os.environ.get("BENCHMARK_PRAGMAS"):
    DATABASES["default"]["OPTIONS"]["init_command"] = pragmas
