"""Pods that a kubelet refused after they were bound, because it knew more than the scheduler: a lost race.

The scheduler's own watch of pods leaves out those that have ended, and tells of an ending as of a deletion, with the
pod's last state before it. So who failed, and why, takes a watch of its own; of each pod only three words are kept.
"""

from __future__ import annotations

from carico.clock import Clock
from carico.kube.client import Client
from carico.kube.meta import KubeObject, Piece
from carico.kube.watch import Reflector, Resource
from carico.scheduler.metrics import SchedulerMetrics

# The kubelet's words in status.reason: a filter of kube-scheduler that it repeats, or OutOf and the resource.
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


class _Spec(Piece, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""


class _Status(Piece, frozen=True):
    reason: str = ""


class Failed(KubeObject, frozen=True):
    """A pod whose phase is Failed."""

    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def rejected(self) -> bool:
        reason = self.status.reason
        return bool(self.spec.node_name) and (reason in REASONS or reason.startswith(OUT_OF))


FAILED: Resource[Failed] = Resource("/api/v1/pods", Failed, "&fieldSelector=status.phase=Failed")


class Rejections:
    """Counts them from now on; what failed before the first list is history."""

    def __init__(self, client: Client, metrics: SchedulerMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._reflector = Reflector(client, FAILED, self._changed, clock=clock)

    async def run(self) -> None:
        await self._reflector.run()

    def _changed(self, old: Failed | None, new: Failed | None) -> None:
        if self._reflector.synced.is_set() and old is None and new is not None and new.rejected:
            self._metrics.rejected.labels(new.status.reason, new.spec.scheduler_name).inc()
