"""The signal of this very machine under load that the test makes.

Other work on the machine raises every figure, so upper bounds hold only where there was little of it: `Meter.others` is
what all processors did less what the test's own processes did.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from carico.estimate.pipeline import Pipeline
from carico.settings import EstimateSettings, TelemetrySettings
from carico.telemetry.sampler import Sampler
from carico.telemetry.stat import parse_times
from carico.types import PodCount, Sample

pytestmark = [pytest.mark.slow, pytest.mark.needs("psi")]

CORES = os.cpu_count() or 1
TICK = 0.1  # s
LITTLE = 0.08  # share of all processors that others may use before upper bounds are let go
PI = "from itertools import count\nx = 0.0\nfor k in count(): x += (-1) ** k * 4 / (2 * k + 1)"
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")


class Meter:
    """Samples of this machine, ten a second, while some processes of ours run."""

    def __init__(self) -> None:
        self._sampler = Sampler(TelemetrySettings())
        self._sampler.read(time.monotonic())
        self.raw: list[dict[str, float]] = []
        self.cpu: list[float] = []

    def tick(self) -> Sample | None:
        time.sleep(TICK)
        sample = self._sampler.read(time.monotonic())
        if sample is not None:
            self.raw.append(dict(self._sampler.raw))
            self.cpu.append(sample.values[0])
        return sample

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK)):
            self.tick()

    def median(self, raw: str) -> float:
        return statistics.median(row[raw] for row in self.raw)


def busy_seconds() -> float:
    return parse_times(Path("/proc/stat").read_bytes()).busy / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Processor time of all processes that this one started and still has, and of those that have ended."""
    living = psutil.Process().children(recursive=True)
    ended = os.times()
    spent = ended.user + ended.system + ended.children_user + ended.children_system
    for process in living:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent += times.user + times.system + times.children_user + times.children_system
    return spent


class Others:
    """The share of the machine that the rest of it used since this was made."""

    def __init__(self) -> None:
        self._start = (time.monotonic(), busy_seconds(), own_seconds())

    def share(self) -> float:
        at, busy, own = self._start
        return (busy_seconds() - busy - own_seconds() + own) / (CORES * (time.monotonic() - at))


@contextlib.contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@pytest.mark.needs("stress-ng")
def test_one_busy_task_per_core_is_half() -> None:
    with running("stress-ng", "--cpu", str(CORES)):
        Meter().run(1)
        meter, others = Meter(), Others()
        meter.run(5)
    assert meter.median("util") >= 0.95
    assert statistics.median(meter.cpu) >= 0.45
    if others.share() < LITTLE:
        assert statistics.median(meter.cpu) <= 0.8


@pytest.mark.needs("stress-ng")
def test_four_busy_tasks_per_core_are_full() -> None:
    with running("stress-ng", "--cpu", str(4 * CORES)):
        Meter().run(1)
        meter = Meter()
        meter.run(5)
    assert statistics.median(meter.cpu) >= 0.9


