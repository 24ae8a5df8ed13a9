"""The beat of a node: read the kernel, count the pods, estimate, tell whoever listens."""

from __future__ import annotations

from collections.abc import Callable

from carico.agent.exporter import Beat
from carico.clock import Clock, Ticker
from carico.estimate.pipeline import Pipeline
from carico.telemetry.sampler import Sampler
from carico.types import Estimate, PodCount

# s without a single sample after which the agent no longer counts as alive.
SILENCE = 10.0


class Loop:
    """Drives sampler and pipeline by the clock and hands each new estimate to `publish`."""

    def __init__(
        self,
        clock: Clock,
        rate_hz: float,
        sampler: Sampler,
        pods: Callable[[float], PodCount],
        pipeline: Pipeline,
        beat: Beat,
        publish: Callable[[Estimate], None],
    ) -> None:
        self._clock = clock
        self._ticker = Ticker(clock, 1.0 / rate_hz)
        self._sampler = sampler
        self._pods = pods
        self._pipeline = pipeline
        self._beat = beat
        self._publish = publish
        self._sampled_at = clock.monotonic()
        self.estimate: Estimate | None = None

    async def run(self) -> None:
        await self._ticker.run(self._tick)

    def _tick(self, late: float) -> None:
        self._beat.ticked(late, self._ticker.missed)
        self.step(self._clock.monotonic())

    def step(self, now: float) -> None:
        """One tick."""
        sample = self._sampler.read(now)
        if sample is None:
            return
        self._sampled_at = now
        estimate = self._pipeline.update(sample, self._pods(now))
        if estimate is not None:
            self.estimate = estimate
            self._publish(estimate)

    def sample_age(self) -> float:
        """s since the newest sample."""
        return self._clock.monotonic() - self._sampled_at

    def why_not_alive(self) -> str | None:
        age = self.sample_age()
        return f"no sample for {age:.0f} s; the log names the source" if age > SILENCE else None

    def why_not_ready(self) -> str | None:
        return "no estimate yet" if self.estimate is None else self.why_not_alive()
