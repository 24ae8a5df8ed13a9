"""CPU and memory of one agent with all features on: containerd, both streams with TLS, a scrape every 15 s.

A minute on an otherwise idle machine without pods, a minute with every core saturated, one each with 30 and with 110
real pods that sleep, and a minute of only reading the kernel's counters, in a separate process. CPU is in percent of
one core. SECONDS shortens the minute.
"""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.real_pods import RealPods, real_pods
from carico.runtime import PodTable
from carico.runtime.meter import YOUNG
from carico.runtime.pods import Sandbox
from carico.settings import RuntimeSettings
from carico.types import ClassKey
from carico.wire.certificates import Authority
from harness.cluster.handle import Containerd
from harness.running import AgentProcess, Process, agent
from harness.wire.listening import ListeningScheduler

SECONDS = float(os.environ.get("SECONDS", "60"))
SCRAPE_EVERY = 15.0  # s, a usual Prometheus setting
PODS = (30, 110)  # a common number of pods on a node, and a kubelet's default maximum
WARM_UP = 5.0  # s for imports, connections and the first list

READING_ALONE = """
import asyncio
from carico.tick_loop import TickLoop
from carico.clock import SystemClock, Ticker
from carico.settings import TelemetrySettings
from carico.telemetry.sampler import Sampler
async def read():
    sampler, clock = Sampler(TelemetrySettings()), SystemClock()
    await Ticker(clock, 0.1).run(lambda _: sampler.read(clock.monotonic()))
asyncio.Runner(loop_factory=TickLoop).run(read())
"""


def run() -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory() as folder,
        _surroundings(Path(folder)) as (flags, pods),
        agent(*flags) as process,
    ):
        process.ready()
        time.sleep(WARM_UP)
        idle = _measure(process)
        with _every_core_busy():
            busy = _measure(process)
        with_pods = {count: _measure_with(pods, count, process) for count in PODS}
        memory = psutil.Process(process.pid).memory_info().rss / 1e6
        asked = time.monotonic()
        process.stop()
        stopped = time.monotonic() - asked
    reading = _reading_alone()
    rows = {
        "cpu_percent_idle": (idle["cpu"], "% of a core, machine idle"),
        "cpu_percent_busy": (busy["cpu"], "% of a core, every core saturated"),
        **{
            f"cpu_percent_{count}": (figures["cpu"], f"% of a core, {count} pods that sleep")
            for count, figures in with_pods.items()
        },
        "cpu_percent_reading_alone": (reading, "% of a core, reading the kernel and nothing else"),
        "rss_mb": (memory, f"MB resident, with {PODS[-1]} pods"),
        "tick_lateness_p99_ms": (idle["late"], "ms, machine idle"),
        "tick_lateness_p99_busy_ms": (busy["late"], "ms, every core saturated"),
        f"tick_lateness_p99_{PODS[-1]}_ms": (with_pods[PODS[-1]]["late"], f"ms, {PODS[-1]} pods that sleep"),
        "recount_us_500": (_recount(500), "µs for the start or end of a pod on a node of 500"),
        "stop_seconds": (stopped, "s from SIGTERM to its end"),
    }
    for name, (value, unit) in rows.items():
        print(f"{name:<28} {value:>8.3f}  {unit}")
    return {name: round(value, 3) for name, (value, _) in rows.items()}


def _measure_with(pods: RealPods, count: int, process: AgentProcess) -> dict[str, float]:
    """As `_measure`, once this many pods run and are no longer young."""
    pods.grow_to(count)
    counted = re.compile(rf'^carico_node_workload_pods{{node="[^"]*"}} {count}.0$', re.M)
    while not counted.search(page := process.get("/metrics")[1]):
        time.sleep(0.2)
    time.sleep(YOUNG + WARM_UP)
    assert 'source="pod_stats"} 1.0' in page, "no pod was measured: the figures would be too good"
    return _measure(process)


