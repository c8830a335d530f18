"""The benchmark as its users run it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from benchmarks.processes import WorkerFailed, workers
from benchmarks.stores import STORES, created
from tests.services import require_service

SHORT = ("--rounds", "1", "--turn", "0.01")


def benchmark(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    """Everything temporary goes into the folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks", *arguments],
        env=os.environ | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_run_prints_ratios_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with benchmark("sqlite", *SHORT, folder=tmp_path) as process:
        printed = process.communicate()[0]

    assert process.returncode == 0
    assert "synchronous NORMAL" in printed
    assert {"bare", "orm", "reactor"} <= {line.split()[0] for line in printed.splitlines() if line}
    assert "1,000 steps" in printed
    assert "reloading 1,000 results" in printed
    assert list(tmp_path.iterdir()) == []


def test_a_profile_says_where_the_time_goes(tmp_path: Path) -> None:
    with benchmark("sqlite", "--profile", "--rounds", "1", "--turn", "0.3", folder=tmp_path) as process:
        printed = process.communicate()[0]

    assert process.returncode == 0
    assert "django_reactor.journal" in printed


def test_a_run_that_is_terminated_drops_its_database(tmp_path: Path) -> None:
    require_service("postgres")
    with benchmark("postgres", "--rounds", "1000", folder=tmp_path) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("## postgres"):
            assert process.poll() is None
        name = f"django_reactor_benchmark_{process.pid}_postgres"
        while not exists(name):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate()

    assert process.returncode == 128 + signal.SIGTERM
    assert not exists(name)


def exists(database: str) -> bool:
    with psycopg.connect(STORES["postgres"].url("postgres"), autocommit=True) as connection:
        return connection.execute("SELECT FROM pg_database WHERE datname = %s", [database]).fetchone() is not None


def test_every_contender_stores_a_row_for_each_commit() -> None:
    with (
        created(STORES["sqlite"], "NORMAL") as environment,
        workers(("bare", "orm", "reactor"), environment, {}) as ready,
    ):
        counts = {}
        for worker in ready:
            before = rows(environment["DATABASE_NAME"])
            worker.run(executions=2, steps=10)
            counts[worker.name] = rows(environment["DATABASE_NAME"]) - before

    assert counts == {"bare": 22, "orm": 22, "reactor": 22}


def rows(database: str) -> int:
    tables = ("bare_entry", "django_reactor_journalentry", "django_reactor_execution")
    with closing(sqlite3.connect(database)) as connection:
        return sum(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)


def test_a_contender_that_ends_is_named() -> None:
    with (
        created(STORES["sqlite"], "NORMAL") as environment,
        pytest.raises(WorkerFailed, match="'nobody'"),
        workers(("nobody",), environment, {}),
    ):
        pass


def test_all_contenders_wait_for_the_disk_alike() -> None:
    with created(STORES["sqlite"], "FULL") as environment:
        shown = subprocess.run(
            [sys.executable, "-c", PRAGMA_OF_DJANGO], env=dict(environment), capture_output=True, text=True, check=True
        )

    assert environment["BENCHMARK_PRAGMAS"].count("synchronous=FULL") == 1
    assert shown.stdout.split() == ["2", "wal"]


PRAGMA_OF_DJANGO = """
import django
django.setup()
from django.db import connection
with connection.cursor() as cursor:
    for name in ("synchronous", "journal_mode"):
        print(cursor.execute(f"PRAGMA {name}").fetchone()[0])
"""
