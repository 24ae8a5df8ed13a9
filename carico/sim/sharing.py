"""Processor sharing between threads, and the resulting kernel counters of each cgroup.

A thread with demand for the share δ of its time alternates between sleeping and a piece of work. When the node is short
of cores each piece takes σ times as long, with the same stretch for all threads; the sleep does not. So a thread uses

    u(δ) = δ / (1 − δ + δσ)        and is runnable for the share u·σ of its time, running or waiting

Σu = cores determines σ, and the mean run queue is σ·cores. Two facts measured on real kernels follow: threads that
always run (δ = 1) add the same to the run queue below and above saturation, and the apparent demand of threads that
sleep rises with the load of the node (10 threads of 30 % duty on 2 cores: 5.3 runnable, not 3).

A cgroup with a CPU limit gets at most its limit. The rest of what it could have had is throttled time, in which its
threads are not runnable.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from carico.types import Vector

CLOSE = 1e-9  # share of the cores by which the sum of all usage may differ from the cores
TRIES = 60


class Shares(NamedTuple):
    usage: Vector  # cores, per cgroup
    some: Vector  # share of time in which at least one of the cgroup's threads waits for a core, or is throttled
    throttled: Vector  # share of time in which the cgroup is throttled
    stretch: float  # σ


def share(whole: Vector, part: Vector, limit: Vector, cores: float) -> Shares:
    """Cgroups of `whole` threads that are always runnable and one with demand for the share `part` of its time.

    >>> none = np.array([np.inf])
    >>> alone = share(np.array([1.0]), np.array([0.5]), none, cores=2.0)
    >>> alone.usage.tolist(), alone.stretch
    ([1.5], 1.0)
    >>> full = share(np.array([4.0]), np.array([0.0]), none, cores=2.0)
    >>> full.usage.tolist(), full.stretch, full.some.round(2).tolist()
    ([2.0], 2.0, [0.94])
    """
    stretch = _stretch(whole, part, limit, cores)
    wanted = _wanted(whole, part, stretch)
    usage = np.minimum(wanted, limit)
    throttled = np.where(wanted > limit, 1.0 - limit / np.maximum(wanted, 1e-12), 0.0)
    sleeper_waits = part * (stretch - 1.0) / (1.0 - part + part * stretch)
    free = stretch**-whole * (1.0 - sleeper_waits) * (1.0 - throttled)
    return Shares(usage, 1.0 - free, throttled, stretch)


def _wanted(whole: Vector, part: Vector, stretch: float) -> Vector:
    return whole / stretch + part / (1.0 - part + part * stretch)


def _stretch(whole: Vector, part: Vector, limit: Vector, cores: float) -> float:
    """σ ≥ 1 with Σu = cores: Newton's method, bracketed because the function has kinks at limits."""
    total = float(np.minimum(whole + part, limit).sum())
    if total <= cores * (1.0 + CLOSE):
        return 1.0
    low, high, stretch = 1.0, np.inf, total / cores
    for _ in range(TRIES):
        wanted = _wanted(whole, part, stretch)
        over = float(np.minimum(wanted, limit).sum()) - cores
        if abs(over) <= CLOSE * cores:
            break
        if over > 0:
            low = stretch
        else:
            high = stretch
        slope = np.where(wanted < limit, whole / stretch**2 + (part / (1.0 - part + part * stretch)) ** 2, 0.0).sum()
        guess = stretch + over / float(slope) if slope > 0 else np.inf
        stretch = guess if low < guess < high else (low + high) / 2 if np.isfinite(high) else 2.0 * stretch
    return float(stretch)
