"""Which store of coordination a project chooses, and what is said of a choice that cannot work."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.test import override_settings

from django_reactor import conf
from django_reactor.coordination.checks import check_store
from django_reactor.coordination.database.holds import DatabaseHolds
from django_reactor.coordination.database.rates import DatabaseRateLimits
from django_reactor.coordination.redis.holds import RedisHolds
from django_reactor.coordination.redis.rates import RedisRateLimits
from django_reactor.coordination.selection import chosen_holds, chosen_rate_limits

REDIS = {"COORDINATION": "redis", "REDIS_ALIAS": "redis"}
ONLY_LOCAL = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}


def test_the_database_is_chosen_unless_the_project_says_otherwise() -> None:
    with override_settings(DJANGO_REACTOR={}):
        assert isinstance(chosen_holds(), DatabaseHolds)
        assert isinstance(chosen_rate_limits(), DatabaseRateLimits)
        assert check_store() == []


def test_redis_is_chosen_by_the_setting() -> None:
    with override_settings(DJANGO_REACTOR=REDIS):
        assert isinstance(chosen_holds(), RedisHolds)
        assert isinstance(chosen_rate_limits(), RedisRateLimits)
        assert check_store() == []


def e300(**settings: Any) -> CheckMessage:
    with override_settings(DJANGO_REACTOR=REDIS, **settings):
        (message,) = check_store()
    assert message.id == "django_reactor.E300"
    return message


def test_e300_the_cache_is_not_there() -> None:
    message = e300(CACHES=ONLY_LOCAL)
    assert message.msg == "COORDINATION is 'redis', but there is no cache 'redis'."
    assert message.hint == "Add it to CACHES, or set REDIS_ALIAS."


def test_e300_the_cache_is_no_redis() -> None:
    message = e300(CACHES=ONLY_LOCAL | {"redis": ONLY_LOCAL["default"]})
    assert "is a django.core.cache.backends.locmem.LocMemCache" in message.msg
    assert "django_redis.cache.RedisCache" in str(message.hint)


def test_e300_django_redis_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "django_redis", None)
    message = e300()
    assert message.msg == "COORDINATION is 'redis', but django-redis is not installed."
    assert "install django-redis" in str(message.hint)


def test_settings_that_cannot_be_read_are_reported_once() -> None:
    with override_settings(DJANGO_REACTOR={"COORDINATION": 3}):
        assert check_store() == []


@pytest.mark.parametrize("value", ["Redis", "memcached", "", None, 3, ["redis"]])
def test_a_store_that_there_is_not_is_an_error(value: object) -> None:
    ((problem, cure),) = conf.problems({"COORDINATION": value})
    assert problem == f"DJANGO_REACTOR['COORDINATION'] is {value!r}"
    assert cure in ("It must be 'database' or 'redis'.", "It must be a string.")


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"stripe": {"second": 3, "minute": 100}},
        {"a": {"hour": 1}, "b": {"day": 9}},
        {"a": {"week": 1, "month": 2, "year": 3}, "b": {10: 5}},
    ],
)
def test_rate_limits_have_names_windows_and_counts(limits: object) -> None:
    assert conf.problems({"RATE_LIMITS": limits}) == []


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ([("stripe", {"second": 3})], "['RATE_LIMITS'] is [('stripe', {'second': 3})]"),
        ({"stripe": 3}, "['RATE_LIMITS']['stripe'] is 3"),
        ({"stripe": {}}, "['RATE_LIMITS']['stripe'] is {}"),
        ({"stripe": {"seconds": 3}}, "['RATE_LIMITS']['stripe'] has no window 'seconds'"),
        ({"stripe": {0.5: 3}}, "['RATE_LIMITS']['stripe'] has no window 0.5"),
        ({"stripe": {1: 3, "second": 3}}, "['RATE_LIMITS']['stripe'] has the window 'second' twice"),
        ({"stripe": {"second": 0}}, "['RATE_LIMITS']['stripe']['second'] is 0"),
        ({"stripe": {"second": True}}, "['RATE_LIMITS']['stripe']['second'] is True"),
        ({"stripe": {"second": "3"}}, "['RATE_LIMITS']['stripe']['second'] is '3'"),
        ({"": {"second": 3}}, "['RATE_LIMITS'] has the name ''"),
        ({7: {"second": 3}}, "['RATE_LIMITS'] has the name 7"),
    ],
)
def test_rate_limits_of_another_shape_are_errors(limits: object, problem: str) -> None:
    ((said, cure),) = conf.problems({"RATE_LIMITS": limits})
    assert said == f"DJANGO_REACTOR{problem}"
    assert cure
