"""A standby replica, and a stream of pods that are created, bound by the leader, and deleted.

25 pods are created per second, 200 wait and 500 run at any time, every node reports every 5 s.
"""

from __future__ import annotations

import gc
from collections import deque
from time import perf_counter
from typing import Any

import msgspec

from carico.kube.objects import Pod
from carico.scheduler.assembly import Components, assemble
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_pod, make_report

NODES = 50
RATE = 25  # pods created per second of the replica's clock
HEARTBEAT, FLUSH = 5, 30  # s
WAITING, RUNNING = 200, 500  # pods at any time
WARM_UP = 2500  # pods: everything that is kept for a minute exists then


class Standby:
    """The parts of a replica that does not lead, and a stream of pods."""

    def __init__(self) -> None:
        self._clock = ManualClock()
        self.parts: Components = assemble(SchedulerSettings(), self._clock, None)
        self._counted: dict[str, set[str]] = {f"n{number}": set() for number in range(NODES)}
        for name in self._counted:
            self.parts.cluster.node_changed(None, make_node(name, cpu="64", memory="32Gi"))
        self._waiting: deque[Pod] = deque()
        self._running: deque[Pod] = deque()
        self._made = 0
        self.events = 0
        self.seconds = 0.0  # of handling

    def pass_by(self, pods: int) -> None:
        """Create `pods` pods; as many are bound, and as many deleted."""
        for _ in range(pods):
            if self._made % RATE == 0:
                self._second_passes(self._made // RATE)
            self._come()
            if len(self._waiting) > WAITING:
                self._bind(self._waiting.popleft())
            if len(self._running) > RUNNING:
                self._end(self._running.popleft())

    def _second_passes(self, second: int) -> None:
        self._clock.advance(1)
        for number in range(second % HEARTBEAT, NODES, HEARTBEAT):
            name = f"n{number}"
            self.parts.ledger.report(make_report(name, 100.0, self._counted[name]), self._clock.monotonic())
            self.parts.cluster.capacity_changed()
        self.parts.cluster.tick()
        if second % FLUSH == 0:
            self.parts.queue.flush(self._clock.monotonic())

    def _come(self) -> None:
        """Every tenth has a unique label, as the pods of StatefulSets and indexed Jobs have."""
        name = f"p{self._made}"
        labels = {"app": f"a{self._made % 20}"} | ({"index": name} if self._made % 10 == 0 else {})
        self._made += 1
        pod = make_pod(name, labels=labels, cpu="100m", priority=self._made % 3)
        self._see(None, pod)
        said = _changed(pod, "2", status={"phase": "Pending", "conditions": [_refused(self._made)]})
        self._see(pod, said)
        self._waiting.append(said)

    def _bind(self, pod: Pod) -> None:
        node = f"n{self._made % NODES}"
        bound = _changed(pod, "3", spec={"nodeName": node})
        self._see(pod, bound)
        running = _changed(bound, "4", status={"phase": "Running", "startTime": "2026-01-01T00:00:00Z"})
        self._see(bound, running)
        self._running.append(running)
        self._counted[node].add(running.uid)

    def _end(self, pod: Pod) -> None:
        self._see(pod, None)
        self._counted[pod.spec.node_name].discard(pod.uid)

    def _see(self, old: Pod | None, new: Pod | None) -> None:
        began = perf_counter()
        self.parts.cluster.pod_changed(old, new)
        self.seconds += perf_counter() - began
        self.events += 1


def _changed(pod: Pod, version: str, **parts: dict[str, Any]) -> Pod:
    plain = msgspec.to_builtins(pod)
    plain["metadata"]["resourceVersion"] = version
    for name, changes in parts.items():
        plain[name] |= changes
    return msgspec.convert(plain, Pod)


def _refused(number: int) -> dict[str, str]:
    message = f"0/{NODES} nodes are available: {number % 7} Insufficient cpu."
    return {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}


def tracked_objects() -> int:
    """Objects that the garbage collector tracks, after a collection."""
    gc.collect()
    return len(gc.get_objects())
