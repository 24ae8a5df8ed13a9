"""The beat of a node: ask the kernel, count the pods, estimate, tell whoever listens.

Ten times a second only what has to be asked then is asked. The rest waits for the second: a processor that wakes up for
one sample has none of the estimation in its caches, and ten samples in a row cost less than two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from carico.agent.exporter import Beat
from carico.clock import Clock, Ticker
from carico.estimate.pipeline import Pipeline
from carico.telemetry.sampler import Fetched, Sampler
from carico.types import Estimate, MeasuredPod, PodCount

# s without a single sample after which the agent no longer counts as alive.
SILENCE = 10.0
# s for which ticks are held back at most; a slow beat is worked off tick by tick.
HOLD = 1.5


class Measurer(Protocol):
    """Tells what each pod demands; None where there is no accounting of pods."""

    def measure(self, now: float) -> Sequence[MeasuredPod] | None:
        """Reads, at the end of a second."""

    def present(self, now: float) -> Sequence[MeasuredPod] | None:
        """What is known of the pods that run now, without reading."""


class Held(NamedTuple):
    """One tick, not worked off yet."""

    at: float
    fetched: Fetched
    pods: PodCount
    late: float


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
        measurer: Measurer | None = None,
    ) -> None:
        self._clock = clock
        self._ticker = Ticker(clock, 1.0 / rate_hz)
        self._sampler = sampler
        self._pods = pods
        self._pipeline = pipeline
        self._beat = beat
        self._publish = publish
        self._measurer = measurer
        self._sampled_at = clock.monotonic()
        self._period = 1.0 / rate_hz
        self._held: list[Held] = []
        self.estimate: Estimate | None = None

    async def run(self) -> None:
        await self._ticker.run(self._tick)

    def _tick(self, late: float) -> None:
        self.step(self._clock.monotonic(), late)

    def step(self, now: float, late: float = 0.0) -> None:
        """One tick."""
        held, pods = self._held, self._pods(now)
        held.append(Held(now, self._sampler.fetch(), pods, late))
        if len(held) >= self._pipeline.wanted or self._is_news(pods) or now + self._period - held[0].at > HOLD:
            self._held = []
            self._work_off(held)

    def _is_news(self, pods: PodCount) -> bool:
        """Pods came or went since the last estimate."""
        return self.estimate is not None and self.estimate.pods != pods.running

    def _work_off(self, held: list[Held]) -> None:
        """If an estimate comes of it, it is of the last tick, which is this one: it knows the pods of now."""
        self._beat.ticked([tick.late for tick in held], self._ticker.missed)
        sample, estimate = None, None
        for tick in held:
            sample = self._sampler.sample(tick.fetched, tick.at)
            if sample is not None:
                self._sampled_at = tick.at
                estimate = self._pipeline.update(sample, tick.pods, self._measure_at_the_end(tick.at))
        if sample is not None and estimate is None and self._is_news(held[-1].pods):
            present = None if self._measurer is None else self._measurer.present(held[-1].at)
            estimate = self._pipeline.between(sample, held[-1].pods, present)
        if estimate is not None:
            self.estimate = estimate
            self._publish(estimate)

    def _measure_at_the_end(self, now: float) -> Sequence[MeasuredPod] | None:
        """Of a second."""
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
