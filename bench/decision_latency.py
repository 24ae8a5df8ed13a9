"""Time per decision, from PreFilter to Reserve, at 1,000, 5,000 and 20,000 nodes, with and without cached results.

Every tenth pod has a new template; 1 % of the rows change between two decisions (pods start and end, reports arrive).
All default plugins run; half of the pods have node affinity, a third tolerations, none pod affinity. DECISIONS sets how
many are timed per size, NODES=20000 runs one size.

The largest size is run once more with room: all nodes report it for three resources, pods are of 1,000 measured
classes, reports contain new costs of classes, and each hundredth pod is of an unmeasured class.

The last column and the figures with `cpu` are processor time: beside other work a p99 is mostly the time in which the
process waited for a processor.
"""

from __future__ import annotations

import os
import time
from random import Random
from typing import Any

import numpy as np

from carico.kube.objects import Pod
from carico.scheduler.assembly import Components, assemble
from carico.scheduler.cycle.scheduling_cycle import decide
from carico.scheduler.gc_control import GcControl
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_cost, make_node, make_pod, make_report
from carico.types import ClassCost, NodeReport

SIZES = tuple(int(text) for text in os.environ.get("NODES", "1000,5000,20000").split(","))
DECISIONS = int(os.environ.get("DECISIONS", "2000"))
NEW_EVERY = 10
CHANGED = 0.01  # share of rows between two decisions
PODS_PER_NODE = 3
RESOURCES = ("cpu", "memory", "io_pressure")
FULL = (128.0, 256e9, 1.0)
CLASSES = 1000
ZONE = "topology.kubernetes.io/zone"

Times = list[tuple[float, float]]  # ms of each decision, by the wall clock and of processor time


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    print(f"{'nodes':>6} {'':9} {'mean':>8} {'p50':>8} {'p99':>8} {'max':>8} {'p99 cpu':>8}   ms")
    for nodes in SIZES:
        figures |= _show(nodes, _measure(nodes))
    nodes = max(SIZES)
    what = f"  with room of {len(RESOURCES)} resources and {CLASSES} classes"
    return figures | _show(nodes, _measure(nodes, room=True), "room_", what)


def _show(nodes: int, measured: tuple[Times, Times], kind: str = "", what: str = "") -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, prefix, times in zip(("uncached", "cached"), ("", "cached_"), measured, strict=True):
        wall, cpu = np.array(times).T
        p50, p99 = np.percentile(wall, (50, 99))
        cpu99 = np.percentile(cpu, 99)
        shown = f"{np.mean(wall):8.3f} {p50:8.3f} {p99:8.3f} {np.max(wall):8.3f} {cpu99:8.3f}"
        print(f"{nodes:6} {name:9} {shown}{what}", flush=True)
        figures[f"{prefix}{kind}p99_ms_{nodes}"] = round(float(p99), 4)
        figures[f"{prefix}{kind}cpu_p99_ms_{nodes}"] = round(float(cpu99), 4)
    return figures


def _measure(nodes: int, *, room: bool = False) -> tuple[Times, Times]:
    rng = Random(nodes)
    parts = _cluster(nodes, rng, room)
    churn = _Churn(parts, nodes, rng, room)
    profile, choose = parts.profiles["carico"], np.random.default_rng(1)
    templates = [_template(rng) for _ in range(NEW_EVERY)]
    for number, spec in enumerate(templates):
        decide(profile, parts.cluster, parts.snapshot.templates.info(_pod(f"warm-{number}", spec)), choose)
    garbage = GcControl(ours=True)  # as `carico scheduler` runs
    garbage.settle()
    fresh: Times = []
    kept: Times = []
    for number in range(DECISIONS):
        churn.turn()
        new = number % NEW_EVERY == 0
        spec = _template(rng) if new else rng.choice(templates)
        app = "bench" if not room else f"new{number}" if number % 100 == 0 else f"c{rng.randrange(CLASSES)}"
        pod = parts.snapshot.templates.info(_pod(f"p{number}", spec, app))
        began, cpu = time.perf_counter(), time.thread_time()
        decision = decide(profile, parts.cluster, pod, choose)
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - began
        assert decision.node, decision.message
        (fresh if new else kept).append((1000 * wall, 1000 * cpu))
        garbage.tidy()
        if new:
            templates[rng.randrange(NEW_EVERY)] = spec
    return fresh, kept


