"""What an element of a map costs that runs where its map runs, in statements and commits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_reactor import Reactor, Step, map_step, step
from django_reactor.results import MapResults

pytestmark = pytest.mark.django_db(transaction=True)


class Double(Step[int]):
    n: int

    def run(self) -> int:
        return self.n * 2


class TwoSteps(Reactor[int]):
    n: int

    class Meta:
        app_label = "costs"
        returns = "second"

    @step
    def first(self, n: int) -> int:
        return n

    @step
    def second(self, first: int) -> int:
        return first + 1


class Doubled(Reactor[list[int]]):
    count: int

    class Meta:
        app_label = "costs"
        returns = "doubled"

    @map_step(Double)
    def doubled(self, count: int) -> Iterator[dict[str, int]]:
        return ({"n": n} for n in range(count))


class Stepped(Doubled):
    class Meta:
        app_label = "costs"

    @map_step(TwoSteps)
    def doubled(self, count: int) -> Iterator[dict[str, int]]:
        return ({"n": n} for n in range(count))


def statements_of(reactor: type[Doubled], count: int) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        results: MapResults[Any] = reactor.run(count=count).unwrap()  # type: ignore[assignment]
    assert len(results) == count
    return [query["sql"] for query in captured]


@pytest.mark.parametrize(("reactor", "most"), [(Doubled, 10), (Stepped, 11)])
def test_an_element_costs_two_transactions_beside_its_other_entries(reactor: type[Doubled], most: int) -> None:
    statements_of(reactor, 1)  # compiles what is compiled once
    five, six = statements_of(reactor, 5), statements_of(reactor, 6)
    assert len(six) - len(five) <= most
    commits = [sum(sql.startswith("COMMIT") for sql in each) for each in (five, six)]
    assert commits[1] - commits[0] <= 2
