"""What the benchmark makes of its measurements."""

from __future__ import annotations

from time import process_time

import pytest

from benchmarks.report import comparison, flatness
from benchmarks.rounds import Measured
from benchmarks.sampling import sampled

MEASURED = Measured(
    rates={"bare": [100.0, 10.0, 1000.0], "reactor": [50.0, 4.0, 900.0]},
    work={"bare": [1e-5, 3e-5, 2e-5], "reactor": [1e-4, 3e-4, 2e-4]},
)


def test_a_ratio_is_the_median_of_the_ratios_within_the_rounds() -> None:
    uneven = Measured(rates={"bare": [100.0, 10.0, 50.0], "reactor": [50.0, 9.0, 10.0]}, work={})

    assert uneven.ratio("reactor", "bare") == pytest.approx(0.5)
    assert uneven.rate("reactor") / uneven.rate("bare") == pytest.approx(0.2)


def test_each_contender_is_shown_with_its_ratio_to_bare_and_to_this_project() -> None:
    reactor = comparison(MEASURED).splitlines()[-1].split()

    assert reactor[:4] == ["reactor", "50", "0.500", "1.00×"]
    assert "200 µs" in " ".join(reactor)


def test_the_cost_of_a_step_is_shown_relative_to_the_shortest_execution() -> None:
    assert flatness({10: 1e-4, 1000: 1.5e-4}) == "cost per step: 10 steps 100 µs (1.00), 1,000 steps 150 µs (1.50)"


def test_samples_name_the_function_that_was_at_work() -> None:
    def busy(seconds: float) -> None:
        until = process_time() + seconds
        while process_time() < until:
            pass

    with sampled() as samples:
        busy(0.05)

    function, share = next(iter(samples.functions().items()))
    assert function.endswith("busy")
    assert share > 0.5
    assert sum(samples.functions().values()) == pytest.approx(1.0)
