"""The input of `carico top` and `carico record`: samples and pods of this machine, tick by tick."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from carico.agent.measuring import PodMeasurement
from carico.clock import Clock, Ticker
from carico.errors import CaricoError
from carico.process import call_on_stop_signals
from carico.runtime import open_source
from carico.settings import NodeSettings
from carico.telemetry.sampler import Sampler
from carico.types import PodCount, Sample


class Tick(NamedTuple):
    sample: Sample | None
    pods: PodCount


class LiveSampler:
    """Iterates over the ticks of this machine until `seconds` are over (None: no limit), or `stop` is called."""

    def __init__(self, settings: NodeSettings, clock: Clock, seconds: float | None) -> None:
        self.sampler = Sampler(settings)
        self.source = open_source(settings, settings.cgroup_root, clock, settings.proc_root)
        self.measuring = PodMeasurement(settings, self.sampler, self.source, clock)
        self._clock = clock
        self._ticker = Ticker(clock, 1.0 / settings.rate_hz)
        # A little more, so that the sample which completes the last second is included.
        self._end = None if seconds is None else clock.monotonic() + seconds + min(0.05, 0.5 / settings.rate_hz)
        self._proc_root = settings.proc_root
        self._something = False  # has been read
        self._ticks: asyncio.Queue[Tick | None] = asyncio.Queue()  # None: it is over

    async def __aiter__(self) -> AsyncIterator[Tick]:
        parts = (self.source.run(), self.measuring.run(), self._ticker.run(self._tick))
        running = [asyncio.create_task(part) for part in parts]
        for task in running:
            task.add_done_callback(self.stop)  # all run indefinitely: one that ends has failed
        call_off = None if self._end is None else self._clock.call_at(self._end, self.stop)
        try:
            while (tick := await self._ticks.get()) is not None:
                yield tick
            for task in running:
                if task.done():
                    task.result()  # raises the error of the task
        finally:
            if call_off is not None:
                call_off()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _tick(self, _late: float) -> None:
        now = self._clock.monotonic()
        sample = self.sampler.read(now)
        self._something = self._something or sample is not None or None in self.sampler.sources().values()
        if not self._something:  # no source can be read: waiting does not help
            raise CaricoError(f"nothing can be read below {self._proc_root}; check --proc-root")
        self._ticks.put_nowait(Tick(sample, self.source.table.count(now)))

    def stop_on_signals(self) -> None:
        """Ctrl-C and SIGTERM end the iteration, so that files are completed and the cursor is restored."""
        call_on_stop_signals(self.stop)

    def stop(self, *_: object) -> None:
        self._ticks.put_nowait(None)
