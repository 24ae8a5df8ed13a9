"""π to 2,000 digits: one busy thread and little memory. The work is that of the report's cluster, in core-seconds."""

from __future__ import annotations

import numpy as np

from carico.sim.workload import WorkPhase

WORK, DIFFERENCE = 7.0, 0.05  # core-seconds; relative standard deviation from pod to pod
MEMORY = 10 * 2.0**20  # bytes


def phases(rng: np.random.Generator) -> tuple[WorkPhase, ...]:
    work = WORK * float(np.clip(rng.normal(1.0, DIFFERENCE), 0.7, 1.3))
    return (WorkPhase(work, 1.0, MEMORY, work=work),)
