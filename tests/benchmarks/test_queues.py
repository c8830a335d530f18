"""The benchmark of queues as its users run it, with the contenders that need nothing but what the tests need."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import redis

from benchmarks.queues.turns import Rates
from benchmarks.stores import STORES
from testproject.brokers import redis_url
from tests.services import require_service


def test_a_run_prints_rates_and_latencies_and_leaves_nothing_behind(tmp_path: Path) -> None:
    require_service("postgres")
    require_service("redis")
    command = [
        "raw",
        "reactor",
        "--rounds",
        "1",
        "--number",
        "20",
        "--samples",
        "3",
        "--gather",
        "20",
        "--growth",
        "10",
        "30",
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.queues", *command],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        printed = process.communicate(timeout=300)[0]

    assert process.returncode == 0
    named = [line.split()[0] for line in printed.splitlines() if line]
    assert [named.count(name) for name in ("raw", "reactor")] == [3, 3]  # rates, results and latencies
    grown = re.findall(r"^ +(10|30) +[\d,]+ µs +(\d+) +(\d+)$", printed, re.MULTILINE)
    assert [size for size, *_ in grown] == ["10", "30"]
    assert all(int(megabytes) > 10 for _, *peaks in grown for megabytes in peaks)
    assert databases(process.pid) == []
    assert keys(process.pid) == []
    assert list(tmp_path.iterdir()) == []


def databases(pid: int) -> list[str]:
    with psycopg.connect(STORES["postgres"].url("postgres"), autocommit=True) as connection:
        rows = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", [f"%benchmark_{pid}_%"])
        return [name for (name,) in rows]


def keys(pid: int) -> list[bytes]:
    with redis.Redis.from_url(redis_url(os.environ)) as client:
        return list(client.scan_iter(f"django-reactor-benchmark-{pid}-*"))


def test_the_overall_rate_is_that_of_one_after_the_other() -> None:
    rates = Rates(enqueued=[100.0, 200.0], drained=[100.0, 50.0], work=[0.001, 0.001])
    assert list(rates.overall) == [50.0, 40.0]
    assert rates.ratio(Rates(enqueued=[200.0, 400.0], drained=[200.0, 100.0], work=[0.0, 0.0])) == 0.5
    assert rates.ratio_of_drains(Rates(enqueued=[1.0, 1.0], drained=[200.0, 200.0], work=[0.0, 0.0])) == 0.375
