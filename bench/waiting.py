"""How late events are handled while 10,000 pods of 200 templates wait and 300 events a second arrive.

A third of the pods waits for requests, a third for topology spread, a third for inter-pod affinity, and 100 for
Pod-Capacity. Pods bound by other schedulers, pods that end, node updates and reports arrive in turn, through the real
parts of a leading scheduler with its scheduling loop; only the API server is simulated. `lag` is the time from when an
event was due until it was handled. SECONDS sets how long each size runs, WAITING=10000 runs one size.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np

from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.objects import Node, Pod
from carico.scheduler.gc_control import GcControl
from carico.scheduler.process import Scheduler
from carico.settings import SchedulerSettings
from carico.testing import make_node, make_pod, make_report

SIZES = tuple(int(text) for text in os.environ.get("WAITING", "0,1000,10000").split(","))
SECONDS = float(os.environ.get("SECONDS", "20"))
RATE = 300.0  # events/s
PATIENCE = 3.0  # times the planned length after which a run is ended; unhandled events count as late
NODES, TIGHT, ZONES = 300, 10, 3
TEMPLATES = 66  # of each of the three kinds; two more wait for Pod-Capacity
FOR_CAPACITY = 0.01  # share of the pods
ZONE = "topology.kubernetes.io/zone"
CORES = 32
KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"""


class PlayedApiServer(Client):
    """Accepts every write of the scheduler; a Binding comes back through the watch as a pod that has a node."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(credentials.from_kubeconfig(kubeconfig))
        self.bound: deque[tuple[str, str]] = deque()  # pod and node
        self.writes = 0

    async def call(self, *_: Any, **__: Any) -> bytes:
        self.writes += 1
        await asyncio.sleep(0)
        return b"{}"

    async def create(self, path: str, kind: Any, obj: dict[str, Any], **_: Any) -> None:  # noqa: ARG002
        self.writes += 1
        await asyncio.sleep(0)
        if path.endswith("/binding"):
            self.bound.append((obj["metadata"]["name"], obj["target"]["name"]))


class World:
    """A leading scheduler, nodes that report, and the events in the cluster."""

    def __init__(self, folder: Path, waiting: int) -> None:
        (folder / "kubeconfig").write_text(KUBECONFIG)
        settings = SchedulerSettings(
            kubeconfig=folder / "kubeconfig",
            leader_elect=False,
            page=False,
            listen="127.0.0.1:0",
            debug_listen="127.0.0.1:0",
            plaintext=True,
        )
        self.api = PlayedApiServer(folder / "kubeconfig")
        self.garbage = GcControl(ours=True)
        self.scheduler = Scheduler(settings, client=self.api, garbage=self.garbage)
        self.cluster = self.scheduler.parts.cluster
        self._rng, self._numbers = Random(1), count()
        self._nodes: dict[str, Node] = {}
        self._others: deque[Pod] = deque()
        self._waiting: dict[str, Pod] = {}
        self._make_nodes()
        self._make_neighbours()
        for pod in waiting_pods(waiting):
            self._waiting[pod.name] = pod
            self.cluster.pod_changed(None, pod)

    def _make_nodes(self) -> None:
        for number in range(NODES):
            name = f"n{number}"
            labels = {ZONE: f"z{number % ZONES}", "pool": "tight" if number < TIGHT else "open"}
            # No pod that requests a core fits into the last zone: that is what pods with topology spread wait for.
            node = make_node(
                name, cpu="0.5" if number % ZONES == ZONES - 1 else str(CORES), labels=labels, memory="32Gi"
            )
            self._nodes[name] = node
            self.cluster.node_changed(None, node)
            self._report(name, 0.0 if number < TIGHT else 60.0)

    def _make_neighbours(self) -> None:
        """Each spreading template already has a pod in two of the three zones."""
        for template in range(TEMPLATES):
            for zone in range(ZONES - 1):
                node = f"n{TIGHT * ZONES + zone}"
                labels = {"app": f"spread-{template}"}
                self.cluster.pod_changed(
                    None, make_pod(f"there-{template}-{zone}", labels=labels, node=node, phase="Running")
                )

    def _report(self, node: str, capacity: float) -> None:
        self.scheduler.listener.on_report(make_report(node, capacity, usage=(self._rng.random() / 2, 0.3)))

    # --- events ---

    def events(self) -> Iterator[None]:
        """One event at each step, of each kind in turn."""
        for number in count():
            (self._bind_other, self._end_other, self._update_node, self._report_something)[number % 4](number)
            yield

    def _bind_other(self, number: int) -> None:
        node = f"n{self._rng.randrange(TIGHT, NODES)}"
        labels = {"app": f"other-{number % 50}"}
        pod = make_pod(f"other-{number}", labels=labels, node=node, phase="Running", cpu="100m", schedulerName="x")
        self.cluster.pod_changed(None, pod)
        self._others.append(pod)

    def _end_other(self, _number: int) -> None:
        self.cluster.pod_changed(self._others.popleft(), None)

    def _update_node(self, number: int) -> None:
        """A kubelet's status update; every tenth time a label changes as well."""
        name = f"n{self._rng.randrange(NODES)}"
        old = self._nodes[name]
        plain = msgspec.to_builtins(old)
        plain["metadata"]["resourceVersion"] = str(number)
        if number % 40 == 2:
            plain["metadata"]["labels"]["seen"] = str(number % 7)
        new = self._nodes[name] = msgspec.convert(plain, Node)
        self.cluster.node_changed(old, new)

    def _report_something(self, number: int) -> None:
        """Every fiftieth time a node gets room for one of the pods that wait for Pod-Capacity."""
        if number % 200 == 3:
            self._report(f"n{self._rng.randrange(TIGHT)}", 1.0)
        else:
            self._report(f"n{self._rng.randrange(TIGHT, NODES)}", 60.0 + self._rng.uniform(-5, 5))

    def confirm(self) -> None:
        """Bound pods come back through the watch and end, and their node reports that it is full again."""
        while self.api.bound:
            name, node = self.api.bound.popleft()
            old = self._waiting.pop(name)
            plain = msgspec.to_builtins(old)
            plain["metadata"]["resourceVersion"] = "2"
            plain["spec"]["nodeName"] = node
            new = msgspec.convert(plain, Pod)
            self.cluster.pod_changed(old, new)
            self.cluster.pod_changed(new, None)
            self._report(node, 0.0)

    @property
    def at_rest(self) -> bool:
        counts = self.scheduler.parts.queue.counts()
        return not counts["active"] and not counts["flight"] and not counts["backoff"]


