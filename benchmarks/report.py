"""What was measured, as text."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.rounds import STEPS, Measured
from benchmarks.stores import Store

__all__ = ["comparison", "flatness", "heading", "reloading", "split"]

SHOWN_FUNCTIONS = 30


def heading(store: Store, details: Mapping[str, str]) -> str:
    shown = ", ".join(f"{name} {value}" for name, value in details.items())
    return f"\n## {store.name}: {shown}"


def comparison(measured: Measured) -> str:
    """Every contender beside the bare loop and beside this project."""
    lines = [f"{'contender':<10} {'steps/s':>8} {'of bare':>8} {'reactor is':>11} {'CPU/step':>9}  rounds from – to"]
    for name in measured.rates:
        low, high = measured.spread(name)
        lines.append(
            f"{name:<10} {measured.rate(name):>8,.0f} {measured.ratio(name, 'bare'):>8.3f} "
            f"{measured.ratio('reactor', name):>10.2f}× {measured.work_per_step(name) * 1e6:>6,.0f} µs  "
            f"{low:,.0f} – {high:,.0f}"
        )
    return "\n".join([f"an execution of {STEPS} trivial steps, {STEPS + 1} commits", *lines])


def flatness(costs: Mapping[int, float]) -> str:
    first = next(iter(costs.values()))
    shown = ", ".join(f"{size:,} steps {cost * 1e6:,.0f} µs ({cost / first:.2f})" for size, cost in costs.items())
    return f"cost per step: {shown}"


def reloading(steps: int, seconds: float) -> str:
    return f"reloading {steps:,} results: {seconds * 1e3:.1f} ms"


def split(seconds_per_step: float, layers: Mapping[str, float], functions: Mapping[str, float]) -> str:
    """Microseconds a step by the module that asked for the work, then by the innermost function."""
    lines = [f"where {seconds_per_step * 1e6:,.0f} µs a step go, by the module that called"]
    lines += [_share(name, share, seconds_per_step) for name, share in layers.items()]
    lines += ["by function, time of its own"]
    lines += [_share(*item, seconds_per_step) for item in list(functions.items())[:SHOWN_FUNCTIONS]]
    return "\n".join(lines)


def _share(name: str, share: float, seconds: float) -> str:
    return f"{share:>7.1%} {share * seconds * 1e6:>8.1f} µs  {name}"
