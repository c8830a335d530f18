"""Tests whose writes are committed, so that other connections, threads and processes see them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from django.conf import ENVIRONMENT_VARIABLE, settings
from django.db import connection, connections, transaction
from pytest_django import DjangoDbBlocker

from django_reactor.models import (
    Execution,
    Holder,
    JournalEntry,
    Leader,
    MapRun,
    PeriodMark,
    RateCount,
    Ticket,
    TicketSequence,
    Wait,
)

__all__ = [
    "Between",
    "another_session",
    "environment_of_processes",
    "eventually",
    "forget_executions",
    "together",
    "transactional_db",
]

R = TypeVar("R")
TABLES = (Wait, JournalEntry, MapRun, Execution, Holder, RateCount, PeriodMark, Ticket, TicketSequence, Leader)
PATIENCE = 20
"""Seconds after which what was to happen is taken for what never will."""


@pytest.fixture
def transactional_db(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """In the place of pytest-django's, which empties every table of the project after each test: a hundred times
    dearer, and the tests that use this write only to these tables."""
    with django_db_blocker.unblock():
        try:
            yield
        finally:
            forget_executions()


def forget_executions() -> None:
    """Delete what the tables of executions and of coordination hold."""
    with transaction.atomic(), connection.cursor() as cursor:
        for model in TABLES:
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(model._meta.db_table)}")


def environment_of_processes() -> dict[str, str]:
    """Environment variables that make another process of the test project work on the tests' database."""
    return os.environ | {
        ENVIRONMENT_VARIABLE: settings.SETTINGS_MODULE,
        "DATABASE_NAME": str(connection.settings_dict["NAME"]),
    }


@contextmanager
def another_session() -> Iterator[Callable[[Callable[[], R]], Future[R]]]:
    """A thread with database connections of its own. Call it with what it is to do."""
    with ThreadPoolExecutor(1) as thread:
        try:
            yield thread.submit
        finally:
            thread.submit(connections.close_all).result(PATIENCE)


class Between:
    """Acts in another session, right before the n-th statement of this one."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        self.number, self._act = number, act

    def __call__(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        self.number -= 1
        if self.number == 0:
            with another_session() as elsewhere:
                elsewhere(self._act).result(PATIENCE)
        return execute(*arguments)


def together(count: int, what: Callable[[int], R]) -> list[R]:
    """What each of so many threads returns, all let go at the same instant."""
    barrier = threading.Barrier(count)

    def one(number: int) -> R:
        connection.ensure_connection()
        barrier.wait(PATIENCE)
        try:
            return what(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def eventually(holds: Callable[[], object], what: str, *, interval: float = 0.005, within: float = PATIENCE) -> None:
    """Look, every so many seconds, until it holds."""
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not happen within {within:g} seconds"
        time.sleep(interval)
