"""Every adapter of the journal's ports; `DATABASE` chooses what the ORM's works on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import transaction

from django_reactor.engine.execution_ports import Executions, Journal
from django_reactor.engine.ports import Transactions
from django_reactor.engine.records import Lease, NewExecution
from testproject.brokers import redis_url
from tests.contract.committed import transactional_db
from tests.contract.coordination_stores import Database
from tests.contract.coordination_stores import DatabaseStore as OfExecutions
from tests.contract.coordination_stores import Memory as MemoryCoordination
from tests.contract.coordination_stores import Store as Coordination
from tests.contract.redis_store import redis_store
from tests.contract.stores import IN_A_CALLERS_TRANSACTION, BufferedOrm, Memory, Orm, Store, lease_of, new_execution
from tests.services import require_service

__all__ = [
    "coordination",
    "coordination_of_executions",
    "executions",
    "journal",
    "lease",
    "new",
    "orm",
    "store",
    "transactional_db",
    "transactions",
]


STORES: dict[str, type[Memory | Orm]] = {"memory": Memory, "orm": Orm, "buffered orm": BufferedOrm}


@pytest.fixture(params=[*STORES, IN_A_CALLERS_TRANSACTION])
def store(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[Store]:
    if request.param == IN_A_CALLERS_TRANSACTION:
        with transaction.atomic():
            yield Orm()
            transaction.set_rollback(True)
    else:
        yield STORES[request.param]()


OF_EXECUTIONS = ("memory", "database", "database in a caller's transaction")


@pytest.fixture(params=[*OF_EXECUTIONS, "redis"])
def coordination(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[Coordination]:
    """Any store of coordination."""
    if request.param == "redis":
        require_service("redis")
        with redis_store(redis_url(os.environ)) as store:
            yield store
    else:
        with opened(request.param) as of_executions:
            yield of_executions


@pytest.fixture(params=OF_EXECUTIONS)
def coordination_of_executions(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[OfExecutions]:
    """One that is with the executions."""
    with opened(request.param) as store:
        yield store


@contextmanager
def opened(kind: str) -> Iterator[OfExecutions]:
    if kind == "memory":
        yield MemoryCoordination()
    elif kind == "database":
        yield Database()
    else:
        with transaction.atomic():
            yield Database()
            transaction.set_rollback(True)


@pytest.fixture
def orm(transactional_db: None) -> Orm:
    return Orm()


@pytest.fixture
def new(store: Store) -> NewExecution:
    """An execution that has just been started."""
    new = new_execution()
    assert store.executions.start(new)
    return new


@pytest.fixture
def lease(new: NewExecution) -> Lease:
    """The lease of the process that started it."""
    return lease_of(new)


@pytest.fixture
def journal(store: Store, new: NewExecution) -> Journal:
    return store.journal(new)


@pytest.fixture
def executions(store: Store) -> Executions:
    return store.executions


@pytest.fixture
def transactions(store: Store) -> Transactions:
    return store.transactions
