"""Listeners of the event-lead benchmark: events of all sources with their times, on one monotonic clock.

Each of them runs indefinitely and notes (time, source, event). `Usage` records the kernel's counters in parallel.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc.aio
import numpy as np

from carico.runtime.api import containerd_subscribe_pb2 as subscribe_pb
from carico.runtime.api import cri_pb2 as cri_pb
from carico.runtime.api.containerd_subscribe_pb2_grpc import EventsStub
from carico.runtime.api.cri_pb2_grpc import RuntimeServiceStub
from carico.runtime.containerd import FILTERS, METADATA
from carico.telemetry.stat import CpuTimes, parse_times, utilisation

SAMPLE_EVERY = 0.01  # s; the resolution of /proc/stat
# s over which a share is computed. The machine's counters are coarse, the runtime's are not.
WINDOWS = {"machine": 0.1, "runtime": 0.04}
LOOK_EVERY = 0.005  # s between two reads of the cgroup tree


class Said(NamedTuple):
    at: float  # s, monotonic
    source: str
    what: str


Note = Callable[[str, str], None]


async def hear_containerd(socket: Path, note: Note) -> None:
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        request = subscribe_pb.SubscribeRequest(filters=FILTERS)
        async for envelope in EventsStub(channel).Subscribe(request, metadata=METADATA):
            note("containerd", envelope.topic)


async def hear_cri(socket: Path, note: Note) -> None:
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        async for event in RuntimeServiceStub(channel).GetContainerEvents(cri_pb.GetEventsRequest()):
            note("CRI", cri_pb.ContainerEventType.Name(event.container_event_type))


async def look_at_cgroups(top: Path, note: Note) -> None:
    """Note folders of pods and of their containers as they appear and disappear."""
    known: dict[str, set[str]] = {}
    while True:
        now = {pod: _folders(f"{top}/{pod}") for pod in _folders(str(top))}
        for _ in now.keys() - known.keys():
            note("cgroup", "pod +")
        for pod, containers in now.items():
            before = known.get(pod, set())
            for sign, changed in (("+", containers - before), ("-", before - containers)):
                for _ in changed:
                    note("cgroup", f"container {sign}")
        known = now
        await asyncio.sleep(LOOK_EVERY)


def _folders(folder: str) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder) if entry.is_dir()}
    except FileNotFoundError:
        return set()


async def watch_api(kubectl: str, kubeconfig: Path, namespace: str, note: Note) -> None:
    """A plain watch of the pods, as any client of the API server sees them."""
    path = f"/api/v1/namespaces/{namespace}/pods?watch=1"
    watch = await asyncio.create_subprocess_exec(
        kubectl, f"--kubeconfig={kubeconfig}", "get", "--raw", path, stdout=asyncio.subprocess.PIPE, limit=1 << 20
    )
    assert watch.stdout is not None
    try:
        while line := await watch.stdout.readline():
            event = json.loads(line)
            note("API server", "bound" if event["type"] == "ADDED" else event["object"]["status"]["phase"])
    finally:
        watch.kill()
        await watch.wait()


class Usage:
    """Processor time that the whole machine and the container runtime have used, as a share of all processors."""

    def __init__(self, runtime_cgroup: Path) -> None:
        self._version_2 = (runtime_cgroup / "cpu.stat").exists() and (runtime_cgroup / "cgroup.controllers").exists()
        self._file = runtime_cgroup / ("cpu.stat" if self._version_2 else "cpuacct.usage")
        self._samples: list[tuple[float, CpuTimes, float]] = []  # s monotonic, the machine's ticks, the runtime's s

    async def follow(self) -> None:
        while True:
            self._sample()
            await asyncio.sleep(SAMPLE_EVERY)

    def _sample(self) -> None:
        machine = parse_times(Path("/proc/stat").read_bytes())
        self._samples.append((time.monotonic(), machine, self._runtime_seconds()))

    def _runtime_seconds(self) -> float:
        text = self._file.read_text()
        return int(text.split()[1]) * 1e-6 if self._version_2 else int(text) * 1e-9

    def between(self, of: str, start: float, end: float) -> tuple[np.ndarray, np.ndarray]:
        """Times and shares, each over a window around its time, of the "machine" or of the "runtime"."""
        window = WINDOWS[of]
        part = [sample for sample in self._samples if start - window <= sample[0] <= end + window]
        times, shares = [], []
        last = 0
        for after in part:
            while part[last + 1][0] <= after[0] - window:
                last += 1
            before = part[last]
            if after[0] - before[0] >= window:
                times.append((after[0] + before[0]) / 2)
                shares.append(_machine(before, after) if of == "machine" else _runtime(before, after))
        return np.array(times), np.array(shares)


def _machine(before: Any, after: Any) -> float:
    return utilisation(before[1], after[1]) or 0.0


def _runtime(before: Any, after: Any) -> float:
    share: float = (after[2] - before[2]) / (after[0] - before[0]) / (os.cpu_count() or 1)
    return share
