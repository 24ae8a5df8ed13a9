"""Pods measured on this very machine: real groups, real pressure, real limits.

The oracle of demand is what the kernel's scheduler knows of each task, time run and time waited: exact whatever else
runs here. What is measured from outside is not, because the node's run queue also holds work of another weight. So the
groups weigh so much that others get little, and where there are others the run queue is counted without them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from carico.runtime.meter import PodMeter
from carico.runtime.pods import WorkloadPod
from carico.settings import TelemetrySettings
from carico.telemetry.pod_cgroup import CgroupStats, PodGroup, find_trees
from carico.telemetry.sampler import Sampler
from carico.telemetry.stat import parse_running
from carico.types import MeasuredPod
from harness.node.pod_groups import ROOT, Delay, PodLike, pods_like
from harness.retries import one_of

pytestmark = [pytest.mark.slow, pytest.mark.needs("root", "psi", "cgroup-v1", "cgroup-unified")]

CORES = os.cpu_count() or 1
TICK = 0.1  # s
SECONDS = 3  # that are measured
PATIENCE = 8.0  # s to wait for a quiet machine
LITTLE = 0.25  # cores that others may want on a quiet machine
MOST = 250.0  # weight of the heaviest group, in usual processes; the kernel's bound is 256


class Bench:
    """Samples this machine ten times a second and measures pods once a second, as an agent does."""

    def __init__(self, pods: Sequence[PodLike], *, alone: bool = False) -> None:
        self.pods = pods
        self.sampler = Sampler(TelemetrySettings())
        table = {pod.path: WorkloadPod(pod.path, None, 0.0, True, pod.path) for pod in pods}
        stats = CgroupStats(ROOT, time.monotonic, most_open=16)
        stretch = self._own_stretch if alone else self.sampler.stretch
        self.meter = PodMeter(lambda: table, stats, stretch, ("cpu", "memory"), budget=0.01)
        self.cpu: list[float] = []
        self._own: list[int] = []  # tasks of the pods that wanted to run, at each tick
        self.second()

    def _own_stretch(self) -> float:
        own, self._own = self._own, []
        return sum(own) / len(own) / CORES

    def second(self) -> tuple[MeasuredPod, ...]:
        for _ in range(10):
            time.sleep(TICK)
            self._own.append(sum(pod.runnable() for pod in self.pods))
            sample = self.sampler.read(time.monotonic())
            if sample is not None:
                self.cpu.append(sample.values[0])
        measured = self.meter.measure(time.monotonic())
        self.sampler.throttled = self.meter.throttled
        return measured


def demand_between(before: Delay, after: Delay) -> float:
    return (after.ran - before.ran + after.waited - before.waited) / (after.at - before.at)


def runnable_of_others(pods: Sequence[PodLike]) -> float:
    """Tasks, mean of a second, that want to run and are neither these pods' nor this one."""
    counts = []
    for _ in range(20):
        time.sleep(0.05)
        counts.append(parse_running(Path("/proc/stat").read_bytes()) - 1 - sum(pod.runnable() for pod in pods))
    return sum(counts) / len(counts)


def wait_until_quiet(pods: Sequence[PodLike]) -> None:
    end = time.monotonic() + PATIENCE
    while (others := runnable_of_others(pods)) > LITTLE:
        if time.monotonic() > end:
            pytest.skip(f"other work wants {others:.1f} cores")


CASES = pytest.mark.parametrize(
    "threads",
    [(1,), (2,), (4,), (8,), (1, 1), (2, 2), (4, 4), (1, 2, 4), (1,) * 6, (8, 1)],
    ids=lambda threads: "+".join(map(str, threads)),
)


@CASES
@one_of(5)
def test_demand_is_within_a_fifth_of_the_truth_on_both_sides_of_saturation(threads: tuple[int, ...]) -> None:
    with pods_like(*(f"pod{i}" for i in range(len(threads)))) as pods:
        for pod, count in zip(pods, threads, strict=True):
            pod.weigh(MOST * count / max(threads))
            pod.run(count=count)
        bench = Bench(pods, alone=True)
        before = [pod.delay() for pod in pods]
        told = [[pod.demand[0] for pod in bench.second() if pod.demand] for _ in range(SECONDS)]
        after = [pod.delay() for pod in pods]
    true = [demand_between(*pair) for pair in zip(before, after, strict=True)]
    ran = sum(b.ran - a.ran for a, b in zip(before, after, strict=True)) / (after[0].at - before[0].at)
    measured = [sum(column) / SECONDS for column in zip(*told, strict=True)]
    print(f"measured {measured}, true {true}, ran {ran}")
    assert true == pytest.approx(threads, rel=0.2), "the oracle knows that the threads always want to run"
    if ran < 0.8 * min(CORES, sum(threads)):
        pytest.skip(f"the pods got {ran:.1f} cores only: other work, or a machine that is not there all the time")
    assert measured == pytest.approx(true, rel=0.2)


