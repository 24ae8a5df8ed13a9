"""`carico top`: usage and Pod-Capacity of this machine, live. A picture on a terminal, otherwise a line per second."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from carico import flags
from carico.agent.full import FullAmounts
from carico.clock import Clock, SystemClock
from carico.commands.record import add_seconds
from carico.commands.replay import as_json
from carico.estimate.pipeline import Pipeline
from carico.recording.live import LiveSampler
from carico.settings import NodeSettings, ViewSettings
from carico.terminal import estimate_lines
from carico.terminal.processes import Processes, ProcessListing, in_order
from carico.terminal.screen import ScreenView, frame
from carico.terminal.terminal import Terminal
from carico.types import Estimate, Sample

MINUTE = 60  # estimates in the sparklines
REDRAW = 0.2  # s between two pictures
LIST_EVERY = 2.0  # s between two updates of the process list
PAGE = 10  # rows that page up and page down scroll
SCROLL = {"up": -1, "down": 1, "page up": -PAGE, "page down": PAGE, "home": -sys.maxsize, "end": sys.maxsize}


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


@dataclass(frozen=True)
class TopChoice:
    """What the user selected with keys."""

    pods_first: bool = True
    by_memory: bool = False
    offset: int = 0
    help: bool = False


class Top:
    """Samples the machine and keeps the data of the picture."""

    def __init__(self, settings: ViewSettings, clock: Clock, seconds: float | None) -> None:
        self._settings = settings
        self._clock = clock
        self._end = None if seconds is None else clock.monotonic() + seconds
        self._watcher = LiveSampler(settings, clock, seconds)
        self._machine = self._watcher.sampler.size()
        self._pipeline = Pipeline(settings, settings.dimensions, settings.rate_hz, self._machine)
        FullAmounts(settings, self._watcher.source.table, self._pipeline.set_full).update(self._machine)
        self._usage: deque[tuple[float, ...]] = deque(maxlen=max(1, round(settings.rate_hz)))
        self._history: deque[Estimate] = deque(maxlen=MINUTE)
        self._processes = Processes()
        self._listing = ProcessListing()
        self._choice = TopChoice()

    async def on_terminal(self) -> None:
        with Terminal(lambda key: self._on_key(key, terminal)) as terminal:
            drawn = float("-inf")

            def show(sample: Sample, estimate: Estimate | None) -> None:
                nonlocal drawn
                if estimate is not None or sample.at - drawn >= REDRAW:
                    drawn = sample.at
                    self._draw(terminal)

            listing = asyncio.create_task(self._list())
            try:
                await self._follow(show)
            finally:
                listing.cancel()
                await asyncio.gather(listing, return_exceptions=True)

    def _draw(self, terminal: Terminal) -> None:
        if self._usage:
            terminal.draw(frame(self._view(self._clock.monotonic(), terminal.notice), *terminal.size()))

    async def _list(self) -> None:
        """In a thread: reading some hundred processes takes as long as a few samples."""
        while True:
            counted = self._watcher.source.table.counted()
            self._listing = await asyncio.to_thread(self._processes.look, self._choice.by_memory, counted)
            await self._clock.sleep(LIST_EVERY)

    def _on_key(self, key: str, terminal: Terminal) -> None:
        if key in ("q", "Q"):
            self._watcher.stop()
            return
        self._choice = chosen(self._choice, key, self._listing)
        self._listing = in_order(self._listing, self._choice.by_memory)
        self._draw(terminal)

    async def in_lines(self, as_objects: bool) -> None:
        """For a pipe or a file: one line per second."""
        dimensions = self._settings.dimensions
        start = self._clock.monotonic()
        if not as_objects:
            print(estimate_lines.heading(dimensions), flush=True)

        def show(_: Sample, estimate: Estimate | None) -> None:
            if estimate is not None:
                as_line = (
                    json.dumps(as_json(estimate, dimensions, start))
                    if as_objects
                    else estimate_lines.line(estimate, start)
                )
                print(as_line, flush=True)

        await self._follow(show)

    async def _follow(self, show: Callable[[Sample, Estimate | None], None]) -> None:
        self._watcher.stop_on_signals()
        async for tick in self._watcher:
            if tick.sample is None:
                continue
            self._usage.append(tick.sample.values)
            at = tick.sample.at
            measured = self._watcher.measuring.measure(at) if self._pipeline.wanted == 1 else None  # the second is over
            estimate = self._pipeline.update(tick.sample, tick.pods, measured)
            if estimate is not None:
                self._history.append(estimate)
            show(tick.sample, estimate)

    def _view(self, now: float, warning: str) -> ScreenView:
        count, source = len(self._usage), self._watcher.source
        return ScreenView(
            dimensions=self._settings.dimensions,
            size=self._machine,
            own_limits=any(name.startswith("cgroup") for name in self._watcher.sampler.sources()),
            usage=[sum(column) / count for column in zip(*self._usage, strict=True)],
            raw=self._watcher.sampler.raw,
            estimate=self._history[-1] if self._history else None,
            history=self._history,
            pods_from="" if source.problem or source.name == "none" else source.name,
            why_no_pods="no container runtime found" if source.name == "auto" else source.problem or "",
            notice=warning,
            left=None if self._end is None else self._end - now,
            listing=self._listing,
            pods_first=self._choice.pods_first,
            by_memory=self._choice.by_memory,
            offset=self._choice.offset,
            help=self._choice.help,
        )


def chosen(before: TopChoice, key: str, listing: ProcessListing) -> TopChoice:
    """The selection after a key; an unknown key does not change it."""
    if key in ("?", "h"):
        return replace(before, help=not before.help)
    if key in ("c", "P"):
        return replace(before, by_memory=False, offset=0)
    if key in ("m", "M"):
        return replace(before, by_memory=True, offset=0)
    if key == "tab":
        return replace(before, pods_first=not before.pods_first, offset=0)
    if key in SCROLL:
        rows = len(listing.pods) if before.pods_first and listing.pods else len(listing.processes)
        return replace(before, offset=max(0, min(before.offset + SCROLL[key], rows - 1)))
    return before
