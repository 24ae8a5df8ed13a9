"""The sampling loop of a node: read the kernel's files, count the pods, estimate, publish.

Each of the ten ticks per second only reads what has to be read at that time. The rest is done once a second: a
processor that wakes up for one sample has no estimation code in its caches, and ten samples in a row take less time
than two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from carico.agent.exporter import TickMetrics
from carico.clock import Clock, Ticker
from carico.estimate.pipeline import Pipeline
from carico.telemetry.sampler import Fetched, Sampler
from carico.types import Estimate, MeasuredPod, PodCount

# s without a single sample after which the agent no longer counts as alive.
SILENCE = 10.0
# s for which ticks are buffered at most; with a low sampling rate each tick is processed immediately.
HOLD = 1.5


class Measurer(Protocol):
    """Measures the demand of each pod; None where there is no accounting of pods."""

    def measure(self, now: float) -> Sequence[MeasuredPod] | None:
        """Reads, at the end of a second."""

    def present(self, now: float) -> Sequence[MeasuredPod] | None:
        """The current pods with their last readings, without reading."""


class PendingTick(NamedTuple):
    """One tick that is not processed yet."""

    at: float
    fetched: Fetched
    pods: PodCount
    late: float


class Loop:
    """Calls sampler and pipeline at every tick and passes each new estimate to `publish`."""

    def __init__(
        self,
        clock: Clock,
        rate_hz: float,
        sampler: Sampler,
        pods: Callable[[float], PodCount],
        pipeline: Pipeline,
        tick_metrics: TickMetrics,
        publish: Callable[[Estimate], None],
        measurer: Measurer | None = None,
    ) -> None:
        self._clock = clock
        self._ticker = Ticker(clock, 1.0 / rate_hz)
        self._sampler = sampler
        self._pods = pods
        self._pipeline = pipeline
        self._tick_metrics = tick_metrics
        self._publish = publish
        self._measurer = measurer
        self._sampled_at = clock.monotonic()
        self._period = 1.0 / rate_hz
        self._held: list[PendingTick] = []
        self.estimate: Estimate | None = None

    async def run(self) -> None:
        await self._ticker.run(self._tick)

    def _tick(self, late: float) -> None:
        self.step(self._clock.monotonic(), late)

    def step(self, now: float, late: float = 0.0) -> None:
        """One tick."""
        held, pods = self._held, self._pods(now)
        held.append(PendingTick(now, self._sampler.fetch(), pods, late))
        if len(held) >= self._pipeline.wanted or self._pods_changed(pods) or now + self._period - held[0].at > HOLD:
            self._held = []
            self._process_pending(held)

    def _pods_changed(self, pods: PodCount) -> bool:
        """Whether the pod count changed since the last estimate."""
        return self.estimate is not None and self.estimate.pods != pods.running

    def _process_pending(self, held: list[PendingTick]) -> None:
        """Processes the buffered ticks. An estimate, if any, is of the last tick, so it includes the current pods."""
        self._tick_metrics.ticked([tick.late for tick in held], self._ticker.missed)
        sample, estimate = None, None
        for tick in held:
            sample = self._sampler.sample(tick.fetched, tick.at)
            if sample is not None:
                self._sampled_at = tick.at
                estimate = self._pipeline.update(sample, tick.pods, self._measure_at_the_end(tick.at))
        if sample is not None and estimate is None and self._pods_changed(held[-1].pods):
            present = None if self._measurer is None else self._measurer.present(held[-1].at)
            estimate = self._pipeline.between(sample, held[-1].pods, present)
        if estimate is not None:
            self.estimate = estimate
            self._publish(estimate)

    def _measure_at_the_end(self, now: float) -> Sequence[MeasuredPod] | None:
        """Measures the pods with the last sample of a second; otherwise None."""
        is_last = self._pipeline.wanted == 1
        return self._measurer.measure(now) if is_last and self._measurer is not None else None

    def sample_age(self) -> float:
        """s since the newest sample."""
        return self._clock.monotonic() - self._sampled_at

    def why_not_alive(self) -> str | None:
        age = self.sample_age()
        return f"no sample for {age:.0f} s; the log names the source" if age > SILENCE else None

    def why_not_ready(self) -> str | None:
        return "no estimate yet" if self.estimate is None else self.why_not_alive()