@one_of(5)
def test_the_nodes_own_run_queue_agrees_on_a_quiet_machine() -> None:
    with pods_like("one", "four") as pods:
        for pod, count in zip(pods, (1, 4), strict=True):
            pod.weigh(count)
            pod.run(count=count)
        wait_until_quiet(pods)
        bench = Bench(pods)
        before = [pod.delay() for pod in pods]
        told = [[pod.demand[0] for pod in bench.second() if pod.demand] for _ in range(SECONDS)]
        after = [pod.delay() for pod in pods]
        if (others := runnable_of_others(pods)) > LITTLE:
            pytest.skip(f"other work came meanwhile and wants {others:.1f} cores")
    true = [demand_between(*pair) for pair in zip(before, after, strict=True)]
    assert [sum(column) / SECONDS for column in zip(*told, strict=True)] == pytest.approx(true, rel=0.25)


@one_of(5)
def test_neighbours_with_less_weight_do_not_raise_a_pods_demand() -> None:
    """What BestEffort pods do to a pod with requests: they take what it leaves."""
    with pods_like("heavy", "light") as (heavy, light):
        light.run(count=4 * CORES)
        light.weigh(0.01)
        heavy.weigh(MOST)
        heavy.run()
        bench = Bench([heavy])
        before = heavy.delay()
        told = [bench.second()[0] for _ in range(SECONDS)]
        after = heavy.delay()
    ran = (after.ran - before.ran) / (after.at - before.at)
    if ran < 0.95:
        pytest.skip(f"the heavy pod got {ran:.2f} cores only")
    assert sum(pod.demand[0] for pod in told if pod.demand) / SECONDS <= 1.25, "usage times stretch is more than 5"


def test_memory_of_a_real_group() -> None:
    """Bytes that a program touches, and a file that it reads: the cache is not in the working set."""
    program = (
        "import sys, tempfile\n"
        "held = bytearray(64 << 20)\n"
        "for i in range(0, len(held), 4096): held[i] = 1\n"
        "with tempfile.TemporaryFile(dir='/var/tmp') as file:\n"
        "    file.write(bytes(48 << 20)); file.flush()\n"
        "    import os; os.fsync(file.fileno()); file.seek(0)\n"
        "    while file.read(1 << 20): pass\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    with pods_like("pod") as (pod,):
        group = PodGroup(find_trees(ROOT), pod.path)
        before = group.read(time.monotonic())
        pod.run(program)
        assert pod.processes[0].stdout is not None
        assert pod.processes[0].stdout.readline() == b"ready\n"
        after = group.read(time.monotonic())
        used = int((pod.folder("memory") / "memory.usage_in_bytes").read_text())
        group.close()
    assert used > 100 << 20, "the cache is there"
    assert 64 << 20 <= after.memory_working_set - before.memory_working_set <= 84 << 20
    assert (after.memory_limit, after.cpu_limit_cores) == (None, None)
    assert after.usage_seconds > before.usage_seconds


@one_of(5)
def test_a_throttled_pod_demands_its_limit_and_no_more() -> None:
    with pods_like("pod") as (pod,):
        pod.limit_cpu(0.2)
        pod.run(count=2)
        bench = Bench([pod])
        end = time.monotonic() + 60
        while (measured := bench.second()[0]).demand is None or not bench.meter.throttled:
            assert time.monotonic() < end, "never throttled"
    assert measured.demand[0] <= 0.2
    assert measured.use is not None


@one_of(5)
def test_a_throttled_pod_does_not_double_cpu_on_a_machine_with_room() -> None:
    """One process wants a whole core and may use a fifth of one: it waits for its limit, not for the machine."""
    with pods_like("throttled") as (pod,):
        pod.limit_cpu(0.2)
        pod.run()
        wait_until_quiet([pod])
        bench = Bench([pod])
        bench.second()
        bench.cpu.clear()
        used: list[float] = []
        for _ in range(SECONDS):
            bench.second()
            used.append(bench.sampler.raw["util"])
        pressure, cpu = bench.sampler.raw["psi"], sum(bench.cpu) / len(bench.cpu)
        if (others := runnable_of_others([pod])) > LITTLE:
            pytest.skip(f"other work came meanwhile and wants {others:.1f} cores")
    print(f"pressure {pressure:.2f}, utilisation {used}, throttled {bench.sampler.throttled:.2f}, cpu {cpu:.3f}")
    assert bench.sampler.throttled > 0.3
    assert cpu <= 0.6 * sum(used) / SECONDS + 0.03, "the mean of utilisation and a pressure that is hardly there"


def test_a_group_that_is_removed_while_its_files_are_open_is_gone() -> None:
    stats = CgroupStats(ROOT, time.monotonic, most_open=4)
    with pods_like("pod") as (pod,):
        assert stats.read("u", pod.path) is not None
        before = len(os.listdir("/proc/self/fd"))
    assert stats.read("u", pod.path) is None
    assert len(os.listdir("/proc/self/fd")) < before
    assert not Path(ROOT / "cpu" / pod.path.lstrip("/")).exists()
