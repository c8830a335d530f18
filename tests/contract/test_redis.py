"""What the stores on Redis add to their contract: a server that is away, was started again, or has forgotten."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from django.test import override_settings

from django_reactor.coordination.redis.holds import RedisHolds
from django_reactor.coordination.redis.rates import RedisRateLimits
from django_reactor.engine.coordination_ports import Hold, HoldKind, Wanted, Window
from django_reactor.exceptions import ConfigurationError, ContentionError, StoreUnavailable
from testproject.brokers import redis_url
from tests.contract.committed import together
from tests.contract.coordination_stores import lock, semaphore, take
from tests.contract.redis_store import RedisStore, redis_at, redis_store
from tests.private_redis import Server, private_redis
from tests.services import require_service

WEEK = Window(name="week", seconds=7 * 86400, limit=3)
SHORT = 0.4
"""Seconds of a ttl that a test waits for."""

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture
def redis() -> Iterator[RedisStore]:
    require_service("redis")
    with redis_store(redis_url(os.environ)) as store:
        yield store


@pytest.fixture
def server() -> Iterator[Server]:
    """One that seems to have run for long."""
    with private_redis() as server, redis_at(server.url):
        RedisStore().has_run_for_long()
        yield server


def forget(server: Server, holds: RedisHolds) -> None:
    server.kill()
    server.start()


def empty(server: Server, holds: RedisHolds) -> None:
    RedisStore().client.flushall()


LOSSES = pytest.mark.parametrize("lose", [forget, empty], ids=["started again", "emptied"])


@LOSSES
def test_after_a_loss_nobody_gets_what_may_still_be_held_and_then_all_goes_on_by_itself(
    server: Server, lose: Callable[[Server, RedisHolds], None]
) -> None:
    holds = RedisHolds()
    holds.release([take(holds, lock("unused"))])
    held = take(holds, lock(ttl=SHORT))
    lose(server, holds)
    lost = time.monotonic()
    while (next_one := holds.take(uuid4(), 1, lock(ttl=SHORT))) is None:
        assert time.monotonic() < lost + 20
    assert time.monotonic() >= lost + SHORT - 0.05, "until then the owner from before may have been at work"
    assert holds.extend([held]) == holds.release([held]) == set()
    assert holds.extend([next_one]) == {next_one}


def test_a_server_that_kept_since_when_it_runs_may_have_forgotten_the_newest_holds(server: Server) -> None:
    holds, redis = RedisHolds(), RedisStore()
    take(holds, lock("another"))
    kept = set(redis.keys())
    take(holds, lock(ttl=SHORT))
    redis.client.delete(*set(redis.keys()) - kept)
    redis.has_come_back()
    lost = time.monotonic()
    assert holds.take(uuid4(), 1, lock(ttl=SHORT)) is None
    while holds.take(uuid4(), 1, lock(ttl=SHORT)) is None:
        assert time.monotonic() < lost + 20
    assert time.monotonic() >= lost + SHORT - 0.05, "until then the owner from before may have been at work"


@LOSSES
def test_after_a_loss_rate_limits_begin_at_nought(server: Server, lose: Callable[[Server, RedisHolds], None]) -> None:
    rates = RedisRateLimits()
    for _ in range(3):
        assert rates.charge("stripe", [WEEK]) is None
    lose(server, RedisHolds())
    assert rates.charge("stripe", [WEEK]) is None


def test_what_a_server_kept_over_its_restart_is_still_held() -> None:
    with private_redis(persistent=True) as server, redis_at(server.url):
        RedisStore().has_run_for_long()
        holds = RedisHolds()
        held = take(holds, lock())
        forget(server, holds)
        assert holds.extend([held]) == {held}
        assert holds.take(uuid4(), 1, lock()) is None
        assert take(holds, lock(), held.owner, 2).slot == held.slot
        assert [holder.epoch for holder in holds.holders(HoldKind.LOCK, held.wanted.key)] == [2]


def test_a_server_that_is_away_is_said_so_and_found_again_by_itself(server: Server) -> None:
    holds, rates = RedisHolds(), RedisRateLimits()
    held = take(holds, lock())
    server.kill()
    attempts: list[Callable[[], object]] = [
        lambda: holds.take(uuid4(), 1, lock()),
        lambda: holds.extend([held]),
        lambda: holds.release([held]),
        lambda: holds.holders(HoldKind.LOCK, "customer:1"),
        lambda: holds.held_by(held.owner),
        lambda: rates.charge("stripe", [WEEK]),
    ]
    for attempt in attempts:
        with pytest.raises(StoreUnavailable, match=r"^Redis \(the cache 'redis'\) does not answer: "):
            attempt()
    server.start()
    assert holds.extend([held]) == set()
    assert rates.charge("stripe", [WEEK]) is None


def test_a_store_that_is_away_is_contention_with_the_key_and_without_a_time(server: Server) -> None:
    server.kill()
    with pytest.raises(ContentionError) as caught:
        RedisHolds().take(uuid4(), 1, lock("customer:7"))
    assert (caught.value.key, caught.value.retry_after) == ("customer:7", None)


def test_a_server_that_refuses_is_said_so(server: Server) -> None:
    RedisStore().client.config_set("maxmemory", "1")
    with pytest.raises(StoreUnavailable, match="maxmemory"):
        RedisHolds().take(uuid4(), 1, lock())


def test_scripts_that_the_server_has_forgotten_are_loaded_again(server: Server) -> None:
    holds = RedisHolds()
    held = take(holds, lock())
    RedisStore().client.script_flush()
    assert holds.extend([held]) == {held}


@pytest.mark.parametrize("wanted", [lock(), semaphore(limit=1)], ids=["lock", "semaphore of one"])
def test_of_many_takers_at_once_one_gets_it(redis: RedisStore, wanted: Wanted) -> None:
    taken = together(8, lambda _: redis.holds.take(uuid4(), 1, wanted))
    assert sum(hold is not None for hold in taken) == 1


def test_a_semaphore_is_never_overfull(redis: RedisStore) -> None:
    taken = [h for h in together(8, lambda _: redis.holds.take(uuid4(), 1, semaphore(limit=3))) if h is not None]
    assert {hold.slot for hold in taken} == {0, 1, 2}
    assert len(taken) == 3


def test_nothing_is_kept_of_what_was_released(redis: RedisStore) -> None:
    def one(owner: object) -> Hold:
        return take(redis.holds, lock(f"customer:{owner}"))

    redis.holds.release([one(n) for n in range(5)])
    assert redis.keys() == []


def test_nothing_is_kept_of_a_slot_that_lapsed_when_its_owner_has_another(redis: RedisStore) -> None:
    owner = uuid4()
    first = take(redis.holds, semaphore(limit=2))
    lapsed = take(redis.holds, semaphore(limit=2, ttl=10), owner)
    redis.holds.release([first])
    redis.after(20)
    again = take(redis.holds, semaphore(limit=2), owner)
    assert (lapsed.slot, again.slot) == (1, 0)
    redis.holds.release([again])
    assert redis.keys() == []


def test_what_nobody_extends_or_releases_is_forgotten_by_the_server_itself(redis: RedisStore) -> None:
    take(redis.holds, lock())
    take(redis.holds, semaphore())
    redis.rate_limits.charge("stripe", [WEEK])
    names = redis.keys()
    assert len(names) == 5
    assert all(0 < redis.client.ttl(name) <= 8 * 86400 for name in names)


def test_a_key_is_known_as_long_as_any_of_its_holders_may_hold(redis: RedisStore) -> None:
    """And a day more, for zombies."""
    take(redis.holds, semaphore(ttl=10 * 86400))
    take(redis.holds, semaphore(ttl=10))
    names = redis.keys()
    (name,) = (name for name in names if b":semaphore:" in name)
    assert redis.client.ttl(name) > 10 * 86400


def test_keys_are_in_one_place_of_a_cluster_and_begin_as_the_caches_do(redis: RedisStore) -> None:
    take(redis.holds, lock("{other} place"))
    redis.rate_limits.charge("{third} place", [WEEK])
    names = redis.keys()
    assert {name.decode().split("}")[0] for name in names} == {f"{redis.prefix}:{{django_reactor"}


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ("django.core.cache.backends.locmem.LocMemCache", "is a django.core.cache.backends.locmem.LocMemCache"),
        (None, "there is no cache 'redis'"),
    ],
)
def test_a_cache_that_is_no_redis_is_an_error_of_the_configuration(backend: str | None, said: str) -> None:
    caches = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
    if backend is not None:
        caches["redis"] = {"BACKEND": backend}
    with override_settings(CACHES=caches), pytest.raises(ConfigurationError, match=said):
        RedisHolds().take(uuid4(), 1, lock())
