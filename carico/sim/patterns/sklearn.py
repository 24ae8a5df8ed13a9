"""Training of a small neural network: imports and data first, then one thread of work with much memory."""

from __future__ import annotations

import numpy as np

from carico.sim.workload import WorkPhase

WORK, DIFFERENCE = 30.0, 0.05  # core-seconds; relative standard deviation from pod to pod
MEMORY = 700 * 2.0**20  # bytes
LOADING = 3.0  # core-seconds until all of the memory is there


def phases(rng: np.random.Generator) -> tuple[WorkPhase, ...]:
    factor = float(np.clip(rng.normal(1.0, DIFFERENCE), 0.7, 1.3))
    work = WORK * factor
    return (
        WorkPhase(LOADING, 1.0, MEMORY * factor, ramp=True),
        WorkPhase(work, 1.0, MEMORY * factor, work=work),
    )
