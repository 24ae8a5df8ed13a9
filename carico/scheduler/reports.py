"""What the agents say, on its way into the ledger; the wire has already checked, ordered and completed it."""

from __future__ import annotations

from collections.abc import Callable

from carico.clock import Clock
from carico.scheduler.cluster import Cluster
from carico.scheduler.metrics import SchedulerMetrics
from carico.types import NodeReport

HEARTBEATS_PER_SECOND = 300  # of all nodes together; more nodes speak more rarely


class ReportListener:
    """The scheduler's side of Capacity.Report."""

    def __init__(
        self, cluster: Cluster, metrics: SchedulerMetrics, clock: Clock, least: float, leads: Callable[[], bool]
    ) -> None:
        self._cluster, self._metrics, self._clock = cluster, metrics, clock
        self._least, self._leads = least, leads
        self._announced = least  # s, what the agents were last told
        self._accepted = metrics.reports.labels("accepted")
        self.on_report: Callable[[NodeReport], object] = _nothing  # for the page

    def reported(self, report: NodeReport) -> None:
        self._cluster.ledger.report(report, self._clock.monotonic())
        self._accepted.inc()
        self._cluster.capacity_changed()
        self.on_report(report)

    def fell_silent(self, node: str) -> None:
        self._metrics.reports.labels("silent").inc()
        self._cluster.ledger.fell_silent(node)
        self._cluster.capacity_changed()

    def refused(self, reason: str) -> None:
        self._metrics.reports.labels("refused").inc()
        self._metrics.refused.labels(reason).inc()

    def heartbeat(self) -> float:
        return self._announced

    def adjust_heartbeat(self) -> bool:
        """Follows the number of nodes; True when the agents have to be told. Called every few seconds.

        Until the agents have heard of a shorter interval the ledger goes by the longer one, or they would look stale.
        """
        wanted = max(self._least, self._cluster.snapshot.node_count / HEARTBEATS_PER_SECOND)
        self._cluster.ledger.set_heartbeat(max(wanted, self._announced))
        changed = abs(wanted - self._announced) > 0.1 * self._announced
        if changed:
            self._announced = wanted
        return changed

    def leads(self) -> bool:
        return self._leads()


def _nothing(_: NodeReport) -> None:
    """Nobody looks."""
