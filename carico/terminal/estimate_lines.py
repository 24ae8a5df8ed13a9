"""Estimates as lines of text: the output of `replay`, and of `top` without a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from carico.types import Estimate

LINES = 30  # of a recording's table: more do not fit on a screen


def heading(dimensions: tuple[str, ...]) -> str:
    usage = "".join(f"{_short(name):>10}" for name in dimensions)
    cost = "".join(f"{'cost ' + _short(name):>12}" for name in dimensions)
    return f"{'t':>9}{'pods':>6}{usage}{cost}{'k':>8}{'fit':>8}  mode"


def line(estimate: Estimate, start: float = 0.0) -> str:
    usage = "".join(f"{value:>10.3f}" for value in estimate.usage)
    cost = "".join(f"{value:>12.4f}" for value in estimate.cost_ratio)
    head = f"{estimate.at - start:>9.1f}{estimate.pods:>6}{usage}{cost}"
    return f"{head}{estimate.signal_k:>8.2f}{estimate.pod_capacity:>8.2f}  {estimate.mode.value}"


def table(estimates: Sequence[Estimate], dimensions: tuple[str, ...]) -> str:
    """At most LINES of them, evenly spaced."""
    step = max(1, -(-len(estimates) // LINES))
    shown = [line(estimate) for estimate in estimates[::step]]
    left_out = [f"(one line in {step}; --json prints all)"] if step > 1 else []
    return "\n".join([heading(dimensions), *shown, *left_out])


def _short(name: str) -> str:
    return {"memory": "mem", "memory_pressure": "mem psi", "io_pressure": "io psi", "network": "net"}.get(name, name)
