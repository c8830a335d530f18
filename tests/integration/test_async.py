"""`async def` bodies, and the a-twins, with and without a running event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.db import connections
from django.test import override_settings

from django_reactor import Dispatched, Failure, Reactor, Step, Success, fail, skip, step
from django_reactor.exceptions import InputError
from tests.stored import execution_of


def in_a_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """As Django's own async tests run: synchronous code in this thread, on its connection."""

    @functools.wraps(test)
    def wrapper() -> None:
        async_to_sync(test)()

    return wrapper


pytestmark = pytest.mark.django_db(transaction=True)


class Fetch(Step[str]):
    url: str

    async def run(self) -> str:
        await asyncio.sleep(0)
        return f"body of {self.url}"


class Mixed(Reactor[Any]):
    broken: bool = False

    @step
    async def fetched(self) -> str:
        await asyncio.sleep(0)
        return "remote"

    @fetched.undo
    async def forget(self, result: str) -> str:
        await asyncio.sleep(0)
        return f"forgot {result}"

    page = step(Fetch)

    url: str = "/"

    @step
    def stored(self, fetched: str) -> int:
        return Group.objects.create(name=fetched).pk

    @step
    async def last(self, stored: int, broken: bool) -> int:
        group = await Group.objects.aget(pk=stored)
        if broken:
            try:
                fail(f"no {group.name}")
            except Exception:  # noqa: BLE001
                pytest.fail("a helper must pass an `except Exception`")
        skip("done", value=stored)


@in_a_loop
async def test_arun_runs_async_and_sync_bodies() -> None:
    result = await Mixed.arun()
    assert isinstance(result, Success)
    assert result.value["page"] == "body of /"
    execution = await sync_to_async(execution_of)(result)
    assert execution.status == "completed"
    assert await execution.aresult() == result
    undone = await execution.aundo("enough")
    assert undone.is_failure
    assert await execution.entries.filter(value='"forgot remote"').aexists()


class Named(Reactor[Any]):
    """Its inputs are called like parameters of our own functions."""

    cls: int
    function: int
    inputs: int

    @step
    def total(self, cls: int, function: int, inputs: int) -> int:
        return cls + function + inputs


class NamedStep(Step[int]):
    cls: int
    function: int

    def run(self) -> int:
        return self.cls + self.function


@in_a_loop
async def test_an_input_may_be_called_like_any_parameter_of_ours() -> None:
    given = {"cls": 1, "function": 2, "inputs": 3}
    for result in (
        await Named.arun(**given),
        await Named.using(tags=["t"]).arun(**given),
        await sync_to_async(Named.run)(**given),
    ):
        assert result.unwrap() == {"total": 6}
    assert (await NamedStep.acall(cls=1, function=2)).unwrap() == 3
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.integration.test_delivery_costs.Outbox"}):
        assert (await Named.aenqueue(**given)).is_dispatched
        assert (await Named.using(run_after=3600).aenqueue(**given)).is_dispatched


@in_a_loop
async def test_arun_several_at_once() -> None:
    class One(Reactor[int]):
        number: int

        class Meta:
            returns = "doubled"

        @step
        async def doubled(self, number: int) -> int:
            await asyncio.sleep(0)
            return 2 * number

    results = await asyncio.gather(*(One.arun(number=number) for number in range(5)))
    assert [result.unwrap() for result in results] == [0, 2, 4, 6, 8]


@in_a_loop
async def test_the_other_twins_do_the_same() -> None:
    result = await Mixed.arun(broken=True)
    assert isinstance(result, Failure)
    assert result.message == "no remote"
    execution = await sync_to_async(execution_of)(result)
    assert (await execution.ajoin(timeout=1)).is_failure
    await sync_to_async(Group.objects.all().delete)()
    assert (await execution.aretry()).is_failure
    assert (await Fetch.acall(url="/a")).unwrap() == "body of /a"


@override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"})
@in_a_loop
async def test_aenqueue_stores_it_for_a_worker() -> None:
    result = await Mixed.using(tags=["later"]).aenqueue()
    assert isinstance(result, Dispatched)
    execution = await sync_to_async(execution_of)(result)
    assert (execution.status, execution.tags) == ("pending", ["later"])
    with pytest.raises(InputError):
        await Mixed.aenqueue(broken="perhaps")
    await execution.acancel("not needed")
    assert (await execution.ajoin(timeout=5)).is_failure


def test_run_runs_async_bodies_too() -> None:
    assert Mixed.run().is_success
    result = Mixed.run(broken=True)
    assert isinstance(result, Failure)


def test_an_async_body_that_fails_is_located_at_the_users_line() -> None:
    class Broken(Reactor):
        @step
        async def one(self) -> None:
            raise ValueError("in the loop")

    result = Broken.run()
    assert isinstance(result, Failure)
    assert result.file == __file__
    assert 'raise ValueError("in the loop")' in result.snippet


def test_arun_leaves_no_connection_open_in_the_thread_it_ran_in() -> None:
    async def main() -> list[bool]:
        await Mixed.arun()
        return await sync_to_async(lambda: [c.connection is not None for c in connections.all(initialized_only=True)])()

    assert not any(asyncio.run(main()))
