"""`carico replay FILE`: runs the estimation on a recording, as fast as possible."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import time
from pathlib import Path

from carico import flags
from carico.estimate.pipeline import Pipeline
from carico.recording.format import load
from carico.recording.playback import Playback
from carico.settings import EstimateSettings, NodeSettings, ViewSettings
from carico.terminal.estimate_lines import table
from carico.types import Estimate

log = logging.getLogger(__name__)

# The settings that apply to recorded telemetry.
FLAGS = flags.names(EstimateSettings) | {"cpu", "churn_after_start", "churn_after_delete", "settle"}


def add_arguments(parser: flags.CommandParser) -> None:
    parser.usage = f"{parser.prog} FILE [OPTION …]"
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="made by `carico record`, or JSON with columns and rows"
    )
    parser.add_argument("--json", action="store_true", help="print one object per second")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw usage, cost and Pod-Capacity")
    flags.add_settings(parser, ViewSettings, only=FLAGS, common={"estimator"})


def run(args: argparse.Namespace) -> int:
    settings = flags.settings_of(ViewSettings, "agent", args)
    playback = Playback(args.file, load(args.file), settings)
    started = time.perf_counter()
    estimates = replay(playback, settings)
    took = time.perf_counter() - started
    if not estimates:
        log.warning("%s: %d rows are too few for one estimate", args.file, len(playback))
    if args.json:
        for estimate in estimates:
            print(json.dumps(as_json(estimate, playback.dimensions)))
    elif args.png is None:
        print(table(estimates, playback.dimensions))
    if args.png is not None:
        from carico.recording.plot import draw  # matplotlib is large and rarely needed

        draw(playback, estimates, settings, args.png)
    if not args.json:
        seconds = float(playback.raw("t")[-1] - playback.raw("t")[0])
        print(f"{seconds:.0f} s replayed in {took:.2f} s with {settings.estimator}")
    return 0


def replay(playback: Playback, settings: NodeSettings) -> list[Estimate]:
    """Every estimate that the agent would have made. A batch has the same duration at any rate of the recording."""
    batch = max(1, round(settings.batch * playback.rate_hz / settings.rate_hz))
    settings = dataclasses.replace(settings, batch=batch)
    pipeline = Pipeline(settings, playback.dimensions, playback.rate_hz, playback.size)
    if playback.size is not None and playback.full is not None:
        pipeline.set_full(playback.full, playback.size)
    estimates = []
    for row, (sample, pods) in enumerate(playback):
        measured = playback.measured(row) if pipeline.wanted == 1 else None  # the second is over
        if (estimate := pipeline.update(sample, pods, measured)) is not None:
            estimates.append(estimate)
    return estimates


def as_json(estimate: Estimate, dimensions: tuple[str, ...], start: float = 0.0) -> dict[str, object]:
    """One second, by name; t counts from `start`."""

    def named(vector: tuple[float, ...]) -> dict[str, float]:
        return {name: round(value, 6) for name, value in zip(dimensions, vector, strict=True)}

    return {
        "t": round(estimate.at - start, 3),
        "n": estimate.pods,
        "usage": named(estimate.usage),
        "k": round(estimate.signal_k, 6),
        "baseline": named(estimate.baseline_ratio),
        "cost": named(estimate.cost_ratio),
        "pod_capacity": round(estimate.pod_capacity, 6),
        "mode": estimate.mode.value,
    }