def waiting_pods(number: int) -> Iterator[Pod]:
    awaiting_capacity = int(FOR_CAPACITY * number)
    for i in range(awaiting_capacity):
        yield make_pod(f"tight-{i}", nodeSelector={"pool": "tight"}, units=1 + i % 2)
    for i in range(number - awaiting_capacity):
        template = i // 3 % TEMPLATES
        yield (_for_requests, _for_spread, _for_affinity)[i % 3](f"w{i}", template)


def _for_requests(name: str, template: int) -> Pod:
    return make_pod(name, cpu=str(CORES + 1 + template))


def _for_spread(name: str, template: int) -> Pod:
    labels = {"app": f"spread-{template}"}
    rule = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return make_pod(
        name, cpu="1", labels=labels, topologySpreadConstraints=[rule | {"labelSelector": {"matchLabels": labels}}]
    )


def _for_affinity(name: str, template: int) -> Pod:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": f"missing-{template}"}}}
    wanted = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return make_pod(name, affinity=wanted)


class Times:
    """The times of one run."""

    def __init__(self) -> None:
        self.lags: list[float] = []  # s
        self.spent: list[float] = []  # s of processor time for handling each event
        self.cpu = 0.0  # share of a core, with the decisions
        self.unhandled = 0


async def measure(world: World) -> Times:
    scheduler, times = world.scheduler, Times()
    parts = (scheduler._schedule(), scheduler.recorder.run(), scheduler.writer.run(), scheduler._keep_house())
    tasks = [asyncio.create_task(one) for one in parts]
    try:
        while not world.at_rest:  # noqa: ASYNC110 - changed by the scheduler's tasks
            await asyncio.sleep(0.05)
        world.garbage.settle()
        await _drive(world, times)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return times


async def _drive(world: World, times: Times) -> None:
    planned, events = int(RATE * SECONDS), world.events()
    start, used = time.perf_counter(), time.process_time()
    for number in range(planned):
        due = start + number / RATE
        if (now := time.perf_counter()) < due:
            await asyncio.sleep(due - now)
        elif number % 4 == 0:
            await asyncio.sleep(0)  # behind: a watch also yields between portions
        began = time.thread_time()
        next(events)
        times.spent.append(time.thread_time() - began)
        done = time.perf_counter()
        times.lags.append(done - due)
        world.confirm()
        if done - start > PATIENCE * SECONDS:
            times.unhandled = planned - number - 1
            times.lags += [done - start - n / RATE for n in range(number + 1, planned) if n / RATE < done - start]
            break
    times.cpu = (time.process_time() - used) / (time.perf_counter() - start)


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    print(
        f"{'waiting':>8} {'µs/event':>9} {'lag p50':>8} {'p99':>8} {'max':>8} ms   {'core':>5} {'late':>6}", flush=True
    )
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            times = asyncio.run(_measured(Path(folder), size))
        p50, p99, most = (1e3 * float(value) for value in (*np.percentile(times.lags, (50, 99)), max(times.lags)))
        mean = 1e6 * float(np.mean(times.spent))
        print(
            f"{size:8} {mean:9.0f} {p50:8.2f} {p99:8.2f} {most:8.1f}      {times.cpu:5.2f} {times.unhandled:6}",
            flush=True,
        )
        figures |= {f"event_us_{size}": round(mean, 1), f"lag_p99_ms_{size}": round(p99, 2)}
        figures |= {f"cpu_share_{size}": round(times.cpu, 3), f"unhandled_{size}": times.unhandled}
    return figures | {"lag_p99_ms": figures[f"lag_p99_ms_{max(SIZES)}"]}


async def _measured(folder: Path, size: int) -> Times:
    return await measure(World(folder, size))
