"""Utilisation, pressure and their mean on this machine, against the number of busy processes.

Endless processes, then processes that work 30 % of the time. Each point is the median of 2 s at 10 Hz, started when the
machine is quiet and repeated when other work interfered, for PATIENCE seconds (20); the quietest attempt counts, and
the table shows how much other work there was.
Draws docs/pictures/pressure-curve.png.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from carico.recording.plot import load_pyplot, save
from carico.settings import TelemetrySettings
from carico.telemetry.sampler import Sampler
from carico.telemetry.stat import parse_times

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "pressure-curve.png"
CORES = os.cpu_count() or 1
TICK, SECONDS = 0.1, 2.0
PATIENCE = float(os.environ.get("PATIENCE", "20"))  # s per point
QUIET = 0.03  # share of the machine that other work may use without a further attempt

ENDLESS = "while True: pass"
THIRTY_PERCENT = """
import random, time
while True:
    period = random.uniform(0.02, 0.08)
    end = time.thread_time() + 0.3 * period
    while time.thread_time() < end: pass
    time.sleep(0.7 * period)
"""


class Point(NamedTuple):
    others: float  # share of the machine that other work took
    utilisation: float
    pressure: float
    cpu: float


def run() -> dict[str, float]:
    curves = {
        "endless": [_point(ENDLESS, count) for count in range(3 * CORES + 1)],
        "30% duty": [_point(THIRTY_PERCENT, count) for count in range(4 * CORES + 1)],
    }
    for name, points in curves.items():
        _print(name, points)
    _draw(curves)
    endless = [point.cpu for point in curves["endless"]]
    fall = max(abs(value - count / (2 * CORES)) for count, value in enumerate(endless[: 2 * CORES + 1]))
    figures = {f"cpu_at_{count}": round(value, 3) for count, value in enumerate(endless)}
    others = max(point.others for points in curves.values() for point in points)
    return {**figures, "worst_distance_from_line": round(fall, 3), "other_work_max": round(others, 3)}


def _point(program: str, count: int) -> Point:
    deadline = time.monotonic() + PATIENCE
    best: Point | None = None
    while best is None or (best.others > QUIET and time.monotonic() < deadline):
        _wait_for_quiet(deadline)
        with _running(program, count):
            point = _measure(SECONDS)
        best = point if best is None or point.others < best.others else best
    return best


def _wait_for_quiet(deadline: float) -> None:
    while time.monotonic() < deadline and _measure(0.5).others > QUIET:
        pass


@contextlib.contextmanager
def _running(program: str, count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(count)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _measure(seconds: float) -> Point:
    sampler = Sampler(TelemetrySettings())
    sampler.read(time.monotonic())
    start = (time.monotonic(), _busy_seconds(), _own_seconds())
    rows = []
    for _ in range(round(seconds / TICK)):
        time.sleep(TICK)
        sample = sampler.read(time.monotonic())
        if sample is not None:
            rows.append((sampler.raw["util"], sampler.raw["psi"], sample.values[0]))
    spent = _busy_seconds() - start[1] - (_own_seconds() - start[2])
    others = spent / CORES / (time.monotonic() - start[0])
    return Point(max(0.0, others), *(statistics.median(column) for column in zip(*rows, strict=True)))


def _busy_seconds() -> float:
    return parse_times(Path("/proc/stat").read_bytes()).busy / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Processor time of this process and its children, in s."""
    times = [process.cpu_times() for process in [psutil.Process(), *psutil.Process().children()]]
    return sum(t.user + t.system for t in times)


def _print(name: str, points: list[Point]) -> None:
    print(f"\n{name} processes on {CORES} cores")
    print("    n  utilisation  pressure    cpu   other work")
    for count, point in enumerate(points):
        print(f"{count:>5}{point.utilisation:>13.2f}{point.pressure:>10.2f}{point.cpu:>7.2f}{point.others:>12.1%}")


def _draw(curves: dict[str, list[Point]]) -> None:
    figure, axes = load_pyplot().subplots(1, len(curves), figsize=(9, 3.4), layout="constrained", sharey=True)
    for axis, (name, points) in zip(axes, curves.items(), strict=True):
        counts = range(len(points))
        axis.plot(counts, [p.utilisation for p in points], ":", label="utilisation", marker=".")
        axis.plot(counts, [p.pressure for p in points], ":", label="pressure", marker=".")
        axis.plot(counts, [p.cpu for p in points], label="cpu, their mean", color="black", marker="o")
        axis.set(xlabel=f"{name} processes on {CORES} cores", ylim=(0, 1.05))
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize="small")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    save(figure, PICTURE)