def _recount(pods: int) -> float:
    """µs for the pod table to handle the start or end of a pod and the queries that follow it, median."""
    table, now = PodTable(RuntimeSettings()), 0.0
    for number in range(pods):
        key = ClassKey("team", f"team/app-{number % 50}", "5d")
        table.add_sandbox(f"box-{number}", Sandbox(f"uid-{number}", True, "team", key, f"/kubepods/poduid-{number}"))
        table.started(f"box-{number}", now)
        for side in "ab":
            table.add_container(f"{number}-{side}", f"box-{number}", "image")
            table.started(f"{number}-{side}", now)
    spent = []
    for step in range(4000):
        now += 0.1
        sandbox, event = f"box-{step // 2 * 7 % pods}", table.started if step % 2 else table.exited
        began = time.perf_counter_ns()
        event(sandbox, now)
        table.count(now)
        table.counted()
        table.workload()
        spent.append(time.perf_counter_ns() - began)
    return statistics.median(spent) / 1000


@contextlib.contextmanager
def _surroundings(folder: Path) -> Iterator[tuple[list[str], RealPods]]:
    """The servers that the agent connects to; yields the flags for them, and pods of its container runtime."""
    authority = Authority(folder)
    server = authority.issue("localhost", "localhost", "127.0.0.1")
    pair = ["--tls-cert", str(server.cert), "--tls-key", str(server.key), "--allow-anonymous-clients"]
    with contextlib.ExitStack() as stack:
        runtime = stack.enter_context(Containerd(version="2"))
        scheduler = stack.enter_context(ListeningScheduler(server.cert, server.key))
        listen = ["--listen", "127.0.0.1:0", "--grpc-listen", "localhost:0"]
        aggregator = Process("aggregator", *listen, *pair)
        stack.callback(aggregator.stop)
        port = aggregator.wait_for(r"gRPC on port (\d+)")[1]
        pods = stack.enter_context(real_pods(runtime))
        flags = [
            *("--runtime", "containerd", "--containerd-socket", str(runtime.socket)),
            *("--schedulers", scheduler.target, "--aggregator", f"localhost:{port}"),
            *("--tls-ca", str(authority.cert)),
        ]
        yield flags, pods
        assert scheduler.reports, "the agent reported nothing: the figures would be too good"


def _measure(process: AgentProcess) -> dict[str, float]:
    """CPU in percent of a core and the 99th percentile of tick lateness in ms, over SECONDS."""
    child = psutil.Process(process.pid)
    before, buckets = _cpu_seconds(child), _lateness(process)
    started = time.monotonic()
    while (left := started + SECONDS - time.monotonic()) > 0:
        time.sleep(min(SCRAPE_EVERY, left))
        page = process.get("/metrics")[1]
    assert 'carico_agent_streams{to="aggregator"} 1.0' in page, "no aggregator: the figures would be too good"
    spent = _cpu_seconds(child) - before
    after = _lateness(process)
    counts = {bound: after[bound] - buckets[bound] for bound in after}
    return {"cpu": 100 * spent / (time.monotonic() - started), "late": 1000 * _quantile(counts, 0.99)}


def _cpu_seconds(child: psutil.Process) -> float:
    times = child.cpu_times()
    return times.user + times.system


def _lateness(process: AgentProcess) -> dict[float, float]:
    page = process.get("/metrics")[1]
    found = re.findall(r'^carico_event_loop_lag_seconds_bucket{component="agent",le="(\S+)"} (\S+)$', page, re.M)
    return {float(bound.replace("+Inf", "inf")): float(count) for bound, count in found}


def _quantile(cumulative: dict[float, float], share: float) -> float:
    """As Prometheus' histogram_quantile: linear interpolation between the bounds."""
    wanted, low, below = share * cumulative[float("inf")], 0.0, 0.0
    for bound, count in sorted(cumulative.items()):
        if count >= wanted:
            return low if bound == float("inf") else low + (bound - low) * (wanted - below) / (count - below)
        low, below = bound, count
    return low


@contextlib.contextmanager
def _every_core_busy() -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for child in busy:
            child.kill()
            child.wait()


def _reading_alone() -> float:
    child = subprocess.Popen([sys.executable, "-c", READING_ALONE])
    try:
        time.sleep(WARM_UP)
        process = psutil.Process(child.pid)
        before, started = _cpu_seconds(process), time.monotonic()
        time.sleep(SECONDS)
        return 100 * (_cpu_seconds(process) - before) / (time.monotonic() - started)
    finally:
        child.kill()
        child.wait()
