"""`carico top`: the signal of this machine, live. A picture on a terminal, a line per second elsewhere."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import deque
from collections.abc import Callable

from carico import flags
from carico.agent import table
from carico.agent.record import add_seconds
from carico.agent.replay import as_json
from carico.agent.screen import View, frame
from carico.agent.terminal import Terminal
from carico.agent.watch import Watcher
from carico.clock import Clock, SystemClock
from carico.estimate.pipeline import Pipeline
from carico.settings import NodeSettings, ViewSettings
from carico.types import Estimate, Sample

MINUTE = 60  # estimates in the sparklines
REDRAW = 0.2  # s between two pictures


def add_arguments(parser: flags.CommandParser) -> None:
    add_seconds(parser)
    parser.add_argument("--json", action="store_true", help="print one object per second")
    common = {"runtime", "dimensions", "own_limits", "rate_hz"}
    flags.add_settings(parser, ViewSettings, only=flags.names(NodeSettings), common=common)


def run(args: argparse.Namespace) -> int:
    settings = flags.settings_of(ViewSettings, "agent", args)
    top = Top(settings, SystemClock(), args.seconds)
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not args.json:
        asyncio.run(top.on_terminal())
    else:
        asyncio.run(top.in_lines(args.json))
    return 0


class Top:
    """Follows the machine and keeps what the picture needs."""

    def __init__(self, settings: ViewSettings, clock: Clock, seconds: float | None) -> None:
        self._settings = settings
        self._clock = clock
        self._end = None if seconds is None else clock.monotonic() + seconds
        self._watcher = Watcher(settings, clock, seconds)
        self._machine = self._watcher.sampler.size()
        self._pipeline = Pipeline(settings, settings.dimensions, settings.rate_hz)
        self._usage: deque[tuple[float, ...]] = deque(maxlen=max(1, round(settings.rate_hz)))
        self._history: deque[Estimate] = deque(maxlen=MINUTE)

    async def on_terminal(self) -> None:
        with Terminal() as terminal:
            drawn = float("-inf")

            def show(sample: Sample, estimate: Estimate | None) -> None:
                nonlocal drawn
                if estimate is not None or sample.at - drawn >= REDRAW:
                    drawn = sample.at
                    terminal.draw(frame(self._view(sample.at, terminal.notice), *terminal.size()))

            await self._follow(show)

    async def in_lines(self, as_objects: bool) -> None:
        """For a pipe or a file: one line per second."""
        dimensions = self._settings.dimensions
        start = self._clock.monotonic()
        if not as_objects:
            print(table.heading(dimensions), flush=True)

        def show(_: Sample, estimate: Estimate | None) -> None:
            if estimate is not None:
                as_line = (
                    json.dumps(as_json(estimate, dimensions, start)) if as_objects else table.line(estimate, start)
                )
                print(as_line, flush=True)

        await self._follow(show)

    async def _follow(self, show: Callable[[Sample, Estimate | None], None]) -> None:
        self._watcher.stop_on_signals()
        async for tick in self._watcher:
            if tick.sample is None:
                continue
            self._usage.append(tick.sample.values)
            estimate = self._pipeline.update(tick.sample, tick.pods)
            if estimate is not None:
                self._history.append(estimate)
            show(tick.sample, estimate)

    def _view(self, now: float, warning: str) -> View:
        count, source = len(self._usage), self._watcher.source
        return View(
            dimensions=self._settings.dimensions,
            size=self._machine,
            own_limits=any(name.startswith("cgroup") for name in self._watcher.sampler.sources()),
            usage=[sum(column) / count for column in zip(*self._usage, strict=True)],
            raw=self._watcher.sampler.raw,
            estimate=self._history[-1] if self._history else None,
            history=self._history,
            pods_from="" if source.problem or source.name == "none" else source.name,
            notice=f"pods: {source.problem}" if source.problem else warning,
            left=None if self._end is None else self._end - now,
        )
