"""`carico record FILE`: raw telemetry of this machine and of its pods, for `carico replay`."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import time
from pathlib import Path

from carico import __version__, flags
from carico.agent.full import FullAmounts
from carico.clock import SystemClock
from carico.recording.format import TIME, RecordingWriter
from carico.recording.live import LiveSampler, Tick
from carico.settings import RuntimeSettings, TelemetrySettings, ViewSettings

POD_COLUMNS = ("n", "churn", "unsettled")
SECOND = 1.0  # s between two measurements of pods


def add_arguments(parser: flags.CommandParser) -> None:
    parser.usage = f"{parser.prog} FILE [OPTION …]"
    parser.add_argument("file", type=Path, metavar="FILE", help="where to write")
    add_seconds(parser)
    parser.add_argument("--json", action="store_true", help="report what was written as JSON")
    parser.add_argument("--force", action="store_true", help="write over FILE if it exists")
    names = flags.names(TelemetrySettings, RuntimeSettings)
    flags.add_settings(parser, ViewSettings, only=names, common={"runtime", "rate_hz", "dimensions"})


def run(args: argparse.Namespace) -> int:
    settings = flags.settings_of(ViewSettings, "agent", args)
    rows, size = asyncio.run(_record(args.file, settings, args.seconds, args.force))
    if args.json:
        print(json.dumps({"file": str(args.file), "samples": rows, "bytes": size}))
        return 0
    print(f"{args.file}: {rows} samples, {size} bytes; `carico replay {args.file}` shows them")
    return 0


def add_seconds(parser: argparse.ArgumentParser) -> None:
    about = "how long, as seconds or like 5m (default: until it is stopped)"
    parser.add_argument("--seconds", type=flags.duration, metavar="DURATION", help=about)


async def _record(file: Path, settings: ViewSettings, seconds: float | None, force: bool) -> tuple[int, int]:
    watcher = LiveSampler(settings, SystemClock(), seconds)
    watcher.stop_on_signals()
    resources = watcher.measuring.resources
    writer = RecordingWriter(file, _columns(watcher), _about(watcher, settings), force=force, resources=resources)
    start, measured_at = None, -math.inf
    try:
        async for tick in watcher:
            if tick.sample is None:
                continue
            start = tick.sample.at if start is None else start
            writer.add(_row(tick, start, watcher))
            if tick.sample.at - measured_at > SECOND - 0.5 / settings.rate_hz:
                measured_at = tick.sample.at
                if (measured := watcher.measuring.measure(measured_at)) is not None:
                    writer.add_pods(measured)
    finally:
        size = writer.close()
    return writer.rows, size


def _columns(watcher: LiveSampler) -> tuple[str, ...]:
    return (TIME, *POD_COLUMNS, *watcher.sampler.raw)


def _row(tick: Tick, start: float, watcher: LiveSampler) -> list[float]:
    assert tick.sample is not None
    pods = (tick.pods.running, float(tick.pods.churn), tick.pods.unsettled)
    return [tick.sample.at - start, *pods, *watcher.sampler.raw.values()]


def _about(watcher: LiveSampler, settings: ViewSettings) -> dict[str, object]:
    size = watcher.sampler.size()
    full = FullAmounts(settings, watcher.source.table, lambda _, __: None)
    full.update(size)
    return {
        "rate_hz": settings.rate_hz,
        "cores": size.cores,
        "memory_bytes": size.memory_bytes,
        "full": dict(zip(settings.dimensions, full.amounts, strict=True)),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "version": __version__,
    }
