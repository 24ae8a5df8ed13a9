"""Whether one more task may start. State without I/O.

Tasks are counted as pods are. The last estimate's Pod-Capacity was for `pods` tasks; every task that has started since
then uses part of it:

    one more may start  ⟺  running + 1 ≤ pods + Pod-Capacity      and there is memory for it (memory.py)

A task that replaces one that has ended does not change the count, so short tasks do not disturb the estimate: what is
learned is the cost of a *place*. Its prior comes from tasks that have ended. The kernel accounts processor time C to a
task that ran for W seconds. Had a processor always been free when it needed one, it would have run for
C + (W − C/s) seconds, where s is the share of a processor that a busy task got in that time (processors per runnable
task). So it wants

    C / (C + W − C/s)   processors

Two rules take precedence over the estimate, because the model may be wrong: a full machine gets no more tasks, and one
whose processors are idle gets one more. At least one task always runs. Before the first has ended, a task is assumed
to want one processor.
"""

from __future__ import annotations

from dataclasses import dataclass

from carico.settings import FULL
from carico.types import CostBelief, Estimate

IDLE = 0.9  # utilisation below which one more task helps
SPREAD = 0.5  # standard deviation of the prior, as a share of it
RECENT = 0.1  # weight of a new task in the mean once ten are known
LEAST = 0.001  # processors
STEP = 2.0  # places may at most double between two estimates: the load of new tasks is visible late


@dataclass
class RunBounds:
    least: int = 1
    most: int = 1_000_000


class RunAdmission:
    def __init__(self, cores: float, bounds: RunBounds) -> None:
        self.cores = cores
        self.bounds = bounds
        self.places = 1.0  # tasks that may run at once
        self.wanted = 1.0  # processors that a task wants
        self.share = 1.0  # of a processor that a busy task gets
        self._ended = 0

    def may_start(self, running: int) -> bool:
        if running >= self.bounds.most:
            return False
        return running < max(1, self.bounds.least) or running + 1 <= self.places

    def queue(self, runnable: float) -> None:
        """Set the number of tasks of the machine that run or wait for a processor."""
        self.share = min(1.0, self.cores / max(runnable, 1.0))

    def first_look(self, utilisation: float, running: int) -> None:
        """Before the first estimate: as many tasks as there are idle processors, and one more to fill gaps."""
        others = max(0.0, utilisation * self.cores - running * self.wanted)
        self.places = max(1.0, (self.cores - others) / self.wanted + 1.0)

    def estimated(self, estimate: Estimate, utilisation: float) -> None:
        pods = max(estimate.pods, 1)
        limit = min(estimate.pods + estimate.pod_capacity, STEP * pods)
        if estimate.usage[0] >= FULL:
            limit = min(limit, pods)
        if utilisation < IDLE:
            limit = max(limit, pods + 1)
        self.places = max(1.0, limit)

    def ended(self, cpu: float, seconds: float) -> None:
        """Record that a task ended that used `cpu` seconds of processor time in `seconds`."""
        if seconds <= 0.0:
            return
        self._ended += 1
        self.wanted += max(1.0 / self._ended, RECENT) * (wanted(cpu, seconds, self.share) - self.wanted)

    def prior(self) -> CostBelief:
        """What one more task adds to cpu (the mean of utilisation and pressure, full at two tasks per processor)."""
        cost = min(1.0, max(LEAST, self.wanted) / (2.0 * self.cores))
        return CostBelief((cost,), ((SPREAD * cost) ** 2,))


def wanted(cpu: float, seconds: float, share: float) -> float:
    """Processors that a task wants.

    >>> wanted(1.0, 1.0, 1.0), wanted(1.0, 2.0, 0.5), wanted(2.0, 1.0, 1.0)  # the last one has two threads
    (1.0, 1.0, 2.0)
    >>> round(wanted(0.1, 2.0, 0.5), 2)  # it slept
    0.05
    """
    idle = seconds - cpu / share
    return max(1.0, cpu / seconds) if idle <= 0.0 else cpu / (cpu + idle)