class PiNode:
    """This machine with pods that are π processes: the pipeline gets their number, as a runtime would report it."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._pipeline = Pipeline(EstimateSettings(), ("cpu", "memory"))
        self._pods: list[subprocess.Popen[bytes]] = []
        self._changed = (0.0, False)  # when, and whether it was a start

    def scale(self, count: int) -> None:
        self._changed = (time.monotonic(), count > len(self._pods))
        while len(self._pods) < count:
            self._pods.append(subprocess.Popen([sys.executable, "-c", PI]))
        while len(self._pods) > count:
            last = self._pods.pop()
            last.kill()
            last.wait()

    def capacity(self, seconds: float) -> float:
        """Pod-Capacity after so many seconds."""
        answer = None
        for _ in range(round(seconds / TICK)):
            sample = self._meter.tick()
            if sample is not None:
                answer = self._pipeline.update(sample, self._count(sample.at)) or answer
        assert answer is not None
        return answer.pod_capacity

    def _count(self, now: float) -> PodCount:
        at, started = self._changed
        count = len(self._pods)
        return PodCount(count, now - at < (0.1 if started else 0.3), min(count, int(started and now - at < 2.0)))


def test_capacity_falls_by_one_per_process_and_comes_back() -> None:
    """Full is two busy tasks per core; the first round teaches what a process costs, the second is judged."""
    most = min(6, 2 * CORES - 1)
    node, others = PiNode(), Others()
    try:
        for count in [*range(most + 1), *range(most, -1, -1)]:
            node.scale(count)
            node.capacity(3)
        told = []
        for count in [*range(most + 1), 0]:
            node.scale(count)
            told.append(node.capacity(4))
    finally:
        node.scale(0)
    if others.share() > LITTLE:
        pytest.skip(f"other work took {others.share():.0%} of the machine meanwhile; told {told}")
    steps = [before - after for before, after in pairwise(told[: most + 1])]
    assert statistics.mean(steps) == pytest.approx(1.0, abs=0.4), told
    assert told[-1] == pytest.approx(told[0], abs=1.5), told


@pytest.mark.needs("root", "cgroup-v1")
def test_a_throttled_process_does_not_fill_the_machine() -> None:
    """One process wants a whole core and may use a fifth of one. Processes of others raise pressure as they please."""
    group = CPU_GROUPS / f"carico-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_quota_us").write_text("20000")
        with running(sys.executable, "-c", PI) as process:
            (group / "cgroup.procs").write_text(str(process.pid))
            meter, others = Meter(), Others()
            meter.run(5)
            others_share = others.share()
    finally:
        _remove(group)
    throttled = statistics.median(meter.cpu)
    figures = f"pressure {meter.median('psi'):.2f}, utilisation {meter.median('util'):.2f}, cpu {throttled:.2f}"
    if others_share > LITTLE:
        pytest.skip(f"other work took {others_share:.0%} of the machine meanwhile; {figures}")
    assert throttled <= meter.median("util") + 0.02, figures
    assert throttled <= 0.2 / CORES + 2 * LITTLE, figures
    pipeline = Pipeline(EstimateSettings(), ("cpu",))
    told = [pipeline.update(Sample(i * TICK, (cpu,)), PodCount(0, False, 0)) for i, cpu in enumerate(meter.cpu)]
    # The cost of a pod is not known yet, so a node with room takes one to measure.
    assert [estimate.pod_capacity for estimate in told if estimate][-1] >= 1, figures


def _remove(group: Path) -> None:
    """A group lives on for a moment after its last process."""
    for _ in range(50):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)
    group.rmdir()


@pytest.mark.needs("root", "cgroup-v1")
def test_own_limits_of_a_real_group() -> None:
    """A process with half a core and 256 MiB that works all the time; its own account of its time is the oracle."""
    program = (
        "import threading, time, sys\n"
        "from carico.settings import TelemetrySettings\n"
        "from carico.telemetry.sampler import Sampler\n"
        "sys.stdin.readline()\n"
        "def work():\n"
        "    while True: pass\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "sampler = Sampler(TelemetrySettings(own_limits=True))\n"
        "start, spent = time.monotonic(), time.process_time()\n"
        "sampler.read(time.monotonic()); time.sleep(3); sampler.read(time.monotonic())\n"
        "own = (time.process_time() - spent) / (0.5 * (time.monotonic() - start))\n"
        "print(sampler.size().cores, sampler.size().memory_bytes, sampler.raw['util'], own, sampler.raw['mem'])\n"
    )
    name = f"carico-test-{os.getpid()}"
    groups = [Path("/sys/fs/cgroup") / tree / name for tree in ("cpu", "cpuacct", "memory")]
    for group in groups:
        group.mkdir(exist_ok=True)
    try:
        (groups[0] / "cpu.cfs_quota_us").write_text("50000")
        (groups[2] / "memory.limit_in_bytes").write_text(str(256 * 2**20))
        process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for group in groups:
            (group / "cgroup.procs").write_text(str(process.pid))
        answer = process.communicate(b"\n", timeout=60)[0]
    finally:
        for group in groups:
            _remove(group)
    cores, memory, used_cpu, own_account, used_memory = map(float, answer.split())
    assert (cores, memory) == (0.5, 256 * 2**20)
    assert used_cpu == pytest.approx(min(1.0, own_account), abs=0.1)
    assert 0.01 < used_memory < 0.5
