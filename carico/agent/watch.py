"""The raw material of `carico top` and `carico record`: samples and pods of this machine, tick by tick."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import NamedTuple

from carico.clock import Clock, Ticker
from carico.runtime import open_source
from carico.settings import NodeSettings
from carico.telemetry.sampler import Sampler
from carico.types import PodCount, Sample


class Tick(NamedTuple):
    sample: Sample | None
    pods: PodCount


class Watcher:
    """This machine. Iterate to follow it until `seconds` are over (None: for ever), or someone asks to stop."""

    def __init__(self, settings: NodeSettings, clock: Clock, seconds: float | None) -> None:
        self.sampler = Sampler(settings)
        self.source = open_source(settings, settings.cgroup_root, clock)
        self._clock = clock
        self._ticker = Ticker(clock, 1.0 / settings.rate_hz)
        # Half a tick more, so that the sample which completes the last second is among them.
        self._end = None if seconds is None else clock.monotonic() + seconds + 0.5 / settings.rate_hz
        self._stopped = False

    async def __aiter__(self) -> AsyncIterator[Tick]:
        ticks: asyncio.Queue[Tick | None] = asyncio.Queue()
        parts = [self.source.run(), self._ticker.run(lambda _: ticks.put_nowait(self._tick()))]
        running = [asyncio.create_task(part) for part in parts]
        try:
            while (tick := await ticks.get()) is not None:
                yield tick
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _tick(self) -> Tick | None:
        now = self._clock.monotonic()
        if self._stopped or (self._end is not None and now > self._end):
            return None
        return Tick(self.sampler.read(now), self.source.table.count(now))

    def stop_on_signals(self) -> None:
        """Ctrl-C and SIGTERM end the iteration at the next tick, so that files are finished and cursors shown."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stop)

    def _stop(self) -> None:
        self._stopped = True
