"""Counts pods that a kubelet rejected at admission, after they were bound: a race with the scheduler's cache.

The scheduler's watch of pods excludes those that have ended: it delivers the end of a pod as a deletion, with the last
state before it. So the reason of a failure needs a separate watch. There may be thousands of such pods: only a few
fields are kept of each.
"""

from __future__ import annotations

from collections.abc import Container

from carico.clock import Clock
from carico.kube import calls
from carico.kube.client import Client
from carico.kube.meta import KubeStruct, NamedObject
from carico.kube.watch import WatchedResource
from carico.scheduler.informers import counted_reflector
from carico.scheduler.metrics import SchedulerMetrics

# The kubelet's status.reason: the name of a kube-scheduler filter that it repeats, or OutOf and the resource.
REASONS = frozenset(
    {
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "NodeUnschedulable",
        "TaintToleration",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)
OUT_OF = "OutOf"
RESOURCES = ("cpu", "memory", "pods", "ephemeral-storage")  # others have arbitrary names: unbounded metric labels


OTHER = "other"  # the label of all other schedulers


class _Spec(KubeStruct, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""


class _Status(KubeStruct, frozen=True):
    reason: str = ""


class FailedPod(NamedObject, frozen=True):
    """A pod whose phase is Failed."""

    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def rejected(self) -> bool:
        reason = self.status.reason
        return bool(self.spec.node_name) and (reason in REASONS or reason.startswith(OUT_OF))

    @property
    def reason(self) -> str:
        """One of a bounded set of values, for the metric."""
        reason = self.status.reason
        return reason if reason in REASONS or reason.removeprefix(OUT_OF) in RESOURCES else f"{OUT_OF}other"


FAILED: WatchedResource[FailedPod] = WatchedResource(
    calls.FOLLOW_PODS, FailedPod, "&fieldSelector=status.phase=Failed", title="failed pods"
)


class KubeletRejections:
    """Counts rejections after the first list; pods that failed before it are not counted."""

    def __init__(self, client: Client, metrics: SchedulerMetrics, clock: Clock, ours: Container[str]) -> None:
        """`ours` are the names of the profiles; all other schedulers are counted as one."""
        self._metrics, self._ours = metrics, ours
        self.reflector = counted_reflector(client, FAILED, self._on_change, clock, metrics)

    async def run(self) -> None:
        await self.reflector.run()

    def _on_change(self, old: FailedPod | None, new: FailedPod | None) -> None:
        if self.reflector.synced.is_set() and old is None and new is not None and new.rejected:
            scheduler = new.spec.scheduler_name
            self._metrics.rejected.labels(new.reason, scheduler if scheduler in self._ours else OTHER).inc()
