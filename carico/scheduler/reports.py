"""Applies the agents' reports to the ledger; carico.wire has already validated, ordered and completed them.

In return the leader sends to the agents, besides the heartbeat, the allocatable of their Node and the class of each pod
that they count, for agents that see no labels. Both are sent when they change, and again on every new stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from carico.clock import Clock
from carico.kube.objects import Node
from carico.scheduler.cache import requests
from carico.scheduler.cluster_cache import ClusterCache
from carico.scheduler.metrics import SchedulerMetrics
from carico.types import ClassKey, NodeReport, NodeSize

HEARTBEATS_PER_SECOND = 300  # of all nodes together; with more nodes, each reports less often
NO_PODS: frozenset[str] = frozenset()
NO_CLASSES: Mapping[str, ClassKey] = {}


class SendToNode(Protocol):
    """ReportService.send: False when the node has no stream now."""

    def __call__(
        self, node: str, *, allocatable: NodeSize | None = None, classes: Mapping[str, ClassKey] = NO_CLASSES
    ) -> bool: ...


class ReportListener:
    """The scheduler's side of Capacity.Report."""

    def __init__(
        self,
        cluster: ClusterCache,
        metrics: SchedulerMetrics,
        clock: Clock,
        least: float,
        leads: Callable[[], bool],
        record: Callable[[NodeReport], object] | None = None,
    ) -> None:
        """`record` is called with every report, for the dashboard."""
        self._cluster, self._metrics, self._clock = cluster, metrics, clock
        self._least, self._leads = least, leads
        self._announced = least  # s, last announced to the agents
        self._accepted = metrics.reports.labels("accepted")
        self._sent: dict[str, tuple[NodeSize | None, frozenset[str]]] = {}  # node to what was sent on its stream
        self.send: SendToNode = _no_stream
        self._record = record or _nothing

    def on_report(self, report: NodeReport) -> None:
        self._cluster.apply_report(report)
        self._accepted.inc()
        self._send_news(report)
        self._record(report)

    def on_disconnect(self, node: str) -> None:
        self._metrics.reports.labels("silent").inc()
        self._sent.pop(node, None)
        self._cluster.ledger.mark_disconnected(node)
        self._cluster.capacity_changed()

    def refused(self, reason: str) -> None:
        self._metrics.reports.labels("refused").inc()
        self._metrics.refused.labels(reason).inc()

    def node_changed(self, node: Node) -> None:
        """The Node object is new or changed."""
        sent = self._sent.get(node.name)
        if sent is not None and (size := _allocatable(node)) != sent[0] and self.send(node.name, allocatable=size):
            self._sent[node.name] = (size, sent[1])

    def _send_news(self, report: NodeReport) -> None:
        """Sends what was not sent on the node's stream yet; agents that report no `full` do not support it."""
        if not report.full or not self._leads():
            return
        size, known = self._sent.get(report.node, (None, NO_PODS))
        row = self._cluster.snapshot.rows.number.get(report.node, -1)
        node = self._cluster.snapshot.nodes[row] if 0 <= row < len(self._cluster.snapshot) else None
        wanted = _allocatable(node) if node is not None else None
        classes = self._classes(report, known)
        if (wanted != size or classes) and self.send(report.node, allocatable=wanted, classes=classes):
            counted = report.counted or NO_PODS
            self._sent[report.node] = (wanted, (known & counted) | classes.keys())
        elif report.node not in self._sent:
            self._sent[report.node] = (size, known)

    def _classes(self, report: NodeReport, known: frozenset[str]) -> dict[str, ClassKey]:
        """Of pods that the agent counts and whose class was not sent on this stream."""
        found: dict[str, ClassKey] = {}
        for uid in (report.counted or NO_PODS) - known:
            entry = self._cluster.ledger.entry(uid)
            if entry is not None:
                found[uid] = entry.claim.key
        return found

    def heartbeat(self) -> float:
        return self._announced

    def adjust_heartbeat(self) -> bool:
        """Adjusts the interval to the number of nodes; True if it must be announced to the agents. Called every second.

        The ledger uses the longer interval until a shorter one was announced, or nodes would become stale.
        """
        wanted = max(self._least, self._cluster.snapshot.node_count / HEARTBEATS_PER_SECOND)
        self._cluster.ledger.set_heartbeat(max(wanted, self._announced))
        changed = abs(wanted - self._announced) > 0.1 * self._announced
        if changed:
            self._announced = wanted
        return changed

    def leads(self) -> bool:
        return self._leads()


def _allocatable(node: Node) -> NodeSize | None:
    amounts = requests.allocatable(node.status.allocatable)
    if requests.CPU not in amounts or requests.MEMORY not in amounts:
        return None
    return NodeSize(amounts[requests.CPU] / 1000, float(amounts[requests.MEMORY]))


def _no_stream(*_: object, **__: object) -> bool:
    return False


def _nothing(_: NodeReport) -> None:
    """The default callback."""
