"""The input of the admission: the machine's telemetry, the estimation over it, and the memory of each task."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress

from carico.clock import Clock, Ticker
from carico.embedded.supervisor import process_tree
from carico.estimate.pipeline import Pipeline
from carico.run.admission import RunAdmission
from carico.run.memory import MemoryGuard
from carico.settings import EstimateSettings, TelemetrySettings
from carico.telemetry.sampler import Sampler
from carico.types import PodCount

log = logging.getLogger(__name__)

RATE = 10.0  # Hz
BATCH = 5  # samples per estimate: twice as often as an agent, because tasks are shorter than pods
SETTLE = 1.0  # s until the load of a new place is visible in the usage
RECENT = 0.2  # weight of a new sample in the smoothed values: a time constant of half a second
MANY = 50  # tasks above which their memory is measured less often
PAGE = os.sysconf("SC_PAGE_SIZE")


class Meter:
    """Calls `on_change` whenever the result may have changed."""

    def __init__(
        self, clock: Clock, admission: RunAdmission, memory: MemoryGuard, tasks: Callable[[], Mapping[int, int]]
    ) -> None:
        self._clock, self._admission, self._memory, self._tasks = clock, admission, memory, tasks
        self._sampler = sampler()
        settings = EstimateSettings(batch=BATCH)
        self._pipeline = Pipeline(settings, ("cpu",), RATE)
        self._places: list[float] = []  # s, when each running place was added, oldest first
        self._busy = 0.0  # utilisation, smoothed
        self._runnable = runnable()  # tasks of the machine, smoothed
        self._looked = False
        self._ticks = 0

    async def run(self, on_change: Callable[[], None]) -> None:
        def tick(_: float) -> None:
            self.step(self._clock.monotonic())
            on_change()

        await Ticker(self._clock, 1.0 / RATE).run(tick)

    def step(self, now: float) -> None:
        tasks = self._tasks()
        sample = self._sampler.read(now)
        if sample is None:
            return
        raw = self._sampler.raw
        self._ticks += 1
        if len(tasks) <= MANY or self._ticks % 10 == 0:
            held = {number: resident(pid) for number, pid in tasks.items()}
            self._memory.look(now, raw["mem"] * self._memory.limit, held)
        self._busy += RECENT * (raw["util"] - self._busy)
        self._runnable += RECENT * (runnable() - self._runnable)
        self._admission.queue(self._runnable)
        estimate = self._pipeline.update(sample._replace(values=sample.values[:1]), self._count(now, len(tasks)))
        if estimate is not None:
            self._adopt()  # for the next estimate
            self._admission.estimated(estimate, self._busy)
            self._looked = True
            log.debug(
                "running %d, places %.1f, cpu %.2f, cost %.3f, baseline %.2f, a task wants %.2f processors; %s",
                len(tasks),
                self._admission.places,
                estimate.usage[0],
                estimate.cost_ratio[0],
                estimate.baseline_ratio[0],
                self._admission.wanted,
                self._memory,
            )
        elif not self._looked:
            self._admission.first_look(raw["util"], len(tasks))

    def _count(self, now: float, running: int) -> PodCount:
        del self._places[running:]  # a place that was not filled again is removed, the youngest first
        self._places += [now] * (running - len(self._places))
        young = sum(now - came < SETTLE for came in self._places)
        return PodCount(running=running, churn=False, unsettled=young)

    def _adopt(self) -> None:
        evidence = self._pipeline.evidence()
        if evidence is not None:
            gram = evidence.basis @ evidence.basis.T  # only the cost is new
            self._pipeline.adopt(gram, self._admission.prior(), float(len(self._places)))


def sampler() -> Sampler:
    return Sampler(TelemetrySettings(own_limits=True, rate_hz=RATE))


def runnable() -> float:
    """Tasks that run or wait for a processor, without this process."""
    with open("/proc/loadavg", "rb") as file:
        return max(0, int(file.read().split()[3].split(b"/")[0]) - 1)


def resident(pid: int) -> float:
    """Bytes that a task's processes hold now."""
    total, todo = 0.0, [pid]
    while todo:
        one = todo.pop()
        with suppress(OSError, IndexError, ValueError):
            with open(f"/proc/{one}/statm", "rb") as file:
                total += int(file.read().split()[1]) * PAGE
            todo += process_tree.children(one)
    return total
