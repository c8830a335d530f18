"""Real processes, killed for real, on the database that `DATABASE` chooses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker

from tests.contract.committed import transactional_db
from tests.crash.processes import Processes
from tests.crash.reactors import TABLE

__all__ = ["effects_table", "no_effects", "processes", "transactional_db"]


@pytest.fixture(scope="session")
def effects_table(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """A table of the bodies' own. It goes with the test database."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} (effect varchar(100) NOT NULL)")


@pytest.fixture(autouse=True)
def no_effects(transactional_db: None, effects_table: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {TABLE}")


@pytest.fixture(scope="session")
def processes(effects_table: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    started = Processes(tmp_path_factory.mktemp("reports"))
    yield started
    started.close()
