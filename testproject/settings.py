"""Settings of the test project. The environment chooses the database (see `databases`), the queue (see `brokers`), the
directory that mails go to (`MAIL_DIRECTORY`), the store of coordination (`COORDINATION`) and `DEBUG=1`."""

import os
from pathlib import Path
from typing import Any

from testproject import brokers
from testproject.databases import database
from testproject.mail import mail_into

BASE_DIR = Path(__file__).resolve().parent

DEBUG = os.environ.get("DEBUG") == "1"
SECRET_KEY = os.environ.get("SECRET_KEY") or "for-the-test-project-only"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_reactor",
    "testproject.shop",
    *brokers.queue(os.environ).apps,
    *brokers.apps_of_tests(),
]

DJANGO_REACTOR: dict[str, Any] = {
    "BACKEND": brokers.queue(os.environ).backend,
    "QUEUE_NAME": brokers.queue_name(os.environ),
    "REDIS_ALIAS": "redis",
}
globals().update(brokers.queue(os.environ).settings)
if coordination := os.environ.get("COORDINATION"):
    DJANGO_REACTOR["COORDINATION"] = coordination

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

ROOT_URLCONF = "testproject.urls"
WSGI_APPLICATION = "testproject.wsgi.application"
STATIC_URL = "static/"

CACHES = brokers.caches(os.environ)
DATABASES = {"default": database(os.environ)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

globals().update(mail_into(os.environ.get("MAIL_DIRECTORY") or BASE_DIR / "mail"))

LANGUAGE_CODE = "en"
USE_TZ = True
TIME_ZONE = "Europe/Paris"  # not UTC, and with a summer time, so that a time taken for UTC shows

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}