def _report(node: str, rng: Random, room: bool, **more: Any) -> NodeReport:
    if not room:
        return make_report(node, rng.uniform(50, 500), **more)
    left = (rng.uniform(60, 120), rng.uniform(100e9, 200e9), rng.uniform(0.5, 0.9))
    return make_report(
        node, 100.0, dimensions=RESOURCES, usage=(0.2, 0.2, 0.1), cost_ratio=(0.01, 0.01, 0.001), room=left,
        full=FULL, class_costs=(_cost(rng.randrange(CLASSES), rng),), **more,
    )  # fmt: skip


def _cost(number: int, rng: Random) -> ClassCost:
    mean = (rng.uniform(0.05, 2.0), rng.uniform(0.1e9, 4e9), rng.uniform(0.001, 0.01))
    return make_cost(f"default/c{number}", *mean)


def _cluster(nodes: int, rng: Random, room: bool) -> Components:
    parts = assemble(SchedulerSettings(startup_limit=10_000, startup_limit_idle=10_000), ManualClock(), None)
    for number in range(nodes):
        labels = {ZONE: f"z{number % 3}", "disk": rng.choice(("ssd", "hdd")), "rack": f"r{number % 40}"}
        taints = [{"key": "spot", "value": "", "effect": "NoSchedule"}] if number % 10 == 0 else []
        node = make_node(f"n{number}", labels=labels, spec={"taints": taints}, cpu="64", memory="256Gi", pods="1000")
        parts.cluster.node_changed(None, node)
    for number in range(nodes):
        for index in range(PODS_PER_NODE):
            pod = make_pod(
                f"r{number}-{index}", node=f"n{number}", phase="Running", requests={"cpu": "1", "memory": "1Gi"}
            )
            parts.cluster.pod_changed(None, pod)
    for number in range(nodes):
        parts.cluster.apply_report(_report(f"n{number}", rng, room))
    if room:
        costs = [_cost(number, rng) for number in range(CLASSES)]
        parts.cluster.aggregated({cost.key: cost for cost in costs}, RESOURCES)
    return parts


class _Churn:
    """Changes in the cluster while pods are scheduled."""

    def __init__(self, parts: Components, nodes: int, rng: Random, room: bool) -> None:
        self._parts, self._nodes, self._rng, self._room = parts, nodes, rng, room
        self._running: list[Pod] = []
        self._number = 0

    def turn(self) -> None:
        for _ in range(max(1, int(CHANGED * self._nodes) // 2)):
            self._number += 1
            node = f"n{self._rng.randrange(self._nodes)}"
            if len(self._running) > 1000:
                self._parts.cluster.pod_changed(self._running.pop(self._rng.randrange(1000)), None)
            else:
                pod = make_pod(f"c{self._number}", node=node, phase="Running", cpu="500m")
                self._running.append(pod)
                self._parts.cluster.pod_changed(None, pod)
            other = f"n{self._rng.randrange(self._nodes)}"
            self._parts.cluster.apply_report(_report(other, self._rng, self._room, sequence=self._number + 1))


def _template(rng: Random) -> dict[str, object]:
    requests = {"cpu": f"{rng.randint(1, 4000)}m", "memory": f"{rng.randint(1, 4000)}Mi"}
    spec: dict[str, object] = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
    if rng.random() < 0.5:
        terms = [
            {
                "matchExpressions": [
                    {"key": ZONE, "operator": "In", "values": rng.sample(("z0", "z1", "z2"), 2)},
                    {"key": "disk", "operator": "NotIn", "values": ["hdd"]},
                ]
            }
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    if rng.random() < 0.3:
        spec["tolerations"] = [{"key": "spot", "operator": "Exists"}]
    return spec


def _pod(name: str, spec: dict[str, object], app: str = "bench") -> Pod:
    return make_pod(name, labels={"app": app}, spec={"schedulerName": "carico", **spec})
