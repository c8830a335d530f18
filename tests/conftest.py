"""What all layers of tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import override_settings
from hypothesis import settings as hypothesis_settings

from django_reactor import runtime
from django_reactor.core import registry
from django_reactor.queues import immediate
from tests.contract.committed import environment_of_processes
from tests.services import in_ci, require_database

# A deadline would measure the machine. In CI a failure must be the change's, not the random numbers'.
hypothesis_settings.register_profile("local", deadline=None)
hypothesis_settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis_settings.load_profile("ci" if in_ci() else "local")


def app_label_of(module: str) -> str | None:
    """Each test module is an app of its own, so that two of them may name a class alike."""
    return module.rpartition(".")[2] if module.startswith("tests.") else runtime.app_label_of(module)


registry.set_app_label_resolver(app_label_of)


def pytest_sessionstart() -> None:
    require_database(connection.vendor)


@pytest.fixture(scope="session")
def database() -> str:
    """Django's name of the database's kind: sqlite, postgresql or mysql (MariaDB too)."""
    return connection.vendor


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory: pytest.TempPathFactory, database: str) -> None:
    """On SQLite a file of this run's own, since a database in memory cannot be shared with threads and processes."""
    if database == "sqlite":
        path = tmp_path_factory.mktemp("database") / "test.sqlite3"
        connection.settings_dict["TEST"]["NAME"] = str(path)


@pytest.fixture
def environment_of_a_process(transactional_db: None) -> dict[str, str]:
    """Environment variables that make another process of the test project work on the tests' database."""
    return environment_of_processes()


@pytest.fixture(autouse=True)
def _no_message_is_left_to_the_next_test() -> Iterator[None]:
    yield
    immediate.discard()


@pytest.fixture
def delivered_at_once() -> Iterator[None]:
    """What is handed off in a test is delivered in its own thread."""
    with override_settings(DJANGO_REACTOR={"BACKEND": "immediate"}):
        yield
