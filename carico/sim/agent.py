"""A node's agent on simulated time: the real pod table, meter, pipeline and report rule, on a simulated machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from carico.agent.report_builder import ReportBuilder
from carico.estimate.pipeline import Pipeline
from carico.runtime.meter import PodMeter
from carico.runtime.pods import PodTable
from carico.settings import FULL, EstimateSettings, RuntimeSettings
from carico.sim.accounting import MachineStats
from carico.sim.kubelet import SimKubelet
from carico.sim.machine import Machine, Reading
from carico.sim.timeline import Timeline
from carico.sim.workload import RESOURCES
from carico.telemetry import combine
from carico.types import ClassCost, ClassKey, ClusterModel, Estimate, LocalModel, NodeReport, Sample
from carico.wire.report_policy import ReportPolicy

RATE_HZ = 10
QUEUE_RECENT = 0.1  # weight of a new sample in the smoothed run queue, as in the sampler


class SimAgent:
    """Call `tick` `rate_hz` times a second; `send` receives its reports."""

    def __init__(
        self,
        name: str,
        timeline: Timeline,
        machine: Machine,
        kubelet: SimKubelet,
        settings: EstimateSettings,
        send: Callable[[NodeReport], None],
        rate_hz: int = RATE_HZ,
    ) -> None:
        self._name, self._timeline, self._machine, self._kubelet = name, timeline, machine, kubelet
        self._settings, self._send, self._rate_hz = settings, send, rate_hz
        self._full = (FULL * machine.hardware.threads, FULL * machine.hardware.memory)
        self._starts = 0
        self.restart()

    def stop(self) -> None:
        self._up = False

    def restart(self) -> None:
        """Starts without learned state; the runtime lists what runs."""
        self._starts += 1
        self._up = True
        size, runtime = self._machine.hardware.size, RuntimeSettings()
        self._node = ReportBuilder(self._name, self._starts, RESOURCES, lambda: size)
        self.table = self._kubelet.table = PodTable(runtime)
        self.table.replace_all(self._kubelet.listing(), self._timeline.monotonic())
        self.pipeline = Pipeline(self._settings, RESOURCES, self._rate_hz, size)
        self.pipeline.set_full(self._full)
        stats = MachineStats(self._timeline, self._machine, self._kubelet)
        self._meter = PodMeter(
            self.table.workload,
            stats,
            self._stretch,
            RESOURCES,
            runtime.measure_budget,
            stats.timer,
            cores=lambda: size.cores,
        )
        self._rule, self._sequence, self._messages = ReportPolicy(), 0, 0
        self._runnable: list[float] = []  # run queue of this second's samples
        self._queue = 0.0  # smoothed, threads that wait per core
        self.estimate: Estimate | None = None

    def tick(self, now: float) -> bool:
        """Processes one sample; returns whether it ended a second."""
        if not self._up:
            return False
        pods, sample = self.table.count(now), self._sample(now)
        second = self.pipeline.wanted == 1
        estimate = self.pipeline.update(sample, pods, self._meter.measure(now) if second else None)
        if estimate is None and self.estimate is not None and pods.running != self.estimate.pods:
            estimate = self.pipeline.between(sample, pods, self._meter.present(now))
        if estimate is not None:
            self.estimate = estimate
            self._offered = self._report(estimate)
            self._rule.offer(self._offered)
        if self._rule.wait(now) <= 0.0:
            self._sequence += 1
            taken = self._rule.take(self._sequence, now)
            # The receiver has the sets that did not change.
            whole = dataclasses.replace(taken, counted=self._offered.counted, finished=self._offered.finished)
            self._send(whole)
        return second

    def _report(self, estimate: Estimate) -> NodeReport:
        return self._node.report(estimate, self.table, self._timeline, self._full, self.class_costs())

    def class_costs(self) -> tuple[ClassCost, ...]:
        """Class costs from this node's own evidence."""
        return self.pipeline.class_costs() if self._up else ()

    def model(self) -> LocalModel | None:
        """The message to the aggregator."""
        evidence = self.pipeline.evidence() if self._up else None
        if evidence is None or self.estimate is None:
            return None
        self._messages += 1
        model = self._node.model(evidence, self.estimate.pods, self.class_costs())
        return dataclasses.replace(model, sequence=self._messages)

    def adopt(self, model: ClusterModel) -> None:
        if self._up:
            self._node.adopt(model, self.pipeline)

    def adopt_classes(self, costs: Mapping[ClassKey, ClassCost]) -> None:
        self.pipeline.adopt_classes(costs)

    def _sample(self, now: float) -> Sample:
        reading = self._machine.read(now)
        self._runnable.append(reading.runnable)
        return Sample(now, (self._cpu(reading), reading.memory))

    def _cpu(self, reading: Reading) -> float:
        waiting = max(0.0, reading.runnable / self._machine.hardware.cores - 1.0)
        self._queue += QUEUE_RECENT * (min(1.0, waiting) - self._queue)
        pressure = combine.without_throttled(reading.pressure, self._meter.throttled, self._queue)
        return combine.cpu(reading.utilisation, pressure, "mean")

    def _stretch(self) -> float:
        mean = sum(self._runnable) / max(1, len(self._runnable))
        self._runnable.clear()
        return max(1.0, mean / self._machine.hardware.cores)
