"""Pods that a kubelet refused after they were bound, because it knew more than the scheduler: a lost race.

The scheduler's own watch of pods leaves out those that have ended, and tells of an ending as of a deletion, with the
pod's last state before it. So who failed, and why, takes a watch of its own. There may be thousands of such pods: only
some names are kept of each.
"""

from __future__ import annotations

from collections.abc import Container

from carico.clock import Clock
from carico.kube.client import Client
from carico.kube.meta import NamedObject, Piece
from carico.kube.watch import Resource
from carico.scheduler.metrics import SchedulerMetrics
from carico.scheduler.watches import counted_reflector

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
RESOURCES = ("cpu", "memory", "pods", "ephemeral-storage")  # others have any name, and a metric must not


OTHER = "other"  # the label of all schedulers that are not ours


class _Spec(Piece, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""


class _Status(Piece, frozen=True):
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
        """One of a few words."""
        reason = self.status.reason
        return reason if reason in REASONS or reason.removeprefix(OUT_OF) in RESOURCES else f"{OUT_OF}other"


FAILED: Resource[FailedPod] = Resource(
    "/api/v1/pods", FailedPod, "&fieldSelector=status.phase=Failed", title="failed pods"
)


class Rejections:
    """Counts them from now on; what failed before the first list is history."""

    def __init__(self, client: Client, metrics: SchedulerMetrics, clock: Clock, ours: Container[str]) -> None:
        """`ours` are the names under which we schedule; all other schedulers are counted as one."""
        self._metrics, self._ours = metrics, ours
        self.reflector = counted_reflector(client, FAILED, self._changed, clock, metrics)

    async def run(self) -> None:
        await self.reflector.run()

    def _changed(self, old: FailedPod | None, new: FailedPod | None) -> None:
        if self.reflector.synced.is_set() and old is None and new is not None and new.rejected:
            scheduler = new.spec.scheduler_name
            self._metrics.rejected.labels(new.reason, scheduler if scheduler in self._ours else OTHER).inc()
