"""The examples of the pages run as printed, in a project that has what they name; every link leads somewhere."""

from __future__ import annotations

import sys
import unittest
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from pydantic import BaseModel

from django_reactor import Dispatched, Paused, Reactor, Step, Success, step
from django_reactor.admin import ExecutionAdmin
from django_reactor.models import Execution
from tests.docs.pages import ROOT, Page, page, pages

pytestmark = pytest.mark.django_db


class Account(BaseModel):
    pk: int


class Customer(BaseModel):
    pk: int


class Receipt(BaseModel):
    id: int


class Row(BaseModel):
    sku: str


class Report(BaseModel):
    done: int
    failed: list[str]


class Upload(BaseModel):
    skus: list[str]

    def rows(self) -> Iterator[dict[str, str]]:
        return ({"sku": sku} for sku in self.skus)


class ShipOrder(Reactor):
    receipt: Any

    @step
    def book(self, receipt: Any) -> None: ...


class Provision(Reactor):
    user: User

    @step
    def provide(self, user: User) -> None: ...


PROJECT = {
    declared.__name__: declared
    for declared in (Account, Customer, Receipt, Report, Row, Upload, User, ShipOrder, Provision)
} | {"Order": Group}  # any model

Run = Callable[..., ModuleType]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Carry the examples of a page out, as the body of a module."""

    def run(name: str, *chosen: int, **given: Any) -> ModuleType:
        module = ModuleType(f"tests.docs.of_{name}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        vars(module).update(PROJECT, **given)
        examples = page(name).examples()
        for number in chosen or range(len(examples)):
            exec(compile(examples[number], f"{name}.md", "exec", dont_inherit=True), vars(module))
        return module

    return run


@pytest.mark.parametrize("name", ["composing", "coordination", "maps", "ordered", "stores", "workers"])
def test_what_a_page_declares_can_be_declared(run: Run, name: str) -> None:
    assert page(name).examples()
    run(name)


def test_a_step_that_overrides_another_calls_it(run: Run) -> None:
    assert run("reactors").MoveFragile.run(sku="vase").unwrap() == {"pack": ["straw", "vase"]}


def test_inputs_that_clean_refuses_are_no_start(run: Run) -> None:
    run("testing", 0, Rent=run("reactors").Rent)


def test_a_step_is_called_alone(run: Run) -> None:
    class ChargeCard(Step[int]):
        amount: int
        token: str

        def run(self) -> int:
            return self.amount

    run("testing", 0, 2, Rent=run("reactors").Rent, ChargeCard=ChargeCard)


@pytest.mark.django_db(transaction=True)
def test_a_test_case_that_commits_sees_what_a_worker_did(run: Run, settings: Any) -> None:
    settings.DJANGO_REACTOR = {"BACKEND": "immediate"}
    module = run("testing", 0, 1, Rent=run("reactors").Rent)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(module.RentTest).run(result)
    assert (result.testsRun, result.errors, result.failures) == (1, [], [])


class TestInterrupts:
    @pytest.fixture
    def asked(self, run: Run) -> ModuleType:
        """With a step that gives what the correlation id is made of."""
        module = run("interrupts", 0, notify_manager=lambda submit: None)

        class Purchase(module.Purchase):  # type: ignore[misc, name-defined]  # it is there once the page was run
            @step
            def submit(self, amount: int) -> Any:
                return module.Submitted(id=17, total=amount)

            @step
            def order(self, approval: Any) -> Group:
                return Group.objects.create(name="17")

        class Submitted(BaseModel):
            id: int
            total: int

        vars(module).update(Purchase=Purchase, Submitted=Submitted)
        Submitted.__module__, Submitted.__qualname__ = module.__name__, "Submitted"
        return module

    @pytest.mark.parametrize("number", range(3))
    def test_each_way_to_answer_is_accepted(self, asked: ModuleType, number: int) -> None:
        answers = [line for line in page("interrupts").examples()[1].splitlines() if ".resume(" in line]
        assert isinstance(asked.Purchase.run(amount=200), Paused)
        execution = Execution.objects.get()
        assert isinstance(eval(answers[number], vars(asked), {"execution": execution}), Dispatched)

    def test_what_is_below_the_limit_does_not_pause(self, asked: ModuleType) -> None:
        assert isinstance(asked.Purchase.run(amount=50), Success)

    def test_it_waits_for_three_days(self, asked: ModuleType) -> None:
        (wait,) = asked.Purchase.run(amount=200).waits
        created = Execution.objects.get().created_at
        assert timedelta(days=3) <= wait.timeout_at - created < timedelta(days=3, minutes=1)


def test_a_subclass_decides_by_row(run: Run) -> None:
    try:
        ours = run("admin").OurExecutionAdmin
        assert isinstance(admin.site._registry[Execution], ours)
    finally:
        admin.site.unregister(Execution)
        admin.site.register(Execution, ExecutionAdmin)


@pytest.mark.parametrize("of", pages(), ids=lambda of: of.path.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading_of_it(of: Page) -> None:
    for link in of.links():
        name, _, anchor = link.partition("#")
        path = of.path.parent / name if name else of.path
        assert path.exists(), link
        assert not anchor or anchor in Page(path).anchors(), link
