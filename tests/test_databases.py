"""The environment chooses the test project's database, and the tests' own one is as real as a project's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from testproject.databases import database as chosen

ROOT = Path(__file__).resolve().parent.parent

PRINT_THE_GROUPS = """
import django
django.setup()
from django.contrib.auth.models import Group
from django.db import connection
print(*Group.objects.values_list("name", flat=True))
connection.close()
"""


def test_without_a_choice_the_database_is_a_sqlite_file() -> None:
    assert chosen({})["ENGINE"] == "django.db.backends.sqlite3"
    assert chosen({"DATABASE_NAME": "elsewhere.sqlite3"})["NAME"] == "elsewhere.sqlite3"


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_the_environment_says_where_a_server_is(kind: str) -> None:
    named = {"HOST": "db.example", "PORT": "6000", "USER": "shop", "PASSWORD": "secret"}
    environ = {f"{kind.upper()}_{name}": value for name, value in named.items()}
    settings = chosen(environ | {"DATABASE": kind, "DATABASE_NAME": "orders"})
    assert {name: settings[name] for name in named} == named
    assert settings["NAME"] == "orders"


def test_statements_are_prepared_on_postgres_only_where_the_environment_allows_it() -> None:
    assert chosen({"DATABASE": "postgres"})["OPTIONS"] == {}
    allowed = chosen({"DATABASE": "postgres", "POSTGRES_PREPARE_THRESHOLD": "0"})
    assert allowed["OPTIONS"] == {"prepare_threshold": 0}


def test_an_unknown_database_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ImproperlyConfigured, match="sqlite, postgres, mariadb; got 'oracle'"):
        chosen({"DATABASE": "oracle"})


@pytest.mark.django_db(transaction=True)
def test_another_process_sees_what_a_test_committed(environment_of_a_process: dict[str, str]) -> None:
    Group.objects.create(name="committed")
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRINT_THE_GROUPS],
        cwd=ROOT,
        env=environment_of_a_process,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.stdout.split() == ["committed"], run.stderr


@pytest.mark.django_db
def test_sqlite_runs_with_a_write_ahead_log(database: str) -> None:
    if database != "sqlite":
        pytest.skip("a rule for SQLite")
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA journal_mode")
        assert cursor.fetchone() == ("wal",)
