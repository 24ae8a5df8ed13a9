"""The pods of a workload: what they do, and their Pod objects. A pod with one number is the same for every policy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from carico.config import nearest
from carico.errors import UsageError
from carico.kube.meta import ObjectMeta
from carico.kube.objects import Node, Pod
from carico.pod_class import class_of
from carico.sim import patterns
from carico.sim.scenario import NodeGroup, Phase, Resources, ScenarioPod, ScenarioWorkload
from carico.sim.scheduler import NAME
from carico.sim.workload import SimPod, WorkPhase
from carico.types import ClassKey

KUBELET_DELAY = (0.15, 0.5)  # s from the binding until the kubelet creates the pod's cgroup
RIGHT = "right"  # requests: the 95th percentile of usage
PERCENTILE = 95.0
SAMPLES = 200  # pods that are drawn to know the usage of a workload


@dataclass
class PodFactory:
    """Makes the pods of one workload."""

    workload: ScenarioWorkload
    number: int  # of the workload
    seed: int
    requests: Resources

    def __post_init__(self) -> None:
        pattern = self.workload.pod.pattern
        if pattern and pattern not in patterns.REGISTRY:
            known = ", ".join(sorted(patterns.REGISTRY))
            hint = nearest(pattern, patterns.REGISTRY) or f"; there are {known}"
            raise UsageError(f"workload {self.workload.name}: no pattern is called {pattern!r}{hint}")
        if self.workload.pod.crashes and any(phase.work for phase in self._phases(0)):
            raise UsageError(f"workload {self.workload.name}: pods that crash need phases with lasts, not cpu")
        self._made = 0

    @cached_property
    def _template(self) -> Pod:
        return msgspec.convert(_pod_object(self.workload, self.requests), Pod)

    @cached_property
    def key(self) -> ClassKey:
        labels, name = self._template.metadata.labels, self.workload.name
        return class_of(self.workload.namespace, name, labels, {}, [f"{name}:1"])

    def make(self) -> tuple[SimPod, Pod]:
        number, template = self._made, self.workload.pod
        self._made += 1
        name = f"{self.workload.name}-{number}"
        sim = SimPod(
            uid=name,
            key=self.key,
            phases=self._phases(number),
            kubelet_delay=float(self._rng(number, 1).uniform(*KUBELET_DELAY)),
            cpu_limit=template.limits.cpu,
            memory_limit=template.limits.memory,
            requests=(self.requests.cpu, self.requests.memory),
            stuck=template.stuck,
            crashes=template.crashes,
        )
        meta = ObjectMeta(name=name, namespace=self.workload.namespace, uid=name, labels=self._template.metadata.labels)
        return sim, msgspec.structs.replace(self._template, metadata=meta)

    def _rng(self, number: int, use: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, 3, self.number, number, use])

    def _phases(self, number: int) -> tuple[WorkPhase, ...]:
        rng, template = self._rng(number, 0), self.workload.pod
        if template.pattern:
            return patterns.REGISTRY[template.pattern](rng)
        factor = float(rng.uniform(1.0 - template.spread, 1.0 + template.spread))
        return tuple(_phase(phase, factor) for phase in template.phases)


def right_requests(workload: ScenarioWorkload, seed: int) -> Resources:
    """The 95th percentile over the lives of many pods, as a VPA would recommend after a warm-up: of usage."""
    factory = PodFactory(workload, 0, seed + 1_000_000, Resources())
    levels: list[tuple[float, float, float]] = []  # s, threads, bytes
    for number in range(SAMPLES):
        for phase in factory._phases(number):
            levels.append((phase.seconds, min(phase.threads, workload.pod.limits.cpu), phase.memory))
    found = np.array(levels)
    return Resources(
        cpu=type(Resources().cpu)(_weighted(found[:, 1], found[:, 0])),
        memory=type(Resources().memory)(_weighted(found[:, 2], found[:, 0])),
        extended=workload.pod.requests.extended,
    )


def _weighted(values: Any, weights: Any) -> float:
    """The percentile of values that each last for a time."""
    order = np.argsort(values)
    shares = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(shares, PERCENTILE / 100.0)])


def _phase(phase: Phase, factor: float) -> WorkPhase:
    if phase.cpu:
        work = phase.cpu * factor
        return WorkPhase(work / phase.threads, phase.threads, phase.memory * factor, phase.ramp, work)
    return WorkPhase(phase.lasts * factor, phase.threads, phase.memory * factor, phase.ramp)


def _pod_object(workload: ScenarioWorkload, wanted: Resources) -> dict[str, Any]:
    template: ScenarioPod = workload.pod
    labels = {"app": workload.name} | template.labels
    requests = {name: str(count) for name, count in (template.requests.extended | wanted.extended).items()}
    if wanted.cpu:
        requests["cpu"] = f"{max(1, round(1000 * wanted.cpu))}m"
    if wanted.memory:
        requests["memory"] = f"{wanted.memory:.0f}"
    container = {"name": "main", "image": f"{workload.name}:1", "resources": {"requests": requests}}
    spec = {"schedulerName": NAME, "priority": template.priority, "containers": [container]}
    if template.node_selector:
        spec["nodeSelector"] = template.node_selector
    meta = {"name": workload.name, "namespace": workload.namespace, "labels": labels}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def node_object(name: str, group: NodeGroup) -> Node:
    has = {"cpu": f"{1000 * group.cores:.0f}m", "memory": f"{group.memory:.0f}", "pods": str(group.max_pods)}
    has |= {resource: str(count) for resource, count in group.extended.items()}
    labels = {"kubernetes.io/hostname": name} | group.labels
    return msgspec.convert(
        {"metadata": {"name": name, "uid": name, "labels": labels}, "status": {"allocatable": has}}, Node
    )
