"""A server that never ends: two threads are busy a quarter of the time, in bursts of a few seconds."""

from __future__ import annotations

import numpy as np

from carico.sim.workload import WorkPhase, bursting, rotated

LIFE = 86_400.0  # s
CYCLE = 20.0  # s
MEMORY = 200 * 2.0**20  # bytes


def phases(rng: np.random.Generator) -> tuple[WorkPhase, ...]:
    cycle = bursting(LIFE / 24, (0.1, 2.0), MEMORY, on=CYCLE / 4, off=3 * CYCLE / 4)
    return rotated(cycle, float(rng.uniform(0.0, CYCLE)))
