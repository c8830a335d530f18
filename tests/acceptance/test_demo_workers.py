"""`manage.py demo` on real brokers, while its worker processes are killed."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from django.conf import ENVIRONMENT_VARIABLE
from django.core.management.base import CommandError

from testproject.databases import postgres
from testproject.shop.demo.workers import Fleet
from tests.acceptance.test_demo import CLAIMS, MOST, demo, outcomes
from tests.services import require_service

ORDERS = ("--limit", "60", "--faults", "0.3")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """How the orders end when nobody is killed."""
    run = demo(tmp_path_factory.mktemp("undisturbed") / "demo.sqlite3", *ORDERS)
    assert run.returncode == 0, run.stdout + run.stderr
    return outcomes(run.stdout)


def assert_workers_died_and_nothing_else(run: subprocess.CompletedProcess[str], undisturbed: str) -> None:
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"Worker processes killed: [1-9]", run.stdout), run.stdout
    assert outcomes(run.stdout) == undisturbed
    assert run.stdout.count("holds") == CLAIMS


@pytest.mark.parametrize(
    ("broker", "way"), [("redis", ()), ("rabbitmq", ()), ("redis", ("--import",))], ids=["redis", "rabbitmq", "import"]
)
def test_workers_that_are_killed_change_neither_the_outcomes_nor_the_books(
    tmp_path: Path, broker: str, way: tuple[str, ...], undisturbed: str
) -> None:
    """Whether the orders are placed one by one or by an import."""
    require_service(broker)
    run = demo(tmp_path / "demo.sqlite3", *ORDERS, *way, "--broker", broker, "--kill-workers", "0.5")
    assert_workers_died_and_nothing_else(run, undisturbed)


def test_on_a_server_the_demo_has_a_database_of_its_own_and_drops_it(undisturbed: str) -> None:
    require_service("postgres")
    require_service("redis")
    run = demo(None, *ORDERS, "--broker", "redis", "--kill-workers", "0.5", DATABASE="postgres")
    assert_workers_died_and_nothing_else(run, undisturbed)
    (name,) = re.findall(r"in (django_reactor_demo_\w{8})", run.stdout)
    assert name not in databases_of_demos()


def databases_of_demos() -> set[str]:
    import psycopg

    server = {name.lower(): value for name, value in postgres(os.environ).items() if name in ("HOST", "PORT", "USER")}
    with psycopg.connect(**server, password=postgres(os.environ)["PASSWORD"], dbname="postgres") as there:
        rows = there.execute("SELECT datname FROM pg_database WHERE datname LIKE 'django_reactor_demo_%'")
        return {name for (name,) in rows}


def test_a_worker_that_ends_by_itself_ends_the_demo_with_a_word_on_where_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "no.such.settings")
    log = tmp_path / "workers.log"
    with Fleet(1, log=log) as fleet, pytest.raises(CommandError, match=re.escape(f"see {log}")):
        await_the_end_of(fleet)
    assert "no.such" in log.read_text() or "No module named 'no'" in log.read_text()


def await_the_end_of(fleet: Fleet) -> None:
    deadline = time.monotonic() + MOST
    while time.monotonic() < deadline:
        fleet.tend(0)
        time.sleep(0.05)
    pytest.fail("the worker did not end")
