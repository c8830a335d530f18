"""A process killed while it coordinates by a store that takes no part in its transactions: what it took for a row that
it never stored, or did not free after its end, is held until the ttl is over and no longer."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from django_reactor import Success, actions, runtime
from django_reactor.core.statuses import Status
from django_reactor.engine.coordination_ports import HoldKind
from django_reactor.engine.crash_points import CrashPoint
from django_reactor.engine.hold_keeper import HoldKeeper
from django_reactor.engine.leases import boottime
from django_reactor.models import Execution
from testproject.brokers import redis_url
from tests.contract.redis_store import PREFIX, RedisStore, redis_store
from tests.crash.processes import Processes, expire, only_execution
from tests.crash.reactors import Guarded, effects
from tests.services import require_service

ALL = Counter(["reserve", "charge", "ship"])


@pytest.fixture
def store() -> Iterator[RedisStore]:
    require_service("redis")
    with redis_store(redis_url(os.environ)) as found:
        yield found


@pytest.fixture(scope="module")
def on_redis(effects_table: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Processes that coordinate there."""
    processes = Processes(tmp_path_factory.mktemp("reports"), COORDINATION="redis", CACHE_PREFIX=PREFIX)
    yield processes
    processes.close()


@pytest.fixture(autouse=True)
def here_too(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    here = runtime.services()
    keeper = HoldKeeper(store.holds, boottime)
    coordination = replace(here.coordination, holds=store.holds, rate_limits=store.rate_limits, keeper=keeper)
    monkeypatch.setitem(runtime._made, runtime._PROCESS, replace(here, coordination=coordination))


def is_held(store: RedisStore, key: str) -> bool:
    return bool(store.holds.holders(HoldKind.LOCK, key))


def test_before_the_row_is_stored(on_redis: Processes, store: RedisStore) -> None:
    assert on_redis.run(Guarded, crash_at=(CrashPoint.TAKEN, 1)).was_killed
    assert not Execution.objects.exists()
    assert is_held(store, "guarded")
    assert on_redis.run(Guarded).how == "exit 1"  # LockUnavailable
    store.after(61)
    assert on_redis.run(Guarded).how == "exit 0"
    assert not is_held(store, "guarded")


@pytest.mark.parametrize(
    ("point", "count", "ran_again"),
    [
        (CrashPoint.TAKEN, 2, ""),
        (CrashPoint.ADMITTED, 1, ""),
        (CrashPoint.TAKEN, 3, ""),
        (CrashPoint.BODY_DONE, 2, "charge"),
    ],
)
def test_on_the_way(on_redis: Processes, store: RedisStore, point: CrashPoint, count: int, ran_again: str) -> None:
    assert on_redis.run(Guarded, crash_at=(point, count)).was_killed
    assert is_held(store, "guarded")
    execution_id = only_execution().pk
    expire(execution_id)
    assert isinstance(actions.deliver(execution_id), Success)
    assert effects() == ALL + Counter(filter(None, [ran_again]))
    assert not is_held(store, "guarded")
    assert not is_held(store, "charging")


def test_after_the_end_is_stored(on_redis: Processes, store: RedisStore) -> None:
    assert on_redis.run(Guarded, crash_at=(CrashPoint.BEFORE_RELEASE, 2)).was_killed
    assert only_execution().status == Status.COMPLETED
    assert is_held(store, "guarded")
    store.after(61)
    assert not is_held(store, "guarded")
